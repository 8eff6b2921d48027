"""Conversion of a source's row to a problem, or to the reason why it gives none."""

import hashlib
import json
import reprlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from seele.data.sources.mapping import as_level, as_text, look_up, similar, with_columns
from seele.data.sources.settings import Reason, SourceSettings
from seele.data.steps.cutting import join_steps, split_steps
from seele.data.storage.row_rules import check_unicode, shown
from seele.data.storage.schema import content_id
from seele.data.tasks.gsm8k import DATA_SOURCE as GSM8K
from seele.data.tasks.gsm8k import problem_id, split_solution
from seele.errors import DataError
from seele.maths.boxed import last_boxed
from seele.records import Instance

_END_OF_THINKING = "</think>"

# A mapped column that is missing in this many rows is a mistake in the mapping.
_ROWS_TO_SEE_A_COLUMN = 1000
_ABSENT = object()


@dataclass(slots=True)
class Counts:
    """What became of the rows of a split; filled while they are read."""

    read: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    """Number of skipped rows by reason."""
    columns: dict[str, str] = field(default_factory=dict)
    """Columns by what they hold, if columns were detected; an answer may be a part of the solution."""


class _Unusable(Exception):
    """A row gives no problem. Outside this module it appears as a count or a ``DataError``."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def to_instances(
    rows: Iterable[tuple[str, Any]], settings: SourceSettings, counts: Counts
) -> Iterator[Instance]:
    """Yield the problem of each row, in order, without those that the settings skip.

    Args:
        rows: Each row with its location for messages.
        settings: How a row encodes a problem.
        counts: Filled while reading.

    Raises:
        DataError: If a row is not a mapping, a row gives no problem for a reason that is not in
            ``leave_out``, or no row has a mapped column.
    """
    if settings.detect:
        rows, settings = with_columns(rows, settings)
        counts.columns = _columns_read(settings)
    answer_of_question: dict[bytes, bytes] = {}
    unseen = {path: name for name, path in settings.columns.named.items()}
    for at, row in rows:
        if not isinstance(row, Mapping):
            raise DataError(f"{at}: expected a row with columns, got {reprlib.repr(row)}")
        counts.read += 1
        if unseen:
            unseen = {
                path: name for path, name in unseen.items() if look_up(row, path, default=_ABSENT) is _ABSENT
            }
            if unseen and counts.read == _ROWS_TO_SEE_A_COLUMN:
                _refuse_columns(unseen, at, row)
        try:
            instance = _to_instance(row, at, settings)
            _check_new(instance, answer_of_question)
        except _Unusable as problem:
            # Who sets a limit on length wants longer rows left out.
            if problem.reason not in (*settings.leave_out, Reason.TOO_LONG):
                if problem.reason in (Reason.NO_QUESTION, Reason.NO_ANSWER) and unseen:
                    _refuse_columns(unseen, at, row)
                reasons = json.dumps([*settings.leave_out, problem.reason])
                raise DataError(
                    f"{at}: {problem}; fix the row, or skip such rows and count them with "
                    f"--set leave_out='{reasons}'"
                ) from problem
            counts.left_out[problem.reason] += 1
            continue
        yield instance
    if unseen and counts.read:
        _refuse_columns(unseen, at, row)


def _columns_read(settings: SourceSettings) -> dict[str, str]:
    columns = settings.columns
    part = "last line" if settings.solution_form == "gsm8k" else "last box"
    return {"question": columns.question, "answer": f"{part} of {columns.solution}"} | columns.named


def _refuse_columns(unseen: Mapping[str, str], at: str, row: Mapping[str, Any]) -> None:
    wrong = ", ".join(f"{path!r} (for {name})" for path, name in unseen.items())
    paths = _paths(row)
    close = [f"{name}={found}" for path, name in unseen.items() if (found := similar(path, name, paths))]
    raise DataError(
        f"{at}: no column {wrong} in any row so far; this row has {paths}; "
        'map the columns with --map "question=COLUMN answer=COLUMN solution=COLUMN"'
        + (f', perhaps "{" ".join(close)}"' if close else "")
        + "; answer= without a column reads the last box of the solution"
    )


def _paths(row: Mapping[str, Any]) -> list[str]:
    """Return the columns of a row, and the keys within them."""
    within = [f"{name}.{key}" for name, value in row.items() if isinstance(value, Mapping) for key in value]
    return [*row, *within]


def _to_instance(row: Mapping[str, Any], at: str, settings: SourceSettings) -> Instance:
    if settings.solution_form == "gsm8k":
        return _gsm8k_instance(row, at, settings)
    columns = settings.columns
    question = _question(look_up(row, columns.question), settings)
    solution = _solution(row, at, settings) if columns.solution else ""
    if columns.answer:
        value = look_up(row, columns.answer)
        answer = (as_text(value) or "").strip()
        where = f"expected a text or a finite number in column {columns.answer!r}, got {shown(value)}"
        if isinstance(value, Mapping | list | tuple):
            part = ".KEY" if isinstance(value, Mapping) else "[0]"
            where += f"; --map answer={columns.answer}{part} takes a part of it"
    else:
        answer = last_boxed(solution) or ""
        where = f"no closed box in {columns.solution!r}"
    if not answer:
        raise _Unusable(Reason.NO_ANSWER, f"no answer ({where})")
    steps = _listed_steps(row, at, settings) if columns.steps else _cut(solution, settings)
    return _checked(row, at, settings, question=question, steps=steps, answer=answer)


def _gsm8k_instance(row: Mapping[str, Any], at: str, settings: SourceSettings) -> Instance:
    question = _question(asked := look_up(row, settings.columns.question), settings)
    solution = _solution(row, at, settings)
    try:
        steps, answer = split_solution(solution)
    except ValueError as error:
        raise _Unusable(Reason.NO_ANSWER, f"no answer ({error})") from error
    instance = _checked(row, at, settings, question=question, steps=steps, answer=answer)
    if settings.data_source != GSM8K:
        return instance
    # The same id as from `seele data prepare gsm8k`.
    return replace(instance, instance_id=problem_id(asked, look_up(row, str(settings.columns.solution))))


def _checked(
    row: Mapping[str, Any],
    at: str,
    settings: SourceSettings,
    *,
    question: str,
    steps: tuple[str, ...],
    answer: str,
) -> Instance:
    """Return the problem with its level, unless it is too long."""
    columns = settings.columns
    if settings.max_chars is not None and len(question) + sum(map(len, steps)) > settings.max_chars:
        raise _Unusable(Reason.TOO_LONG, f"question and solution exceed max_chars={settings.max_chars}")
    try:
        level = as_level(look_up(row, columns.level)) if columns.level else 0
    except ValueError as error:
        raise DataError(f"{at}, column {columns.level!r}: {error}") from error
    for name, text in (("question", question), ("answer", answer), ("solution", "".join(steps))):
        check_unicode(text, f"{at}, {name}")
    return Instance(
        instance_id=content_id(settings.data_source, question, steps, answer),
        data_source=settings.data_source,
        question=question,
        steps=steps,
        answer=answer,
        level=level,
    )


def _question(value: Any, settings: SourceSettings) -> str:
    text = value.strip() if isinstance(value, str) else ""
    text = text.removeprefix(settings.question_prefix.strip()).removesuffix(settings.question_suffix.strip())
    if not text.strip():
        raise _Unusable(
            Reason.NO_QUESTION, f"no question (column {settings.columns.question!r} is {reprlib.repr(value)})"
        )
    return text.strip()


def _solution(row: Mapping[str, Any], at: str, settings: SourceSettings) -> str:
    text = look_up(row, str(settings.columns.solution))
    if text is None:
        return ""
    if not isinstance(text, str):
        raise DataError(
            f"{at}, column {settings.columns.solution!r}: expected a text, got {shown(text)}; map a list of "
            "steps with steps=..., or one of its items with solution=COLUMN[0]"
        )
    if settings.thinking == "drop":
        thoughts, end, said = text.rpartition(_END_OF_THINKING)
        # Without an end, the solution was cut off while thinking.
        text = said if end or "<think>" not in thoughts + said else ""
    return text.strip()


def _cut(solution: str, settings: SourceSettings) -> tuple[str, ...]:
    return split_steps(solution, max_steps=settings.max_steps) if solution else ()


def _listed_steps(row: Mapping[str, Any], at: str, settings: SourceSettings) -> tuple[str, ...]:
    steps = look_up(row, str(settings.columns.steps))
    if steps is None:
        return ()
    if not isinstance(steps, list | tuple) or not all(isinstance(step, str) for step in steps):
        raise DataError(
            f"{at}, column {settings.columns.steps!r}: expected a list of texts, got {shown(steps)}; "
            "map a solution in one text with solution=..."
        )
    # Steps of our own files end in their separator.
    bare = [step.removesuffix(settings.separator) for step in steps[:-1]]
    return join_steps([*bare, *steps[-1:]], separator=settings.separator)


def _check_new(instance: Instance, answer_of_question: dict[bytes, bytes]) -> None:
    question, answer = (
        hashlib.blake2b(" ".join(text.split()).encode("utf-8", "surrogatepass"), digest_size=10).digest()
        for text in (instance.question, instance.answer)
    )
    earlier = answer_of_question.setdefault(question, answer)
    if earlier is not answer:
        same = earlier == answer
        raise _Unusable(
            Reason.DUPLICATE if same else Reason.OTHER_ANSWER,
            f"the question occurs in an earlier row with {'the same' if same else 'another'} answer",
        )
