"""Notices a run that hangs: its trainer shows life in the run's folder, where the driver's parent looks."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from seele_verl.runs.log import FIRST_STAGE, METRICS

LIFE = Path("logs") / "alive"
STACKS = Path("logs") / "stacks.txt"
DUMP_LIMIT_S = 30.0


def show_life(run: Path) -> None:
    """What a trainer does whenever something has come forward."""
    (run / LIFE).touch()


class Watchdog:
    """How long nothing has come forward in a run. Files are only compared with what they were, so other
    clocks, and jumps of this one's, do not matter.
    """

    def __init__(self, run: Path) -> None:
        self._files = [run / stage / file for stage in ("", FIRST_STAGE) for file in (LIFE, METRICS)]
        self._seen: list[int] = []
        self._since = time.monotonic()

    def silent_minutes(self) -> float:
        """Minutes between the first look that saw the present state and now."""
        now = [file.stat().st_mtime_ns if file.exists() else 0 for file in self._files]
        if now != self._seen:
            self._seen, self._since = now, time.monotonic()
        return (time.monotonic() - self._since) / 60


def write_stacks(run: Path, processes: Iterable[psutil.Process]) -> Path:
    """Add to a file in the run's folder where the processes stand, and Ray's workers on this node.

    Args:
        run: The folder.
        processes: Those of the run that are known; others than Python's are left out.

    Returns:
        The file. Where py-spy is missing, or the system forbids it to look, the file says so.
    """
    py_spy = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or "py-spy"
    workers = (each for each in psutil.process_iter() if _title(each).startswith("ray::"))
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
