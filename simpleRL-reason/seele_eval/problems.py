r"""One problem of a benchmark: question, reference answers, and columns by which accuracy can be split.

``seele_eval.rows`` reads the data sets' rows; ``seele_eval.benchmarks`` lists the data sets.

Answers are the contents of a ``\boxed{}``: split into several, stripped of a unit, normalised for a vote.
``seele_eval.grading`` decides whether an answer is right.

A column's value is a text, a number, a Boolean or a list of texts, such as a subject, a level or a
category; nested fields are named ``extra_info.split``. A row without a value lacks the column.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, TypeVar

from seele.maths.boxed import TEXT_COMMAND
from seele.records import Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A question with its reference answers."""

    instance_id: str
    """Unique in its benchmark and derived from the content: a shuffled or shortened file keeps its ids."""

    question: str
    """The question with its options, without the template."""

    answers: tuple[str, ...]
    """Reference answers without a box; if several, all must be given, in any order. With options, the label
    of the right one.
    """

    labels: tuple[str, ...] = ()
    """Labels of the options: letters or digits. Empty for an open question."""

    options: tuple[str, ...] = ()
    """Texts of the options."""

    unit: str = ""
    """Unit of the answer if the source states one separately; an answer may repeat it."""

    level: int = 0
    """Difficulty if the source states one, else 0."""

    data_source: str = ""
    """Data set of a training problem; it may have its own checker."""

    steps: tuple[str, ...] = ()
    """Worked solution of a training problem."""

    columns: Mapping[str, Any] = field(default_factory=dict)
    """The row's values of the columns that scores are split by; None if the row lacks one."""

    @property
    def answer(self) -> str:
        """The reference answers as one text."""
        return ", ".join(self.answers)


def open_problem(question: str, *answers: str, unit: str = "", level: int = 0) -> Problem:
    """A problem without options, identified by its content."""
    question = question.strip()
    answers = tuple(answer.strip() for answer in answers)
    return Problem(
        instance_id=_digest(question, *answers), question=question, answers=answers, unit=unit, level=level
    )


def choice_problem(question: str, options: dict[str, str], gold: str) -> Problem:
    """A problem with options by label, worded as in LUFFY's evaluation files (arXiv:2504.14945)."""
    lines = "\n".join(f"{label}) {text}" for label, text in options.items())
    asked = f"{question.strip()}\n\n{lines}"
    return Problem(
        instance_id=_digest(asked, gold),
        question=asked,
        answers=(gold,),
        labels=tuple(options),
        options=tuple(options.values()),
    )


def from_instance(instance: Instance) -> Problem:
    """A training problem."""
    return Problem(
        instance_id=instance.instance_id,
        question=instance.question,
        answers=(instance.answer,),
        level=instance.level,
        data_source=instance.data_source,
        steps=instance.steps,
    )


P = TypeVar("P", Problem, Instance)


def number_twins(problems: Iterable[P]) -> list[P]:
    """Make ids unique: the second of two identical problems gets ``-2``, and so on."""
    seen: Counter[str] = Counter()
    numbered = []
    for problem in problems:
        name = problem.instance_id
        seen[name] += 1
        numbered.append(problem if seen[name] == 1 else replace(problem, instance_id=f"{name}-{seen[name]}"))
    return numbered


def _digest(*texts: str) -> str:
    return hashlib.sha256("\x1f".join(texts).encode()).hexdigest()[:16]


# Dressing around an answer that does not change it. A double backslash ends a line.
_DRESSING = re.compile(r"\\(?:left|right)(?=[\\{}()\[\].|])|(?<!\\)\\[,;:! ]|[$~]")
_TEXT = re.compile(rf"{TEXT_COMMAND}\s*\{{([^{{}}]*)\}}")

_COMMA = re.compile(r"\\text\s*\{\s*(?:[,;]|[,;]?\s*(?:and|or))\s*\}|\b(?:and|or)\b")
_PIECE = re.compile(
    r"(?P<separator>[,;]|\\\\|\\q?quad(?![A-Za-z]))"
    r"|(?P<opening>[(\[{]|\\begin\b)|(?P<closing>[)\]}]|\\end\b)|.",
    re.DOTALL,
)

_EITHER_SIGN = re.compile(r"(\\pm|\\mp)(?![A-Za-z])\s*")
_PLUS_AT_START = re.compile(r"(^|[=({])\+")
_THOUSANDS = re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?![\d,])")

