"""Conversion of plain mappings to frozen dataclasses, with errors that name the key.

Hydra's structured configs are not used: a frozen dataclass in its store rejects every command-line override.
"""

import dataclasses
import math
import sys
from collections.abc import Collection, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from seele.errors import ConfigError, did_you_mean

T = TypeVar("T")

KINDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    NoneType: "null",
    Mapping: "keys with values",
}


def from_mapping(cls: type[T], raw: Mapping[str, Any], at: str) -> T:
    """Build ``cls`` from ``raw``, recursing into fields that are dataclasses themselves.

    Args:
        cls: A dataclass whose ``__post_init__`` raises ``ValueError`` for values it does not accept.
        raw: The section as composed, every value resolved.
        at: Path of the section, for messages, such as ``seele.hints``.

    Raises:
        ConfigError: If a key is unknown or missing, a type is wrong, or the class rejects a value.
    """
    types = get_type_hints(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    names = sorted(field.name for field in fields)
    for key in raw:
        if key not in names:
            raise ConfigError(
                f"{at}: unknown key {key!r}{did_you_mean(key, names)}; allowed keys are {names}"
            )
    missing = [
        field.name
        for field in fields
        if field.name not in raw and field.default is field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ConfigError(f"{at}: no value for {missing[0]!r}, which is needed; allowed keys are {names}")
    values = {key: _checked(value, types[key], f"{at}.{key}") for key, value in raw.items()}
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{at}: {error}") from error


def _checked(value: Any, expected: Any, at: str) -> Any:
    if dataclasses.is_dataclass(expected) and isinstance(expected, type):
        if not isinstance(value, Mapping):
            keys = sorted(field.name for field in dataclasses.fields(expected))
            instead = f"; write {at}.name={value}" if "name" in keys else ""
            raise ConfigError(f"{at}: expected a section with the keys {keys}, got {value!r}{instead}")
        return from_mapping(expected, value, at)
    others = [each for each in get_args(expected) if each is not NoneType]
    if get_origin(expected) is UnionType and len(others) == 1:
        if value is None:
            return None
        [expected] = others
    if get_origin(expected) is tuple and isinstance(value, list):
        return tuple(_checked(item, get_args(expected)[0], f"{at}[{i}]") for i, item in enumerate(value))
    if expected == Mapping[str, str] and isinstance(value, Mapping):
        return {_checked(key, str, at): _checked(item, str, f"{at}.{key}") for key, item in value.items()}
    if get_origin(expected) not in (None, UnionType):
        expected = get_origin(expected)
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        if abs(value) > sys.float_info.max:
            raise ConfigError(f"{at}: expected a number, got a whole number that is too large for a float")
        return float(value)
    if expected is tuple and not isinstance(value, tuple):
        raise ConfigError(f"{at}: expected a list such as [{value}], got {value!r}")
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        kinds = [
            KINDS.get(each, getattr(each, "__name__", str(each))) for each in get_args(expected) or [expected]
        ]
        raise ConfigError(f"{at}: expected {' or '.join(kinds)}, got {value!r}")
    return value


def require(condition: bool, message: str) -> None:
    """Raise ``ValueError``, which ``from_mapping`` turns into an error that names the section."""
    if not condition:
        raise ValueError(message)


def require_one_of(name: str, value: str, allowed: Collection[str], hint: str = "") -> None:
    """Raise ``ValueError`` unless a setting has one of the allowed values; ``hint`` ends the message."""
    require(value in allowed, f"{name} must be one of {list(allowed)}, got {value!r}{hint}")


def require_fraction(
    name: str, value: float, allowed: Literal["[0, 1]", "[0, 1)", "(0, 1]", "(0, 1)"] = "[0, 1]"
) -> None:
    """Raise ``ValueError`` unless a number lies in the interval; a round bracket excludes that end."""
    above = value >= 0.0 if allowed[0] == "[" else value > 0.0
    below = value <= 1.0 if allowed[-1] == "]" else value < 1.0
    require(above and below, f"{name} must lie in {allowed}, got {value}")


def require_not_negative(name: str, value: float) -> None:
    """Raise ``ValueError`` unless a number is finite and at least 0."""
    require(0.0 <= value < math.inf, f"{name} must be finite and not negative, got {value}")


def require_request(request: str) -> None:
    """Raise ``ValueError`` unless a text contains ``{question}``, and ``{hint}`` exactly once."""
    require(
        request.count("{hint}") == 1 and "{question}" in request,
        f"request must contain {{question}}, and {{hint}} exactly once, got {request!r}",
    )
