"""Stops a run on SIGTERM, which batch systems send before they take a machine away.

The driver notes the request in the run folder. The trainer, perhaps on another node, checks it after each
step, saves and ends, and the driver exits with ``STOPPED``. A second SIGTERM ends the driver at once.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from seele.errors import SeeleError

STOPPED = 75
"""Exit status: the run should be started again. EX_TEMPFAIL of sysexits.h."""
ASKED, HEEDED = Path("logs") / "stop", Path("logs") / "stopped"


class RunStopped(SeeleError):
    """A run stopped on request, after saving."""


@contextmanager
def sigterm_stops(run: Path) -> Iterator[None]:
    """While open, SIGTERM asks the run in this folder to stop; for a process's main thread."""

    def ask(number: int, frame: FrameType | None) -> None:
        if (run / ASKED).exists():
            raise SystemExit(128 + number)
        (run / ASKED).touch()

    (run / ASKED).parent.mkdir(parents=True, exist_ok=True)
    for note in (ASKED, HEEDED):
        (run / note).unlink(missing_ok=True)
    before = signal.signal(signal.SIGTERM, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def is_asked_to_stop(run: Path) -> bool:
    """True if the run should save and end."""
    return (run / ASKED).exists()


def note_stop(run: Path) -> None:
    """Record that the trainer ends before its last step because it was asked to."""
    (run / HEEDED).touch()


def has_stopped(run: Path) -> bool:
    """True if the run ended because it was asked to."""
    return (run / HEEDED).exists()
