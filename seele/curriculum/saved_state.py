"""Reading what curricula, selections and pruning saved: errors that say what came and what to do.

Writing needs no help; each puts a header of its own in front of its keys, which says whose state it is.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from seele.errors import CheckpointError
from seele.records import State

Saved = TypeVar("Saved")


def read_state(state: State, *, header: State, read: Callable[[State], Saved]) -> Saved:
    """``read(state)``, if the state bears ``header``; ``read`` raises on what it cannot read.

    Raises:
        CheckpointError: If the state is of another kind or version, or damaged.
    """
    came = {key: state[key] for key in header if key in state}
    if came != header:
        raise CheckpointError(
            f"saved state: expected {dict(header)}, got {came}; resume with the settings and release that "
            "wrote the checkpoint, or start a new run folder"
        )
    try:
        return read(state)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"saved state {dict(header)}: cannot be read ({type(error).__name__}: {error}); "
            "the checkpoint is damaged, resume from an earlier one"
        ) from error


def read_count(value: Any) -> int:
    """``value``, if it is a whole number, 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"a count is a whole number, 0 or more, got {value!r}")
    return value


def read_share(value: Any) -> float:
    """``value`` as a float, if it is a number in [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise ValueError(f"a share is a number in [0, 1], got {value!r}")
    return float(value)
