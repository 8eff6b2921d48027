"""Uncertainty of a mean over a few repetitions: percentile bootstrap, Student's t, exact sign-flip test.

Repetitions are independent runs, usually seeds. No function corrects for multiple comparisons.

Axes: N repetitions, R resamples.
"""

import numpy as np
from scipy.special import stdtrit

from seele.maths.irt import Array

RESAMPLES = 10_000

# Size of the largest block of counts (resamples times repetitions) held in memory.
MAX_COUNTS = 4_000_000

# The observed signs are one of the choices; rounding must not put them below their own bound.
ROUNDING = 1e-12


def bootstrap_interval(
    values_N: Array, generator: np.random.Generator, *, level: float = 0.95, resamples: int = RESAMPLES
) -> tuple[Array, Array]:
    """Percentile interval of the mean over repetitions (Efron, 1979).

    N of the N repetitions are drawn with replacement, R times; the interval runs from the (1 - level)/2
    quantile of the R means to the (1 + level)/2 quantile. For small N it is too short: see docs/compare.md.

    Args:
        values_N: (N, ...) one value, or several of the same kind, for each repetition. Several are drawn
            together, so that their intervals come from the same resamples.
        generator: Source of the draws.
        level: Nominal coverage, in (0, 1).
        resamples: R.

    Returns:
        Lower and upper ends, (...) each, never outside the range of the repetitions' values.

    Raises:
        ValueError: If there are no repetitions.
    """
    means_R = resampled_means(values_N, generator, resamples=resamples)
    ends = np.quantile(means_R, [0.5 - level / 2.0, 0.5 + level / 2.0], axis=0)
    # Every mean lies within the values; rounding may push an end outside.
    low, high = np.clip(ends, values_N.min(axis=0), values_N.max(axis=0))
    return low, high


def resampled_means(values_N: Array, generator: np.random.Generator, *, resamples: int = RESAMPLES) -> Array:
    """(R, ...) means of N of the N repetitions, drawn with replacement R times.

    Raises:
        ValueError: If there are no repetitions.
    """
    num_repetitions = len(values_N)
    if num_repetitions == 0:
        raise ValueError("an interval needs at least one repetition, got none")
    shares = np.full(num_repetitions, 1.0 / num_repetitions)
    # In blocks, so that thousands of repetitions do not need gigabytes.
    part = max(1, MAX_COUNTS // num_repetitions)
    return (
        np.concatenate(
            [
                generator.multinomial(num_repetitions, shares, size=min(part, resamples - start)) @ values_N
                for start in range(0, resamples, part)
            ]
        )
        / num_repetitions
    )


def t_interval(values_N: Array, *, level: float = 0.95) -> tuple[float, float]:
    """Interval of the mean over repetitions (Student, 1908); exact for normally distributed values.

        mean -+ t(N - 1, (1 + level) / 2) s / sqrt(N),    s^2 = sum (value - mean)^2 / (N - 1)

    Args:
        values_N: (N,) one value for each repetition.
        level: Coverage, in (0, 1).

    Raises:
        ValueError: If there are fewer than two repetitions, which have no spread.
    """
    num_repetitions = len(values_N)
    if num_repetitions < 2:
        raise ValueError(f"a t interval needs at least two repetitions, got {num_repetitions}")
    quantile = stdtrit(num_repetitions - 1, 0.5 + level / 2.0)
    mean, half = values_N.mean(), quantile * values_N.std(ddof=1) / num_repetitions**0.5
    return float(mean - half), float(mean + half)


def sign_flip_p_value(differences_N: Array) -> float:
    """Exact two-sided p-value of paired differences if each sign is equally likely.

        p = share of the 2^N choices of signs s with |sum s d| >= |sum d|

    It is never below 2/2^N: five pairs cannot reach 0.05. Time and memory grow with 2^(N/2).

    Args:
        differences_N: (N,) one difference for each pair.

    Raises:
        ValueError: If there are no pairs, or a difference is not finite.
    """
    if len(differences_N) == 0:
        raise ValueError("a test needs at least one pair, got none")
    if not np.isfinite(differences_N).all():
        raise ValueError(f"differences must be finite, got {differences_N}")
    bound = abs(differences_N.sum()) - ROUNDING * np.abs(differences_N).sum()
    if bound <= 0.0:
        return 1.0
    half = len(differences_N) // 2
    left, right = _signed_sums(differences_N[:half]), np.sort(_signed_sums(differences_N[half:]))
    at_least = len(right) - np.searchsorted(right, bound - left)
    # Flipping all signs mirrors the sums, so equally many lie at or below the negative bound.
    return float(2 * at_least.sum() / (len(left) * len(right)))


def _signed_sums(values_N: Array) -> Array:
    """(2^N,) sums under all choices of signs."""
    sums = np.zeros(1)
    for value in values_N:
        sums = np.concatenate([sums + value, sums - value])
    return sums
