"""Files that grow line by line while somebody pays for the lines, and that a kill cannot spoil.

A line is whole or, where the process was killed while it wrote, cut off at the end of the file; what was cut
off is removed before anything is appended, and nothing else in the file is ever changed. What the lines say
is the caller's.
"""

import fcntl
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from seele.errors import ConfigError


@dataclass(frozen=True, slots=True)
class WholeLines:
    """What a file held when it was read."""

    lines: tuple[bytes, ...] = ()
    """Without the newlines at their ends."""
    whole_bytes: int = 0
    """Bytes of the lines with their newlines."""
    total_bytes: int = 0
    """Bytes of the file: a part of a line may follow the whole ones."""


def read_whole_lines(path: Path) -> WholeLines:
    """The lines of ``path`` up to its last newline; none where there is no such file."""
    if not path.exists():
        return WholeLines()
    content = path.read_bytes()
    whole_bytes = content.rfind(b"\n") + 1
    return WholeLines(tuple(content[:whole_bytes].split(b"\n")[:-1]), whole_bytes, len(content))


class LineAppender:
    """Appends lines; open in one process at a time. Thread-safe."""

    def __init__(self, path: Path, *, whole_bytes: int, total_bytes: int) -> None:
        """Open the file, which is made where it is missing, and cut off what follows its whole lines.

        Args:
            path: Its folder must exist.
            whole_bytes: As ``read_whole_lines`` found them.
            total_bytes: Likewise.

        Raises:
            ConfigError: If another process writes to the file, or has written since it was read.
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
        if os.fstat(self._descriptor).st_size != total_bytes:
            os.close(self._descriptor)
            raise ConfigError(f"{path}: another process has written to it meanwhile; start again")
        os.ftruncate(self._descriptor, whole_bytes)

    def append(self, line: str, *, durable: bool = False) -> None:
        """Write one more line, without its newline; it survives this process once this returns.

        Args:
            line: A lone surrogate becomes its JSON escape.
            durable: Whether it shall survive the machine, too. Takes milliseconds.
        """
        content = f"{line}\n".encode(errors="backslashreplace")
        with self._lock:
            while content:
                content = content[os.write(self._descriptor, content) :]
        if durable:
            os.fsync(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Bring all lines to the disk, and let others write."""
        os.fsync(self._descriptor)
        os.close(self._descriptor)
