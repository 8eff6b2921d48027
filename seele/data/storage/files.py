"""Files that are either complete or absent, their checksums, and files with a JSON value a line.

What the values must be is checked by those who read them; see ``seele.data.storage.schema`` for parquet.
"""

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import reprlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seele.errors import ConfigError, DataError


class PartialFile:
    """A file that is written piece by piece beside its place and gets its name when it is complete.

    ``stream`` takes the bytes; then ``commit`` or ``discard``. A killed process leaves a hidden
    ``.NAME.*.partial`` behind, which the next ``PartialFile`` of that name removes, never a truncated
    ``path``.
    """

    def __init__(self, path: Path) -> None:
        """Make folders as needed, clear what killed processes left, and open the stream.

        Raises:
            OSError: If the folder cannot be written.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear_leftovers(path)
        self.path = path
        # Same folder, hence same file system: the final rename is atomic.
        self._partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
        self.stream = self._partial.open("xb")
        # Lets others tell a file that is being written from one whose writer is gone. A file system without
        # locks keeps its leftovers.
        with contextlib.suppress(OSError):
            fcntl.flock(self.stream, fcntl.LOCK_EX)

    def commit(self) -> None:
        """Put the file in its place; what stood there before is gone.

        Raises:
            OSError: If the disk is full; what stood there before is then untouched.
        """
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self._partial.replace(self.path)
        self.stream.close()

    def discard(self) -> None:
        """Leave no trace. After ``commit`` this does nothing."""
        self.stream.close()
        self._partial.unlink(missing_ok=True)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write ``content`` to ``path`` so that nobody ever sees half of it; folders are made as needed.

    Text is UTF-8 and its line endings are kept.

    Raises:
        OSError: If the folder cannot be written; the file that stood there before is then untouched.
    """
    partial = PartialFile(path)
    try:
        partial.stream.write(content.encode() if isinstance(content, str) else content)
        partial.commit()
    finally:
        partial.discard()


def _clear_leftovers(path: Path) -> None:
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        # Gone or locked: another process is at it.
        with contextlib.suppress(OSError), leftover.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            leftover.unlink()


def check_output(file: Path, out: Path) -> None:
    """Refuse an output that would take the place of something else.

    Raises:
        ConfigError: If it is a folder or the file of problems itself.
    """
    if out.is_dir() or out.resolve() == file.resolve():
        raise ConfigError(f"--out {out}: is a folder or the file of problems; name another file")


def file_sha256(path: Path) -> str:
    """SHA-256 of the file's bytes, 64 hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_yaml(path: Path) -> dict[str, Any]:
    """The keys and values of a YAML file of settings.

    Raises:
        ConfigError: It is missing, is no YAML, or holds no keys.
    """
    # Every command imports this module, and few read YAML: a sixth of the time of `seele --help`.
    import yaml

    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: cannot be read as YAML ({error})") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: expected lines such as 'reference: rows.jsonl', got {reprlib.repr(raw)}")
    return raw


def read_json_lines(path: Path) -> list[tuple[str, Any]]:
    """As ``iterate_json_lines``, all at once."""
    return list(iterate_json_lines(path))


def iterate_json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    """The value of each line that is not blank, with its place for messages: ``FILE: line N``, from 1.

    Raises:
        DataError: If the file is missing, or a line is not JSON in UTF-8.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file; check the path")
    # In bytes, a line ends in a line feed only: JSON allows U+2028 within a text.
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            at = f"{path}: line {number}"
            if line.strip():
                try:
                    yield at, json.loads(line.decode())
                except ValueError as error:
                    raise DataError(
                        f"{at}: expected a JSON value ({error}), got {reprlib.repr(line)}"
                    ) from error
