"""Results of a comparison as records, and how they follow from the curves of all arms. Pure.

``asdict`` gives their form in summary.json. Means over seeds have intervals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean

import numpy as np

from seele.maths.bootstrap import ROUNDING, bootstrap_interval, sign_flip_p_value, t_interval
from seele.maths.irt import Array
from seele.report.comparison.curves import (
    COSTS,
    Curve,
    accuracy_at,
    average_accuracy,
    first_crossing,
    mean_curve,
    shared_knots,
    stack,
)
from seele.report.comparison.runs import ComparedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over seeds."""

    by_seed: Mapping[int, float]
    mean: float
    interval_95: tuple[float, float] | None
    """Bootstrap interval over seeds; None if there are too few."""
    t_interval_95: tuple[float, float] | None
    """Student's t interval, exact for normally distributed seeds; None if there are too few, or all have the
    same value.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Estimate):
    """An arm's value minus the reference's, seed by seed, over the seeds that both have."""

    p_value: float
    """Exact two-sided p-value of the sign-flip test on the seeds' differences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The cost at which an arm first reaches an accuracy. None stands for "not reached"."""

    of_mean_curve: float | None
    """First crossing of the mean over seeds, within the range of all seeds."""
    by_seed: Mapping[int, float | None]
    num_reached: int
    mean: float | None
    """Mean over seeds; None unless every seed reached it, because the fast ones alone would bias it."""
    interval_95: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResult:
    """One arm on one split by one cost."""

    accuracy: Estimate
    """Accuracy at the budget."""
    difference: Difference | None
    """Difference at the budget; None for the reference and for arms that share no seed with it."""
    average: Estimate
    """Mean accuracy over all costs up to the budget: how fast the arm learns."""
    average_difference: Difference | None
    cost_of_accuracy: Reach


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """All arms on one split by one cost."""

    budget: float
    """Largest cost up to which every run was validated, or the requested budget."""
    budget_set_by: str | None
    """Run whose end sets the budget; None if the budget was requested."""
    accuracy: float
    """The accuracy whose cost is compared, in [0, 1]."""
    arms: Mapping[str, ArmResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All data of the tables and figures."""

    reference: str
    arms: Mapping[str, Mapping[int, ComparedRun]]
    """Arm -> seed -> run, the reference first."""
    curves: Mapping[str, Mapping[str, Mapping[str, Mapping[int, Curve]]]]
    """Split -> cost -> arm -> seed -> curve, for the costs that all runs count."""
    results: Mapping[str, Mapping[str, Result]]
    """Split -> cost -> result, for the same costs."""
    notes: tuple[str, ...]
    """Sentences that a reader must know before relying on the results."""

    @property
    def costs(self) -> list[str]:
        """The costs that at least one split is compared by, in the order of ``COSTS``."""
        return [cost for cost in COSTS if any(cost in by_cost for by_cost in self.results.values())]


# An interval from two runs spans just those two and predicts no third.
MIN_SEEDS = 3

# Each interval has its own generator, so that adding an arm does not change other intervals.
BOOTSTRAP_SEED = 0


def compare_arms(
    curves: Mapping[str, Mapping[int, Curve]],
    *,
    budget: float,
    budget_set_by: str | None,
    accuracy: float | None,
    reference: str,
) -> Result:
    """Compare all arms on one split by one cost.

    Args:
        curves: Arm -> seed -> curve.
        budget: A cost at which every curve is known.
        budget_set_by: The run whose end sets the budget; None if the budget was requested.
        accuracy: The accuracy whose cost is compared; by default the last accuracy of the reference's mean
            curve.
        reference: The arm that the others are compared with.
    """
    begin = max(curve.first for by_seed in curves.values() for curve in by_seed.values())
    at_budget = {
        arm: {seed: accuracy_at(curve, budget) for seed, curve in by_seed.items()}
        for arm, by_seed in curves.items()
    }
    averages = {
        arm: {seed: average_accuracy(curve, begin, budget) for seed, curve in by_seed.items()}
        for arm, by_seed in curves.items()
    }
    if accuracy is None:
        accuracy = float(mean_curve(curves[reference].values()).accuracy_V[-1])
    arms = {
        arm: ArmResult(
            accuracy=_estimate(at_budget[arm]),
            difference=None if arm == reference else _difference(at_budget[arm], at_budget[reference]),
            average=_estimate(averages[arm]),
            average_difference=(
                None if arm == reference else _difference(averages[arm], averages[reference])
            ),
            cost_of_accuracy=_reach(by_seed, accuracy),
        )
        for arm, by_seed in curves.items()
    }
    return Result(budget=budget, budget_set_by=budget_set_by, accuracy=accuracy, arms=arms)


def band(curves: Mapping[int, Curve]) -> tuple[Array, Array]:
    """(K,) lower and upper edge at the shared knots: the bootstrap interval, or the range of few seeds."""
    accuracy_NK = stack(curves.values(), shared_knots(curves.values()))
    if len(curves) < MIN_SEEDS:
        return accuracy_NK.min(axis=0), accuracy_NK.max(axis=0)
    return bootstrap_interval(accuracy_NK, np.random.default_rng(BOOTSTRAP_SEED))


def _estimate(by_seed: Mapping[int, float]) -> Estimate:
    values = list(by_seed.values())
    return Estimate(
        by_seed=by_seed,
        mean=fmean(values),
        interval_95=_interval(by_seed),
        t_interval_95=interval_over_seeds(values),
    )


def interval_over_seeds(values: Sequence[float]) -> tuple[float, float] | None:
    """Student's 95 % interval of shares or of their differences, one for each seed; None for fewer than
    ``MIN_SEEDS``, and for equal ones, which show no spread: their interval would have no width.
    """
    has_spread = max(values) - min(values) > ROUNDING
    return t_interval(np.array(values)) if len(values) >= MIN_SEEDS and has_spread else None


def _difference(values: Mapping[int, float], of_reference: Mapping[int, float]) -> Difference | None:
    by_seed = {seed: values[seed] - of_reference[seed] for seed in values if seed in of_reference}
    if not by_seed:
        return None
    estimate = _estimate(by_seed)
    return Difference(
        by_seed=by_seed,
        mean=estimate.mean,
        interval_95=estimate.interval_95,
        t_interval_95=estimate.t_interval_95,
        p_value=sign_flip_p_value(np.array(list(by_seed.values()))),
    )


def _reach(curves: Mapping[int, Curve], accuracy: float) -> Reach:
    by_seed = {seed: first_crossing(curve, accuracy) for seed, curve in curves.items()}
    reached = {seed: cost for seed, cost in by_seed.items() if cost is not None}
    is_whole = len(reached) == len(by_seed)
    return Reach(
        of_mean_curve=first_crossing(mean_curve(curves.values()), accuracy),
        by_seed=by_seed,
        num_reached=len(reached),
        mean=fmean(reached.values()) if is_whole else None,
        interval_95=_interval(reached) if is_whole else None,
    )


def _interval(by_seed: Mapping[int, float]) -> tuple[float, float] | None:
    return _bootstrap(tuple(by_seed.values())) if len(by_seed) >= MIN_SEEDS else None


@cache  # for tables that compare the same runs in several ways
def _bootstrap(values: tuple[float, ...]) -> tuple[float, float]:
    low, high = bootstrap_interval(np.array(values), np.random.default_rng(BOOTSTRAP_SEED))
    return float(low), float(high)
