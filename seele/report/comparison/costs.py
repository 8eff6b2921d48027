"""Costs on which methods are compared: what a run has spent by the end of each step.

S counts the steps of a run's metrics.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seele.maths.irt import Array
from seele.report.run_folder import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One cost and the metric that measures it."""

    title: str
    metric: str
    is_total: bool = True
    """Whether the metric counts from the beginning of the run; else it is summed over the steps."""
    may_be_absent: bool = False
    """Whether a run that never logs the metric has spent nothing."""


COSTS = {
    "steps": Cost(title="steps", metric="step"),
    "tokens_generated": Cost(title="tokens generated", metric="tokens/generated_total"),
    "tokens_prefilled": Cost(title="tokens prefilled", metric="tokens/prefilled_total"),
    "tokens_trained": Cost(title="tokens trained", metric="tokens/trained_total"),
    "tokens_teacher_forced": Cost(
        title="tokens teacher-forced", metric="tokens/teacher_forced_total", may_be_absent=True
    ),
    "flops": Cost(title="model FLOPs", metric="flops_total"),
    "seconds": Cost(title="seconds of training", metric="timing_s/step", is_total=False),
}
"""Cost by the name that options and files use."""


def spent(metrics: Sequence[Metrics], cost: Cost) -> Array | None:
    """(S,) what the run has spent by the end of each step.

    None where a training step lacks the metric or the total falls, so that it is not the run's.
    """
    if cost.may_be_absent and not any(cost.metric in row for row in metrics):
        return np.zeros(len(metrics))
    if any(cost.metric not in row for row in metrics if row["step"] > 0):
        return None
    # Step 0 only validates: where it lacks the metric, nothing was spent.
    values_S = np.array([row.get(cost.metric, 0.0) for row in metrics])
    totals_S = values_S if cost.is_total else np.cumsum(values_S)
    return totals_S if np.all(np.diff(totals_S) >= 0.0) else None
