"""Checks of a controller's own settings, with messages that name the key and what is allowed."""

import math
import sys
from typing import Any

from seele.errors import ConfigError


def check_number(key: str, value: Any, *, at_least: float = 0.0, at_most: float = math.inf) -> float:
    """``value`` as a float, if it is a finite number in the closed range.

    Raises:
        ConfigError: Says what was expected.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not at_least <= value <= min(at_most, sys.float_info.max):
        allowed = f"in [{at_least:g}, {at_most:g}]" if math.isfinite(at_most) else f"of at least {at_least:g}"
        raise ConfigError(f"seele.hints.settings.{key}: expected a number {allowed}, got {value!r}")
    return float(value)


def check_count(key: str, value: Any) -> int:
    """``value``, if it is a whole number of at least 1.

    Raises:
        ConfigError: Says what was expected.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"seele.hints.settings.{key}: expected a whole number of at least 1, got {value!r}")
    return value
