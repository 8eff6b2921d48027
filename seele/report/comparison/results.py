"""What a comparison finds, as records. ``asdict`` of a result is its place in summary.json."""

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
    """Bootstrap over seeds; None where there are too few of them."""
    t_interval_95: tuple[float, float] | None
    """Student's, which is as wide as few seeds need where they are normally distributed; None likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Estimate):
    """An arm's value minus the reference's, seed by seed, over the seeds that both have."""

    p_value: float
    """Exact, two-sided, of flipping the signs of the seeds' differences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The cost at which an arm first reaches an accuracy. None stands for "not reached"."""

    of_mean_curve: float | None
    """First crossing of the mean over seeds, as far as all seeds go."""
    by_seed: Mapping[int, float | None]
    num_reached: int
    mean: float | None
    """Over seeds; None unless every seed reached it, for those that did are the fast ones."""
    interval_95: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResult:
    """One arm on one split by one cost."""

    accuracy: Estimate
    """At the budget."""
    difference: Difference | None
    """None for the reference itself, and where the arm has no seed in common with it."""
    average: Estimate
    """Over all costs up to the budget: how fast the arm learns, at no point that somebody chose."""
    average_difference: Difference | None
    cost_of_accuracy: Reach


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """All arms on one split by one cost."""

    budget: float
    """The largest cost up to which every run was validated, or what was asked for."""
    budget_set_by: str | None
    """The run that ended there; None where the budget was asked for."""
    accuracy: float
    """The accuracy whose cost is asked for, in [0, 1]."""
    arms: Mapping[str, ArmResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything that tables and figures are made of."""

    reference: str
    arms: Mapping[str, Mapping[int, ComparedRun]]
    """Arm -> seed -> run, the reference first."""
    curves: Mapping[str, Mapping[str, Mapping[str, Mapping[int, Curve]]]]
    """Split -> cost -> arm -> seed -> curve; without the costs that the runs cannot be compared by."""
    results: Mapping[str, Mapping[str, Result]]
    """Split -> cost -> result, for the same."""
    notes: tuple[str, ...]
    """What a reader must know before believing any of it, in sentences."""

    @property
    def costs(self) -> list[str]:
        """The costs that at least one split is compared by, in the order of ``COSTS``."""
        return list(dict.fromkeys(cost for by_cost in self.results.values() for cost in by_cost))
