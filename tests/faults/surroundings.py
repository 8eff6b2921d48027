"""Faults around a run: a full disk, a limit on memory, a loaded machine, a twin.

    python tests/faults/surroundings.py --out runs/surroundings     # after scripts/quickstart.sh; as root
    python tests/faults/surroundings.py --out runs/disk --cases "full disk"

Each case is a run that goes on by itself, or by the same command once there is room again, and is compared
with a run in one piece; the status is 1 if anything differs or is left behind, or if the fault did not come.
A full disk needs root (it mounts a file system of its own), a limit on memory needs writable control groups,
version 1 or 2.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from run import (
    COMPARED,
    JOB,
    SETTLE_S,
    compare,
    empty_folder,
    ended,
    is_same,
    processes,
    start,
    temporary_files,
    wait_for,
)

from seele.maths.tables import markdown_table
from seele_verl.runs.checkpoints import saved_steps, step_folder
from seele_verl.runs.log import last_step

LOAD = 12
GROUPS = Path("/sys/fs/cgroup")
MARGIN, FREED = 4 << 20, 4 << 20


def go(run: Path, overrides: Sequence[str], *, restarts: int = 0) -> subprocess.Popen[bytes]:
    """The run's command, without a watchdog."""
    return start(run, overrides, restarts=restarts, watchdog_minutes=60)


def last_error(run: Path) -> str:
    """The terminal's last line with an error, without where its log is; empty if there is none."""
    lines = run.with_suffix(".log").read_text().splitlines()
    found = [line for line in lines if line.startswith("error")]
    return found[-1].split("; see ")[0] if found else ""


def full_disk(run: Path, overrides: Sequence[str], whole: Path) -> str:
    """Room for two checkpoints and a half; then there is more, and the same command is given once more."""
    files = [file for file in step_folder(whole, saved_steps(whole)[0]).rglob("*") if file.is_file()]
    size = int(2.5 * sum(file.stat().st_size for file in files)) + MARGIN
    run.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(run)], check=True)
    # Or the start is refused: it says that the disk will not do.
    status = go(run, [*overrides, "seele.memory.check=warn"]).wait()
    error, saved = last_error(run), saved_steps(run)
    subprocess.run(["mount", "-o", "remount,size=4g", str(run)], check=True)
    again = go(run, overrides).wait()
    if not status or again:
        raise SystemExit(f"statuses {status} and {again}: the disk was not full, or its run did not go on")
    return f"status {status}, whole checkpoints {saved}: {error}; with room: status {again}"


def memory_limit(run: Path, overrides: Sequence[str], whole: Path) -> str:
    """After step 3 the run may not take more memory, until the kernel has killed one of its processes."""
    with control_group() as group:
        process = go(run, overrides, restarts=1)
        with ended(process):
            group.leave()
            wait_for(lambda: last_step(run) >= 3, process)
            group.limit()
            restarted = wait_for(lambda: "; restart 1" in run.with_suffix(".log").read_text(), process)
            group.free()
            status = process.wait()
    if not restarted:
        raise SystemExit(f"status {status}: the limit on memory killed nothing")
    return f"{last_error(run)}; status {status}"


class MemoryGroup:
    """A memory control group, version 1 or 2: this process enters it, and its children stay in it."""

    def __init__(self) -> None:
        first = (GROUPS / "memory").is_dir()
        self.root = GROUPS / "memory" if first else GROUPS
        self.folder = self.root / "seele-faults"
        self.usage = self.folder / ("memory.usage_in_bytes" if first else "memory.current")
        self.file = self.folder / ("memory.limit_in_bytes" if first else "memory.max")
        self.events = self.folder / ("memory.oom_control" if first else "memory.events")
        self.unlimited = "-1" if first else "max"
        self.folder.mkdir(exist_ok=True)
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def leave(self) -> None:
        """Move this process out; its children stay."""
        (self.root / "cgroup.procs").write_text(str(os.getpid()))

    def limit(self) -> None:
        """Allow the group what it has, without its files' cache."""
        size, killed = int(self.usage.read_text()), self.events.read_text()
        # Version 1 refuses a limit below what cannot be freed; version 2 kills a process then.
        with suppress(OSError):
            while size > 0 and self.events.read_text() == killed:
                self.file.write_text(str(size))
                size -= FREED

    def free(self) -> None:
        """Allow the group all memory."""
        self.file.write_text(self.unlimited)


@contextmanager
def control_group() -> Iterator[MemoryGroup]:
    """A group of its own for a while."""
    group = MemoryGroup()
    try:
        yield group
    finally:
        with suppress(OSError):
            group.leave()
            group.folder.rmdir()


def load(run: Path, overrides: Sequence[str], whole: Path) -> str:
    """Programs that never wait run from before the start to the end."""
    began = time.monotonic()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(LOAD)]
    try:
        status = go(run, overrides).wait()
    finally:
        for each in busy:
            each.kill()
    return f"status {status}, {time.monotonic() - began:.0f} s"


def twin(run: Path, overrides: Sequence[str], whole: Path) -> str:
    """Another run begins at the same moment."""
    other = run.with_name(f"{run.name}_other")
    statuses = [process.wait() for process in [go(run, overrides), go(other, overrides)]]
    return f"statuses {statuses}; the other: {', '.join(compare(whole, other)[1:])}"


CASES: dict[str, Callable[[Path, Sequence[str], Path], str]] = {
    "full disk": full_disk,
    "memory limit": memory_limit,
    "load of 12": load,
    "twin": twin,
}


def survives(out: Path, cases: Sequence[str], overrides: Sequence[str]) -> bool:
    """Return True if the run is the same in all cases, and leaves nothing behind."""
    whole = out / "whole"
    if go(whole, overrides).wait():
        raise SystemExit(f"the run in one piece failed, see {whole.with_suffix('.log')}")
    before, rows, same = temporary_files(), [], True
    others = processes(out.resolve())
    for case in cases:
        run = out / case.replace(" ", "_")
        happened = CASES[case](run, overrides, whole)
        compared = [
            compare(whole, each) for each in (run, run.with_name(f"{run.name}_other")) if each.exists()
        ]
        same = same and all(map(is_same, compared))
        rows.append([case, *compared[0][1:], happened])
        sys.stdout.write(" | ".join(rows[-1]) + "\n")
        sys.stdout.flush()
    heads = ["case", "each step once", "problems", *COMPARED, "states"]
    sys.stdout.write(f"\n{markdown_table([*heads, 'what happened'], rows)}\n")
    time.sleep(SETTLE_S)
    runs, left = processes(out.resolve()) - others, sorted(map(str, temporary_files() - before))
    sys.stdout.write(f"left behind: {len(runs)} processes; {len(left)} temporary files {left[:5]}\n")
    return same and not runs and not left


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=empty_folder, required=True, help="folder of the runs, a new one")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=[*CASES])
    options, overrides = parser.parse_known_args()
    overrides = overrides or [*JOB]
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        is_fine = survives(options.out, options.cases, overrides)
    finally:
        for mounted in options.out.iterdir():
            if mounted.is_mount():
                subprocess.run(["umount", str(mounted)], check=True)
    sys.exit(0 if is_fine else 1)


if __name__ == "__main__":
    main()
