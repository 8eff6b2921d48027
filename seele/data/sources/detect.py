"""Columns of a data set without a map, found by the names that are usual for them.

Names and their order follow other loaders of the field (LZE's among them); which columns were taken is said
and recorded. What is found here may be wrong: that the reference answers can be met is checked later.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from seele.data.sources.mapping import as_text, look_up
from seele.data.sources.settings import Columns, SourceSettings
from seele.data.tasks.gsm8k import is_gsm8k_solution
from seele.maths.boxed import OPENING

Rows = Iterable[tuple[str, Any]]

_ROWS_TO_LOOK_AT = 20

_MESSAGE = "{}[-1].content"
_QUESTIONS = ("question", "problem", "prompt", "query", "instruction", "input")
_ANSWERS = (
    *("reward_model.ground_truth", "ground_truth", "answer", "final_answer", "correct_answer"),
    *("expected_answer", "gold", "target"),
)
_SOLUTIONS = ("solution", "worked_solution", "generated_solution", "rationale", "reasoning")
_LEVELS = ("level", "difficulty")


def with_columns(rows: Rows, settings: SourceSettings) -> tuple[Rows, SourceSettings]:
    """The same rows, and settings with a column for each of ``settings.detect`` that the first rows have.

    A column that is not found keeps the name that the settings have for it.
    """
    iterator: Iterator[tuple[str, Any]] = iter(rows)
    first = list(itertools.islice(iterator, _ROWS_TO_LOOK_AT))
    seen = [row for _, row in first if isinstance(row, Mapping)]
    found = _find(seen, settings.detect)
    form = settings.solution_form
    answer = found.get("answer")
    if "solution" in settings.detect and answer and _all(seen, answer, _is_gsm8k):
        found |= {"solution": answer, "answer": None, "steps": None}
        form = "gsm8k"
    columns: Mapping[str, str | None] = {
        name: getattr(settings.columns, name) for name in Columns.__slots__
    } | found
    changed = replace(settings, columns=Columns(**columns), solution_form=form, detect=())  # type: ignore[arg-type]
    return itertools.chain(first, iterator), changed


def _find(rows: Sequence[Mapping[str, Any]], wanted: Iterable[str]) -> dict[str, str | None]:
    """Column by what it holds, for what was found."""
    found: dict[str, str | None] = {}
    if "question" in wanted and (path := _first(rows, _questions(), _is_text)):
        found["question"] = path
    if "solution" in wanted:
        if _all(rows, "steps", _is_steps):
            found["steps"] = "steps"
        elif path := _first(rows, _SOLUTIONS, _is_text):
            found["solution"] = path
    if "answer" in wanted:
        path = _first(rows, _ANSWERS, lambda value: as_text(value) is not None)
        solution = found.get("solution")
        if path:
            found["answer"] = path
        elif solution and _all(rows, solution, lambda value: _is_text(value) and OPENING in value):
            found["answer"] = None
    if "level" in wanted and (path := _first(rows, _LEVELS, _is_level)):
        found["level"] = path
    return found


def _questions() -> Iterator[str]:
    for name in _QUESTIONS:
        yield name
        yield _MESSAGE.format(name)


def _first(
    rows: Sequence[Mapping[str, Any]], paths: Iterable[str], holds: Callable[[Any], bool]
) -> str | None:
    return next((path for path in paths if _all(rows, path, holds)), None)


def _all(rows: Sequence[Mapping[str, Any]], path: str, holds: Callable[[Any], bool]) -> bool:
    """Whether some row has a value there, and all values are of the kind."""
    values = [value for row in rows if (value := look_up(row, path)) is not None]
    return bool(values) and all(map(holds, values))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_gsm8k(value: Any) -> bool:
    return isinstance(value, str) and is_gsm8k_solution(value)


def _is_steps(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(step, str) for step in value)


def _is_level(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and any(map(str.isdigit, value)))
