"""Fixtures: benchmarks as modules, and configurations that are composed once."""

import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def load_from() -> Iterator[Callable[[Path, str], ModuleType]]:
    """Import a script of a folder as if it were run: scripts import their neighbours by name. A file of tests
    shares what they keep in memory, such as stored runs.
    """
    before, folders = set(sys.modules), set()
    with pytest.MonkeyPatch.context() as patch:

        def load(folder: Path, name: str) -> ModuleType:
            patch.syspath_prepend(str(folder))
            folders.add(folder)
            return import_module(name)

        yield load
    for name in set(sys.modules) - before:
        if any((folder / f"{name}.py").exists() for folder in folders):
            del sys.modules[name]


@pytest.fixture(scope="session")
def composed() -> Callable[..., Any]:
    """Return the configuration of these overrides; do not change it, because it is shared."""
    from seele_verl.train import compose

    return cache(lambda *overrides: compose([*overrides]))
