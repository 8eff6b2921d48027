"""The cost of a run up to the end of each step, and its accuracy against that cost.

Curves are straight between validations and unknown outside of them. Pure.

Axes: S steps of a run's metrics, V validations of a run, N runs, K knots.
"""

from collections.abc import Collection, Sequence
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
    """True if the metric counts from the beginning of the run; else it is summed over the steps."""
    may_be_absent: bool = False
    """True if a run that never logs the metric has spent nothing."""


COSTS = {
    "steps": Cost(title="steps", metric="step"),
    "tokens_generated": Cost(title="tokens generated", metric="tokens/generated_total"),
    "tokens_prefilled": Cost(title="tokens prefilled", metric="tokens/prefilled_total"),
    "tokens_trained": Cost(title="tokens trained", metric="tokens/trained_total"),
    "tokens_trained_packed": Cost(title="tokens trained, packed", metric="tokens/trained_packed_total"),
    "tokens_trained_informative": Cost(
        title="tokens trained, packed, informative", metric="tokens/trained_informative_total"
    ),
    "tokens_teacher_forced": Cost(
        title="tokens teacher-forced", metric="tokens/teacher_forced_total", may_be_absent=True
    ),
    "flops": Cost(title="model FLOPs", metric="flops_total"),
    "seconds": Cost(title="seconds of training", metric="timing_s/step", is_total=False),
}
"""Cost by the name that options and files use."""


def spent(metrics: Sequence[Metrics], cost: Cost) -> Array | None:
    """(S,) amount that the run has spent by the end of each step.

    None if a training step lacks the metric, or if the total falls and so is not the run's.
    """
    if cost.may_be_absent and not any(cost.metric in row for row in metrics):
        return np.zeros(len(metrics))
    if any(cost.metric not in row for row in metrics if row["step"] > 0):
        return None
    # Step 0 only validates: if it lacks the metric, nothing was spent.
    values_S = np.array([row.get(cost.metric, 0.0) for row in metrics])
    totals_S = values_S if cost.is_total else np.cumsum(values_S)
    return totals_S if np.all(np.diff(totals_S) >= 0.0) else None


# Rounding may push a mean over runs just below the accuracy that it is compared with.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Accuracy at each validation. Costs rise strictly."""

    cost_V: Array
    accuracy_V: Array

    @property
    def first(self) -> float:
        """Cost of the first validation."""
        return float(self.cost_V[0])

    @property
    def last(self) -> float:
        """Cost of the last validation, beyond which no accuracy is known."""
        return float(self.cost_V[-1])


def make_curve(cost_V: Array, accuracy_V: Array) -> Curve:
    """Build the curve through at least one validation; costs never fall.

    Of several validations at the same cost, the last counts: the run got there without spending more.
    """
    is_last_V = np.append(np.diff(cost_V) > 0.0, True)
    return Curve(cost_V[is_last_V], accuracy_V[is_last_V])


def accuracy_at(curve: Curve, cost: float) -> float:
    """Accuracy at a cost between the first and the last validation."""
    assert curve.first <= cost <= curve.last, "a curve is never extrapolated"
    return float(np.interp(cost, curve.cost_V, curve.accuracy_V))


def average_accuracy(curve: Curve, begin: float, end: float) -> float:
    """Mean accuracy between two costs within the curve: the area under it divided by its width."""
    inside_V = (curve.cost_V > begin) & (curve.cost_V < end)
    knots = np.concatenate([[begin], curve.cost_V[inside_V], [end]])
    accuracies = np.array([accuracy_at(curve, cost) for cost in knots])
    if begin == end:
        return float(accuracies[0])
    return float(np.diff(knots) @ (accuracies[:-1] + accuracies[1:]) / 2.0 / (end - begin))


def first_crossing(curve: Curve, accuracy: float) -> float | None:
    """The first cost at which the curve reaches ``accuracy``; None if it never does.

    If the first validation already reaches it, that validation's cost is returned.
    """
    reached_V = curve.accuracy_V >= accuracy - ROUNDING
    if not reached_V.any():
        return None
    number = int(np.argmax(reached_V))
    if number == 0:
        return curve.first
    (left, right), (low, high) = (
        values[number - 1 : number + 1] for values in (curve.cost_V, curve.accuracy_V)
    )
    return float(left + (right - left) * min(1.0, (accuracy - low) / (high - low)))


def shared_knots(curves: Collection[Curve]) -> Array:
    """(K,) costs of all validations within the range of every curve: all are straight between them.

    Empty if the curves do not overlap.
    """
    begin, end = max(curve.first for curve in curves), min(curve.last for curve in curves)
    knots = np.unique(np.concatenate([curve.cost_V for curve in curves]))
    return knots[(knots >= begin) & (knots <= end)]


def stack(curves: Collection[Curve], knots: Array) -> Array:
    """(N, K) accuracy of each curve at each knot."""
    return np.array([np.interp(knots, curve.cost_V, curve.accuracy_V) for curve in curves])


def mean_curve(curves: Collection[Curve]) -> Curve:
    """The curves' mean over the costs that all of them reach; the curves must overlap."""
    knots = shared_knots(curves)
    return Curve(knots, stack(curves, knots).mean(axis=0))
