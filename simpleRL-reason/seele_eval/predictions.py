"""predictions.jsonl: the conditions in the first line, then one line per sample with its verdict.

This module defines and reads the lines; ``seele_eval.ledger`` writes them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seele.data.storage.append_log import read_whole_lines
from seele.errors import CheckpointError
from seele.records import Finish, GradeReason

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
    """The text's last box, or the label of the option that it names; None if it has no answer."""
    correct: bool
    reason: GradeReason
    finish: Finish
    response_tokens: int
    is_unboxed: bool = False
    """Whether the answer was found without a box."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """The problem's values of the columns that scores are split by; None if its row lacks one."""

    @property
    def key(self) -> Key:
        """Key of the sample."""
        return (self.benchmark, self.temperature, self.instance_id, self.sample)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionFile:
    """Contents of a file of predictions up to its last whole line."""

    conditions: Mapping[str, Any]
    predictions: tuple[Prediction, ...]
    whole_bytes: int
    """Bytes of the whole lines; a killed process may leave part of a line after them."""
    total_bytes: int


def read_predictions(folder: Path) -> PredictionFile:
    """Read the samples of an output folder, finished or not; the last line of a sample counts.

    Raises:
        CheckpointError: If there are no samples, or the file is damaged elsewhere than at its end.
    """
    path = folder / PREDICTIONS
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file; expected the output folder of an evaluation")
    read = read_whole_lines(path)
    head, *lines = read.lines or [b'{"conditions": {}}']
    try:
        conditions: Mapping[str, Any] = json.loads(head)["conditions"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path}: the first line holds no conditions, so nothing can go on from it; name another --out"
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
        raise CheckpointError(f"{at} is damaged ({error}); remove the line, and it is drawn again") from error
