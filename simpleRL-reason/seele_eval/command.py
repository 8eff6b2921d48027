"""Helpers for this package's commands: print results, progress and one-line errors; end with the parent.

Progress is one rewritten line on a terminal, and an occasional line in a log.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn, TextIO

from seele.errors import SeeleError
from seele.host import escape_what_the_terminal_lacks


def run_command(command: Callable[[], str]) -> int:
    """Print what ``command`` returns.

    Exit status: 0, 2 for an error that the user can fix, 130 for an interrupt.
    """
    # Set before torch is imported, which reads it once. Spinning threads starve other work and each other.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        text = command()
    except (SeeleError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    escape_what_the_terminal_lacks()
    sys.stdout.write(text)
    return 0


def end_with_standard_input() -> None:
    """End this process when its standard input closes, that is, when the process that started it ends.

    A killed parent thus leaves no process on its GPUs. Input that still arrives is dropped.
    """

    def watch() -> None:
        # os.read, because the interpreter would wait at exit for the lock of sys.stdin.
        while os.read(0, 1024):
            pass
        os._exit(1)

    threading.Thread(target=watch, name="end with standard input", daemon=True).start()


def exit_quietly(status: int) -> NoReturn:
    """End the process with ``status``.

    Standard error is discarded: at exit, libraries that vLLM loads list all objects that they never free, in
    dozens of lines that the user can do nothing about.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    sys.exit(status)


# A terminal's line is overwritten; a log keeps every line.
_TERMINAL_INTERVAL_S = 0.5
_LOG_INTERVAL_S = 30.0


class Progress:
    """Counts samples and shows the rate and the time left.

    The rate counts from the first sample, because the engine's start, about a minute, would distort it.
    """

    def __init__(
        self, stream: TextIO, *, total: int, done: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start counting.

        Args:
            stream: Output.
            total: Number of samples in the whole evaluation.
            done: Number of samples finished by earlier processes.
            clock: Monotonic clock in seconds.
        """
        self._stream, self._clock = stream, clock
        self._total, self._done = total, done
        self._is_terminal = stream.isatty()
        self._interval_s = _TERMINAL_INTERVAL_S if self._is_terminal else _LOG_INTERVAL_S
        self._first: tuple[int, float] | None = None
        """Number of finished samples after this process's first, and its time."""
        self._next_s = 0.0
        self._lock = threading.Lock()

    def advance(self) -> None:
        """Count one more finished sample. Thread-safe."""
        with self._lock:
            self._done += 1
            now = self._clock()
            if self._first is None:
                self._first, self._next_s = (self._done, now), now + self._interval_s
            if now >= self._next_s or self._done == self._total:
                self._next_s = now + self._interval_s
                self._show(*self._first, now)

    def _show(self, first_done: int, first_s: float, now: float) -> None:
        line = f"{self._done}/{self._total} samples"
        if self._done > first_done:
            rate = (self._done - first_done) / max(now - first_s, 1e-9)
            line += f", {rate:.1f} a second, {duration((self._total - self._done) / rate)} left"
        end = "\n" if self._done == self._total else ""
        self._stream.write(f"\r{line:<60}{end}" if self._is_terminal else f"{line}\n")
        self._stream.flush()


def duration(seconds: float) -> str:
    """``59 s``, ``3 min 20 s`` or ``1 h 05 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
