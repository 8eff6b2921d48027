"""predictions.jsonl: the conditions in the first line, then one line per sample with its verdict.

Samples are appended one by one so that a killed evaluation can resume; ``seele.data.storage.append_log``
makes lines survive a kill. A finished evaluation under other conditions, such as that of an older checkpoint,
is moved to ``earlier_N``; an unfinished one is refused.
"""

import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from seele.data.difficulty import COUNTS
from seele.data.storage.append_log import LineAppender, read_whole_lines
from seele.errors import CheckpointError, ConfigError
from seele.records import Finish, GradeReason
from seele.rollout.unanswered import Graded
from seele_eval.conditions import differing

PREDICTIONS = "predictions.jsonl"

Key = tuple[str, float, str, int]
"""Benchmark, temperature, instance id and number of a sample, which identify it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One graded sample of one problem."""

    benchmark: str
    temperature: float
    instance_id: str
    level: int
    sample: int
    question: str
    """Empty where the benchmark's authors ask that questions not be published."""
    answer: str
    text: str
    extracted: str | None
    """The text's last box, or with other ``--answers`` what stands for it; or the label of the option that it
    names. None if no answer was found.
    """
    correct: bool
    reason: GradeReason
    finish: Finish
    response_tokens: int
    is_unboxed: bool = False
    """True if the answer was found without a box."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """The problem's values of the columns that scores are split by; None if its row lacks one."""

    @property
    def key(self) -> Key:
        """Key of the sample."""
        return (self.benchmark, self.temperature, self.instance_id, self.sample)

    @property
    def graded(self) -> Graded:
        """Text, verdict and end."""
        return Graded(self.text, self.reason, self.finish)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionFile:
    """Contents of a file of predictions up to its last whole line."""

    conditions: Mapping[str, Any]
    predictions: tuple[Prediction, ...]
    whole_bytes: int
    """Bytes of the whole lines; a killed process may leave part of a line after them."""
    total_bytes: int


def read_predictions(folder: Path) -> PredictionFile:
    """Read the samples of an output folder, finished or not; a sample's last line counts.

    Raises:
        CheckpointError: If there are no samples, or the file is damaged anywhere but at its end.
    """
    path = folder / PREDICTIONS
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file; expected the output folder of an evaluation")
    read = read_whole_lines(path, begin=b'{"conditions": ')
    head, *lines = read.lines or [b'{"conditions": {}}']
    try:
        conditions: Mapping[str, Any] = json.loads(head)["conditions"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path}: the first line holds no conditions, so it cannot be resumed; name another --out"
        ) from error
    predictions = [_to_prediction(line, f"{path}: line {n}") for n, line in enumerate(lines, start=2)]
    return PredictionFile(
        conditions=conditions,
        predictions=tuple({prediction.key: prediction for prediction in predictions}.values()),
        whole_bytes=read.whole_bytes,
        total_bytes=read.total_bytes,
    )


def _to_prediction(line: bytes, at: str) -> Prediction:
    try:
        row = json.loads(line)
        kinds = {"reason": GradeReason(row["reason"]), "finish": Finish(row["finish"])}
        return Prediction(**row | kinds)
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{at} is damaged ({error}); remove the line to draw it again") from error


PASS_FIGURE = "pass_at_k.png"

SCORES = ("scores.json", "scores.md", PASS_FIGURE, COUNTS)
"""Files written once all samples exist; the first marks a complete evaluation."""

SET_ASIDE = ".earlier.partial"
"""Folder of an evaluation under other conditions until all of its files are there."""

# The same weights may have moved, and a server may return at another address.
_DECIDES_NOTHING = frozenset({"model", "server"})


class Ledger:
    """Finished samples, read and appended. Thread-safe; open in one process at a time."""

    def __init__(self, folder: Path, conditions: Mapping[str, Any]) -> None:
        """Read the existing samples; ``append`` makes the first change.

        Raises:
            ConfigError: If the folder holds an unfinished evaluation under other conditions.
            CheckpointError: If the file is damaged anywhere but at its end.
        """
        self._folder = folder
        self._conditions = json.loads(json.dumps(conditions))
        self._is_other = False
        self._whole_bytes = self._total_bytes = 0
        self._lock = threading.Lock()
        self._has_begun = False
        self.done: dict[Key, Prediction] = {}
        """Finished samples by their key."""
        if not (folder / PREDICTIONS).is_file():
            return
        there = read_predictions(folder)
        self._whole_bytes, self._total_bytes = there.whole_bytes, there.total_bytes
        if not there.predictions:  # no sample came before it was killed
            self._whole_bytes = 0
            return
        differences = differing(there.conditions, self._conditions, ignoring=_DECIDES_NOTHING)
        self._is_other = bool(differences) and (folder / SCORES[0]).is_file()
        if differences and not self._is_other:
            raise ConfigError(
                f"{folder / PREDICTIONS}: unfinished, and drawn under other conditions: "
                f"{'; '.join(differences)}. Name another --out, or remove the folder"
            )
        if not differences:
            self.done = {prediction.key: prediction for prediction in there.predictions}

    def append(self, prediction: Prediction) -> None:
        """Write one more sample, which survives a kill once this returns. The first one sets an evaluation
        under other conditions aside, and removes the scores, which no longer cover all samples.
        """
        with self._lock:
            if not self._has_begun:
                self._begin()
                self._has_begun = True
        self._appender.append(json.dumps(asdict(prediction), ensure_ascii=False))
        self.done[prediction.key] = prediction

    def __enter__(self) -> Self:
        """Open for appending.

        Raises:
            ConfigError: If another process writes to the same folder, or has written meanwhile.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self._appender = self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._appender.close()

    def _open(self) -> LineAppender:
        return LineAppender(
            self._folder / PREDICTIONS, whole_bytes=self._whole_bytes, total_bytes=self._total_bytes
        )

    def _begin(self) -> None:
        if self._is_other or (self._folder / SET_ASIDE / PREDICTIONS).is_file():
            self._set_aside()
            self._appender.close()
            self._whole_bytes = self._total_bytes = 0
            self._appender = self._open()
        for name in SCORES:
            (self._folder / name).unlink(missing_ok=True)
        if not self._whole_bytes:
            self._appender.append(json.dumps({"conditions": self._conditions}, ensure_ascii=False))

    def _set_aside(self) -> None:
        """Move all files to ``earlier_N``, or those that a killed process has not moved yet: it moves the
        samples first.
        """
        names = (path.name.removeprefix("earlier_") for path in self._folder.glob("earlier_*"))
        number = 1 + max((int(name) for name in names if name.isdecimal()), default=0)
        partial = self._folder / SET_ASIDE
        partial.mkdir(exist_ok=True)
        samples = () if (partial / PREDICTIONS).is_file() else (PREDICTIONS,)
        for name in (*samples, *SCORES):
            if (self._folder / name).is_file():
                (self._folder / name).rename(partial / name)
        partial.rename(self._folder / f"earlier_{number}")
