"""Progress of an evaluation and time left: one rewritten line on a terminal, a line now and then in a log."""

import threading
import time
from collections.abc import Callable
from typing import TextIO

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
        """Begin to count.

        Args:
            stream: Output.
            total: Number of samples of the whole evaluation.
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
