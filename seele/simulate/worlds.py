"""Synthetic problems with known accuracy curves.

A world draws problems: where their solutions may be cut, and how accurate the policy is at each cut. Ability
is in units of hint ratio: a policy of ability d with hint ratio p is as accurate as one of ability 0 with
p + d, except where a hint hurts.

Axes: N problems, J legal hint ratios (padded to the longest solution).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from seele.errors import ConfigError
from seele.maths.irt import Array

STEPS = "step"
TOKENS = "token"
UNITS = (STEPS, TOKENS)

_MIN_STEPS, _MAX_STEPS = 3, 12
_NUM_TOKEN_CUTS = 100


@dataclass(frozen=True, slots=True)
class Cuts:
    """The positions at which solutions may be cut."""

    ratio_NJ: Array
    """Hint ratio of every cut in ascending order, 0 first; padded with 1, which is never legal."""
    is_legal_NJ: NDArray[np.bool_]


class Curves(Protocol):
    """The hidden curves of one world's problems."""

    def __call__(self, ratio_NJ: Array, ability_N: Array) -> Array:
        """Return (N, J) accuracies in [0, 1]."""
        ...


@dataclass(frozen=True, slots=True)
class Problems:
    """Problems drawn from one world."""

    world: str
    cuts: Cuts
    curves: Curves

    @property
    def instance_ids(self) -> list[str]:
        """(N,) names, the same for every controller."""
        return [f"{self.world}-{number}" for number in range(len(self.cuts.ratio_NJ))]

    def accuracy(self, ability_N: Array) -> Array:
        """Return (N, J) accuracy at every cut; 0 at padding."""
        accuracy_NJ = self.curves(self.cuts.ratio_NJ, ability_N)
        return np.where(self.cuts.is_legal_NJ, accuracy_NJ, 0.0)


@dataclass(frozen=True, slots=True)
class _Logistic:
    """3PL (``seele.maths.irt``) with a ceiling."""

    slope_N: Array
    midpoint_N: Array
    floor_N: Array
    ceiling_N: Array

    def __call__(self, ratio_NJ: Array, ability_N: Array) -> Array:
        logit_NJ = self.slope_N[:, None] * (ratio_NJ + (ability_N - self.midpoint_N)[:, None])
        rise_NJ: Array = 0.5 * (1.0 + np.tanh(0.5 * logit_NJ))
        return self.floor_N[:, None] + (self.ceiling_N - self.floor_N)[:, None] * rise_NJ


@dataclass(frozen=True, slots=True)
class _Gains:
    """Accuracy that grows step by step, mostly at a few key steps, interpolated between cuts."""

    ratio_NJ: Array
    gained_NJ: Array
    offset_N: Array
    floor_N: Array
    ceiling_N: Array

    def __call__(self, ratio_NJ: Array, ability_N: Array) -> Array:
        share_NJ = np.stack(
            [
                np.interp(wanted_J + shift, [*known_J, 1.0], [*gained_J, 1.0])
                for wanted_J, shift, known_J, gained_J in zip(
                    ratio_NJ, ability_N + self.offset_N, self.ratio_NJ, self.gained_NJ, strict=True
                )
            ]
        )
        rise_NJ: Array = (self.ceiling_N - self.floor_N)[:, None] * share_NJ
        return self.floor_N[:, None] + rise_NJ


@dataclass(frozen=True, slots=True)
class _Odd:
    """Curves that no logistic function describes."""

    ordinary: _Logistic
    kind_N: NDArray[np.int64]
    hurt_from_N: Array
    hurt_factor_N: Array

    HURTS, CEILING, WRONG_REFERENCE, SOLVED, HOPELESS = range(5)

    def __call__(self, ratio_NJ: Array, ability_N: Array) -> Array:
        accuracy_NJ = self.ordinary(ratio_NJ, ability_N)
        kind_N1 = self.kind_N[:, None]
        is_hurt_NJ = (kind_N1 == self.HURTS) & (ratio_NJ >= self.hurt_from_N[:, None])
        accuracy_NJ = np.where(is_hurt_NJ, accuracy_NJ * self.hurt_factor_N[:, None], accuracy_NJ)
        for kind, constant in {self.WRONG_REFERENCE: 0.02, self.SOLVED: 0.99, self.HOPELESS: 0.0}.items():
            accuracy_NJ = np.where(kind_N1 == kind, constant, accuracy_NJ)
        return accuracy_NJ


