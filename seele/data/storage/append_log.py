"""Append-only files of paid-for lines that a killed process cannot corrupt.

A line is whole or, if the process was killed while writing, cut off at the end of the file; the cut-off line
is removed before anything is appended, and nothing else in the file is ever changed. The caller defines the
content of the lines.
"""

import errno
import fcntl
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from seele.errors import CheckpointError, ConfigError

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@dataclass(frozen=True, slots=True)
class WholeLines:
    """Content of a file when it was read."""

    lines: tuple[bytes, ...] = ()
    """The whole lines, without their newlines."""
    whole_bytes: int = 0
    """Bytes of the whole lines with their newlines."""
    total_bytes: int = 0
    """Bytes of the file, which may end in a partial line."""


def read_whole_lines(path: Path, *, begin: bytes) -> WholeLines:
    """Return the lines of ``path`` up to its last newline; none if the file does not exist.

    Args:
        path: The file.
        begin: What the first line begins with, because a file without a whole line may be another one.

    Raises:
        CheckpointError: If no line is whole, and the partial one begins otherwise.
    """
    if not path.exists():
        return WholeLines()
    content = path.read_bytes()
    whole_bytes = content.rfind(b"\n") + 1
    if not whole_bytes and not content.startswith(begin[: len(content)]):
        raise CheckpointError(
            f"{path}: begins with {content[:20]!r}, so this command has not written it; name another file "
            "or folder, or move it"
        )
    return WholeLines(tuple(content[:whole_bytes].split(b"\n")[:-1]), whole_bytes, len(content))


class LineAppender:
    """Appends lines; open in one process at a time. Thread-safe."""

    def __init__(self, path: Path, *, whole_bytes: int, total_bytes: int) -> None:
        """Open the file, creating it if needed, and cut off a partial line at its end.

        Where the file system has no locks, a line on standard error says so, and the file stays unlocked.

        Args:
            path: The file; its folder must exist.
            whole_bytes: As returned by ``read_whole_lines``.
            total_bytes: As returned by ``read_whole_lines``.

        Raises:
            ConfigError: If another process writes to the file, or has written since it was read.
            OSError: If the file cannot be opened or locked.
        """
        self._lock = threading.Lock()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._descriptor)
            raise ConfigError(
                f"{path}: another process is writing to it; wait for it, or name another file or folder"
            ) from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(self._descriptor)
                raise
            said = "only one command at a time may write to it"
            sys.stderr.write(f"{path}: not locked ({error.strerror}); {said}\n")
        if os.fstat(self._descriptor).st_size != total_bytes:
            os.close(self._descriptor)
            raise ConfigError(f"{path}: another process has written to it meanwhile; rerun the command")
        os.ftruncate(self._descriptor, whole_bytes)

    def append(self, line: str, *, durable: bool = False) -> None:
        """Append a line, which survives a crash of this process once this returns.

        Args:
            line: The line without its newline; a lone surrogate becomes its JSON escape.
            durable: Whether it must also survive a crash of the machine, which takes milliseconds.

        Raises:
            OSError: If it cannot be written, such as on a full disk; nothing of it is in the file then.
        """
        content = f"{line}\n".encode(errors="backslashreplace")
        with self._lock:
            before = os.fstat(self._descriptor).st_size
            try:
                while content:
                    content = content[os.write(self._descriptor, content) :]
            except BaseException:
                os.ftruncate(self._descriptor, before)
                raise
        if durable:
            os.fsync(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Flush all lines to disk, and release the lock."""
        os.fsync(self._descriptor)
        os.close(self._descriptor)
