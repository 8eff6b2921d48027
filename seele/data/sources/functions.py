"""Rows from a function of the user's own, for data that no mapping of columns can read.

The function takes the source's name of a split and yields a row a problem, a mapping of columns.
"""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from seele.data.storage.files import file_sha256
from seele.errors import ConfigError, DataError
from seele.plugins import find_part, is_import_path, where_in


def is_function(reference: str) -> bool:
    """True for ``path/to/file.py:function`` and ``package.module:function``."""
    return is_import_path(reference) and not Path(reference).expanduser().exists()


def open_function(reference: str, split: str) -> tuple[Iterator[tuple[str, Any]], dict[str, Any]]:
    """The rows of a split, each with its place for messages, and their origin: the function, the checksum of
    its file, the split.

    Raises:
        ConfigError: There is no such function, or its module cannot be imported.
        DataError: While reading: the function raises, or gives nothing that can be read row by row.
    """
    function = find_part(reference, key="reference", group="data_sources", built_in={})
    if not inspect.isroutine(function):
        raise ConfigError(
            f"reference {reference}: expected a function that takes a split's name and yields rows, "
            f"got {type(function).__name__}"
        )
    code = Path(inspect.getfile(inspect.unwrap(function)))
    # The folder's own name would make the manifest differ from machine to machine.
    name = Path(reference).name
    origin = {"function": name, "sha256": file_sha256(code), "split": split}
    return _rows(function, name, split), origin


def _rows(function: Callable[[str], Any], name: str, split: str) -> Iterator[tuple[str, Any]]:
    number = 0
    try:
        for row in function(split):
            yield f"{name}: row {number} (counted from 0)", row
            number += 1
    except Exception as error:
        raise DataError(
            f"{where_in(function, error)}: {name}({split!r}), row {number} (counted from 0): "
            f"{type(error).__name__}: {error}; it must yield a mapping of columns a row (docs/data.md)"
        ) from error
