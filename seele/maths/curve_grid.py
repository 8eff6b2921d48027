"""Beliefs about a problem's item curve: a probability for each curve of a grid.

A curve here has four numbers: slope k, floor b and ceiling c, together its *shape*, and the *crossing* x, the
hint ratio at which its accuracy passes one half:

    f(p) = b + (c - b) sigmoid(k (p - x) + logit((1/2 - b) / (c - b)))

With c = 1 this is the paper's 3PL (``seele.maths.irt``); the ceiling is for problems that no hint makes safe.
The grid has the crossing as a coordinate, not the midpoint of the rise, because rollouts near one half
measure the crossing, whatever the shape: knowledge of the two is then nearly independent.

This module knows nothing of problems, visits or controllers.

Axes: N problems, S slopes, F pairs of floor and ceiling, M crossings, G = S F M curves, T tabulated hint
ratios, K observations of a problem, D drifts. Beliefs are float32, in the order (S, F, M).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seele.maths.irt import Array

Array32 = NDArray[np.float32]

SLOPES = (4.0, 9.0, 18.0)
FLOORS = ((0.01, 1.0), (0.08, 1.0), (0.3, 0.2))
CEILINGS = ((0.998, 1.0), (0.6, 0.2))
"""Value and prior weight. A finer grid chose no better hints in simulation (docs/controllers.md)."""

CROSSING_GAP = 0.05
CROSSINGS = np.arange(-16, 32) * CROSSING_GAP
"""From -0.8, long solved without a hint, to 1.55, out of reach even with the longest hint."""

DRIFTS = np.arange(-4, 9)
"""Possible gains in ability between two visits, in cells of the crossing: -0.2 to 0.4 of hint ratio."""

_CROSSING_MEAN, _CROSSING_SD = 0.55, 0.45
_DRIFT_MEAN, _DRIFT_SD = 0.03, 0.07
_ACCURACY_LIMIT = 0.002
"""No curve is more certain than this: one slip must not rule out a curve for good."""


def _make_tables() -> tuple[Array, Array32, Array32, Array32, Array, Array]:
    bounds_F2 = np.array([(floor, ceiling) for floor, _ in FLOORS for ceiling, _ in CEILINGS])
    weight_F = np.array([left * right for _, left in FLOORS for _, right in CEILINGS])
    floor_F, rise_F = bounds_F2[:, 0], bounds_F2[:, 1] - bounds_F2[:, 0]
    half_F = np.clip((0.5 - floor_F) / rise_F, 0.05, 0.95)
    ratio_T = np.linspace(0.0, 1.0, 201)
    logit_TSFM = (
        np.array(SLOPES)[:, None, None] * (ratio_T[:, None, None, None] - CROSSINGS)
        + np.log(half_F / (1.0 - half_F))[:, None]
    )
    sigmoid_TSFM = 0.5 * (1.0 + np.tanh(0.5 * logit_TSFM))
    accuracy_TG = (floor_F[:, None] + rise_F[:, None] * sigmoid_TSFM).reshape(len(ratio_T), -1)
    accuracy_TG = accuracy_TG.clip(_ACCURACY_LIMIT, 1.0 - _ACCURACY_LIMIT)
    crossing_M = np.exp(-0.5 * ((CROSSINGS - _CROSSING_MEAN) / _CROSSING_SD) ** 2)
    prior_SFM = np.ones(len(SLOPES))[:, None, None] * weight_F[:, None] * crossing_M
    drift_D = np.exp(-0.5 * ((DRIFTS * CROSSING_GAP - _DRIFT_MEAN) / _DRIFT_SD) ** 2)
    return (
        ratio_T,
        accuracy_TG.astype(np.float32),
        np.log(accuracy_TG).astype(np.float32),
        np.log1p(-accuracy_TG).astype(np.float32),
        prior_SFM.ravel() / prior_SFM.sum(),
        drift_D / drift_D.sum(),
    )


RATIOS, _ACCURACY_TG, _LOG_CORRECT_TG, _LOG_WRONG_TG, PRIOR, DRIFT_PRIOR = _make_tables()
"""``PRIOR`` and ``DRIFT_PRIOR`` are (G,) and (D,), the probability of each curve and of each drift before any
observations.
"""

NUM_SLOPES, NUM_BOUNDS, NUM_CROSSINGS = len(SLOPES), len(FLOORS) * len(CEILINGS), len(CROSSINGS)
NUM_CURVES = NUM_SLOPES * NUM_BOUNDS * NUM_CROSSINGS


def nearest_columns(hint_ratios: ArrayLike) -> NDArray[np.int64]:
    """Index of the nearest of ``RATIOS`` to each hint ratio."""
    columns: NDArray[np.int64] = np.rint(np.asarray(hint_ratios) * (len(RATIOS) - 1)).astype(np.int64)
    return columns


def log_likelihood(ratio_NK: Array, correct_NK: Array, wrong_NK: Array) -> Array32:
    """Log-likelihood of binomial observations under every curve, without the constant.

        sum_k  c_k log f(p_k) + w_k log(1 - f(p_k))

    Args:
        ratio_NK: (N, K) hint ratios in [0, 1], rounded to the nearest of ``RATIOS``.
        correct_NK: (N, K) correct rollouts; 0, with 0 wrong ones, where a row has fewer than K observations.
        wrong_NK: (N, K) wrong rollouts.

    Returns:
        (N, G), computed row by row: a row's bits do not depend on the other rows.
    """
    index_NK = nearest_columns(ratio_NK)
    total_NG: Array32 = np.zeros((len(ratio_NK), NUM_CURVES), dtype=np.float32)
    for index_N, correct_N, wrong_N in zip(index_NK.T, correct_NK.T, wrong_NK.T, strict=True):
        total_NG += correct_N.astype(np.float32)[:, None] * _LOG_CORRECT_TG[index_N]
        total_NG += wrong_N.astype(np.float32)[:, None] * _LOG_WRONG_TG[index_N]
    return total_NG


def update(belief_NG: Array32, log_likelihood_NG: Array32) -> Array32:
    """Bayes' rule: (N, G) beliefs after the observations."""
    posterior_NG: Array32 = belief_NG * _likelihood(log_likelihood_NG)
    posterior_NG /= posterior_NG.sum(axis=1, keepdims=True)
    return posterior_NG


