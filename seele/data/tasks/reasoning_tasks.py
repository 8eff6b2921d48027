r"""One problem of each reasoning task, drawn with reasoning-gym: question, steps and reference answer.

The library (Apache-2.0, by the authors whose problems SEC uses) draws numbers, clues and grids. The text
around them is ours, modelled on the examples in SEC's appendix C (arXiv:2505.14970): what is given, what is
asked for, and a ``\boxed{}`` for it. A problem depends only on its seed and its size. Levels and splits are
defined elsewhere.

A worked solution of Countdown has one operation per step, then the expression itself:

    91 + 17 = 108. Left: 5, 108.
    108 + 5 = 113. Left: 113.
    \boxed{91 + 17 + 5}

Each step states which numbers are left, so that a prefix of the solution leaves a smaller game. The steps
follow from the expression; there is no search here.
"""

import functools
import importlib
import importlib.metadata
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from seele.errors import DependencyError
from seele.maths.arithmetic import (
    Expression,
    Negation,
    Operation,
    apply,
    evaluate,
    numbers_in,
    parse,
    without_negations,
    write,
)


def countdown_steps(expression: Expression, numbers: Sequence[int], *, compact: bool) -> tuple[str, ...]:
    """Return the steps, the last of which consists of the boxed expression.

    Args:
        expression: Expression over ``numbers``, without negations.
        numbers: The numbers, in the order of the question.
        compact: Write ``91+17=108|5 108`` instead of a sentence.

    Raises:
        ValueError: If a number is used that is not left, or a negation occurs.
        ZeroDivisionError: If the expression divides by zero.
    """
    left = [Fraction(number) for number in numbers]
    steps: list[str] = []
    _work(expression, left, steps, compact=compact)
    return (*steps, f"\\boxed{{{write(expression, blanks=not compact)}}}")


def _work(expression: Expression, left: list[Fraction], steps: list[str], *, compact: bool) -> Fraction:
    """Append one step for each operation of the expression, and return its value."""
    match expression:
        case int():
            return Fraction(expression)
        case Negation():
            raise ValueError(f"unary minus in the expression: {write(expression)}")
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


LIBRARY = "reasoning-gym"
VERSION = "0.1.25"
"""The release that draws the problems; another one may draw different problems from the same seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Range of Countdown's numbers and targets, both ends included; the library's defaults."""

    min_value: int = 1
    max_value: int = 100
    min_target: int = 100
    max_target: int = 999


@dataclass(frozen=True, slots=True, kw_only=True)
class Puzzle:
    """One problem."""

    question: str
    steps: tuple[str, ...]
    """Empty if the library gives an answer but no solution."""
    answer: str
    identity: str
    """Equal for two problems that differ only in wording and order."""


def draw_countdown(seed: int, *, size: int, values: Values, compact: bool) -> Puzzle | None:
    """Draw a game with ``size`` numbers; None if the library finds none for this seed."""
    settings = {"min_numbers": size, "max_numbers": size, **asdict(values)}
    try:
        drawn = _dataset("games.countdown", "Countdown", tuple(settings.items()))[seed]["metadata"]
    except ValueError:
        # It gives up after a hundred expressions with values out of range.
        return None
    numbers, target = [int(number) for number in drawn["numbers"]], int(drawn["target"])
    expression = without_negations(parse(drawn["expression"]))
    # The library prints with sympy, which may cancel or merge.
    if expression is None or sorted(numbers_in(expression)) != sorted(numbers):
        return None
    if evaluate(expression) != target:
        return None
    if compact:
        question = f"{' '.join(map(str, numbers))} = {target}"
    else:
        question = (
            f"Combine the numbers {numbers} into an expression that equals {target}. Use only the basic "
            "operations (+, -, *, /) and brackets, and use each number exactly once. Put the final "
            "expression in \\boxed{}, for example \\boxed{(1 + 2) / 3}."
        )
    return Puzzle(
        question=question,
        steps=countdown_steps(expression, numbers, compact=compact),
        answer=write(expression, blanks=not compact),
        identity=f"{sorted(numbers)} {target}",
    )


