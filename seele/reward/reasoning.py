r"""Checkers of the reasoning tasks: Countdown, Zebra puzzles, ARC-1D. Pure functions.

Each compares the content of a ``\boxed{}`` with the reference answer and returns ``correct``, ``wrong`` for
an answer of the requested form, or ``malformed``. Nothing that a model wrote is ever run: expressions are
parsed by ``seele.maths.arithmetic``. Time is linear in the length of the answer. A problem's data source
determines its checker, in training and wherever else problems in our schema are graded.
"""

import functools
import re
from collections.abc import Callable, Mapping
from fractions import Fraction

from seele.errors import DataError
from seele.maths.arithmetic import NotArithmeticError, TooDeepError, evaluate, numbers_in, parse
from seele.maths.boxed import TEXT_COMMAND
from seele.records import Grade, GradeReason, Instance

MAX_CHARS = 1000
"""Longer answers are not read; the longest genuine one of any level has about a hundred characters."""

# Other ways to write the signs, and LaTeX markup around an expression.
_NOTATION = (
    *((times, "*") for times in (r"\times", r"\cdot", r"\ast", *"\N{MULTIPLICATION SIGN}\N{MIDDLE DOT}")),
    *((times, "*") for times in "\N{DOT OPERATOR}\N{ASTERISK OPERATOR}"),
    *((division, "/") for division in (r"\div", "\N{DIVISION SIGN}")),
    ("\N{MINUS SIGN}", "-"),
    *((dressing, " ") for dressing in (r"\left", r"\right", r"\(", r"\)", r"\,", r"\;", r"\!", "\\ ")),
)
_TEXT = re.compile(rf"{TEXT_COMMAND}\s*\{{([^{{}}]*)\}}")
_NAME = re.compile(r"[^\W\d_]+(?:[ '-][^\W\d_]+)*")
_CELLS = re.compile(r"\[?(?:[\s,]*[0-9])+[\s,]*\]?")


def check_countdown(answer: str, gold: str) -> GradeReason:
    """Check that an expression uses each of the problem's numbers once and equals its target.

    Of an equation whose right side is a number, as in ``5 * 3 - 1 = 14``, the left side is checked if the
    right side is the target.

    Args:
        answer: The model's answer.
        gold: A correct expression: its numbers are the problem's, its value the target.

    Raises:
        DataError: If ``gold`` is not an expression with a whole value.
    """
    target, numbers = _read_countdown(gold)
    for written, plain in _NOTATION:
        answer = answer.replace(written, plain)
    said, equals, stated = (part.strip() for part in _bare(answer).partition("="))
    try:
        expression = parse(said)
        stated_value = evaluate(parse(stated)) if re.fullmatch(r"-?[0-9]{1,18}", stated) else None
    except TooDeepError:
        return GradeReason.TOO_DEEP
    except NotArithmeticError:
        return GradeReason.MALFORMED
    if equals and stated_value is None:
        return GradeReason.MALFORMED
    # Before anything is evaluated: the problem's few numbers give no large values.
    if tuple(sorted(numbers_in(expression))) != numbers or stated_value not in (None, target):
        return GradeReason.WRONG
    try:
        return GradeReason.CORRECT if evaluate(expression) == target else GradeReason.WRONG
    except ZeroDivisionError:
        return GradeReason.WRONG


def check_zebra(answer: str, gold: str) -> GradeReason:
    r"""Check that the answer is the name in ``gold``, ignoring case, ``\text{}`` and a full stop."""
    name = _bare(answer)
    if not _NAME.fullmatch(name):
        return GradeReason.MALFORMED
    return GradeReason.CORRECT if name.casefold() == _bare(gold).casefold() else GradeReason.WRONG


def check_arc_1d(answer: str, gold: str) -> GradeReason:
    """Check that the answer is the row of digits in ``gold``, ignoring blanks, commas and a pair of square
    brackets around it.

    Raises:
        DataError: If ``gold`` is not a row of digits.
    """
    if not _CELLS.fullmatch(gold):
        raise DataError(f"an ARC-1D reference answer must be a row of digits, got {gold!r}")
    row = _bare(answer)
    if not _CELLS.fullmatch(row):
        return GradeReason.MALFORMED
    return GradeReason.CORRECT if _digits(row) == _digits(gold) else GradeReason.WRONG


Checker = Callable[[str, str], GradeReason]
"""Answer and reference answer in, verdict out."""

CHECKERS: Mapping[str, Checker] = {
    "countdown": check_countdown,
    "zebra": check_zebra,
    "arc_1d": check_arc_1d,
}
"""Checkers by data source."""


def check_answer(answer: str | None, gold: str, data_source: str) -> Grade:
    """The verdict of a data source's checker; ``None`` or blank counts as no answer.

    Raises:
        KeyError: If ``data_source`` has no checker in ``CHECKERS``.
        DataError: If the checker cannot compare with ``gold``.
    """
    if answer is None or not answer.strip():
        reason = GradeReason.NO_ANSWER
    elif len(answer) > MAX_CHARS:
        reason = GradeReason.TOO_LONG
    else:
        reason = CHECKERS[data_source](answer, gold)
    return Grade(reason is GradeReason.CORRECT, reason)


def check_reference(instance: Instance) -> None:
    """Raise ``DataError`` unless the problem's reference answer passes its own checker, if there is one."""
    if instance.data_source not in CHECKERS:
        return
    at = f"problem {instance.instance_id!r} ({instance.data_source}), reference answer {instance.answer!r}"
    try:
        grade = check_answer(instance.answer, instance.answer, instance.data_source)
    except DataError as error:
        raise DataError(f"{at}: {error}; prepare the file again with `seele data prepare`") from error
    if not grade.correct:
        raise DataError(f"{at}: not of the form that the task requires ({grade.reason.value})")


@functools.lru_cache(maxsize=4096)
def _read_countdown(gold: str) -> tuple[Fraction, tuple[int, ...]]:
    """Target and sorted numbers of a correct expression."""
    try:
        expression = parse(gold)
        target = evaluate(expression)
    except (NotArithmeticError, ZeroDivisionError) as error:
        raise DataError(
            f"a Countdown reference answer must be an expression, got {gold!r}: {error}"
        ) from error
    return target, tuple(sorted(numbers_in(expression)))


def _bare(text: str) -> str:
    """Without commands of LaTeX that set text, outer blanks and a full stop at the end."""
    return " ".join(_TEXT.sub(r"\1", text).replace("$", " ").split()).rstrip(".").strip()


def _digits(row: str) -> str:
    return re.sub(r"[^0-9]", "", row)
