"""A run folder for the pages: read on request, and cached until the files change."""

import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from seele.data.storage.schema import read_solutions
from seele.hints import Controller
from seele.records import AccuracyCurve
from seele.report.browser.drawings import Timeline, draw_timeline
from seele.report.browser.history import History
from seele.report.browser.rollouts import ShownProblem, read_step, with_tokens
from seele.report.curves import aimed_accuracy, saved_controller
from seele.report.run_folder import LARGE_PARTS, MARKS, Metrics, read_metrics, read_run, rollout_files

Value = TypeVar("Value")
STEPS_KEPT = 6
"""Steps whose rollouts, and whose solutions, stay in memory."""


@dataclass
class _Kept:
    """What was read of some files, and their state then."""

    state: Hashable = None
    value: Any = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class ViewedRun:
    """A run that may still be running while it is viewed. Its methods may be called from any thread."""

    def __init__(self, path: Path, *, own_parts: bool = False) -> None:
        """Read enough to know that it is a run.

        Args:
            path: The run folder.
            own_parts: As in ``RunFolder``.

        Raises:
            CheckpointError: If ``path`` is not a run folder.
        """
        run = read_run(path, without=LARGE_PARTS, own_parts=own_parts)
        self.own_parts = own_parts
        self.path, self.name = path, run.name
        self.method = str(run.setting("seele.method") or "")
        self.target_accuracy = aimed_accuracy(run)
        self.hint_request = run.hint_request
        self.validation_files = run.validation_files
        self.train_files = run.train_files
        self.history = History(path)
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, int], _Kept] = {}
        """By kind and step, least recently used first."""

    def _fresh(self, kind: str, state: Hashable, read: Callable[[], Value], *, step: int = 0) -> Value:
        """Return what ``read`` returns for this state of the files, from the cache if it is there."""
        with self._lock:
            kept = self._kept[kind, step] = self._kept.pop((kind, step), _Kept())
            for key in [key for key in self._kept if key[0] == kind][:-STEPS_KEPT]:
                del self._kept[key]
        # Each part has its own lock, so that a step that is slow to read delays no other page.
        with kept.lock:
            if kept.state != state:
                kept.value, kept.state = read(), state
            return kept.value  # type: ignore[no-any-return]

    def metrics(self) -> Sequence[Metrics]:
        """The logged steps."""
        file = self.path / MARKS[-1]
        return self._fresh("metrics", _state(file), lambda: read_metrics(file, []))

    def timeline(self, step: int) -> Timeline | None:
        """The timeline, with the values of a step; None if no step has been logged."""
        return draw_timeline(self.metrics(), files=self.validation_files, step=step)

    def steps(self) -> list[int]:
        """Steps with rollouts, ascending."""
        return sorted(rollout_files(self.path))

    def step(self, step: int) -> list[ShownProblem]:
        """The problems of a step, without tokens; none if it has no rollouts."""
        file = rollout_files(self.path).get(step)
        # A resumed run may remove a file after it was listed.
        with suppress(FileNotFoundError):
            return self._fresh("step", _state(file), lambda: read_step(file), step=step) if file else []
        return []

    def problem(self, step: int, instance_id: str) -> ShownProblem | None:
        """A problem of a step, with the tokens of its responses; None if the step does not have it."""
        for problem in self.step(step):
            if problem.first.instance_id == instance_id:
                with suppress(FileNotFoundError, KeyError):  # a resumed run has removed it since
                    return with_tokens(rollout_files(self.path)[step], problem)
                return problem
        return None

    def solution(self, step: int, instance_id: str) -> Sequence[str]:
        """The steps of a problem's worked solution; none if the training files are elsewhere.

        The files are read once for all problems of a step.
        """
        names = [problem.first.instance_id for problem in self.step(step)]
        state = (tuple(names), *map(_state, self.train_files))
        solutions = self._fresh(
            "solutions", state, lambda: read_solutions(self.train_files, names), step=step
        )
        return solutions.get(instance_id, ())

    def curve(self, instance_id: str) -> AccuracyCurve | None:
        """A problem's curve by the controller in the newest checkpoint; None if it keeps none."""
        states = sorted(self.path.glob("global_step_*/seele/controller.json"), key=_state)

        def read() -> Controller | None:
            parts = ("metrics", "rollouts")
            return saved_controller(read_run(self.path, without=parts, own_parts=self.own_parts))

        controller = self._fresh("controller", _state(states[-1]), read) if states else None
        return next(iter(controller.curves([instance_id])), None) if controller else None

    def state(self) -> list[int]:
        """Numbers that change when the run continues."""
        return [*_state(self.path / MARKS[-1]), len(self.steps())]


def view_runs(paths: Sequence[Path], *, own_parts: bool = False) -> list[ViewedRun]:
    """Read runs to view, each named by the shortest end of its path that no other has.

    Arguments are those of ``ViewedRun``.

    Raises:
        CheckpointError: If one is not a run folder.
    """
    parts = [path.resolve().parts for path in paths]
    runs = [ViewedRun(path, own_parts=own_parts) for path in paths]
    for run, own in zip(runs, parts, strict=True):
        ends = (own[-length:] for length in range(1, len(own)))
        own_ends = (end for end in ends if sum(each[-len(end) :] == end for each in parts) == 1)
        run.name = str(Path(*next(own_ends, own)))
    return runs


def _state(file: Path) -> tuple[int, int]:
    """Numbers that change when the file does."""
    try:
        stat = file.stat()
    except OSError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size
