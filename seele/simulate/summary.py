"""Summary of traces: one row of figures per controller and world, means over worlds, paired differences.

Axes: N problems, V scored visits, R rounds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seele.maths.efficiency import reward_variance
from seele.maths.irt import Array
from seele.maths.tables import markdown_table
from seele.simulate.visits import Schedule, Trace

Z_95 = 1.959964
"""Normal quantile of a two-sided 95 % interval."""

COLUMNS = {
    "mean_a_1_minus_a": "mean a(1-a)",
    "share_of_oracle": "share of oracle",
    "mean_distance": "mean distance from 1/2",
    "mean_hint_ratio": "hint ratio",
    "nonzero_variance_share": "groups with variance",
    "variance_between_hints": "variance between hints",
    "mean_num_rounds": "rounds",
    "mean_num_generated": "rollouts generated",
}
"""Field of ``Summary`` -> heading of its column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Results of one controller over the scored visits: all but the first if there are several."""

    mean_a_1_minus_a: float
    """Mean a(1 - a) of the true accuracy at the hints used: the figure to rank by."""
    unhinted_a_1_minus_a: float
    """Mean a(1 - a) without any hint."""
    oracle_a_1_minus_a: float
    """Mean a(1 - a) with the best legal hint of every problem: the upper bound."""
    mean_distance: float
    """Mean distance of a round's true accuracy from 1/2."""
    mean_hint_ratio: float
    nonzero_variance_share: float
    """Share of visits whose rollouts, all rounds together, were neither all correct nor all wrong."""
    variance_between_hints: float
    """Share of the reward variance of a visit's rollouts that is between rounds and carries no information
    about the policy's actions."""
    mean_num_rounds: float
    """Mean rounds per visit; fewer than planned if the controller ends visits early."""
    mean_num_generated: float
    """Mean rollouts per visit, also those of failed rounds that were rolled out again."""

    @property
    def share_of_oracle(self) -> float | None:
        """Position of ``mean_a_1_minus_a`` between no hint (0) and oracle (1); None if these are equal."""
        span = self.oracle_a_1_minus_a - self.unhinted_a_1_minus_a
        return (self.mean_a_1_minus_a - self.unhinted_a_1_minus_a) / span if span > 0.0 else None


def summarise(trace: Trace) -> Summary:
    """Return the figures of one controller in one world. Means weigh rounds by their planned rollouts; within
    a round, they leave out probes.
    """
    correct_NV = _scored(trace.correct_NVR).sum(axis=2)
    within_NV = _over_rollouts(trace.worth_NVR, trace)
    total_NV = reward_variance(_over_rollouts(trace.accuracy_NVR, trace))
    return Summary(
        mean_a_1_minus_a=float(within_NV.mean()),
        unhinted_a_1_minus_a=float(reward_variance(_scored(trace.unhinted_NV)).mean()),
        oracle_a_1_minus_a=float(_scored(trace.oracle_NV).mean()),
        mean_distance=float(_over_rollouts(np.abs(trace.accuracy_NVR - 0.5), trace).mean()),
        mean_hint_ratio=float(_over_rollouts(trace.hint_ratio_NVR, trace).mean()),
        nonzero_variance_share=float(((correct_NV > 0) & (correct_NV < trace.size_R.sum())).mean()),
        variance_between_hints=float(1.0 - within_NV.sum() / max(total_NV.sum(), 1e-12)),
        mean_num_rounds=float(_scored(trace.num_rounds_NV).mean()),
        mean_num_generated=float(_scored(trace.num_generated_NV).mean()),
    )


def mean_summary(summaries: Sequence[Summary]) -> Summary:
    """Return each field's mean over worlds, all weighted equally."""
    names = [field.name for field in fields(Summary)]
    return Summary(**{name: float(np.mean([getattr(row, name) for row in summaries])) for name in names})


def paired_difference(traces: Sequence[Trace], others: Sequence[Trace]) -> tuple[float, float]:
    """Return the mean difference in a(1 - a) between two controllers, and the half-width of its 95 % interval
    over problems.

    Args:
        traces: A trace for each world. Worlds have equally many problems; the n-th of all worlds share their
            luck, so each is one observation.
        others: The other controller's, in the same worlds.
    """
    worth_N, other_N = (
        np.mean([_over_rollouts(trace.worth_NVR, trace).mean(axis=1) for trace in each], axis=0)
        for each in (traces, others)
    )
    difference_N = worth_N - other_N
    return float(difference_N.mean()), float(Z_95 * difference_N.std(ddof=1) / math.sqrt(len(difference_N)))


def report(traces: Mapping[str, Mapping[str, Trace]], schedule: Schedule) -> dict[str, Any]:
    """Return all figures as JSON.

    Args:
        traces: Controller -> world -> trace; every controller in the same worlds.
        schedule: The common schedule.
    """
    first = next(iter(traces))
    controllers = {}
    for name, by_world in traces.items():
        rows = {world: summarise(trace) for world, trace in by_world.items()}
        controllers[name] = {
            "mean": _to_json(mean_summary(list(rows.values()))),
            "worlds": {world: _to_json(row) for world, row in rows.items()},
        }
        if name != first:
            others = [traces[first][world] for world in by_world]
            mean, half_width = paired_difference([*by_world.values()], others)
            controllers[name][f"minus_{first}"] = {"mean": mean, "half_width_95": half_width}
    described = {**asdict(schedule), "rollouts_of_rounds": schedule.hints.rollouts_of_rounds}
    return {"schedule": described, "controllers": controllers}


def markdown(figures: Mapping[str, Any]) -> str:
    """Return the means over worlds, one line per controller; then a(1 - a) by world."""
    controllers = figures["controllers"]
    first = next(iter(controllers.values()))
    worlds = list(first["worlds"])
    means = [
        [name, *("-" if (value := entry["mean"][column]) is None else f"{value:.4f}" for column in COLUMNS)]
        for name, entry in controllers.items()
    ]

    def by_world(name: str, entry: Mapping[str, Any], field: str = "mean_a_1_minus_a") -> list[str]:
        return [name, *(f"{entry['worlds'][world][field]:.4f}" for world in worlds)]

    rows = [by_world(name, entry) for name, entry in controllers.items()]
    rows += [
        by_world("*best legal hint*", first, "oracle_a_1_minus_a"),
        by_world("*no hint*", first, "unhinted_a_1_minus_a"),
    ]
    tables = (
        markdown_table(["controller", *COLUMNS.values()], means),
        markdown_table(["mean a(1-a)", *worlds], rows),
    )
    return "\n".join(tables)


def _to_json(row: Summary) -> dict[str, float | None]:
    return asdict(row) | {"share_of_oracle": row.share_of_oracle}


def _over_rollouts(values_NVR: Array, trace: Trace) -> Array:
    """Return the mean of each visit that counts, over its rollouts: (N, V)."""
    mean_NV: Array = np.average(_scored(values_NVR), axis=2, weights=trace.size_R)
    return mean_NV


def _scored(values_NV: NDArray[Any]) -> NDArray[Any]:
    """Return all visits but the first, or the only one."""
    return values_NV[:, int(values_NV.shape[1] > 1) :]
