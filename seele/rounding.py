"""Whole numbers from shares: a share of a count, robust to floating-point error in the product."""

import math

# 0.29 * 100 is a little less than 29, 0.56 * 25 a little more than 14.
DIGITS = 9


def at_most(share: float, count: int) -> int:
    """Return ``share`` of ``count``, rounded down to a whole number."""
    return math.floor(round(share * count, DIGITS))


def at_least(share: float, count: int) -> int:
    """Return ``share`` of ``count``, rounded up to a whole number."""
    return math.ceil(round(share * count, DIGITS))
