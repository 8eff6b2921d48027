"""Benchmarks as modules."""

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def load_from(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path, str], ModuleType]]:
    """Imports a script of a folder as running it would: scripts import their neighbours by name."""
    before, folders = set(sys.modules), set()

    def load(folder: Path, name: str) -> ModuleType:
        monkeypatch.syspath_prepend(str(folder))
        folders.add(folder)
        return import_module(name)

    yield load
    for name in set(sys.modules) - before:
        if any((folder / f"{name}.py").exists() for folder in folders):
            del sys.modules[name]