def _draw_logistic(rng: Generator, num_problems: int, midpoint: tuple[float, float]) -> _Logistic:
    return _Logistic(
        slope_N=9.0 * np.exp(0.45 * rng.standard_normal(num_problems)),
        midpoint_N=rng.normal(*midpoint, num_problems),
        floor_N=rng.beta(1.2, 18.0, num_problems),
        ceiling_N=np.ones(num_problems),
    )


def _draw_gains(rng: Generator, cuts: Cuts) -> Curves:
    num_problems = len(cuts.ratio_NJ)
    # A gamma shape far below 1 leaves most of the gain to a few steps.
    gain_NJ = rng.gamma(0.35, 1.0, cuts.ratio_NJ.shape) * cuts.is_legal_NJ + 1e-9
    before_NJ = np.cumsum(gain_NJ, axis=1) - gain_NJ
    return _Gains(
        ratio_NJ=cuts.ratio_NJ,
        gained_NJ=np.minimum(before_NJ / gain_NJ.sum(axis=1, keepdims=True), 1.0),
        offset_N=rng.normal(0.0, 0.15, num_problems),
        floor_N=rng.beta(1.2, 18.0, num_problems),
        ceiling_N=rng.beta(12.0, 1.5, num_problems),
    )


def _draw_odd(rng: Generator, cuts: Cuts) -> Curves:
    num_problems = len(cuts.ratio_NJ)
    ordinary = _draw_logistic(rng, num_problems, (0.45, 0.35))
    kind_N = rng.choice(5, size=num_problems, p=[0.4, 0.3, 0.1, 0.1, 0.1])
    ceiling_N = np.where(kind_N == _Odd.CEILING, rng.uniform(0.3, 0.8, num_problems), 1.0)
    return _Odd(
        ordinary=_Logistic(
            ordinary.slope_N, ordinary.midpoint_N, np.minimum(ordinary.floor_N, ceiling_N), ceiling_N
        ),
        kind_N=kind_N,
        hurt_from_N=rng.uniform(0.1, 0.6, num_problems),
        hurt_factor_N=rng.uniform(0.2, 0.6, num_problems),
    )


WORLDS: dict[str, Callable[[Generator, Cuts], Curves]] = {
    "3pl": lambda rng, cuts: _draw_logistic(rng, len(cuts.ratio_NJ), (0.45, 0.35)),
    "hard": lambda rng, cuts: _draw_logistic(rng, len(cuts.ratio_NJ), (0.75, 0.15)),
    "easy": lambda rng, cuts: _draw_logistic(rng, len(cuts.ratio_NJ), (0.05, 0.30)),
    "gains": _draw_gains,
    "odd": _draw_odd,
}
"""Worlds by name. Slopes are logN(9, .45), floors Beta(1.2, 18), midpoints normal."""


def draw_problems(world: str, *, num_problems: int, seed: int, unit: str = STEPS) -> Problems:
    """Draw ``num_problems`` problems; the same arguments give the same problems.

    Args:
        world: One of ``WORLDS``.
        num_problems: N, at least 1.
        seed: Seed of the draw.
        unit: ``step`` cuts solutions into 3 to 12 steps of unequal length, ``token`` at every hundredth.

    Raises:
        ConfigError: If the world or the unit is unknown.
    """
    if world not in WORLDS:
        raise ConfigError(f"unknown world {world!r}; allowed are {sorted(WORLDS)}")
    if unit not in UNITS:
        raise ConfigError(f"unknown unit {unit!r}; allowed are {list(UNITS)}")
    rng = np.random.default_rng([seed, *world.encode()])
    cuts = _draw_steps(rng, num_problems) if unit == STEPS else _token_cuts(num_problems)
    return Problems(world, cuts, WORLDS[world](rng, cuts))


def _draw_steps(rng: Generator, num_problems: int) -> Cuts:
    num_steps_N1 = rng.integers(_MIN_STEPS, _MAX_STEPS + 1, (num_problems, 1))
    is_step_NJ = np.arange(_MAX_STEPS) < num_steps_N1
    length_NJ = rng.gamma(3.0, 1.0, is_step_NJ.shape) * is_step_NJ
    end_NJ = np.cumsum(length_NJ, axis=1)
    start_NJ = (end_NJ - length_NJ) / end_NJ[:, -1:]
    return Cuts(np.where(is_step_NJ, start_NJ, 1.0), is_step_NJ)


def _token_cuts(num_problems: int) -> Cuts:
    ratio_NJ = np.tile(np.arange(_NUM_TOKEN_CUTS) / _NUM_TOKEN_CUTS, (num_problems, 1))
    return Cuts(ratio_NJ, np.ones(ratio_NJ.shape, dtype=bool))
