"""Reading of saved states of controllers, curricula, selections and pruning.

A state has a header that identifies its owner. Errors say what was found, what was expected and what to do.
"""

import reprlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from seele.errors import CheckpointError
from seele.records import State

Entry = TypeVar("Entry")
Saved = TypeVar("Saved")


def state_header(controller: str, version: int) -> dict[str, Any]:
    """Return the two keys that identify a state's owner."""
    return {"controller": controller, "version": version}


def read_state(
    state: State, *, header: State, read: Callable[[State], Saved], keys: Collection[str] = ()
) -> Saved:
    """Return ``read(state)`` if the state has ``header``; ``read`` raises on an invalid state.

    Args:
        state: The state.
        header: The keys that identify its owner, and their values.
        read: Reads the rest, and changes nothing.
        keys: All keys that the state must have, those of the header included; empty if ``read`` decides.

    Raises:
        CheckpointError: If the state is of another kind or version, or damaged; the message says what came
            and what was expected.
    """
    if not isinstance(state, Mapping):
        raise CheckpointError(f"saved state: expected a mapping, got {type(state).__name__}")
    found = {key: state[key] for key in header if key in state}
    if found != header:
        raise CheckpointError(
            f"saved state: expected {dict(header)}, got {found}; resume with the settings and release that "
            "wrote the checkpoint, or start a new run folder"
        )
    try:
        if keys and sorted(state) != sorted(keys):
            raise ValueError(f"expected keys {sorted(keys)}, got {sorted(state)}")
        return read(state)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"saved state {dict(header)}: cannot be read ({type(error).__name__}: {error}); "
            "the checkpoint is damaged, resume from an earlier one"
        ) from error


def read_section(state: State, section: str, read_entry: Callable[[Any], Entry]) -> dict[str, Entry]:
    """Return the entries of ``state[section]``, each read by ``read_entry``, which raises on invalid ones.

    Raises:
        ValueError: If an entry cannot be read; the message names it.
    """
    entries = state[section]
    if not isinstance(entries, Mapping):
        raise ValueError(f"{section}: expected a mapping, got {type(entries).__name__}")
    return {key: _read(value, f"{section}[{key!r}]", read_entry) for key, value in entries.items()}


def read_value(state: State, key: str, read: Callable[[Any], Entry]) -> Entry:
    """Return ``state[key]`` as read by ``read``, which raises on an invalid value.

    Raises:
        ValueError: If the value cannot be read; the message names it.
    """
    return _read(state[key], key, read)


def read_count(value: Any) -> int:
    """Return ``value`` if it is a whole number, 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"a count is a whole number, 0 or more, got {value!r}")
    return value


def read_two_counts(value: Any) -> tuple[int, int]:
    """Return ``value`` as a tuple if it is two counts."""
    first, second = map(read_count, value)
    return first, second


def read_ratio(value: Any) -> float:
    """Return ``value`` as a float if it is a number in [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise ValueError(f"a ratio is a number in [0, 1], got {value!r}")
    return float(value)


def _read(value: Any, at: str, read: Callable[[Any], Entry]) -> Entry:
    try:
        return read(value)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"{at}: cannot read {reprlib.repr(value)} ({error})") from error
