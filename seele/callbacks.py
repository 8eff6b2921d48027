"""Callbacks for a user's own code: the ends of steps and validations, and saved checkpoints.

``seele.callbacks=[path/to/file.py:MyCallback]`` names classes, which are instantiated without arguments in
the trainer's process.
"""

import json
import math
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

from seele.errors import ConfigError
from seele.metrics import explain
from seele.plugins import blame, find_part, require_members
from seele.records import State

KEY = "seele.callbacks"


class Callback:
    """Base class that does nothing; derive from it and override the methods that you need."""

    def on_step_end(self, step: int, metrics: Mapping[str, float]) -> Mapping[str, float] | None:
        """Called after the update of ``step``, before its checkpoint and validation.

        Args:
            step: The step, counted from 1.
            metrics: The step's metrics (docs/metrics.md), except for validation's and later timings.

        Returns:
            Further numbers to log with the step, by name, or None.
        """
        return None

    def on_validation_end(self, step: int, metrics: Mapping[str, float]) -> None:
        """Called after the policy of ``step`` was validated; step 0 is the initial policy. ``metrics`` are
        the validation's. A run that resumes at ``step`` calls it again if the state was saved before.
        """

    def on_checkpoint_saved(self, step: int, folder: Path) -> None:
        """Called when the checkpoint of ``step`` is complete in ``folder``."""

    def state_dict(self) -> State:
        """Return what to save with every checkpoint, which is after ``on_step_end`` and before validation."""
        return {}

    def load_state_dict(self, state: State) -> None:
        """Restore what ``state_dict`` returned."""


_METHODS = ("on_step_end", "on_validation_end", "on_checkpoint_saved", "state_dict", "load_state_dict")


class Callbacks:
    """The callbacks of a run. Errors in a callback become ``PluginError``s with its file and line."""

    def __init__(self, specs: Sequence[str]) -> None:
        """Import and instantiate the callbacks.

        Raises:
            ConfigError: If there is no such class, it lacks a method, needs arguments, or is named twice.
            PluginError: If its state cannot be saved, or the loading of it raises.
        """
        self._by_name: dict[str, Any] = {}
        for spec in specs:
            part = find_part(spec, key=KEY, group="callbacks", built_in={})
            with blame(part, f"{spec!r} cannot be built without arguments", key=KEY, error=ConfigError):
                callback = part()
            require_members(callback, _METHODS, key=KEY)
            name = type(callback).__name__
            if name in self._by_name:
                raise ConfigError(
                    f"{KEY}: two callbacks are called {name!r}; their states need different names"
                )
            self._by_name[name] = callback
        # A fault found now costs less than one at the first checkpoint.
        self.load_state_dict(self.state_dict())

    def on_step_end(self, step: int, metrics: Mapping[str, float]) -> dict[str, float]:
        """Call all callbacks, and return the numbers that they add to the step's metrics."""
        added: dict[str, float] = {}
        for callback in self._by_name.values():
            with blame(callback, f"on_step_end at step {step}", key=KEY):
                for name, value in (callback.on_step_end(step, metrics) or {}).items():
                    if not isinstance(name, str) or name in metrics or name in added or _is_ours(name):
                        raise ValueError(f"the name {name!r} is taken (docs/metrics.md); return other names")
                    if not isinstance(value, Real) or not math.isfinite(value):
                        raise ValueError(f"{name!r} is {value!r}; return finite numbers")
                    added[name] = float(value)
        return added

    def on_validation_end(self, step: int, metrics: Mapping[str, float]) -> None:
        """Call all callbacks."""
        for callback in self._by_name.values():
            with blame(callback, f"on_validation_end at step {step}", key=KEY):
                callback.on_validation_end(step, metrics)

    def on_checkpoint_saved(self, step: int, folder: Path) -> None:
        """Call all callbacks."""
        for callback in self._by_name.values():
            with blame(callback, f"on_checkpoint_saved at step {step}", key=KEY):
                callback.on_checkpoint_saved(step, folder)

    def state_dict(self) -> State:
        """Return the state of each callback, by class name."""
        states: dict[str, Any] = {}
        for name, callback in self._by_name.items():
            with blame(callback, "state_dict", key=KEY):
                states[name] = callback.state_dict()
                json.dumps(states[name])
                if _has_other_keys(states[name]):
                    raise ValueError("a key is not a text, and JSON would make it one; use texts as keys")
        return states

    def load_state_dict(self, state: State) -> None:
        """Restore what ``state_dict`` returned; a callback that is new to the run starts from scratch."""
        for name, callback in self._by_name.items():
            if name in state:
                with blame(callback, "load_state_dict", key=KEY):
                    callback.load_state_dict(state[name])


def _has_other_keys(state: Any) -> bool:
    if isinstance(state, dict):
        return any(not isinstance(key, str) or _has_other_keys(value) for key, value in state.items())
    return isinstance(state, list | tuple) and any(map(_has_other_keys, state))


def _is_ours(name: str) -> bool:
    """Return True for the names of our own metrics, some of which a step gets only later."""
    return name.startswith("val/") or explain(name) is not None
