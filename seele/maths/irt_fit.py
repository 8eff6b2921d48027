"""The paper's fit of an item curve: bounded least squares on (hint ratio, accuracy) points.

The controller decides which points belong to a visit and what follows a failed fit. SEELE (arXiv:2509.06923)
uses the trust-region-reflective solver through LMFIT (section 5.1); this calls SciPy's solver, which LMFIT
wraps. The paper states neither bounds nor an initial point; those below are ours, with reasons.

N counts points.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import least_squares

from seele.maths.irt import Array, ItemCurve, accuracy_gradient, predict_accuracy

Point = tuple[float, float]
"""(hint ratio, accuracy), both in [0, 1]."""

SLOPE_BOUNDS = (1.0, 50.0)
"""50 is the steepest curve in the paper (Fig. 3); below 1 a curve is almost flat and its inverse is noise."""

SHIFT_BOUNDS = (-1.0, 0.0)
"""The midpoint of the rise stays inside the range of hint ratios."""

FLOOR_BOUNDS = (0.0, 0.99)
"""A floor of 1 would leave the slope and the shift without effect."""

INITIAL_CURVE = ItemCurve(slope=10.0, shift=-0.5, floor=0.05)
"""Where every fit starts: in the middle, as it decides between curves that few points cannot tell apart."""

TOLERANCE = 1e-6
"""Relative tolerance for cost, step and gradient. The squared error ends within about 1e-6 of the optimum:
accuracies of 8 rollouts are 0.125 apart, so more digits cost time along flat valleys and change no hint."""

MAX_EVALUATIONS = 1000
"""Five times what the slowest fit of a simulated run needed; a fit that reaches this has not converged."""

_PARAMETER_SCALE = (10.0, 0.3, 0.3)
"""How far each parameter typically moves, so that the trust region is round."""


@dataclass(frozen=True, slots=True)
class CurveFit:
    """Result of one fit."""

    curve: ItemCurve
    sse: float
    """Sum of squared residuals over the points."""
    converged: bool
    """True if the solver met its tolerance; if not, the curve is the best one found, but unreliable."""


def with_margins(points: Sequence[Point]) -> list[Point]:
    """The points, and a pseudo-observation (0, 0) or (1, 1) for each end that was not evaluated.

    These assume that no hint fails and the whole solution succeeds, which constrains the curve while a visit
    has few rounds (paper Alg. 1 and App. B).
    """
    evaluated = {ratio for ratio, _ in points}
    return [*points, *((end, end) for end in (0.0, 1.0) if end not in evaluated)]


def average_equal_ratios(points: Sequence[Point]) -> list[Point]:
    """The points, each accuracy replaced by the mean of all that share its hint ratio (the paper's a-hat).

    The number of points stays the same: Eq. 13 sums over rounds, so a hint ratio that two rounds used counts
    twice.
    """
    accuracies: defaultdict[float, list[float]] = defaultdict(list)
    for ratio, accuracy in points:
        accuracies[ratio].append(accuracy)
    means = {ratio: sum(values) / len(values) for ratio, values in accuracies.items()}
    return [(ratio, means[ratio]) for ratio, _ in points]


def fit_curve(points: Sequence[Point]) -> CurveFit:
    """The curve with the least squared error on ``points``.

        argmin over (k, mu, b) of sum_j (f(p_j) - a-hat_j)^2         Eq. 13

    Deterministic, and independent of the order of the points. Accuracies of a few rollouts repeat across
    problems, so results are cached: in a simulated run this serves two of three fits.

    Args:
        points: At least one (hint ratio, accuracy); equal hint ratios are averaged.
    """
    return _fit_sorted(tuple(sorted(points)))


def fit_one_by_one(problems: Sequence[Sequence[Point]]) -> list[CurveFit]:
    """``fit_curve`` of each problem's points."""
    return [fit_curve(points) for points in problems]


@lru_cache(maxsize=2**14)
def _fit_sorted(points: tuple[Point, ...]) -> CurveFit:
    ratio_N, accuracy_N = np.array(average_equal_ratios(points)).T

    def residuals(parameters: Array) -> Array:
        misfit_N: Array = predict_accuracy(ItemCurve(*parameters), ratio_N) - accuracy_N
        return misfit_N

    def jacobian(parameters: Array) -> Array:
        return accuracy_gradient(ItemCurve(*parameters), ratio_N)

    result = least_squares(
        residuals,
        (INITIAL_CURVE.slope, INITIAL_CURVE.shift, INITIAL_CURVE.floor),
        jac=jacobian,
        bounds=tuple(zip(SLOPE_BOUNDS, SHIFT_BOUNDS, FLOOR_BOUNDS, strict=True)),
        method="trf",
        x_scale=_PARAMETER_SCALE,
        ftol=TOLERANCE,
        xtol=TOLERANCE,
        gtol=TOLERANCE,
        max_nfev=MAX_EVALUATIONS,
    )
    slope, shift, floor = (float(value) for value in result.x)
    # SciPy's cost is half the sum of squares.
    return CurveFit(
        ItemCurve(slope, shift, floor), sse=2.0 * float(result.cost), converged=bool(result.success)
    )
