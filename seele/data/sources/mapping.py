"""Values within a row by path, and the columns of an unmapped data set, found by their usual names.

A value is a text, a number or a level. Names and their order follow other loaders in the field, such as
LZE's; the columns chosen are printed and recorded. A column with one usable value is chosen: a bad row is
refused, and never replaces the column. The choice may be wrong: whether the reference answers can be met is
checked later.
"""

import itertools
import math
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from difflib import get_close_matches
from typing import Any

from seele.data.sources.settings import Columns, SourceSettings
from seele.data.tasks.gsm8k import is_gsm8k_solution
from seele.errors import ConfigError, DataError
from seele.maths.boxed import OPENING

Keys = Sequence[str | int]
"""The path from a row to a value: keys of mappings, indices of lists."""

_PART = re.compile(r"([^.\[\]]+)((?:\[-?\d+\])*)")
_NUMBER = re.compile(r"((?<!\S)-)?\d+")


def parse_path(path: str) -> Keys:
    """Parse a path: ``prompt[0].content`` becomes ``("prompt", 0, "content")``.

    Raises:
        ConfigError: If ``path`` is not a path.
    """
    keys: list[str | int] = []
    for part in path.split("."):
        match = _PART.fullmatch(part)
        if match is None:
            raise ConfigError(f"column {path!r}: expected a path such as 'answer', 'a.b' or 'a[0].b'")
        keys += [match[1], *(int(place) for place in re.findall(r"-?\d+", match[2]))]
    return keys


def look_up(row: Mapping[str, Any], path: str, *, default: Any = None) -> Any:
    """Return the value at ``path``, or ``default`` if there is none. A column named ``path`` comes first."""
    if path in row:
        return row[path]
    value: Any = row
    for key in parse_path(path):
        if isinstance(key, str):
            is_there = isinstance(value, Mapping) and key in value
        else:
            is_there = isinstance(value, list | tuple) and -len(value) <= key < len(value)
        if not is_there:
            return default
        value = value[key]
    return value


