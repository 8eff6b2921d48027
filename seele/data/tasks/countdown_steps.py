r"""A Countdown expression as a worked solution: one operation a step, then the expression itself.

    91 + 17 = 108. Left: 5, 108.
    108 + 5 = 113. Left: 113.
    \boxed{91 + 17 + 5}

Each step says which numbers are left, so that a prefix of the solution is a smaller game of its own. What
the steps show is read off the expression; nothing is searched for here.
"""

from collections.abc import Sequence
from fractions import Fraction

from seele.maths.arithmetic import Expression, Negation, Operation, apply, write


def countdown_steps(expression: Expression, numbers: Sequence[int], *, compact: bool) -> tuple[str, ...]:
    """The steps, the last of which holds nothing but the expression in its box.

    Args:
        expression: Without negations, over ``numbers``.
        numbers: In the order of the question.
        compact: ``91+17=108|5 108`` instead of a sentence.

    Raises:
        ValueError: If a number is used that is not left, or a negation occurs.
        ZeroDivisionError: If something is divided by zero.
    """
    left = [Fraction(number) for number in numbers]
    steps: list[str] = []
    _work(expression, left, steps, compact=compact)
    return (*steps, f"\\boxed{{{write(expression, blanks=not compact)}}}")


def _work(expression: Expression, left: list[Fraction], steps: list[str], *, compact: bool) -> Fraction:
    """Value of the expression, after one step for each of its operations."""
    match expression:
        case int():
            return Fraction(expression)
        case Negation():
            raise ValueError(f"a minus that does not subtract: {write(expression)}")
        case Operation(sign, first, second):
            one = _work(first, left, steps, compact=compact)
            other = _work(second, left, steps, compact=compact)
            value = apply(sign, one, other)
            left.remove(one)
            left.remove(other)
            left.append(value)
            steps.append(_sentence(sign, one, other, value, left, compact=compact))
            return value


def _sentence(
    sign: str, one: Fraction, other: Fraction, value: Fraction, left: Sequence[Fraction], *, compact: bool
) -> str:
    second = str(other) if other >= 0 else f"({other})"
    if compact:
        return f"{one}{sign}{second}={value}|{' '.join(map(str, left))}\n"
    return f"{one} {sign} {second} = {value}. Left: {', '.join(map(str, left))}.\n"
