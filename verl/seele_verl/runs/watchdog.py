"""Detects a run that hangs: its trainer shows life in the run folder, which the driver's parent watches."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from seele.report.run_folder import FIRST_STAGE
from seele_verl.runs.log import METRICS

LIFE = Path("logs") / "alive"
STACKS = Path("logs") / "stacks.txt"
DUMP_LIMIT_S = 30.0


def show_life(run: Path) -> None:
    """Show that the trainer has made progress."""
    (run / LIFE).touch()


class Watchdog:
    """Measures how long a run has made no progress. Files are only compared with their earlier state, so
    other clocks, and jumps of this one, do not matter.
    """

    def __init__(self, run: Path) -> None:
        self._files = [run / stage / file for stage in ("", FIRST_STAGE) for file in (LIFE, METRICS)]
        self._seen: list[int] = []
        self._since = time.monotonic()

    def silent_minutes(self) -> float:
        """Return the minutes since the present state was first seen."""
        now = [file.stat().st_mtime_ns if file.exists() else 0 for file in self._files]
        if now != self._seen:
            self._seen, self._since = now, time.monotonic()
        return (time.monotonic() - self._since) / 60


def write_stacks(run: Path, processes: Iterable[psutil.Process]) -> Path:
    """Append the stacks of the processes, and of Ray's workers on this node, to a file in the run folder.

    Args:
        run: The run folder.
        processes: The run's known processes; those that do not run Python are skipped.

    Returns:
        The file. If py-spy is missing, or the system does not permit it, the file says so.

    Raises:
        OSError: The file cannot be written.
    """
    py_spy = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or "py-spy"
    workers = (each for each in psutil.process_iter() if _title(each).startswith("ray::"))
    (run / STACKS).parent.mkdir(parents=True, exist_ok=True)
    with (run / STACKS).open("a") as file:
        file.write(f"=== {time.strftime('%Y-%m-%d %H:%M:%S')}\n")
        for process in dict.fromkeys([*processes, *workers]):
            if not (_title(process).startswith("ray::") or "python" in _title(process)):
                continue
            file.write(f"--- process {process.pid}: {_title(process)[:200]}\n")
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
