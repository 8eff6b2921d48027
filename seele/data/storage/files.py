"""Files that are either complete or absent, their checksums, and files with a JSON value a line.

What the values must be is checked by those who read them; see ``seele.data.storage.schema`` for parquet.
Where a file of problems is absent, the commands that make it are named here.
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
    """Write ``content`` to ``path`` so that half of it is never seen; folders are made as needed.

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


# Files that take more than `seele data prepare NAME --out FOLDER`; {folder} is where they were looked for.
_SEVERAL_COMMANDS = {
    ("deepmath", "annotated.parquet"): (
        "seele data prepare deepmath --out {folder}",
        "seele data filter {folder}/train.parquet --out {folder}/hard.parquet --model Qwen/Qwen2.5-7B "
        "--band 0:0",
        "seele data annotate {folder}/hard.parquet --out {folder}/annotated.parquet --endpoint URL "
        "--model NAME",
    ),
    ("openr1_48k_complement", "train.parquet"): (
        "seele data prepare hf://Elliott/Openr1-Math-48k-Complement --out {folder} "
        "--map question=prompt[-1].content --map answer=reward_model.ground_truth --grader math_verify",
    ),
}
_OPTIONS = {"openr1_46k": " --set heldout_share=0.01 --grader math_verify"}
"""LUFFY's problems have one split; without some of it held out there is nothing to validate on. Its runs
grade with Math-Verify, so golds are checked with it.
"""


def how_to_make(path: Path) -> str:
    """The end of a message on a file of problems that is not there."""
    commands = commands_that_make(path) or ("seele data prepare",)
    return "make it with " + ", then ".join(f"`{command}`" for command in commands)


def commands_that_make(path: Path) -> tuple[str, ...]:
    """Commands to run one after the other, or none where the file's name tells no source.

    Args:
        path: Where the problems were looked for, such as ``data/prepared/countdown/train.parquet``: the
            folder has the name of a source.
    """
    # Here, because sources import the schema, and that this file.
    from seele.data.sources.settings import GENERATED, source_names

    name, folder = path.parent.name, path.parent.as_posix()
    if several := _SEVERAL_COMMANDS.get((name, path.name)):
        return tuple(command.format(folder=folder) for command in several)
    if name not in (*source_names(), *GENERATED):
        return ()
    return (f"seele data prepare {name} --out {folder}{_OPTIONS.get(name, '')}",)
