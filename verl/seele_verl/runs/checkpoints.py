"""Our additions to verl's checkpoints, and the choice of the one that a run resumes from.

A checkpoint is verl's folder ``global_step_N`` with ``seele/`` in it: the states of the hint controller and
of the step planner, the problems that the step left behind, and its metrics. verl writes its tracker file,
which names the last complete checkpoint, last and not atomically. Then follows the record of all files, which
reveals a checkpoint that is damaged later.
"""

import json
import os
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from seele.data.storage.files import write_atomically
from seele.errors import CheckpointError, ConfigError
from seele.records import State
from seele.report.run_folder import MERGED, TRACKER, read_step
from seele_verl.runs.log import METRICS

FILES = Path("seele") / "files.json"
"""Record in a checkpoint: its files and their sizes."""

PASSING = Path("seele") / "passing"
"""In a checkpoint that goes once there is a later one."""


def step_folder(run: Path, step: int) -> Path:
    """Return verl's folder of the checkpoint at ``step``."""
    return run / f"global_step_{step}"


def step_of(folder: Path) -> int | None:
    """Return the step of a checkpoint from its folder's name; the inverse of ``step_folder``."""
    name = folder.name.removeprefix("global_step_")
    return int(name) if name != folder.name and name.isdigit() else None


def saved_steps(run: Path) -> list[int]:
    """Return the steps that have a checkpoint folder, complete or not, in order."""
    steps = (step_of(folder) for folder in run.glob("global_step_*"))
    return sorted(step for step in steps if step is not None)


def last_complete_step(run: Path) -> int | None:
    """Return the step of the last complete checkpoint that is not damaged; None if there is none."""
    return next((step for step in finished_steps(run) if not damage_of(step_folder(run, step))), None)


def damaged_checkpoints(run: Path) -> dict[Path, str]:
    """Return folder -> damage of the checkpoints that ``last_complete_step`` skips, the newest first."""
    damaged: dict[Path, str] = {}
    for folder in (step_folder(run, step) for step in finished_steps(run)):
        if not (damage := damage_of(folder)):
            break
        damaged[folder] = damage
    return damaged


def finished_steps(run: Path) -> list[int]:
    """Return the steps of complete checkpoints, the newest first.

    verl truncates the tracker before it writes it, and before the first checkpoint there is none. If a run is
    killed in between, the newest checkpoint is complete: the data loader's state is a checkpoint's last file.
    If the machine dies before the record is written, the disk may lack parts of any file. So a checkpoint
    without one does not count after one that has it; runs of older releases have none.
    """
    last = read_step(run / TRACKER)
    complete = [step for step in saved_steps(run) if _has_last_files(step_folder(run, step))]
    if last is not None and step_folder(run, last).is_dir():
        complete = [*(step for step in complete if step < last), last]
    recorded = [step for step in complete if (step_folder(run, step) / FILES).exists()]
    return [step for step in complete[::-1] if step in recorded or not recorded or step < recorded[0]]


@contextmanager
def recording_files(checkpoint: Path) -> Iterator[None]:
    """While open, a checkpoint is written; then its files and their sizes are recorded, and the disk has it
    all before an earlier one is removed.
    """
    (checkpoint / FILES).unlink(missing_ok=True)  # from an earlier checkpoint in this folder
    yield
    (checkpoint / FILES).parent.mkdir(exist_ok=True)
    written = sorted(checkpoint.rglob("*"))
    files = [path for path in written if path.is_file()]
    # The lines up to the checkpoint's step are resumed with it.
    of_run = (checkpoint.parent / name for name in (METRICS, TRACKER))
    for file in (*files, *(path for path in of_run if path.is_file())):
        _sync(file)
    sizes = {str(file.relative_to(checkpoint)): file.stat().st_size for file in files}
    write_atomically(checkpoint / FILES, json.dumps(sizes, indent=1) + "\n")
    for folder in (*(path for path in written if path.is_dir()), checkpoint, checkpoint.parent):
        with suppress(OSError):  # some file systems refuse it for folders
            _sync(folder)


