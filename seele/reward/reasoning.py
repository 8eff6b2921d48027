r"""Checkers of the reasoning tasks: Countdown, Zebra puzzles, ARC-1D. Pure functions.

Each compares the content of a ``\boxed{}`` with the reference answer and says ``correct``, ``wrong`` for an
answer of the form asked for, or ``malformed``. Nothing that a model wrote is ever run: expressions are read
by ``seele.maths.arithmetic``. Time is linear in the length of the answer. A problem's checker is chosen by
its data source, in training and wherever else problems in our schema are graded.
"""

import functools
import re
from collections.abc import Callable, Mapping
from fractions import Fraction

from seele.errors import DataError
from seele.maths.arithmetic import NotArithmeticError, TooDeepError, evaluate, numbers_in, parse
from seele.records import Grade, GradeReason, Instance

MAX_CHARS = 1000
"""Longer answers are not read; the longest honest one of any level has some hundred characters."""

# Other ways to write the signs, and what LaTeX puts around an expression.
_NOTATION = (
    *((times, "*") for times in (r"\times", r"\cdot", r"\ast", *"\N{MULTIPLICATION SIGN}\N{MIDDLE DOT}")),
    *((times, "*") for times in "\N{DOT OPERATOR}\N{ASTERISK OPERATOR}"),
    *((division, "/") for division in (r"\div", "\N{DIVISION SIGN}")),
    ("\N{MINUS SIGN}", "-"),
    *((dressing, " ") for dressing in (r"\left", r"\right", r"\(", r"\)", r"\,", r"\;", r"\!", "\\ ")),
)
_TEXT = re.compile(r"\\(?:text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}")
_NAME = re.compile(r"[^\W\d_]+(?:[ '-][^\W\d_]+)*")
_CELLS = re.compile(r"\[?(?:[\s,]*[0-9])+[\s,]*\]?")


def check_countdown(answer: str, gold: str) -> GradeReason:
    """Whether an expression uses the numbers of the problem once each and comes to its target.

    An equation whose right side is a number, as in ``5 * 3 - 1 = 14``, is taken by its left side if the
    right one is the target.

    Args:
        answer: What the model says.
        gold: An expression that is right: its numbers are the problem's, its value the target.

    Raises:
        DataError: If ``gold`` is no expression with a whole value.
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
    # Before anything is evaluated: of the problem's few numbers no value becomes large.
    if tuple(sorted(numbers_in(expression))) != numbers or stated_value not in (None, target):
        return GradeReason.WRONG
    try:
        return GradeReason.CORRECT if evaluate(expression) == target else GradeReason.WRONG
    except ZeroDivisionError:
        return GradeReason.WRONG


def check_zebra(answer: str, gold: str) -> GradeReason:
    r"""Whether the answer is the name that ``gold`` is, but for case, ``\text{}`` and a full stop."""
    name = _bare(answer)
    if not _NAME.fullmatch(name):
        return GradeReason.MALFORMED
    return GradeReason.CORRECT if name.casefold() == _bare(gold).casefold() else GradeReason.WRONG


def check_arc_1d(answer: str, gold: str) -> GradeReason:
    """Whether the answer is the row of digits that ``gold`` is, whatever blanks, commas and a pair of square
    brackets stand around them.

    Raises:
        DataError: If ``gold`` is no row of digits.
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
"""By data source."""


def check_answer(answer: str | None, gold: str, data_source: str) -> Grade:
    """The verdict of a data source's checker; ``None`` or blank is no answer.

    Raises:
        KeyError: If ``data_source`` has no checker in ``CHECKERS``.
        DataError: If ``gold`` is nothing that the checker can compare with.
    """
    if answer is None or not answer.strip():
        reason = GradeReason.NO_ANSWER
    elif len(answer) > MAX_CHARS:
        reason = GradeReason.TOO_LONG
    else:
        reason = CHECKERS[data_source](answer, gold)
    return Grade(reason is GradeReason.CORRECT, reason)


def check_reference(instance: Instance) -> None:
    """Raise ``DataError`` unless the problem's reference answer passes its own checker, where it has one."""
    if instance.data_source not in CHECKERS:
        return
    at = f"problem {instance.instance_id!r} ({instance.data_source}), reference answer {instance.answer!r}"
    try:
        grade = check_answer(instance.answer, instance.answer, instance.data_source)
    except DataError as error:
        raise DataError(f"{at}: {error}; prepare the file again with `seele data prepare`") from error
    if not grade.correct:
        raise DataError(f"{at}: not of the form that the task asks for ({grade.reason.value})")


@functools.lru_cache(maxsize=4096)
def _read_countdown(gold: str) -> tuple[Fraction, tuple[int, ...]]:
    """Target and sorted numbers of a right expression."""
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
