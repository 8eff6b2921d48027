"""The run's scores on the exported weights, and the card's YAML that states them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from seele.data.storage.files import file_sha256, weight_files
from seele.export.base_model import BaseModel, Licence
from seele.report.run_folder import ScoreLine, read_evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One ``scores.json``."""

    scores: tuple[ScoreLine, ...]
    conditions: Mapping[str, Any]
    """Conditions under which the scores were measured."""


def find_evaluations(run: Path, model: Path, *, step: int | None) -> tuple[list[Evaluation], list[str]]:
    """Find the run's evaluations whose weights equal the model's byte for byte.

    Args:
        run: The run folder.
        model: The Hugging Face folder.
        step: The checkpoint's step, which may have been evaluated along with others.

    Returns:
        The evaluations, and a sentence for each that was skipped.
    """
    places = ["eval/scores.json", *([] if step is None else [f"eval/step_{step}/scores.json"])]
    found: list[Evaluation] = []
    notes: list[str] = []
    present = [place for place in places if (run / place).is_file()]
    weights = {file.name: file_sha256(file) for file in weight_files(model)} if present else {}
    for place in present:
        scores, conditions = read_evaluation(run, place, notes)
        if conditions.get("weights_sha256") != weights:
            notes.append(f"{place} was not measured on these weights, so the card omits its scores.")
        elif scores:
            found.append(Evaluation(scores=scores, conditions=conditions))
    return found, notes


def score_lines(evaluations: Sequence[Evaluation]) -> list[tuple[ScoreLine, Mapping[str, Any]]]:
    """Every score with the source of its benchmark's rows; each benchmark and temperature once."""
    lines: dict[tuple[str, float], tuple[ScoreLine, Mapping[str, Any]]] = {}
    for evaluation in evaluations:
        sources = evaluation.conditions.get("benchmarks")
        for score in evaluation.scores:
            source = sources.get(score.benchmark) if isinstance(sources, Mapping) else None
            key = (score.benchmark, score.temperature)
            lines.setdefault(key, (score, source if isinstance(source, Mapping) else {}))
    return list(lines.values())


def render_front_matter(
    *,
    name: str,
    method: str,
    base: BaseModel,
    licence: Licence,
    datasets: Sequence[str],
    evaluations: Sequence[Evaluation],
) -> str:
    """The block between two lines of ``---``, in the hub's keys.

    Args:
        name: The model's name.
        method: ``seele.method``.
        base: Named only if it is on the hub.
        licence: Licence of the weights.
        datasets: Names on the hub.
        evaluations: Become ``model-index``, in percent; it is omitted without any.
    """
    values: dict[str, Any] = {"license": licence.identifier}
    if licence.name is not None:
        values["license_name"] = licence.name
    if licence.link is not None:
        values["license_link"] = licence.link
    if base.is_on_hub:
        values |= {"base_model": base.name, "base_model_relation": "finetune"}
    values |= {"library_name": "transformers", "pipeline_tag": "text-generation"}
    if datasets:
        values["datasets"] = list(datasets)
    values["tags"] = list(dict.fromkeys(["seele", method, "verl", "vllm"]))
    if results := [_result(score, source) for score, source in score_lines(evaluations)]:
        values["model-index"] = [{"name": name, "results": results}]
    return f"---\n{yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100)}---\n"


def describe_decoding(score: ScoreLine) -> str:
    """Return how samples were drawn, in words."""
    if score.temperature == 0:
        return "greedy"
    return f"T={score.temperature:g}, mean of {score.samples} samples"


def percent(score: ScoreLine) -> str:
    """Return accuracy and interval in percent: ``41.2 (38.0 to 44.5)``."""
    low, high = score.interval_95
    return f"{100 * score.accuracy:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def _result(score: ScoreLine, source: Mapping[str, Any]) -> dict[str, Any]:
    dataset = {"name": score.benchmark, "type": source.get("hub", score.benchmark)}
    if "revision" in source:
        dataset["revision"] = source["revision"]
    low, high = score.interval_95
    interval = f"95 % interval {100 * low:.1f} to {100 * high:.1f}"
    metric = {
        "type": "accuracy",
        "name": f"accuracy in %, {describe_decoding(score)}, {interval}",
        "value": round(100 * score.accuracy, 2),
    }
    return {"task": {"type": "text-generation"}, "dataset": dataset, "metrics": [metric]}
