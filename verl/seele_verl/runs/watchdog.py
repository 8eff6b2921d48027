"""Detects a run that hangs: its trainer shows life in the run folder, which the driver's parent watches."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from seele.report.run_folder import FIRST_STAGE
from seele_verl.runs.log import METRICS

LIFE = Path("logs") / "alive"
STACKS = Path("logs") / "stacks.txt"
DUMP_LIMIT_S = 30.0
PAUSE_S = 60.0
"""A longer time between two looks does not count: the run was suspended (Ctrl-Z, a batch system)."""
NAMED = ("ray::", "VLLM::")
"""How the titles begin that Ray and vLLM give to their Python processes."""


def show_life(run: Path) -> None:
    """Show that the trainer has made progress."""
    (run / LIFE).touch()


class Watchdog:
    """Measures how long a run has made no progress, and how long each process has not computed. Everything is
    only compared with its earlier state, so other clocks, and jumps of this one, do not matter.
    """

    def __init__(self, run: Path) -> None:
        self._files = [run / stage / file for stage in ("", FIRST_STAGE) for file in (LIFE, METRICS)]
        self._seen: list[int] = []
        self._since = self._looked_at = time.monotonic()
        self._computed: dict[psutil.Process, tuple[float, float]] = {}
        """The CPU seconds of each process, and when they last grew."""

    def watch(self, processes: Iterable[psutil.Process]) -> None:
        """Look whether these processes have computed since the last look; forget all others."""
        now = time.monotonic()
        pause = now - self._looked_at if now - self._looked_at > PAUSE_S else 0.0
        self._since, self._looked_at = self._since + pause, now
        before = {each: (spent, when + pause) for each, (spent, when) in self._computed.items()}
        self._computed = {}
        for each in processes:
            with suppress(psutil.Error):
                spent = sum(each.cpu_times()[:2])
                seen = before.get(each, (spent, now))
                self._computed[each] = seen if seen[0] == spent else (spent, now)

    def idle_minutes(self, process: psutil.Process) -> float | None:
        """Return the minutes since a watched process was last seen to compute."""
        seen = self._computed.get(process)
        return None if seen is None else (time.monotonic() - seen[1]) / 60

    def silent_minutes(self) -> float:
        """Return the minutes since the present state was first seen. While their file system is out of reach,
        files count as unchanged.
        """
        try:
            now = [file.stat().st_mtime_ns if file.exists() else 0 for file in self._files]
        except OSError:
            now = self._seen
        if now != self._seen:
            self._seen, self._since = now, time.monotonic()
        return (time.monotonic() - self._since) / 60


def write_stacks(run: Path, processes: Iterable[psutil.Process], watchdog: Watchdog) -> Path:
    """Append the stacks of the processes, and of Ray's and vLLM's on this node, to a file in the run folder.

    Args:
        run: The run folder.
        processes: The run's known processes; those that do not run Python are skipped.
        watchdog: Knows since when each of them has not computed.

    Returns:
        The file. If py-spy is missing, or the system does not permit it, the file says so.

    Raises:
        OSError: The file cannot be written.
    """
    py_spy = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or "py-spy"
    workers = (each for each in psutil.process_iter() if _title(each).startswith(NAMED))
    (run / STACKS).parent.mkdir(parents=True, exist_ok=True)
    with (run / STACKS).open("a") as file:
        file.write(f"=== {time.strftime('%Y-%m-%d %H:%M:%S')}\n")
        for process in dict.fromkeys([*processes, *workers]):
            if not (_title(process).startswith(NAMED) or "python" in _title(process)):
                continue
            idle = watchdog.idle_minutes(process)
            since = "" if idle is None else f", idle for {idle:.1f} minutes"
            file.write(f"--- process {process.pid}{since}: {_title(process)[:200]}\n")
            try:
                command = [py_spy, "dump", "--pid", str(process.pid)]
                dump = subprocess.run(command, capture_output=True, text=True, timeout=DUMP_LIMIT_S)
                file.write(f"{dump.stdout}{dump.stderr}\n")
            except (OSError, subprocess.TimeoutExpired) as error:
                file.write(f"{error}\n")
    return run / STACKS


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