def as_text(value: Any) -> str | None:
    """Return a text, or a finite number in its usual form: 27.0 is ``27``. None for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return None if isinstance(value, bool) else str(value)
    if not isinstance(value, float | Decimal) or not math.isfinite(value):
        return None
    if value == int(value):
        return str(int(Decimal(repr(value)) if isinstance(value, float) else value))
    return f"{value:f}".rstrip("0") if isinstance(value, Decimal) else str(value)


def as_level(value: Any) -> int:
    """Return a difficulty as an integer >= 0, where 0 is unknown.

    Numbers are rounded down, and below 1 they become 0. In a text, the first number counts: ``Level 3`` is 3,
    and ``Level ?`` is 0.

    Raises:
        ValueError: If the value is neither a number, a text nor None, or exceeds 64 bits.
    """
    if value is None:
        return 0
    if isinstance(value, str):
        number = _NUMBER.search(value)
        level = max(0, int(number[0])) if number else 0
    elif not isinstance(value, int | float | Decimal) or isinstance(value, bool):
        raise ValueError(f"expected a number or a text with one, got {reprlib.repr(value)}")
    else:
        level = max(0, math.floor(value)) if math.isfinite(value) else 0
    if level >= 2**63:
        raise ValueError(f"expected a number below 2^63, got {reprlib.repr(value)}")
    return level


Rows = Iterable[tuple[str, Any]]

_ROWS_TO_LOOK_AT = 20

_MESSAGE = "{}[-1].content"
_QUESTIONS = ("question", "problem", "prompt", "query", "instruction", "input")
_ANSWERS = (
    *("reward_model.ground_truth", "ground_truth", "answer", "final_answer", "correct_answer"),
    *("expected_answer", "gold", "target"),
)
_SOLUTIONS = ("steps", "solution", "worked_solution", "generated_solution", "rationale", "reasoning")
_LEVELS = ("level", "difficulty")


def similar(path: str, holds: str, columns: Sequence[str]) -> str | None:
    """Return the column with the name ``path`` or a usual name of what it ``holds``, or the one most like
    these; None if there is none. Case and punctuation do not count, nor columns with usual names of others.
    """
    usual = {"question": _QUESTIONS, "answer": _ANSWERS, "level": _LEVELS, "solution": _SOLUTIONS}
    own = usual.pop("solution" if holds == "steps" else holds, _SOLUTIONS)
    of_others = {_letters(name) for names in usual.values() for name in names}
    plain = {name: column for column in columns if (name := _letters(column)) not in of_others}
    wanted = [_letters(name) for name in (path, *own)]
    close = (found[0] for name in wanted if (found := get_close_matches(name, plain, n=1)))
    match = next((name for name in wanted if name in plain), None) or next(close, None)
    return None if match is None else plain[match]


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def with_columns(rows: Rows, settings: SourceSettings) -> tuple[Rows, SourceSettings]:
    """Return the same rows, and settings with the columns of ``settings.detect`` found in the first rows.

    A column that is not found keeps its name from the settings.

    Raises:
        ConfigError: If the settings do not allow a column that was found.
        DataError: While the rows are read, if a later row has an answer, and the first ones had none.
    """
    iterator = iter(rows)
    first = list(itertools.islice(iterator, _ROWS_TO_LOOK_AT))
    seen = [row for _, row in first if isinstance(row, Mapping)]
    found = _find(seen, settings.detect)
    form = settings.solution_form
    answer = found.get("answer")
    rest = _without_answers(iterator) if answer is None and "answer" in found else iterator
    if "solution" in settings.detect and answer and _first(seen, [answer], _is_gsm8k):
        found |= {"solution": answer, "answer": None, "steps": None}
        form = "gsm8k"
    columns: Mapping[str, str | None] = {
        name: getattr(settings.columns, name) for name in Columns.__slots__
    } | found
    try:
        changed = replace(settings, columns=Columns(**columns), solution_form=form, detect=())  # type: ignore[arg-type]
    except ValueError as error:
        raise ConfigError(f"{settings.reference}: {error}") from error
    return itertools.chain(first, rest), changed


def _find(rows: Sequence[Mapping[str, Any]], wanted: Iterable[str]) -> dict[str, str | None]:
    """Return the columns that were found, by what they hold."""
    found: dict[str, str | None] = {}
    if "question" in wanted and (path := _first(rows, _questions(), _is_written)):
        found["question"] = path
    if "solution" in wanted:
        path = _first(rows, _SOLUTIONS, _is_solution)
        if path:
            # A column that mixes texts and lists is refused at its first list.
            found["solution" if _first(rows, [path], _is_written) else "steps"] = path
    if "answer" in wanted:
        # Without a usable value, the box is read only if the column is empty; else its first row is refused.
        path = _first(rows, _ANSWERS, _is_answer) or _first(rows, _ANSWERS, _is_given)
        solution = found.get("solution")
        if path:
            found["answer"] = path
        elif solution and _all(rows, solution, lambda value: _is_text(value) and OPENING in value):
            found["answer"] = None
    if "level" in wanted and (path := next((each for each in _LEVELS if _all(rows, each, _is_level)), None)):
        found["level"] = path
    return found


def _without_answers(rows: Rows) -> Rows:
    """Yield the rows as long as all usual columns of an answer are empty in them."""
    for at, row in rows:
        if isinstance(row, Mapping) and (path := _first([row], _ANSWERS, _is_given)):
            raise DataError(
                f"{at}: column {path!r} has a value, but is empty in the first {_ROWS_TO_LOOK_AT} rows; map "
                f'the columns with --map "question=COLUMN answer={path} solution=COLUMN"; answer= without a '
                "column reads the last box of the solution"
            )
        yield at, row


def _questions() -> Iterator[str]:
    for name in _QUESTIONS:
        yield name
        yield _MESSAGE.format(name)


def _first(
    rows: Sequence[Mapping[str, Any]], paths: Iterable[str], holds: Callable[[Any], bool]
) -> str | None:
    """Return the first path at which any row has a value that satisfies ``holds``."""
    return next((path for path in paths if any(map(holds, _values(rows, path)))), None)


def _all(rows: Sequence[Mapping[str, Any]], path: str, holds: Callable[[Any], bool]) -> bool:
    """Return True if any row has a value at ``path``, and all such values satisfy ``holds``."""
    values = _values(rows, path)
    return bool(values) and all(map(holds, values))


def _values(rows: Sequence[Mapping[str, Any]], path: str) -> list[Any]:
    return [value for row in rows if (value := look_up(row, path)) is not None]


def _is_answer(value: Any) -> bool:
    return bool((as_text(value) or "").strip())


def _is_given(value: Any) -> bool:
    """Return False for what stands for a missing value: a blank text, NaN, or an empty list or mapping."""
    if isinstance(value, str):
        return bool(value.strip())
    return bool(value == value) and value not in ([], {})


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_written(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_gsm8k(value: Any) -> bool:
    return isinstance(value, str) and is_gsm8k_solution(value)


def _is_solution(value: Any) -> bool:
    return _is_written(value) or (isinstance(value, list | tuple) and len(value) > 0)


def _is_level(value: Any) -> bool:
    if isinstance(value, str):
        return any(map(str.isdigit, value))
    return isinstance(value, int | float) and not isinstance(value, bool)
