"""The paper's fit of item curves for many problems at once: a grid, with the floor in closed form.

For a given slope and shift the curve is linear in its floor, so the best floor follows from a division
("variable projection"). A table of curves gives the best cells of a coarse grid; a few finer grids around the
best candidate give the remaining digits. The problem and its bounds are those of ``seele.maths.irt_fit``,
which solves it one instance at a time with SciPy's trust-region-reflective solver, as the paper does.

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
"""Coarse cells that are refined: if the error has two valleys, the second best may contain the optimum."""

_LEVELS, _REACH, _SHRINK = 7, 2, 0.4
"""Each level tries a square of 2 reach + 1 curves per side, ``shrink`` times as far apart as before."""

_LOG_SLOPES: Array = np.log(np.geomspace(*SLOPE_BOUNDS, NUM_SLOPES))
_SHIFTS: Array = np.linspace(*SHIFT_BOUNDS, NUM_SHIFTS)
_LOG_SLOPE_C, _SHIFT_C = (axis.ravel() for axis in np.meshgrid(_LOG_SLOPES, _SHIFTS, indexing="ij"))
_TABLE_T = np.linspace(0.0, 1.0, 101)


def _rest(log_slope: Array, shift: Array, ratio: Array) -> Array:
    """1 - sigmoid(k (p + mu)): what a floor of 1 would add to a curve without a floor."""
    rest: Array = 0.5 * (1.0 - np.tanh(0.5 * np.exp(log_slope) * (ratio + shift)))
    return rest


_REST_TC: NDArray[np.float32] = _rest(_LOG_SLOPE_C, _SHIFT_C, _TABLE_T[:, None]).astype(np.float32)
_REST_SQUARED_TC = _REST_TC**2


def fit_on_grid(problems: Sequence[Sequence[Point]]) -> list[CurveFit]:
    """Each problem's curve with the least squared error on its points; always converges.

    Like ``irt_fit.fit_curve``. The squared error is often smaller, and larger by 1e-3 in fewer than one visit
    in a hundred: that solver searches one valley of the error, the grid searches all, two of them closely.
    """
    if not problems:
        return []
    point_NJ3 = np.zeros((len(problems), max(map(len, problems)), 3))
    for row, points in zip(point_NJ3, problems, strict=True):
        # Between equally deep valleys a rounding error decides; the order of points must not change it.
        row[: len(points), :2] = average_equal_ratios(sorted(points))
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
    points = (ratio_NJ, accuracy_NJ, weight_NJ)
    best = _best_cells(*points).T.ravel()
    start_CN3 = np.stack([_LOG_SLOPE_C[best], _SHIFT_C[best], np.zeros(len(best))], axis=1)
    rough_CN3, sse = _refine(
        start_CN3, *(np.tile(values, (_CANDIDATES, 1)) for values in points), levels=range(2)
    )
    winner_N, row_N = sse.reshape(_CANDIDATES, -1).argmin(axis=0), np.arange(len(ratio_NJ))
    curve_N3, sse_N = _refine(
        rough_CN3.reshape(_CANDIDATES, -1, 3)[winner_N, row_N], *points, levels=range(2, _LEVELS)
    )
    curve_N3[:, 0] = np.exp(curve_N3[:, 0])
    # exp(log(50)) is slightly above 50.
    curve_N3[:, 0] = np.clip(curve_N3[:, 0], *SLOPE_BOUNDS)
    return curve_N3, sse_N


def _best_cells(ratio_NJ: Array, accuracy_NJ: Array, weight_NJ: Array) -> NDArray[np.int64]:
    """(N, candidates) indices of the coarse cells with the smallest error."""
    index_NJ = np.rint(ratio_NJ * (len(_TABLE_T) - 1)).astype(np.int64)
    weight_NT, gap_NT = (np.zeros((len(ratio_NJ), len(_TABLE_T)), dtype=np.float32) for _ in range(2))
    row_N1, gap_NJ = np.arange(len(ratio_NJ))[:, None], accuracy_NJ - 1.0
    np.add.at(weight_NT, (row_N1, index_NJ), weight_NJ)
    np.add.at(gap_NT, (row_N1, index_NJ), weight_NJ * gap_NJ)
    squares, mixed = weight_NT @ _REST_SQUARED_TC, gap_NT @ _REST_TC
    constant_N1 = (weight_NJ * gap_NJ**2).sum(axis=1, keepdims=True).astype(np.float32)
    _, sse_NC = _project_floor(squares, mixed, constant_N1)
    return np.argpartition(sse_NC, _CANDIDATES, axis=1)[:, :_CANDIDATES]


def _refine(
    curve_N3: Array, ratio_NJ: Array, accuracy_NJ: Array, weight_NJ: Array, *, levels: range
) -> tuple[Array, Array]:
    """Search ever finer squares of curves around one candidate per problem.

    Returns:
        (N, 3) log-slope, shift and floor, and (N,) errors.
    """
    offsets = np.arange(-_REACH, _REACH + 1) / _REACH
    slope_C, shift_C = (axis.ravel() for axis in np.meshgrid(offsets, offsets, indexing="ij"))
    row_N, gap_NJ = np.arange(len(ratio_NJ)), weight_NJ * (accuracy_NJ - 1.0)
    constant_N1 = (gap_NJ * (accuracy_NJ - 1.0)).sum(axis=1, keepdims=True)
    for level in levels:
        slope_gap, shift_gap = ((axis[1] - axis[0]) * _SHRINK**level for axis in (_LOG_SLOPES, _SHIFTS))
        log_slope_NC = np.clip(curve_N3[:, :1] + slope_gap * slope_C, _LOG_SLOPES[0], _LOG_SLOPES[-1])
        shift_NC = np.clip(curve_N3[:, 1:2] + shift_gap * shift_C, *SHIFT_BOUNDS)
        rest_NCJ = _rest(log_slope_NC[..., None], shift_NC[..., None], ratio_NJ[:, None, :])
        squares_NC = (rest_NCJ**2 @ weight_NJ[..., None])[..., 0]
        mixed_NC = (rest_NCJ @ gap_NJ[..., None])[..., 0]
        floor_NC, sse_NC = _project_floor(squares_NC, mixed_NC, constant_N1)
        best_N = sse_NC.argmin(axis=1)
        curve_N3 = np.stack(
            [axis_NC[row_N, best_N] for axis_NC in (log_slope_NC, shift_NC, floor_NC)], axis=1
        )
    return curve_N3, sse_NC[row_N, best_N]


def _project_floor(squares: Real, mixed: Real, constant: Real) -> tuple[Real, Real]:
    """The best floor, and the error with it.

    With u = 1 - sigmoid the curve is 1 - (1 - b) u. In d = 1 - b the error is the parabola

        sum w (1 - a - d u)^2 = constant + 2 d mixed + d^2 squares

    Args:
        squares: sum w u u.
        mixed: sum w (a - 1) u.
        constant: sum w (a - 1)^2.
    """
    rise = np.clip(-mixed / np.maximum(squares, 1e-12), 1.0 - FLOOR_BOUNDS[1], 1.0 - FLOOR_BOUNDS[0])
    return 1.0 - rise, np.maximum(constant + rise * (2.0 * mixed + rise * squares), 0.0)
