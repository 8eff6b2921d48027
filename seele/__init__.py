"""RL with hints from worked solutions: the parts that need no engine.

After ``import seele``, ``seele.hints`` and the other parts are available, each loaded on first access.
"""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any


def load_run(folder: str | Path) -> Any:
    """Return a run as a ``seele.runs.Run`` of pandas frames, for notebooks: docs/runs.md.

    Raises:
        CheckpointError: If ``folder`` is not a run folder.
        DependencyError: If pandas is not installed.
    """
    return import_module(f"{__name__}.runs").load_run(folder)


def __getattr__(name: str) -> ModuleType:
    if name in {part.name for part in iter_modules(__path__)}:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