def _likelihood(log_likelihood_NG: Array32) -> Array32:
    """(N, G) likelihoods, each row scaled so that its largest is 1."""
    likelihood_NG: Array32 = np.exp(log_likelihood_NG - log_likelihood_NG.max(axis=1, keepdims=True))
    return likelihood_NG


def drift(crossing_NSM: Array32, drift_D: Array) -> Array32:
    """The belief about the crossings after the policy has changed: each moves down by the gain in ability.

    Args:
        crossing_NSM: (N, S, M) probability of each crossing, given the slope.
        drift_D: (D,) probability of each of ``DRIFTS``. Mass that leaves the grid stays at its end.
    """
    moved_NSM: Array32 = np.zeros_like(crossing_NSM)
    for cells, weight in zip(DRIFTS.tolist(), drift_D.astype(np.float32), strict=True):
        _add_moved(moved_NSM, weight * crossing_NSM, cells)
    return moved_NSM


def _add_moved(target: Array32, source: Array32, cells: int) -> None:
    if cells > 0:
        target[..., :-cells] += source[..., cells:]
        target[..., 0] += source[..., :cells].sum(axis=-1)
    elif cells < 0:
        target[..., -cells:] += source[..., :cells]
        target[..., -1] += source[..., cells:].sum(axis=-1)
    else:
        target += source


def drift_posterior(
    crossing_NSM: Array32, bounds_NSF: Array32, log_likelihood_NG: Array32, drift_D: Array
) -> Array:
    """The probability of each drift, given the belief before it and the observations after it.

    Args:
        crossing_NSM: (N, S, M) crossings given the slope, before the drift.
        bounds_NSF: (N, S, F) joint probability of slope and floor-ceiling pair.
        log_likelihood_NG: (N, G) log-likelihood of the observations after the drift.
        drift_D: (D,) probability of each drift before these observations.

    Returns:
        (N, D), each row with sum 1.
    """
    likelihood_NSFM = _likelihood(log_likelihood_NG).reshape(-1, NUM_SLOPES, NUM_BOUNDS, NUM_CROSSINGS)
    by_crossing_NSM = np.einsum("nsf,nsfm->nsm", bounds_NSF, likelihood_NSFM)
    evidence = []
    for cells in DRIFTS.tolist():
        moved_NSM = np.zeros_like(crossing_NSM)
        _add_moved(moved_NSM, crossing_NSM, cells)
        evidence.append(np.einsum("nsm,nsm->n", moved_NSM, by_crossing_NSM))
    posterior_ND: Array = np.stack(evidence, axis=1) * drift_D + np.finfo(np.float64).tiny
    posterior_ND /= posterior_ND.sum(axis=1, keepdims=True)
    return posterior_ND


def expected_accuracy(belief_NG: Array32) -> Array:
    """(N, T) mean accuracy at each of ``RATIOS``, never decreasing along T."""
    expected_NT: Array = (belief_NG @ _ACCURACY_TG.T).astype(np.float64)
    # The last bits of a matrix product may decrease where the curve is flat.
    return np.maximum.accumulate(expected_NT, axis=1)


def utility_table(target_accuracy: float) -> Array32:
    """(G, T) worth of a rollout under each curve at each hint ratio.

        u(a) = a^(2 a*) (1 - a)^(2 (1 - a*))

    is largest at the target a*. At a* = 1/2 it is a (1 - a), which bounds the descent of the loss
    (``seele.maths.efficiency``).
    """
    accuracy_GT = _ACCURACY_TG.T.astype(np.float64)
    worth_GT = accuracy_GT ** (2.0 * target_accuracy) * (1.0 - accuracy_GT) ** (2.0 * (1.0 - target_accuracy))
    return np.ascontiguousarray(worth_GT, dtype=np.float32)


def split_belief(belief_NG: Array32) -> tuple[Array32, Array32]:
    """(N, S, M) crossings given the slope, and (N, S, F) joint of slope and bounds.

    This keeps a fifth of the numbers and loses only the dependence of crossing and bounds at one slope, which
    is small.
    """
    belief_NSFM = belief_NG.reshape(-1, NUM_SLOPES, NUM_BOUNDS, NUM_CROSSINGS)
    bounds_NSF, crossing_NSM = belief_NSFM.sum(axis=3), belief_NSFM.sum(axis=2)
    # A slope that is ruled out has no crossings.
    slope_NS = np.maximum(crossing_NSM.sum(axis=2, keepdims=True), np.float32(1e-30))
    return crossing_NSM / slope_NS, bounds_NSF


def join_belief(crossing_NSM: Array32, bounds_NSF: Array32) -> Array32:
    """(N, G) beliefs: the inverse of ``split_belief``, except for what it loses. Sums may differ from 1."""
    joint_NSFM: Array32 = bounds_NSF[..., None] * crossing_NSM[:, :, None, :]
    return joint_NSFM.reshape(len(joint_NSFM), NUM_CURVES)
