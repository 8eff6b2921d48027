"""RL with hints from worked solutions: what needs no engine.

After ``import seele``, ``seele.hints`` and the other parts are there, each loaded where it is first named.
"""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    if name in {part.name for part in iter_modules(__path__)}:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