# A unit is at an answer's end; the benchmarks have no longer units.
_MAX_UNIT_CHARS = 40


def split_answers(text: str) -> list[str]:
    r"""Split a text such as ``$(1,8,19), (2,7,13)$`` or ``1,3,5`` into its answers.

    The text is split outside brackets and environments, at commas, semicolons, ``and``, ``or``, ``\quad`` and
    line ends. A part with ``\pm`` counts as two. Braces around the whole set are dropped.
    """
    text = _DRESSING.sub("", text).strip()
    if text.startswith("\\{") and text.endswith("\\}"):
        braces = re.findall(r"\\[{}]", text[2:-2])
        depths = accumulate(1 if each == "\\{" else -1 for each in braces)
        if min(depths, default=0) >= 0:  # the first brace and the last are a pair
            text = text[2:-2]
    parts, depth = [""], 0
    for piece in _PIECE.finditer(_COMMA.sub(",", text)):
        depth += bool(piece["opening"]) - bool(piece["closing"])
        if piece["separator"] and depth <= 0:
            parts.append("")
        else:
            parts[-1] += piece[0]
    stripped = [part.strip() for part in parts if part.strip()]
    return [each for part in stripped for each in _both_signs(part)]


def _both_signs(part: str) -> list[str]:
    if not _EITHER_SIGN.search(part):
        return [part]
    upper = _EITHER_SIGN.sub(lambda found: "+" if found[1] == "\\pm" else "-", part)
    lower = _EITHER_SIGN.sub(lambda found: "-" if found[1] == "\\pm" else "+", part)
    return [_PLUS_AT_START.sub(r"\1", each) for each in (upper, lower)]


def without_separators(text: str) -> str:
    """The text with ``1005`` for ``1,005``; ``5, 100`` stays."""
    return _THOUSANDS.sub(lambda found: found[0].replace(",", ""), text)


def drop_unit(answer: str, unit: str) -> str:
    r"""The answer without ``unit`` at its end, bare or as ``\text{unit}``, singular or plural.

    A unit of one letter has no plural, and one of two letters is not a plural itself: 5 ms are not 5 m.
    """
    if not unit:
        return answer
    head, tail = answer[:-_MAX_UNIT_CHARS], answer[-_MAX_UNIT_CHARS:]
    word = re.escape(unit) + ("s?" if len(unit) > 1 else "")
    if len(unit) > 2:
        word = f"(?:{word}|{re.escape(unit.removesuffix('s'))})"
    ending = rf"(?:\\[,;: ]|[\s~])*(?:\\(?:text|mathrm)\s*\{{\s*{word}\s*\}}|(?<![A-Za-z]){word})\s*\$?$"
    return head + re.sub(ending, "", tail)


def vote_key(answer: str) -> str:
    """Key of an answer in a vote: its text without dressing and blanks."""
    text = _TEXT.sub(r"\1", _DRESSING.sub("", answer)).replace("\\dfrac", "\\frac")
    return re.sub(r"\s+", "", text.replace("\\tfrac", "\\frac")).rstrip(".")


MAX_VALUES = 100
"""A column with more different values identifies problems rather than kinds: questions, ids, links."""

NO_VALUE = "(none)"
"""The value for a problem whose row lacks the column."""

Columns = dict[str, Any]
"""Values of one row by column."""


def columns_of(row: Mapping[str, Any]) -> Columns:
    """The row's comparable columns, flattened."""
    return dict(_flat(row, ""))


def groupable(rows: Sequence[Columns]) -> list[str]:
    """The sorted names of the rows' columns that hold at most ``MAX_VALUES`` different values."""
    values: dict[str, set[str]] = {}
    for row in rows:
        for name, value in row.items():
            values.setdefault(name, set()).update(values_in(value))
    return sorted(name for name, different in values.items() if len(different) <= MAX_VALUES)


def values_in(value: Any) -> list[str]:
    """Groups of a problem with this value: each text of a list, or else the value as a text."""
    if value is None:
        return [NO_VALUE]
    return list(dict.fromkeys(map(str, value))) if isinstance(value, list) else [str(value)]


def _flat(row: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        # Only NaN, which pandas writes for a missing number, differs from itself.
        elif (isinstance(value, str | int | float) and value == value and value != "") or _is_list(value):
            yield f"{prefix}{key}", value


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)
