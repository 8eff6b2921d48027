"""Files that are either complete or absent, their checksums, and files with a JSON value a line.

What the values must be is checked by those who read them; see ``seele.data.schema`` for parquet.
"""

import hashlib
import json
import os
import reprlib
import secrets
from pathlib import Path
from typing import Any

from seele.errors import DataError


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write ``content`` to ``path`` so that nobody ever sees half of it; folders are made as needed.

    Text is UTF-8 and its line endings are kept. A killed process can leave a hidden ``.NAME.*.partial``
    behind, never a truncated ``path``.

    Raises:
        OSError: If the folder cannot be written; the file that stood there before is then untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Same folder, hence same file system: the final rename is atomic.
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("xb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    """SHA-256 of the file's bytes, 64 hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_json_lines(path: Path) -> list[tuple[str, Any]]:
    """The value of each line that is not blank, with its place for messages: ``FILE: line N``, from 1.

    Raises:
        DataError: If the file is missing, or a line is not JSON in UTF-8.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file; check the path")
    values = []
    # Not by splitlines(): JSON allows U+2028 within a text.
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        at = f"{path}: line {number}"
        if line.strip():
            try:
                values.append((at, json.loads(line.decode())))
            except ValueError as error:
                raise DataError(f"{at}: expected a JSON value ({error}), got {reprlib.repr(line)}") from error
    return values
