"""Which of a run's scores were measured on the weights that are exported."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seele.data.storage.files import file_sha256
from seele.report.run_folder import ScoreLine, read_evaluation

WEIGHTS = ("*.safetensors", "*.bin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One ``scores.json``."""

    scores: tuple[ScoreLine, ...]
    conditions: Mapping[str, Any]
    """What the scores were measured under."""


def find_evaluations(run: Path, model: Path, *, step: int | None) -> tuple[list[Evaluation], list[str]]:
    """Evaluations of the run whose weights are the model's, byte for byte.

    Args:
        run: The run folder.
        model: The Hugging Face folder.
        step: The checkpoint's step, which may have been evaluated beside others.

    Returns:
        The evaluations, and a sentence for each that was left aside.
    """
    places = ["eval/scores.json", *([] if step is None else [f"eval/step_{step}/scores.json"])]
    found: list[Evaluation] = []
    notes: list[str] = []
    present = [place for place in places if (run / place).is_file()]
    weights = {file.name: file_sha256(file) for file in weight_files(model)} if present else {}
    for place in present:
        scores, conditions = read_evaluation(run, place, notes)
        if conditions.get("weights_sha256") != weights:
            notes.append(f"{place} was not measured on these weights, so the card does not name its scores.")
        elif scores:
            found.append(Evaluation(scores=scores, conditions=conditions))
    return found, notes


def weight_files(model: Path) -> list[Path]:
    """The files that hold weights, sorted by name."""
    return sorted(file for pattern in WEIGHTS for file in model.glob(pattern))


def score_lines(evaluations: Sequence[Evaluation]) -> list[tuple[ScoreLine, Mapping[str, Any]]]:
    """Every score with where its benchmark's rows came from, each benchmark and temperature once."""
    lines: dict[tuple[str, float], tuple[ScoreLine, Mapping[str, Any]]] = {}
    for evaluation in evaluations:
        sources = evaluation.conditions.get("benchmarks")
        for score in evaluation.scores:
            source = sources.get(score.benchmark) if isinstance(sources, Mapping) else None
            key = (score.benchmark, score.temperature)
            lines.setdefault(key, (score, source if isinstance(source, Mapping) else {}))
    return list(lines.values())
