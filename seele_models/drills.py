"""Calculations in the manner of GSM8K's solutions, with other numbers."""

import random
import re
from collections.abc import Iterator, Sequence

# "48/2 = 24": the numbers and operators of a calculation, and the way it is spaced.
CALCULATION = re.compile(r"(\d{1,3})( ?)([-+*x/])( ?)(\d{1,2})( ?= ?)\d+")
CALCULATIONS_PER_DRILL = 30


def drills(solutions: Sequence[str], count: int, rng: random.Random) -> Iterator[str]:
    """``count`` texts of 30 calculations each, whose forms are drawn from those of the solutions."""
    found = [match for solution in solutions for match in CALCULATION.finditer(solution)]
    for _ in range(count):
        yield "".join(f"{_drill(rng.choice(found), rng)}\n" for _ in range(CALCULATIONS_PER_DRILL))


def _drill(found: re.Match[str], rng: random.Random) -> str:
    """A calculation of the same form with numbers of the same length, none negative and none broken."""
    left, right = (rng.randrange(10 ** (len(found[group]) - 1), 10 ** len(found[group])) for group in (1, 5))
    match found[3]:
        case "+":
            result = left + right
        case "-":
            left, right = max(left, right), min(left, right)
            result = left - right
        case "/":
            result = max(1, left // right)
            left = result * right
        case _:
            result = left * right
    return f"{left}{found[2]}{found[3]}{found[4]}{right}{found[6]}{result}"
