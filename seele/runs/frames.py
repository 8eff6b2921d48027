"""One run as pandas frames, for notebooks: ``seele.load_run``."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seele.errors import CheckpointError, DependencyError
from seele.report.run_folder import RunFolder, ScoreLine, read_lines, read_run, rollout_files
from seele.report.series import VALIDATION

if TYPE_CHECKING:
    from pandas import DataFrame


def load_run(folder: str | Path) -> "Run":
    """Load a run, finished or not.

    Args:
        folder: A run folder, such as ``runs/quickstart``.

    Raises:
        CheckpointError: If it is not a run folder.
        DependencyError: If pandas is not installed.
    """
    _pandas()
    return Run(Path(folder), read_run(Path(folder), without=("rollouts",)))


@dataclass(frozen=True)
class Run:
    """A run folder. Rollouts are read on first use, everything else when the run is loaded.

    Frames of missing files are empty, and ``notes`` says what is missing or damaged.
    """

    folder: Path
    files: RunFolder
    _damaged: dict[str, None] = field(default_factory=dict, repr=False, compare=False)
    """Notes on rollouts read so far; each counts once."""

    @property
    def card(self) -> Mapping[str, Any]:
        """``run_card.json``: commit, versions, hardware, arguments, status and costs."""
        return self.files.card

    @property
    def settings(self) -> Mapping[str, Any]:
        """``resolved.yaml``: every setting, including verl's; ``setting`` reads one of them."""
        return self.files.settings

    @property
    def notes(self) -> tuple[str, ...]:
        """Missing and damaged parts, one sentence each; of the rollouts, once they have been read."""
        return (*self.files.notes, *self._damaged)

    def setting(self, dotted: str) -> Any:
        """The setting under a dotted key such as ``seele.hints.rounds``, or None if it is missing."""
        return self.files.setting(dotted)

    @cached_property
    def steps(self) -> "DataFrame":
        """One row per step, which is the index; one column per metric (docs/metrics.md), NaN if missing."""
        frame = _pandas().DataFrame(self.files.metrics, columns=self._metrics)
        return frame.astype({"step": int}).set_index("step")

    @property
    def _metrics(self) -> list[str]:
        """``step`` and the names of all metrics in alphabetical order."""
        names = {name for line in self.files.metrics for name in line}
        return ["step", *sorted(names - {"step"})]

    @cached_property
    def validation(self) -> "DataFrame":
        """One row per validation of a data set: ``step``, ``data`` and un-hinted ``accuracy`` in [0, 1]."""
        rows = [
            (int(line["step"]), name.removeprefix(VALIDATION), value)
            for line in self.files.metrics
            for name, value in line.items()
            if name.startswith(VALIDATION)
        ]
        return _pandas().DataFrame(rows, columns=["step", "data", "accuracy"])

    @cached_property
    def evaluations(self) -> "DataFrame":
        """One row per benchmark and temperature of ``eval/scores.json``, as ``seele eval`` wrote it. Shares
        and accuracies are in [0, 1]; ``interval_low`` and ``interval_high`` are the accuracy's 95 % interval.
        """
        rows = []
        for score in self.files.scores:
            row = asdict(score)
            row["interval_low"], row["interval_high"] = row.pop("interval_95")
            rows.append(row)
        names = [name for name in ScoreLine.__slots__ if name != "interval_95"]
        return _pandas().DataFrame(rows, columns=[*names, "interval_low", "interval_high"])

    @cached_property
    def rollouts(self) -> "DataFrame":
        """One row per rollout of all steps, also given ones (``origin``), with ``step`` and the fields of its
        line. For a long run this may not fit in memory: ``rollouts_of`` reads one step.
        """
        steps = sorted(rollout_files(self.folder))
        return self._read_rollouts(steps)

    def rollouts_of(self, step: int) -> "DataFrame":
        """The rollouts of one step.

        Raises:
            CheckpointError: If the run has no rollouts of this step.
        """
        if step not in (there := sorted(rollout_files(self.folder))):
            raise CheckpointError(
                f"{self.folder}: no rollouts of step {step}; the steps with rollouts are {there}"
            )
        return self._read_rollouts([step])

    def _read_rollouts(self, steps: list[int]) -> "DataFrame":
        files = rollout_files(self.folder)
        damaged = [] if steps else ["There are no rollouts (rollouts/step_N.jsonl)."]
        rows = [{"step": step, **line} for step in steps for line in read_lines(files[step], damaged)]
        self._damaged.update(dict.fromkeys(damaged))
        return _pandas().DataFrame(rows) if rows else _pandas().DataFrame(columns=["step"])


def _pandas() -> Any:
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise DependencyError(
            "seele.load_run needs pandas, which is not installed; install it: pip install pandas"
        ) from error
    return pandas
