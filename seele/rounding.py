"""Whole numbers out of shares: what a share of a count comes to, whatever its product rounds to."""

import math

# 0.29 * 100 is a little less than 29, 0.56 * 25 a little more than 14.
DIGITS = 9


def at_most(share: float, count: int) -> int:
    """``share`` of ``count``, rounded down to a whole number."""
    return math.floor(round(share * count, DIGITS))


def at_least(share: float, count: int) -> int:
    """``share`` of ``count``, rounded up to a whole number."""
    return math.ceil(round(share * count, DIGITS))
