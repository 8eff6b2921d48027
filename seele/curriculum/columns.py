"""Problems ranked by their values in columns of the training data.

The columns are read elsewhere (``seele.data.storage.schema.read_columns``). P counts all problems.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seele.errors import DataError

Key = tuple[Any, ...]
"""A problem's values, one for each column."""

_KINDS = {bool: "booleans", int: "numbers", float: "numbers", str: "texts"}


def rank_problems(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str]
) -> tuple[list[Key], NDArray[np.int64]]:
    """Group problems that share their values in ``columns``.

    Returns:
        The groups' values in ascending order, and (P,) the place of each problem's group in that list.

    Raises:
        DataError: If a value is missing, or a column mixes texts, numbers and booleans.
    """
    for column in columns:
        _check_column(rows, column)
    keys = [tuple(row[column] for column in columns) for row in rows]
    groups = sorted(set(keys))
    rank = {key: place for place, key in enumerate(groups)}
    return groups, np.array([rank[key] for key in keys], dtype=np.int64)


def _check_column(rows: Sequence[Mapping[str, Any]], column: str) -> None:
    first_of_kind: dict[str, str] = {}
    for problem, row in enumerate(rows):
        value = row.get(column)
        kind = _KINDS.get(type(value))
        if kind is None or (isinstance(value, float) and math.isnan(value)):
            raise DataError(
                f"seele.curriculum.columns, column {column!r}: problem {problem} (counted from 0) has "
                f"{value!r}; allowed are a text, a number or a boolean; fill in the value or choose another "
                "column"
            )
        first_of_kind.setdefault(kind, f"problem {problem} has {value!r}")
    if len(first_of_kind) > 1:
        raise DataError(
            f"seele.curriculum.columns, column {column!r} mixes {' and '.join(first_of_kind)}: "
            f"{', '.join(first_of_kind.values())}; only values of one kind can be sorted"
        )
