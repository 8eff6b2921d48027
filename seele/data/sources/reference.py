"""References to rows, as a user writes them: a data set on the hub, a local file or folder, or a function.

A user's function is for data that no mapping of columns can read. It takes the source's name of a split and
yields one row per problem, a mapping of columns.
"""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from seele.data.storage.files import file_sha256
from seele.data.storage.hub import LATEST
from seele.errors import ConfigError, DataError
from seele.plugins import find_part, is_import_path, where_in

_HUB_HOSTS = frozenset({"huggingface.co", "hf.co", "www.huggingface.co"})
# Names that other loaders in the field use.
_PARAMETERS = {
    "config": "config",
    "subset": "config",
    "name": "config",
    "split": "split",
    "revision": "revision",
    "ref": "revision",
}
_FORM = (
    "hf://OWNER/NAME?config=...&split=...&revision=..., https://huggingface.co/datasets/OWNER/NAME, "
    "or a local file or folder"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubReference:
    """A data set on the hub."""

    name: str
    """``owner/name``."""
    configs: tuple[str, ...] = ()
    """Configurations, read one after another; empty if the data set has only one."""
    split: str | None = None
    """The split to train on, if the reference names it."""
    revision: str = LATEST

    @property
    def text(self) -> str:
        """The reference in the form that ``parse_reference`` accepts."""
        parameters = {"config": ",".join(self.configs), "split": self.split, "revision": self.revision}
        query = "&".join(f"{key}={value}" for key, value in parameters.items() if value)
        return f"hf://{self.name}?{query}"


def parse_reference(text: str) -> HubReference | Path:
    """Return what ``text`` refers to; a path need not exist.

    ``hf://owner/name`` and ``https://huggingface.co/datasets/owner/name``, the latter also as
    ``.../viewer/config[/split]`` or ``.../tree/revision``, take ``config`` (several with commas),
    ``split`` and ``revision`` as parameters. Anything without a scheme is a path.

    Raises:
        ConfigError: For another scheme or host, a name that is not ``owner/name``, another path, or an
            unknown parameter.
    """
    if "://" not in text:
        return Path(text).expanduser()
    try:
        parts = urlsplit(text)
    except ValueError as error:  # brackets around a host
        raise ConfigError(f"{text}: {error}; expected {_FORM}") from error
    if parts.scheme == "hf":
        path = f"{parts.netloc}{parts.path}".removeprefix("datasets/")
    elif parts.scheme in ("http", "https") and parts.netloc in _HUB_HOSTS:
        if not parts.path.startswith("/datasets/"):
            raise ConfigError(f"{text}: not a data set; expected {_FORM}")
        path = parts.path.removeprefix("/datasets/")
    else:
        raise ConfigError(f"{text}: expected {_FORM}")
    owner, name, *rest = [*(unquote(part) for part in path.strip("/").split("/") if part), "", ""]
    if not owner or not name:
        raise ConfigError(f"{text}: expected OWNER/NAME; a reference is {_FORM}")
    in_path = _from_path([part for part in rest if part], text)
    found = in_path | _from_query(parts.query or parts.fragment, text)
    return HubReference(
        name=f"{owner}/{name}",
        configs=tuple(config for config in found.get("config", "").split(",") if config),
        split=found.get("split"),
        revision=found.get("revision", LATEST),
    )


def plain_name(path: Path) -> str:
    """Return the name of a file or folder, also of ``.``."""
    return Path(os.path.abspath(path)).name


def beside(folder: Path, reference: str) -> str:
    """Return a reference from a file in ``folder`` with relative paths resolved against that folder.

    ``path/to/file.py:function`` is a path, too; data sets on the hub and ``package.module:function`` are
    unchanged.
    """
    location, colon, _ = reference.rpartition(":")
    path = folder / Path(reference).expanduser()
    if colon and not location.endswith(".py") and not path.exists():
        return reference
    return str(path)


def _from_path(rest: list[str], text: str) -> dict[str, str]:
    """Return the parameters in the path of a hub page."""
    match rest:
        case []:
            return {}
        case ["viewer", config, *split] if len(split) <= 1:
            found = {} if config == "default" else {"config": config}
            return found | ({"split": split[0]} if split else {})
        case ["tree", revision]:
            return {"revision": revision}
    raise ConfigError(
        f"{text}: cannot read {'/'.join(rest)!r} behind OWNER/NAME; allowed are viewer/CONFIG, "
        "viewer/CONFIG/SPLIT and tree/REVISION; name what you mean with ?config=...&split=...&revision=..."
    )


def _from_query(query: str, text: str) -> dict[str, str]:
    found = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key == "p":  # the page of the hub's viewer
            continue
        if key not in _PARAMETERS or not value:
            raise ConfigError(f"{text}: unknown or empty parameter {key!r}; known are {sorted(_PARAMETERS)}")
        found[_PARAMETERS[key]] = value
    return found


def is_function(reference: str) -> bool:
    """Return True for ``path/to/file.py:function`` and ``package.module:function``."""
    return is_import_path(reference) and not Path(reference).expanduser().exists()


def open_function(reference: str, split: str) -> tuple[Iterator[tuple[str, Any]], dict[str, Any]]:
    """Return the rows of a split, each with its location for messages, and their origin: the function, the
    checksum of its file, the split.

    Raises:
        ConfigError: If there is no such function, or its module cannot be imported.
        DataError: While reading, if the function raises or its result cannot be read row by row.
    """
    function = find_part(reference, key="reference", group="data_sources", built_in={})
    if not inspect.isroutine(function):
        raise ConfigError(
            f"reference {reference}: expected a function that takes a split's name and yields rows, "
            f"got {type(function).__name__}"
        )
    code = Path(inspect.getfile(inspect.unwrap(function)))
    # With the folder's name, the manifest would differ from machine to machine.
    name = Path(reference).name
    origin = {"function": name, "sha256": file_sha256(code), "split": split}
    return _rows(function, name, split), origin


def _plain(value: Any) -> Any:
    """Return a value with numpy's and pandas' arrays, numbers and missing values as Python's own."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    return _plain(value.tolist()) if hasattr(value, "tolist") else value


def _rows(function: Callable[[str], Any], name: str, split: str) -> Iterator[tuple[str, Any]]:
    number = 0
    try:
        for row in function(split):
            yield f"{name}: row {number} (counted from 0)", _plain(row)
            number += 1
    except Exception as error:
        raise DataError(
            f"{where_in(function, error)}: {name}({split!r}), row {number} (counted from 0): "
            f"{type(error).__name__}: {error}; it must yield one mapping of columns per row (docs/data.md)"
        ) from error
