"""The paper's fit of item curves for many problems at once: a grid, with the floor in closed form.

For a given slope and shift the curve is linear in its floor, so the best floor follows from a division
("variable projection"). A table of curves finds the best cell of a coarse grid; a few finer grids around the
best candidate give the digits. The problem and its bounds are those of ``seele.maths.irt_fit``, which solves
it one instance at a time by SciPy's trust-region-reflective solver, as the paper does.

Axes: N problems, J points of a problem, C candidate curves, T tabulated hint ratios.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seele.maths.irt import Array, ItemCurve
from seele.maths.irt_fit import (
    FLOOR_BOUNDS,
    SHIFT_BOUNDS,
    SLOPE_BOUNDS,
    CurveFit,
    Point,
    average_equal_ratios,
)

Real = NDArray[np.floating[Any]]

NUM_SLOPES, NUM_SHIFTS = 24, 41

_CANDIDATES = 2
"""Coarse cells that are refined: where the error has two valleys, the second best may hold the optimum."""

_LEVELS, _REACH, _SHRINK = 7, 2, 0.4
"""Each level looks at a square of 2 reach + 1 curves a side, ``shrink`` times as far apart as before."""

_LOG_SLOPES: Array = np.log(np.geomspace(*SLOPE_BOUNDS, NUM_SLOPES))
_SHIFTS: Array = np.linspace(*SHIFT_BOUNDS, NUM_SHIFTS)
_LOG_SLOPE_C, _SHIFT_C = (axis.ravel() for axis in np.meshgrid(_LOG_SLOPES, _SHIFTS, indexing="ij"))
_TABLE_T = np.linspace(0.0, 1.0, 201)


def _rest(log_slope: Array, shift: Array, ratio: Array) -> Array:
    """1 - sigmoid(k (p + mu)): what a floor of 1 would add to a curve without floor."""
    rest: Array = 0.5 * (1.0 - np.tanh(0.5 * np.exp(log_slope) * (ratio + shift)))
    return rest


_REST_TC: NDArray[np.float32] = _rest(_LOG_SLOPE_C, _SHIFT_C, _TABLE_T[:, None]).astype(np.float32)
_REST_SQUARED_TC = _REST_TC**2


def fit_on_grid(problems: Sequence[Sequence[Point]]) -> list[CurveFit]:
    """The curve of each problem with the least squared error on its points; always converges.

    As ``irt_fit.fit_curve``, whose squared error it exceeds by less than 1e-3 and often undercuts: the solver
    there sees one valley of the error, the grid sees them all.
    """
    if not problems:
        return []
    point_NJ3 = np.zeros((len(problems), max(map(len, problems)), 3))
    for row, points in zip(point_NJ3, problems, strict=True):
        row[: len(points), :2] = average_equal_ratios(points)
        row[: len(points), 2] = 1.0
    curve_N3, sse_N = fit_curves(*np.moveaxis(point_NJ3, 2, 0))
    return [
        CurveFit(ItemCurve(*curve), sse=sse, converged=True)
        for curve, sse in zip(curve_N3.tolist(), sse_N.tolist(), strict=True)
    ]


def fit_curves(ratio_NJ: ArrayLike, accuracy_NJ: ArrayLike, weight_NJ: ArrayLike) -> tuple[Array, Array]:
    """Fit one curve to each problem's points.

        argmin  sum_j w_j (f(p_j) - a_j)^2                                     SELEE paper, Eq. 13

    Args:
        ratio_NJ: (N, J) hint ratios in [0, 1].
        accuracy_NJ: (N, J) accuracies in [0, 1].
        weight_NJ: (N, J) weight of each point, 0 where a row has fewer than J.

    Returns:
        (N, 3) slope, shift and floor, and (N,) weighted sums of squared residuals.
    """
    ratio_NJ, accuracy_NJ, weight_NJ = (
        np.atleast_2d(np.asarray(values, dtype=np.float64)) for values in (ratio_NJ, accuracy_NJ, weight_NJ)
    )
    best_NC = _best_cells(ratio_NJ, accuracy_NJ, weight_NJ)
    fits = [
        _refine(_LOG_SLOPE_C[best_N], _SHIFT_C[best_N], ratio_NJ, accuracy_NJ, weight_NJ)
        for best_N in best_NC.T
    ]
    curves_CN3, sse_CN = (np.stack(parts) for parts in zip(*fits, strict=True))
    winner_N, row_N = sse_CN.argmin(axis=0), np.arange(len(ratio_NJ))
    return curves_CN3[winner_N, row_N], sse_CN[winner_N, row_N]


def _best_cells(ratio_NJ: Array, accuracy_NJ: Array, weight_NJ: Array) -> NDArray[np.int64]:
    """(N, candidates) indices of the coarse cells with the smallest error."""
    # With u = 1 - sigmoid, the sums follow from sum(w u u) and sum(w (a - 1) u): two products with a table.
    index_NJ = np.rint(ratio_NJ * (len(_TABLE_T) - 1)).astype(np.int64)
    weight_NT, gap_NT = (np.zeros((len(ratio_NJ), len(_TABLE_T)), dtype=np.float32) for _ in range(2))
    row_N1, gap_NJ = np.arange(len(ratio_NJ))[:, None], accuracy_NJ - 1.0
    np.add.at(weight_NT, (row_N1, index_NJ), weight_NJ)
    np.add.at(gap_NT, (row_N1, index_NJ), weight_NJ * gap_NJ)
    squares, mixed = weight_NT @ _REST_SQUARED_TC, gap_NT @ _REST_TC
    errors = squares + 2.0 * mixed + (weight_NJ * gap_NJ**2).sum(axis=1).astype(np.float32)[:, None]
    _, sse_NC = _project_floor(squares, squares + mixed, errors)
    return np.argpartition(sse_NC, _CANDIDATES, axis=1)[:, :_CANDIDATES]


def _refine(
    log_slope_N: Array, shift_N: Array, ratio_NJ: Array, accuracy_NJ: Array, weight_NJ: Array
) -> tuple[Array, Array]:
    """Ever finer squares of curves around one candidate a problem."""
    offsets = np.arange(-_REACH, _REACH + 1) / _REACH
    slope_C, shift_C = (axis.ravel() for axis in np.meshgrid(offsets, offsets, indexing="ij"))
    slope_gap, shift_gap = (axis[1] - axis[0] for axis in (_LOG_SLOPES, _SHIFTS))
    row_N = np.arange(len(ratio_NJ))
    for _ in range(_LEVELS):
        log_slope_NC = np.clip(log_slope_N[:, None] + slope_gap * slope_C, *np.log(SLOPE_BOUNDS))
        shift_NC = np.clip(shift_N[:, None] + shift_gap * shift_C, *SHIFT_BOUNDS)
        rest_NCJ = _rest(log_slope_NC[..., None], shift_NC[..., None], ratio_NJ[:, None, :])
        error_NCJ = rest_NCJ + (accuracy_NJ - 1.0)[:, None, :]
        floor_NC, sse_NC = _project_floor(
            *(
                np.einsum("ncj,ncj,nj->nc", left, right, weight_NJ)
                for left, right in ((rest_NCJ, rest_NCJ), (rest_NCJ, error_NCJ), (error_NCJ, error_NCJ))
            )
        )
        best_N = sse_NC.argmin(axis=1)
        log_slope_N, shift_N = log_slope_NC[row_N, best_N], shift_NC[row_N, best_N]
        slope_gap, shift_gap = _SHRINK * slope_gap, _SHRINK * shift_gap
    curve_N3 = np.stack([np.exp(log_slope_N), shift_N, floor_NC[row_N, best_N]], axis=1)
    # exp(log(50)) is a hair above 50.
    curve_N3[:, 0] = np.clip(curve_N3[:, 0], *SLOPE_BOUNDS)
    return curve_N3, sse_NC[row_N, best_N]


def _project_floor(squares: Real, products: Real, errors: Real) -> tuple[Real, Real]:
    """The best floor, and the error with it.

    With u = 1 - sigmoid and e = a - sigmoid the residual is b u - e, so b = sum(u e) / sum(u u), kept to its
    bounds, and the error is sum(e e) - 2 b sum(u e) + b^2 sum(u u).
    """
    floor = np.clip(products / np.maximum(squares, 1e-12), *FLOOR_BOUNDS)
    return floor, np.maximum(errors - 2.0 * floor * products + floor**2 * squares, 0.0)
