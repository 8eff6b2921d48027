"""Values within a row by path, and what they say: a text, a number, a level."""

import math
import re
import reprlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
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


def look_up(row: Mapping[str, Any], path: str, *, default: Any = None) -> Any:
    """Value at ``path``, or ``default`` where there is none. A column of the very name comes first."""
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
    """A text, or a finite number as people write it: 27.0 is ``27``. None for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return None if isinstance(value, bool) else str(value)
    if not isinstance(value, float | Decimal) or not math.isfinite(value):
        return None
    if value == int(value):
        return str(int(value))
    return f"{value:f}".rstrip("0") if isinstance(value, Decimal) else str(value)


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
    if not isinstance(value, int | float | Decimal) or isinstance(value, bool):
        raise ValueError(f"expected a number or a text with one, got {reprlib.repr(value)}")
    return max(0, math.floor(value)) if math.isfinite(value) else 0
