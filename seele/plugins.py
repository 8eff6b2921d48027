"""Parts by name: SEELE's own, those of installed packages, and user-defined ones by import path or file.

A setting that names a part takes

- a built-in name, such as ``bayes``;
- the name of an entry point in the group ``seele.GROUP`` of an installed package;
- ``package.module:Name``;
- ``path/to/file.py:Name``.

docs/extending.md lists the settings and what each part must offer.
"""

import functools
import hashlib
import importlib.util
import inspect
import json
import pkgutil
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from seele.errors import CheckpointError, ConfigError, PluginError, SeeleError, did_you_mean


def is_import_path(spec: str) -> bool:
    """True for ``package.module:Name`` and ``path/to/file.py:Name``, false for plain names and addresses."""
    _, colon, name = spec.rpartition(":")
    return bool(colon) and all(part.isidentifier() for part in name.split("."))


def absolute(spec: str) -> str:
    """Return a spec of the same part that works from any folder: a file's path is made absolute."""
    location, colon, name = spec.rpartition(":")
    if not location.endswith(".py"):
        return spec
    return f"{Path(location).expanduser().resolve()}{colon}{name}"


def installed_names(group: str) -> list[str]:
    """Return the names of the entry points in ``seele.GROUP``."""
    return sorted(entry_points(group=f"seele.{group}").names)


def find_part(spec: str, *, key: str, group: str, built_in: Mapping[str, Any]) -> Any:
    """Return the part that a setting names.

    Args:
        spec: The setting's value.
        key: The setting, for messages, such as ``seele.hints.controller``.
        group: Entry points are looked up in ``seele.GROUP``.
        built_in: SEELE's own parts by name.

    Raises:
        ConfigError: If there is no such part, or its module cannot be imported; with the file and line.
    """
    if spec in built_in:
        return built_in[spec]
    if is_import_path(spec):
        return _load(spec, key)
    installed = {point.name: point for point in entry_points(group=f"seele.{group}")}
    if spec in installed:
        return _load(installed[spec].value, f"{key} (entry point {spec!r} of seele.{group})")
    if (file := spec.rstrip(":")).endswith(".py"):
        raise ConfigError(f"{key}: {spec!r} lacks a name; expected {file}:NAME, a function or class in it")
    raise ConfigError(
        f"{key}: unknown name {spec!r}{did_you_mean(spec, [*built_in, *installed])}; allowed are "
        f"{sorted([*built_in, *installed])}, "
        "package.module:Name or path/to/file.py:Name"
    )


def files_of(spec: str, part: Any) -> list[Path]:
    """Return the files whose change may change a part: the file that ``spec`` names, and the one that defines
    the part. A part written in C has none.
    """
    location = spec.rpartition(":")[0]
    files = [Path(location).expanduser()] if location.endswith(".py") else []
    with suppress(OSError, TypeError):
        files.append(Path(inspect.getfile(_defined(part))))
    return list(dict.fromkeys(file.resolve() for file in files))


def where(part: Any) -> str:
    """Return the file and line of a class, function or instance, for messages."""
    target = _defined(part)
    try:
        return f"{inspect.getsourcefile(target)}:{inspect.getsourcelines(target)[1]}"
    except (OSError, TypeError):
        return f"{target.__module__}.{target.__qualname__}"


