"""A run folder for the pages: read on request, and cached until the files change."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from seele.data.storage.schema import read_solutions
from seele.records import AccuracyCurve
from seele.report.browser.drawings import Timeline, draw_timeline
from seele.report.browser.history import History
from seele.report.browser.rollouts import ShownProblem, read_step
from seele.report.curves import aimed_accuracy, saved_controller
from seele.report.run_folder import MARKS, Metrics, read_metrics, read_run, rollout_files

Value = TypeVar("Value")
STEPS_KEPT = 6


class ViewedRun:
    """A run that may still be running while it is viewed. Its methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        """Read enough to know that it is a run.

        Raises:
            CheckpointError: If ``path`` is not a run folder.
        """
        run = read_run(path)
        self.path, self.name = path, run.name
        self.method = str(run.setting("seele.method") or "")
        self.target_accuracy = aimed_accuracy(run)
        self.validation_files = run.validation_files
        self.train_files = run.train_files
        self.history = History(path)
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[Hashable, Any]] = OrderedDict()

    def _fresh(self, name: Hashable, state: Hashable, read: Callable[[], Value]) -> Value:
        """Return what ``read`` returns for this state of the files, from the cache if it is there."""
        with self._lock:
            known, value = self._kept.pop(name, (None, None))
            if known != state:
                value = read()
            self._kept[name] = state, value
            while len(self._kept) > STEPS_KEPT:
                self._kept.popitem(last=False)
            return value  # type: ignore[no-any-return]

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
        """The problems of a step; none if it has no rollouts."""
        file = rollout_files(self.path).get(step)
        return self._fresh(step, _state(file), lambda: read_step(file)) if file else []

    def solution(self, instance_id: str) -> Sequence[str]:
        """The steps of a problem's worked solution; none if the training files are elsewhere."""
        return read_solutions(self.train_files, [instance_id]).get(instance_id, ())

    def curves(self) -> Mapping[str, AccuracyCurve]:
        """The controller's curves in the newest checkpoint, by problem."""
        states = sorted(self.path.glob("global_step_*/seele/controller.json"), key=_state)

        def read() -> dict[str, AccuracyCurve]:
            controller = saved_controller(read_run(self.path))
            return {curve.instance_id: curve for curve in controller.curves()} if controller else {}

        return self._fresh("curves", _state(states[-1]), read) if states else {}

    def state(self) -> list[int]:
        """Numbers that change when the run continues."""
        return [*_state(self.path / MARKS[-1]), len(self.steps())]


def _state(file: Path) -> tuple[int, int]:
    """Numbers that change when the file does."""
    try:
        stat = file.stat()
    except FileNotFoundError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size
