"""Values within a row by path, and what they say: a text, a number, a level."""

import math
import re
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from seele.errors import ConfigError

Keys = Sequence[str | int]
"""How to get from a row to a value: keys of mappings, places in lists."""

_PART = re.compile(r"([^.\[\]]+)((?:\[-?\d+\])*)")
_NUMBER = re.compile(r"\d+")


def parse_path(path: str) -> Keys:
    """``prompt[0].content`` as ``("prompt", 0, "content")``.

    Raises:
        ConfigError: If it is none.
    """
    keys: list[str | int] = []
    for part in path.split("."):
        match = _PART.fullmatch(part)
        if match is None:
            raise ConfigError(f"column {path!r}: expected a path such as 'answer', 'a.b' or 'a[0].b'")
        keys += [match[1], *(int(place) for place in re.findall(r"-?\d+", match[2]))]
    return keys


def look_up(row: Mapping[str, Any], path: str) -> Any:
    """Value at ``path``; None where there is none. A column whose very name is the path comes first."""
    if path in row:
        return row[path]
    value: Any = row
    for key in parse_path(path):
        if isinstance(key, str):
            value = value.get(key) if isinstance(value, Mapping) else None
        else:
            is_there = isinstance(value, list | tuple) and -len(value) <= key < len(value)
            value = value[key] if is_there else None
    return value


def column_of(path: str, columns: Sequence[str]) -> str:
    """The column that ``path`` begins at."""
    return path if path in columns else str(parse_path(path)[0])


def as_text(value: Any) -> str | None:
    """A text, or a number as people write it: 27.0 is ``27``. None for anything else."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def as_level(value: Any) -> int:
    """A difficulty as an integer >= 0, where 0 is unknown.

    Numbers are rounded down, below 1 they are 0; of a text, the first number counts: ``Level 3`` is 3, and
    ``Level ?`` is 0.

    Raises:
        ValueError: If it is neither a number, nor a text, nor nothing.
    """
    if value is None:
        return 0
    if isinstance(value, str):
        number = _NUMBER.search(value)
        return int(number[0]) if number else 0
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"expected a number or a text with one, got {reprlib.repr(value)}")
    return max(0, math.floor(value)) if math.isfinite(value) else 0
