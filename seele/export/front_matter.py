"""The YAML that a model card begins with, which the hub reads."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from seele.export.base_model import BaseModel, Licence
from seele.export.evaluation import Evaluation, score_lines
from seele.report.run_folder import ScoreLine


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
        base: Is named where it is on the hub: the hub knows no other.
        licence: Of the weights.
        datasets: Names on the hub.
        evaluations: Become ``model-index``, in percent; without any there is none.
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
    """How samples were drawn, in words."""
    if score.temperature == 0:
        return "greedy"
    return f"T={score.temperature:g}, mean of {score.samples} samples"


def percent(score: ScoreLine) -> str:
    """``41.2 (38.0 to 44.5)``."""
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