def draw_zebra(seed: int, *, size: int, values: Values, compact: bool) -> Puzzle | None:
    """Draw a puzzle of ``size`` houses, whose inhabitants differ in ``size`` attributes, name included."""
    settings = (("num_people", size), ("num_characteristics", size))
    drawn = _dataset("logic.zebra_puzzles", "Zebra", settings)[seed]
    puzzle, _, asked = drawn["question"].rpartition("\nWhat is ")
    assert asked.startswith("Name of the person who lives in House 1?"), "the library asks another question"
    if compact:
        question = f"{puzzle[puzzle.index(':') + 1 :].strip()}\nName in house 1?"
    else:
        question = (
            f"{puzzle.strip()}\n\nWhat is the name of the person who lives in house 1? Give nothing but the "
            "name as the final answer, in \\boxed{}, for example \\boxed{zoe}."
        )
    return Puzzle(question=question, steps=(), answer=str(drawn["answer"]), identity=puzzle)


def draw_arc_1d(seed: int, *, size: int, values: Values, compact: bool) -> Puzzle | None:
    """Draw three examples of a rule on rows of ``size`` digits, and a row to apply it to; None if that row is
    one of the examples.
    """
    settings = (("min_size", size), ("max_size", size), ("num_train", 3))
    drawn = _dataset("arc.arc_1d", "Arc1D", settings)[seed]["metadata"]
    examples = [(_row(pair["input"]), _row(pair["output"])) for pair in drawn["train_examples"]]
    test, answer = _row(drawn["test_example"]["input"]), _row(drawn["test_example"]["output"])
    if test in dict(examples):
        return None
    if compact:
        lines = [f"{before}>{after}" for before, after in [*examples, (test, "")]]
        question = "\n".join(lines).replace(" ", "")
    else:
        shown = "\n\n".join(
            f"Example {number}:\nInput:  {before}\nOutput: {after}"
            for number, (before, after) in enumerate(examples, start=1)
        )
        question = (
            f"Find the rule by which each input row becomes its output row.\n\n{shown}\n\n"
            f"Now apply the rule to this row:\nInput:  {test}\n\nExplain how you found the rule and how you "
            "applied it. Then put the output row, and nothing else, in \\boxed{}."
        )
    identity = " ".join(f"{before}>{after}" for before, after in sorted([*examples, (test, answer)]))
    return Puzzle(question=question, steps=(), answer=answer, identity=identity)


Draw = Callable[..., Puzzle | None]
"""Called as ``draw(seed, size=..., values=..., compact=...)``."""

TASKS: Mapping[str, Draw] = {"countdown": draw_countdown, "zebra": draw_zebra, "arc_1d": draw_arc_1d}
"""Draw functions by data source."""


def check_library() -> None:
    """Raise ``DependencyError`` unless the required version of the library is installed."""
    try:
        found = importlib.metadata.version(LIBRARY)
    except importlib.metadata.PackageNotFoundError:
        found = "none"
    if found != VERSION:
        raise DependencyError(
            f"these problems need {LIBRARY} {VERSION}, found {found}; run: pip install {LIBRARY}=={VERSION}"
        )


@functools.cache
def _dataset(module: str, name: str, settings: tuple[tuple[str, int], ...]) -> Any:
    """Return the library's data set with these settings; item i is drawn with seed i."""
    with warnings.catch_warnings():
        # The library's dependencies warn about their own source.
        warnings.simplefilter("ignore")
        found = importlib.import_module(f"reasoning_gym.{module}")
    config = getattr(found, f"{name}Config")(seed=0, **dict(settings))
    config.validate()
    return getattr(found, f"{name}Dataset")(config)


def _row(cells: list[int]) -> str:
    return " ".join(map(str, cells))
