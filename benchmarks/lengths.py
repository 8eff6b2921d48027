"""The lengths and the kind of rounds in each step of ``benchmarks/rounds.py``."""

from itertools import product

import numpy as np

LONGEST = 400
PROMPTS, ROLLOUTS = 32, 32

LENGTHS = {"even": (44, 0.1), "heavy-tailed": (44, 1.5), "even, 4 times as long": (176, 0.1)}
"""Kind -> mean and coefficient of variation of a log-normal distribution, cut at ``LONGEST``."""

ROUNDS = {
    "1 round": (1, False, 1.0),
    "4 rounds": (4, False, 1.0),
    "4 rounds, quorum 3/4": (4, False, 0.75),
    "4 rounds, quorum 1/2": (4, False, 0.5),
    "4 rounds, barrier": (4, True, 1.0),
}
"""Name -> number of rounds, whether each waits until all problems have ended the previous one, and the share
of the problem's own rollouts that it waits for (``seele.hints.round_quorum``).
"""

VARIANTS = (*product(("even", "heavy-tailed"), ROUNDS), ("even, 4 times as long", "1 round"))


def variant_of_step(step: int) -> tuple[str, str]:
    """Return the kinds of lengths and rounds; the variants take turns."""
    return VARIANTS[(step - 1) % len(VARIANTS)]


def lengths_of_step(step: int) -> np.ndarray:
    """(PROMPTS, ROLLOUTS) tokens of each response: the same for all variants of one turn."""
    mean, variation = LENGTHS[variant_of_step(step)[0]]
    sigma = np.sqrt(np.log(1 + variation**2))
    turn = (step - 1) // len(VARIANTS)
    drawn = np.random.default_rng([turn, int(100 * variation)]).lognormal(
        np.log(mean) - sigma**2 / 2, sigma, (PROMPTS, ROLLOUTS)
    )
    return np.clip(np.rint(drawn), 1, LONGEST).astype(int)
