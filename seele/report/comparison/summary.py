"""The comparison as one JSON object: runs, conditions and results."""

from dataclasses import asdict
from typing import Any

from seele.maths.bootstrap import RESAMPLES
from seele.report.comparison.costs import COSTS, spent
from seele.report.comparison.estimates import BOOTSTRAP_SEED, MIN_SEEDS
from seele.report.comparison.results import Comparison
from seele.report.comparison.runs import ComparedRun
from seele.report.series import VALIDATION


def summarise(comparison: Comparison) -> dict[str, Any]:
    """Summarise a comparison. Seeds are JSON keys, hence text; unknown values are None."""
    return {
        "reference": comparison.reference,
        "interval": {
            "level": 0.95,
            "kind": "percentile bootstrap over seeds",
            "resamples": RESAMPLES,
            "seed": BOOTSTRAP_SEED,
            "min_seeds": MIN_SEEDS,
        },
        "runs": [describe_run(run) for by_seed in comparison.arms.values() for run in by_seed.values()],
        "results": {
            split: {cost: asdict(result) for cost, result in by_cost.items()}
            for split, by_cost in comparison.results.items()
        },
        "notes": list(comparison.notes),
    }


def describe_run(compared: ComparedRun) -> dict[str, Any]:
    """Origin, last step and total costs of a run."""
    run = compared.contents
    validated = [row["step"] for row in run.metrics if any(key.startswith(VALIDATION) for key in row)]
    return {
        "run": compared.folder,
        "arm": compared.arm,
        "seed": compared.seed,
        "method": run.card.get("method", run.setting("seele.method")),
        "status": run.card.get("status"),
        "resumed_at_step": run.card.get("resumed_at_step"),
        "commit": run.card.get("commit"),
        "versions": run.card.get("versions"),
        "hardware": run.card.get("hardware"),
        "model": run.setting("actor_rollout_ref.model.path"),
        "parameters": run.card.get("parameters"),
        "train_files": run.setting("data.train_files"),
        "val_files": run.setting("data.val_files"),
        "last_step": int(run.metrics[-1]["step"]),
        "last_validated_step": int(validated[-1]),
        "spent": {name: _spent_in_all(compared, name) for name in COSTS},
    }


def _spent_in_all(compared: ComparedRun, cost: str) -> float | None:
    totals_S = spent(compared.contents.metrics, COSTS[cost])
    total = None if totals_S is None else float(totals_S[-1])
    if total or cost != "flops":
        return total
    # If the metrics count no FLOPs, a finished run's card may; a total of 0 means that they were not counted.
    flops = compared.contents.card.get("flops")
    return float(flops) if isinstance(flops, int | float) else None
