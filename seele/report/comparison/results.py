"""Results of a comparison as records; ``asdict`` gives their form in summary.json."""

from collections.abc import Mapping
from dataclasses import dataclass

from seele.report.comparison.curves import Curve
from seele.report.comparison.runs import ComparedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over seeds."""

    by_seed: Mapping[int, float]
    mean: float
    interval_95: tuple[float, float] | None
    """Bootstrap interval over seeds; None if there are too few."""
    t_interval_95: tuple[float, float] | None
    """Student's t interval, exact for normally distributed seeds; None if there are too few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Estimate):
    """An arm's value minus the reference's, seed by seed, over the seeds that both have."""

    p_value: float
    """Exact two-sided p-value of the sign-flip test on the seeds' differences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The cost at which an arm first reaches an accuracy. None stands for "not reached"."""

    of_mean_curve: float | None
    """First crossing of the mean over seeds, as far as all seeds go."""
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
    """The accuracy whose cost is asked for, in [0, 1]."""
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
    """Sentences that a reader must know before trusting the results."""

    @property
    def costs(self) -> list[str]:
        """The costs that at least one split is compared by, in the order of ``COSTS``."""
        return list(dict.fromkeys(cost for by_cost in self.results.values() for cost in by_cost))
