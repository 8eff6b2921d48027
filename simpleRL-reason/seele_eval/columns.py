"""Columns of a source's rows by which accuracy can be split: subjects, levels, categories.

A value is a text, a number, a truth value or a list of texts; nested fields are named ``extra_info.split``.
A row without a value lacks the column.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MAX_VALUES = 100
"""A column with more different values identifies problems rather than kinds: questions, ids, links."""

NO_VALUE = "(none)"
"""Stands for the value of a problem whose row lacks the column."""

Columns = dict[str, Any]
"""Values of one row by column."""


def columns_of(row: Mapping[str, Any]) -> Columns:
    """The row's comparable columns, flattened."""
    return dict(_flat(row, ""))


def groupable(rows: Sequence[Columns]) -> list[str]:
    """The names of columns of the rows that hold at most ``MAX_VALUES`` different values, sorted."""
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
