"""Checks of options that name an output, for every command that writes: they run before any work."""

from pathlib import Path

import typer

from seele.data.storage.files import check_writable


def writable_file(option: typer.CallbackParam, out: Path | None) -> Path | None:
    """Return ``out``, the value of an option that names a file to write.

    Raises:
        ConfigError: If the file cannot be written.
    """
    if out is not None:
        check_writable(out, option=option.opts[0])
    return out


def writable_folder(option: typer.CallbackParam, out: Path | None) -> Path | None:
    """Return ``out``, the value of an option that names a folder to write in.

    Raises:
        ConfigError: If the folder cannot be written.
    """
    if out is not None:
        check_writable(out, option=option.opts[0], is_folder=True)
    return out
