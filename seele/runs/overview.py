"""State and progress of the runs below a folder, without reading whole logs: ``seele runs``."""

import fcntl
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any

from seele.report.run_folder import is_run_folder, read_json
from seele.report.series import VALIDATION

TAIL_BYTES = 2**20
"""Bytes of ``metrics.jsonl`` that are read from its end."""


class RunState(StrEnum):
    """State of a run."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
    """It was told to stop, and has saved."""
    INTERRUPTED = "interrupted"
    """Killed, or ended by Ctrl-C: its card says running, and no process holds its lock."""
    BROKEN = "broken"
    """Its state is unknown; ``RunSummary.note`` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One line of the list."""

    name: str
    """The run's folder, relative to the folder that was searched."""
    folder: Path
    state: RunState
    last_activity: float
    """Time of the last line of metrics, in seconds since 1970."""
    method: str | None = None
    step: int | None = None
    planned_steps: int | None = None
    """None if the run's card does not say."""
    accuracy: Mapping[str, float] = field(default_factory=dict)
    """Un-hinted accuracy by data set, at the newest validation."""
    accuracy_step: int | None = None
    note: str = ""


def list_runs(folder: Path) -> list[RunSummary]:
    """Return the runs below a folder, or the folder itself if it is a run, most recently active first."""
    runs = [_summarise(run, _name(run, folder)) for run in _find(folder)]
    return sorted(runs, key=lambda run: (-run.last_activity, run.name))


def _name(run: Path, folder: Path) -> str:
    return run.resolve().name if run == folder else str(run.relative_to(folder))


def _find(folder: Path) -> Iterator[Path]:
    """Run folders and folders that cannot be read; nothing inside a run is a run of its own."""
    try:
        if is_run_folder(folder):
            yield folder
            return
        inside = sorted(entry.name for entry in os.scandir(folder) if _may_hold_runs(entry))
    except FileNotFoundError:  # removed meanwhile
        return
    except OSError:
        yield folder
        return
    for name in inside:
        yield from _find(folder / name)


def _may_hold_runs(entry: "os.DirEntry[str]") -> bool:
    if entry.name.startswith("."):
        return False
    try:
        # A link may lead to a run, but is not searched: it could lead back.
        return is_run_folder(Path(entry.path)) if entry.is_symlink() else entry.is_dir()
    except OSError:
        return True  # listed as one that cannot be read


def _summarise(run: Path, name: str) -> RunSummary:
    try:
        return _read(run, name)
    except OSError as error:
        return RunSummary(name=name, folder=run, state=RunState.BROKEN, last_activity=0.0, note=str(error))


def _read(run: Path, name: str) -> RunSummary:
    os.listdir(run)  # else a folder that may not be read would look empty
    notes: list[str] = []
    card = read_json(run, "run_card.json", notes, "so its state is unknown")
    state = _state(run, card)
    if card and state is RunState.BROKEN:
        notes.append(f"run_card.json: unknown status {card.get('status')!r}")
    metrics = run / "metrics.jsonl"
    steps = _newest_steps(metrics) if metrics.is_file() else iter(())
    last: Mapping[str, Any] = next(steps, {})
    validated: Mapping[str, Any] = next((step for step in chain([last], steps) if _accuracy(step)), {})
    if metrics.is_file() and not last:
        notes.append("metrics.jsonl holds no complete step.")
    if state is RunState.FINISHED and not metrics.is_file():
        notes.append("metrics.jsonl is missing.")
    return RunSummary(
        name=name,
        folder=run,
        state=state,
        last_activity=(metrics if metrics.is_file() else run).stat().st_mtime,
        method=None if (method := card.get("method")) is None else str(method),
        step=int(last["step"]) if last else None,
        planned_steps=card.get("planned_steps"),
        accuracy=_accuracy(validated),
        accuracy_step=int(validated["step"]) if validated else None,
        note=" ".join(notes),
    )


def _state(run: Path, card: Mapping[str, Any]) -> RunState:
    status = card.get("status")
    if status == RunState.RUNNING:
        # The first of two stages has the lock of the folder above.
        held = any(_is_locked(folder / ".lock") for folder in (run, run.parent))
        return RunState.RUNNING if held else RunState.INTERRUPTED
    ended = (RunState.FINISHED, RunState.FAILED, RunState.STOPPED)
    return RunState(status) if status in ended else RunState.BROKEN


def _is_locked(lock: Path) -> bool:
    """Return True if a process holds the lock, as a run does while it lives."""
    try:
        with lock.open("rb") as file:
            # Shared and released at once: others may check at the same time.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _newest_steps(file: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the last steps of a run, newest first."""
    with file.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - TAIL_BYTES))
        lines = stream.read().split(b"\n")
    # A line that is cut off, at the front of the tail or by a kill, is not JSON.
    return filter(None, map(_parse, reversed(lines)))


def _parse(line: bytes) -> Mapping[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    step = value.get("step") if isinstance(value, dict) else None
    return value if isinstance(step, int | float) and math.isfinite(step) else None


def _accuracy(line: Mapping[str, Any]) -> dict[str, float]:
    return {
        key.removeprefix(VALIDATION): float(value)
        for key, value in line.items()
        if key.startswith(VALIDATION) and isinstance(value, int | float) and math.isfinite(value)
    }


def describe_age(seconds: float) -> str:
    """Return an age in its largest unit: ``40 s``, ``3 min``, ``5 h``, ``12 d``."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


COLUMNS = ("run", "method", "state", "step", "un-hinted accuracy", "age")


def describe_runs(runs: Sequence[RunSummary], *, now: float) -> str:
    """Return a table for the terminal, one line per run; ``now`` is in seconds since 1970."""
    rows = [COLUMNS, *(_cells(run, now) for run in runs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
    return "".join(f"{line}\n" for line in lines)


def _cells(run: RunSummary, now: float) -> tuple[str, ...]:
    if run.state is RunState.BROKEN:
        return (run.name, run.method or "-", run.state, "-", run.note, "-")
    step = "-" if run.step is None else str(run.step)
    stems = {name: name.rsplit("/", 1)[-1] for name in run.accuracy}
    uses = Counter(stems.values())
    accuracy = ", ".join(
        f"{stem if uses[stem] == 1 else name} {run.accuracy[name]:.1%}" for name, stem in stems.items()
    )
    if run.accuracy_step != run.step and accuracy:
        accuracy += f" (step {run.accuracy_step})"
    return (
        run.name,
        run.method or "-",
        run.state,
        f"{step} of {run.planned_steps}" if run.planned_steps else step,
        accuracy or run.note or "-",
        describe_age(now - run.last_activity),
    )
