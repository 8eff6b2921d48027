"""The caller of a user's own reward function: a process that can be ended, or this one.

``open_grader`` returns the grader of a run, a function or one of ours.
"""

import asyncio
import functools
import inspect
import json
import os
import sys
from collections.abc import Iterable, Sequence

from seele.config.settings import RewardConfig
from seele.errors import ConfigError, PluginError
from seele.plugins import absolute, where
from seele.records import Grade, GradeReason, Instance
from seele.reward.function import (
    KEY,
    Item,
    grade_of,
    item_of,
    load_function,
    raised,
    read_result,
)
from seele.reward.grader import GraderPool, ProblemGrader
from seele.reward.graders import GRADERS
from seele.reward.process import Reply, WorkerPool, WorkerProcess, clock_limit_s, ended_by
from seele.threads import start_call


class FunctionGrader(ProblemGrader):
    """Grades whole responses with a reward function. Thread-safe; imports the function immediately."""

    def __init__(self, settings: RewardConfig) -> None:
        """Import the function; processes start at the first response.

        Raises:
            ConfigError: There is no such function, or it does not take the arguments.
        """
        self._settings = settings
        self._function = load_function(settings.grader, settings.kwargs)
        self._loop = _loop() if settings.isolation == "none" else None
        # The run's folder, from which a module may be imported, is only on this process's path.
        path = os.pathsep.join(each or os.getcwd() for each in sys.path)
        self._workers = WorkerPool(
            [
                WorkerProcess(
                    absolute(settings.grader),
                    str(settings.time_limit_s),
                    str(settings.memory_limit_mb),
                    json.dumps(dict(settings.kwargs)),
                    environment={**os.environ, "PYTHONPATH": path},
                )
                for _ in range(settings.num_workers)
            ]
        )

    async def grade_rollout(self, text: str, instance: Instance, *, hint_steps: int = 0) -> Grade:
        """The verdict on a response.

        Raises:
            PluginError: The function raised, or did not return a reward.
        """
        item = item_of(text, instance, hint_steps=hint_steps)
        if self._settings.isolation == "none":
            return await self._call(item, self._slots)
        [grade] = await asyncio.to_thread(self._workers.ask_all, [item], self._ask)
        return grade

    def grade_problems(
        self, texts_and_instances: Iterable[tuple[str, Instance]], *, hint_steps: Iterable[int] | None = None
    ) -> list[Grade]:
        """Grade responses with one call per worker at a time; errors are those of ``grade_rollout``.

        Args:
            texts_and_instances: As in ``ProblemGrader``.
            hint_steps: Steps of the worked solution that each response was shown; None for none.
        """
        pairs = list(texts_and_instances)
        shown = [0] * len(pairs) if hint_steps is None else hint_steps
        items = [
            item_of(text, instance, hint_steps=steps)
            for (text, instance), steps in zip(pairs, shown, strict=True)
        ]
        if self._loop is None:
            return self._workers.ask_all(items, self._ask)

        async def call_all() -> list[Grade]:
            slots = asyncio.Semaphore(self._settings.num_workers)
            return await asyncio.gather(*(self._call(item, slots) for item in items))

        return asyncio.run_coroutine_threadsafe(call_all(), self._loop).result()

    def try_on(self, instance: Instance) -> None:
        """Call the function on an empty response and on a problem's worked solution, before a run depends on
        it.

        With ``isolation`` ``none`` it is not called: what it needs may not exist yet.

        Raises:
            PluginError: As in ``grade_rollout``.
            ConfigError: A call hit a limit.
        """
        if self._settings.isolation == "none":
            return
        for text in ("", "".join(instance.steps)):
            grade = self.grade_problem(text, instance)
            if grade.reason not in (GradeReason.CORRECT, GradeReason.WRONG):
                raise ConfigError(
                    f"{KEY}: {where(self._function)}: a call on problem {instance.instance_id!r} ended "
                    f"with {grade.reason.value!r}; allowed are {self._settings.time_limit_s:g} s of "
                    "processor time (seele.reward.time_limit_s) and "
                    f"{self._settings.memory_limit_mb} MiB (seele.reward.memory_limit_mb)"
                )

    @functools.cached_property
    def _slots(self) -> asyncio.Semaphore:
        """Limits the concurrent calls from the rollout worker's event loop."""
        return asyncio.Semaphore(self._settings.num_workers)

    async def _call(self, item: Item, slots: asyncio.Semaphore) -> Grade:
        """The verdict of a call in this process."""
        function, kwargs = self._function, {**item, **self._settings.kwargs}
        async with slots:
            try:
                async with asyncio.timeout(self._settings.time_limit_s) as limit:
                    # asyncio's threads are few: calls would wait for one while their limit runs.
                    result = await asyncio.wrap_future(start_call(functools.partial(function, **kwargs)))
                    if inspect.isawaitable(result):
                        result = await result
            except Exception as error:
                if isinstance(error, TimeoutError) and limit.expired():
                    return Grade(False, GradeReason.TIMEOUT)
                raise raised(function, item, error) from error
        return grade_of(*read_result(result, function, item), correct_from=self._settings.correct_from)

    def _ask(self, worker: WorkerProcess, items: Sequence[Item]) -> list[Grade]:
        replies = worker.replies(
            [(item,) for item in items], limit_s=clock_limit_s(self._settings.time_limit_s)
        )
        return [self._grade_of(reply) for reply in replies]

    def _grade_of(self, reply: Reply) -> Grade:
        if ended := ended_by(reply):
            return Grade(False, ended)
        if "fault" in reply:
            raise PluginError(reply["fault"])
        return grade_of(reply["score"], reply["extra"], correct_from=self._settings.correct_from)


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """The running event loop of all blocking calls in this process. A client that lives as long as a
    function's module belongs to one loop.
    """
    loop = asyncio.new_event_loop()
    start_call(loop.run_forever)
    return loop


def open_grader(settings: RewardConfig) -> GraderPool | FunctionGrader:
    """Return the grader that the settings name, ready to grade.

    Raises:
        ConfigError: There is no such grader or function, or the function does not take the arguments.
    """
    if settings.grader not in GRADERS:
        return FunctionGrader(settings)
    return GraderPool(settings)
