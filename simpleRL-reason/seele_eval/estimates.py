"""Accuracies at k, votes and intervals from samples of problems. Pure arithmetic.

Axes: N problems, R resamples.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pvariance

import numpy as np

from seele.maths.bootstrap import ROUNDING, bootstrap_interval
from seele.maths.irt import Array

# Two-sided 95 % quantile of the standard normal distribution.
Z_95 = 1.959963984540054

# Takes a second or two for the largest benchmark; an interval's ends then vary by about 2 % of its width.
RESAMPLES = 2_000

FLIPS = 9_999
FLIPS_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    interval_95: tuple[float, float] | None
    """None if the data give no interval."""

    @property
    def band(self) -> tuple[float, float]:
        """The interval, or the value twice if there is none, for a figure."""
        return self.interval_95 or (self.value, self.value)


def wilson_interval(accuracy: float, num_samples: float) -> tuple[float, float]:
    """95 % score interval of a proportion measured on ``num_samples`` independent draws.

        (p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n)

    Never empty and never outside [0, 1], unlike the normal interval at p = 0 or 1 (Wilson, 1927).
    """
    z2_n = Z_95 * Z_95 / num_samples
    centre = accuracy + z2_n / 2
    half = Z_95 * math.sqrt(accuracy * (1 - accuracy) / num_samples + z2_n / (4 * num_samples))
    return max(0.0, (centre - half) / (1 + z2_n)), min(1.0, (centre + half) / (1 + z2_n))


def effective_sample_size(problem_accuracies: Sequence[float], *, samples: int) -> float:
    """Number of independent draws that would estimate the mean as precisely as these problems do.

        n_eff = p(1-p) n / Var(problem accuracies), within [n, n * samples]

    Samples of one problem are correlated, so they count for less than samples of different problems. One
    sample per problem gives exactly n, and so do problems that are all always right or all never.
    """
    num_problems = len(problem_accuracies)
    mean = fmean(problem_accuracies)
    between = pvariance(problem_accuracies)
    if between == 0:
        return num_problems * samples if 0 < mean < 1 else num_problems
    return min(max(mean * (1 - mean) * num_problems / between, num_problems), num_problems * samples)


def pass_at_k(num_correct: int, num_samples: int, k: int) -> float:
    """Probability that k of the samples, drawn without replacement, hold a correct one.

        1 - C(n - c, k) / C(n, k)

    Unbiased for the chance that k new samples hold one (arXiv:2107.03374, equation 1). 1 <= k <= n.
    """
    return 1.0 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)


def attempts(samples: int) -> list[int]:
    """The values of k in a curve over ``samples`` per problem: 1, 2, 4, ... and ``samples`` itself."""
    return sorted({2**exponent for exponent in range(samples.bit_length())} | {samples})


def majority(votes: Sequence[str | None], corrects: Sequence[bool]) -> float:
    """1 if the most frequent answer is right, else 0; equally frequent answers are averaged.

    Args:
        votes: Key of each sample's answer, equal for equivalent answers; None casts no vote.
        corrects: Each sample's verdict.
    """
    verdicts: dict[str, list[bool]] = defaultdict(list)
    for vote, correct in zip(votes, corrects, strict=True):
        if vote is not None:
            verdicts[vote].append(correct)
    if not verdicts:
        return 0.0
    counts = Counter({vote: len(each) for vote, each in verdicts.items()})
    most = max(counts.values())
    return fmean(fmean(verdicts[vote]) for vote, count in counts.items() if count == most)


def estimate(values_N: Array, generator: np.random.Generator, *, is_share: bool = True) -> Estimate:
    """The mean over problems with its percentile bootstrap interval.

    If all problems agree, resampling gives no interval; a share then has Wilson's, anything else none.
    """
    value = float(values_N.mean())
    if values_N.min() == values_N.max():
        return Estimate(value, wilson_interval(value, len(values_N)) if is_share else None)
    low, high = bootstrap_interval(values_N, generator, resamples=RESAMPLES)
    return Estimate(value, (float(low), float(high)))


def mean_of(estimates: Sequence[Estimate]) -> Estimate:
    """The plain mean of independent estimates, such as those of different benchmarks.

    Its interval [m - l, m + u] combines the intervals [m_i - l_i, m_i + u_i] of the n estimates as variances
    are combined (Zou and Donner, 2008):

        l = sqrt(sum l_i^2) / n,    u = sqrt(sum u_i^2) / n

    If one of them has no interval, neither has the mean.
    """
    value = fmean(each.value for each in estimates)
    below, above = [], []
    for each in estimates:
        if each.interval_95 is None:
            return Estimate(value, None)
        below.append(each.value - each.interval_95[0])
        above.append(each.interval_95[1] - each.value)
    return Estimate(value, (value - math.hypot(*below) / len(below), value + math.hypot(*above) / len(above)))


def generator_for(name: str) -> np.random.Generator:
    """A generator seeded by ``name``."""
    return np.random.default_rng(list(name.encode()))


def random_flips_p_value(differences_N: Array, generator: np.random.Generator) -> float:
    """Two-sided p-value of paired differences if each sign is equally likely.

        p = (1 + number of F random choices of signs s with |sum s d| >= |sum d|) / (1 + F)

    At least 1 / (1 + F), which is 0.0001; 1 if no pair differs.
    """
    differing = differences_N[differences_N != 0]
    if not len(differing):
        return 1.0
    # Rounding may make equal sums, even sums of 0, differ in their last digits.
    bound = abs(differing.sum()) - ROUNDING * np.abs(differing).sum()
    at_least = 0
    for start in range(0, FLIPS, FLIPS_AT_ONCE):
        flips = generator.integers(0, 2, size=(min(FLIPS_AT_ONCE, FLIPS - start), len(differing)))
        at_least += int(np.sum(np.abs((2 * flips - 1) @ differing) >= bound))
    return (1 + at_least) / (1 + FLIPS)