def _sync(path: Path) -> None:
    """Return once the disk has a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def damage_of(checkpoint: Path) -> str:
    """Describe the first file that is not as it was written; "" if there is none, or no record."""
    record = checkpoint / FILES
    try:
        read = json.loads(record.read_bytes()) if record.exists() else {}
        sizes = {str(name): int(size) for name, size in read.items()}
    except (ValueError, TypeError, AttributeError):
        return f"{FILES} is damaged"
    for name, size in sizes.items():
        file = checkpoint / name
        if not file.exists():
            return f"{name} is missing"
        if (found := file.stat().st_size) != size:
            return f"{name} has {found:,} of {size:,} bytes"
    return ""


def _last_files(checkpoint: Path) -> Iterator[Path]:
    """Return ``data.pt``, or one file per rank of a supervised run."""
    return checkpoint.glob("data*.pt")


def _has_last_files(checkpoint: Path) -> bool:
    """True if a checkpoint has its last files; without a record, in full: they are zip archives."""
    files = [*_last_files(checkpoint)]
    return bool(files) and ((checkpoint / FILES).exists() or all(map(zipfile.is_zipfile, files)))


def repair_tracker(run: Path) -> int | None:
    """Make verl's tracker name the last complete checkpoint, and return that step."""
    step = last_complete_step(run)
    tracker = run / TRACKER
    if step is not None:
        write_atomically(tracker, str(step))
    else:
        tracker.unlink(missing_ok=True)
    return step


def drop_old_checkpoints(run: Path, *, newest: int, keep: int) -> None:
    """Remove all but the last ``keep`` complete checkpoints up to ``newest``, which the tracker names.

    A later folder is an unfinished checkpoint of a killed run.
    """
    kept = [step for step in finished_steps(run) if step <= newest][:keep]
    _remove([step_folder(run, step) for step in saved_steps(run) if step <= newest and step not in kept])


def mark_passing(checkpoint: Path) -> None:
    """Note that only ``seele.save_every_minutes`` caused a checkpoint: it goes once there is another."""
    (checkpoint / PASSING).touch()


def drop_passing_checkpoints(run: Path, *, newest: int) -> None:
    """Remove the checkpoints before ``newest`` that ``mark_passing`` marked."""
    earlier = (step_folder(run, step) for step in saved_steps(run) if step < newest)
    _remove([folder for folder in earlier if (folder / PASSING).exists()])


def drop_unfinished_checkpoints(run: Path, *, needed: Path) -> None:
    """Remove what killed runs left of checkpoints, but not the model ``needed``. A checkpoint with a record
    of its files was complete once, and stays.
    """
    complete = finished_steps(run)
    unfinished = [step_folder(run, step) for step in saved_steps(run) if step not in complete]
    _remove(
        [
            folder
            for folder in unfinished
            if not (folder / FILES).exists()
            and not any(_last_files(folder))
            and not needed.resolve().is_relative_to(folder.resolve())
        ]
    )


def drop_later_checkpoints(run: Path, step: int | None) -> None:
    """Go back to the checkpoint of ``step``: the tracker names it, and later checkpoints and the merged model
    are removed. With None, all checkpoints and the tracker are.
    """
    if step is None:
        (run / TRACKER).unlink(missing_ok=True)
    else:
        write_atomically(run / TRACKER, str(step))
    _remove(models_after(run, step))


def check_not_among_later(run: Path, step: int | None, *, needed: Path) -> None:
    """Raise ``ConfigError`` if the model ``needed`` is in ``models_after(run, step)``."""
    if any(needed.resolve().is_relative_to(folder.resolve()) for folder in models_after(run, step)):
        raise ConfigError(
            f"trainer.resume_mode: this removes checkpoints and the merged model of {run}, and {needed}, "
            "which the run starts from, is one of them; use another trainer.default_local_dir"
        )


def models_after(run: Path, step: int | None) -> list[Path]:
    """Return the checkpoints after ``step``, all with None, and the merged model, which can be made again."""
    later = [saved for saved in saved_steps(run) if step is None or saved > step]
    return [run / MERGED, *(step_folder(run, saved) for saved in later)]


def _remove(folders: Sequence[Path]) -> None:
    """Remove checkpoints and merged models. The files that mark a checkpoint as complete are removed first:
    what a killed removal leaves does not look complete, and goes at the next start.
    """
    for file in [file for folder in folders for file in (*_last_files(folder), folder / FILES)]:
        file.unlink(missing_ok=True)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def save_part(folder: Path, name: str, state: State | Sequence[int]) -> None:
    """Write one part's state into a checkpoint folder, the same bytes for the same state."""
    path = folder / "seele" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(state, sort_keys=True) + "\n")


def load_part(folder: Path, name: str, *, otherwise: Any = None) -> Any:
    """Read what ``save_part`` wrote.

    Args:
        folder: The checkpoint.
        name: The part.
        otherwise: Default for checkpoints written before this part existed; None if it is required.

    Raises:
        CheckpointError: The folder lacks the part: it was not written by SEELE, or by an older release.
    """
    path = folder / "seele" / f"{name}.json"
    if path.exists():
        return json.loads(path.read_text())
    if otherwise is None:
        raise CheckpointError(
            f"{folder}: no seele/{name}.json, so this checkpoint was not saved by this release of SEELE; "
            "start a new run with trainer.resume_mode=disable or another trainer.default_local_dir"
        )
    return otherwise
