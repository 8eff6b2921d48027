"""The run's terminal, which may be closed before the run ends."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO


class _Descriptor(io.FileIO):
    """A file descriptor that drops what it cannot write."""

    def write(self, data: Any, /) -> Any:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def lasting_stream(descriptor: int, *, closefd: bool) -> TextIO:
    """Return a stream to a terminal, pipe or file, flushed after each line. What cannot be written, because
    the terminal was closed, the pipe's reader has ended or the disk is full, is dropped: a run outlives them.
    """
    raw = io.BufferedWriter(_Descriptor(descriptor, "w", closefd=closefd))
    return io.TextIOWrapper(raw, sys.stdout.encoding, "backslashreplace", line_buffering=True)


def outlive_terminal() -> None:
    """Make this process's output and errors ``lasting_stream``s, unless a caller has replaced them."""
    if sys.stdout is sys.__stdout__ and sys.stderr is sys.__stderr__:
        sys.stdout, sys.stderr = (lasting_stream(number, closefd=False) for number in (1, 2))


@contextmanager
def terminal_apart_from(log: Path) -> Iterator[TextIO]:
    """Send this process's output, and what Ray forwards to it, to ``log``; yield the terminal itself."""
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    with log.open("ab") as file, lasting_stream(os.dup(1), closefd=True) as terminal:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield terminal
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, descriptor in zip((1, 2), saved, strict=True):
                os.dup2(descriptor, number)
                os.close(descriptor)