def where_raised(error: BaseException) -> str:
    """Return the file and line of the innermost frame of an error; of a syntax error, its own."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown line"


def where_in(part: Any, error: BaseException) -> str:
    """Return the file and line of an error's innermost frame within the part's own file; if it has no frame
    there, as with a wrong number of arguments, return where the part begins.
    """
    try:
        file = inspect.getfile(_defined(part))
    except (OSError, TypeError):  # written in C
        return where(part)
    lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == file]
    return f"{file}:{lines[-1]}" if lines else where(part)


def require_members(part: Any, names: Iterable[str], *, key: str) -> None:
    """Raise ``ConfigError``, with the part's file and line, if a part lacks a method or an attribute. A
    member that is still abstract counts as missing.
    """
    abstract = getattr(part, "__abstractmethods__", ())
    missing = [name for name in names if not hasattr(part, name) or name in abstract]
    if missing:
        raise ConfigError(f"{key}: {where(part)} lacks {missing}; docs/extending.md has the contract")


def check_restores(saved: Any, restored: Any, *, part: Any, key: str) -> None:
    """Restore one instance of a part from the state of another, and raise ``ConfigError`` if their states
    then differ.
    """
    state = saved.state_dict()
    restored.load_state_dict(state)
    if (again := restored.state_dict()) != state:
        raise ConfigError(
            f"{key}: {where(part)}: load_state_dict does not restore what state_dict returned: "
            f"{json.dumps(state)[:200]} became {json.dumps(again)[:200]}; a checkpoint of the run could not "
            "be resumed"
        )


def _defined(part: Any) -> Any:
    """Return the class or function that is defined in a file; of a ``partial``, the function that it calls;
    for another instance, its class.
    """
    while isinstance(part, functools.partial):
        part = part.func
    return inspect.unwrap(part if inspect.isclass(part) or inspect.isroutine(part) else type(part))


@contextmanager
def blame(part: Any, doing: str, *, key: str, error: type[SeeleError] = PluginError) -> Iterator[None]:
    """Turn any exception of a user's part in the block into an ``error`` that names the part.

    Args:
        part: The class, function or instance.
        doing: The call in progress, such as ``observe, problem 'a'``.
        key: The setting that names it.
        error: ``ConfigError`` while the part is only being built: then our own errors pass unchanged. During
            a run, only those about checkpoints and other parts do.
    """
    try:
        yield
    except Exception as raised:
        passes = SeeleError if error is ConfigError else (CheckpointError, PluginError)
        if isinstance(raised, passes):
            raise
        raise error(
            f"{key}: {where(part)}: {doing}: {type(raised).__name__}: {raised} ({where_raised(raised)})"
        ) from raised


class CheckedPart:
    """The base of wrappers that check what a user's own part returns, and name its file where it fails."""

    def __init__(self, part: Any, key: str) -> None:
        """Wrap ``part``, which the setting ``key`` names."""
        self._part, self._key = part, key
        self.name = str(part.name)

    def state_dict(self) -> Mapping[str, Any]:
        """Return the part's state after a round trip through JSON, as in a checkpoint."""
        with self._blame("state_dict, which must be JSON"):
            state: Mapping[str, Any] = json.loads(json.dumps(self._part.state_dict(), allow_nan=False))
            return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See the part."""
        with self._blame("load_state_dict"):
            self._part.load_state_dict(state)

    def metrics(self) -> dict[str, float]:
        """See the part."""
        with self._blame("metrics, which must be names and numbers"):
            return {str(name): float(value) for name, value in self._part.metrics().items()}

    def _blame(self, doing: str, *instance_ids: str) -> AbstractContextManager[None]:
        of = f", problem {', '.join(map(repr, instance_ids[:3]))}" if instance_ids else ""
        return blame(self._part, f"{doing}{of}", key=self._key)

    def _fault(self, what: str) -> PluginError:
        return PluginError(f"{self._key}: {where(self._part)}: {what}")


def _load(spec: str, key: str) -> Any:
    location, _, name = spec.rpartition(":")
    file = Path(location).expanduser().resolve() if location.endswith(".py") else None
    if file and not file.is_file():
        raise ConfigError(
            f"{key}: no file {file} ({spec!r}); a relative path begins in the folder where the command runs, "
            "with scripts/*.sh in SEELE's folder"
        )
    try:
        if file is None:
            return pkgutil.resolve_name(f"{location}:{name}")
        part: Any = _module_of(file)
    except (Exception, SystemExit) as error:
        remedy = ""
        if isinstance(error, SystemExit):
            remedy = "; put what only a script does under `if __name__ == '__main__':`"
        raise ConfigError(
            f"{key}: cannot import {spec!r}: {type(error).__name__}: {error} ({where_raised(error)}){remedy}"
        ) from error
    for attribute in name.split("."):
        if not hasattr(part, attribute):
            raise ConfigError(f"{key}: {location} has no {attribute!r}; it has {_own_names(part)}")
        part = getattr(part, attribute)
    return part


def _own_names(part: Any) -> list[str]:
    """Return the public names of a file's module or of a class, without what the file imports."""
    home = part.__name__ if inspect.ismodule(part) else part.__module__

    def is_imported(value: Any) -> bool:
        is_defined_somewhere = inspect.isclass(value) or inspect.isroutine(value)
        return inspect.ismodule(value) or (is_defined_somewhere and value.__module__ != home)

    public = {name: value for name, value in vars(part).items() if not name.startswith("_")}
    return sorted(name for name, value in public.items() if not is_imported(value))


def _module_of(file: Path) -> ModuleType:
    """Return the module of a file, loaded once per process."""
    name = f"seele_plugin_{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None, "a .py file has a loader"
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
