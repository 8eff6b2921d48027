"""Stops a run on SIGTERM, which batch systems send before they take a machine away.

The driver notes the request in the run folder. The trainer, perhaps on another node, checks it while it waits
for the cluster, before the first validation and step, and after each step and validation. It saves and ends,
and the driver exits with ``STOPPED``. A later SIGTERM ends the driver at once.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from seele.errors import SeeleError

STOPPED = 75
"""Exit status: the run should be started again. EX_TEMPFAIL of sysexits.h."""
AGAIN_S = 5.0
"""A SIGTERM that comes sooner after the first belongs to the same request: ``timeout`` and systemd send one
to each process, and the driver's parent passes on its own.
"""
ASKED, HEEDED = Path("logs") / "stop", Path("logs") / "stopped"


class RunStopped(SeeleError):
    """A run stopped on request, after saving if it had begun its first step."""


@contextmanager
def sigterm_stops(run: Path) -> Iterator[None]:
    """While open, SIGTERM asks the run in this folder to stop; for a process's main thread."""
    asked_at: float | None = None

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked_at
        if asked_at is None:
            asked_at = time.monotonic()
            (run / ASKED).touch()
        elif time.monotonic() - asked_at >= AGAIN_S:
            raise SystemExit(128 + number)

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


def heed_before_training(run: Path) -> None:
    """Record that the run ends, if it was asked to; for a trainer that has not begun its first step.

    Raises:
        RunStopped: It was.
    """
    if is_asked_to_stop(run):
        note_stop(run)
        raise RunStopped("stopped on request before the first step")


def note_stop(run: Path) -> None:
    """Record that the trainer ends before its last step because it was asked to."""
    (run / HEEDED).touch()


def has_stopped(run: Path) -> bool:
    """True if the run ended because it was asked to."""
    return (run / HEEDED).exists()
