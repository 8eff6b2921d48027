"""Merges a checkpoint's FSDP shards into a Hugging Face folder, with verl's own merger.

A supervised checkpoint already holds such a folder, in the precision that it was trained in.

python -m seele_verl.merge RUN [--step N]
python -m seele_verl.merge RUN --list
"""

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from omegaconf import OmegaConf

from seele.data.storage.files import as_readable_as_usual
from seele.errors import CheckpointError, SeeleError
from seele.report.run_folder import MERGED, STEP_FILE, read_step
from seele_verl.cpu import ENVIRONMENT
from seele_verl.lora import ADAPTER, MODEL, join_adapter
from seele_verl.runs.checkpoints import (
    damage_of,
    finished_steps,
    last_complete_step,
    saved_steps,
    step_folder,
)


def merge_checkpoint(run: Path, step: int | None = None) -> Path:
    """Merge one checkpoint of a run into ``RUN/merged``, which never holds a partial model. After LoRA it
    also holds the adapter, in ``lora_adapter``.

    A merged model is kept if its checkpoint is gone, and replaced if the step was trained again. While
    another process merges a checkpoint of the run, this one waits.

    Args:
        run: The run folder.
        step: The checkpoint's step; the last complete one by default.

    Raises:
        CheckpointError: There is no such folder or checkpoint, the checkpoint is incomplete or damaged, or
            verl's merger refuses it.
    """
    step = last_complete_step(run) if step is None else step
    merged = run / MERGED
    if step is not None and _is_merged(run, step):
        return merged
    if step is None or not _has_model(run, step):
        raise _missing(run, step)
    _check_whole(run, step)
    partial = run / ".merged.partial"
    with _merging_alone(run):
        if _is_merged(run, step):
            return merged
        shutil.rmtree(partial, ignore_errors=True)
        origin = _origin(run, step)
        if whole := whole_model(run, step):
            shutil.copytree(whole, partial)
        else:
            _run_merger(step_folder(run, step) / "actor", partial)
            if (partial / ADAPTER).is_dir():
                join_adapter(partial, _base_model(run))
        as_readable_as_usual(partial)
        (partial / STEP_FILE).write_text(origin)
        shutil.rmtree(merged, ignore_errors=True)
        partial.rename(merged)
    return merged


@contextlib.contextmanager
def _merging_alone(run: Path) -> Iterator[None]:
    """Wait until no other process merges in this run. The lock ends with this process."""
    with (run / ".merged.lock").open("a") as file:
        # Some file systems have no locks.
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _check_whole(run: Path, step: int) -> None:
    folder = step_folder(run, step)
    reason = damage_of(folder) if step in finished_steps(run) else "the checkpoint is incomplete"
    if reason:
        raise CheckpointError(
            f"{folder}: {reason}; merge another step: `seele merge {run} --list` prints those that are whole"
        )


def _base_model(run: Path) -> str | None:
    """Return the model that the run started from; None if the run's settings are gone."""
    settings = run / "resolved.yaml"
    return OmegaConf.select(OmegaConf.load(settings), f"{MODEL}.path") if settings.is_file() else None


def _is_merged(run: Path, step: int) -> bool:
    """True if the merged model comes from the step's checkpoint as it is now, or the checkpoint is gone."""
    marker = run / MERGED / STEP_FILE
    if read_step(marker) != step:
        return False
    return not step_folder(run, step).is_dir() or marker.read_text() == _origin(run, step)


def _origin(run: Path, step: int) -> str:
    """Return the step, and a hash that changes if a file of its checkpoint is written again. Times are only
    compared with themselves: the clock may have been set back.
    """
    folder = step_folder(run, step)
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    stamps = [(str(file.relative_to(folder)), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return f"{step}\n{hashlib.sha256(json.dumps(stamps).encode()).hexdigest()}\n"


def complete_steps(run: Path) -> list[int]:
    """Return the steps whose checkpoints can be merged, in order.

    Raises:
        CheckpointError: There is no such folder, or it has no complete checkpoint.
    """
    if last_complete_step(run) is None:
        raise _missing(run, None)
    finished = [step for step in finished_steps(run) if not damage_of(step_folder(run, step))]
    return sorted(step for step in finished if _has_model(run, step))


def _missing(run: Path, step: int | None) -> CheckpointError:
    if not run.is_dir():
        return CheckpointError(f"{run}: no such folder; name the folder of a run, such as runs/seele")
    wanted = "no complete checkpoint" if step is None else f"no checkpoint of step {step}"
    steps = saved_steps(run)
    there = f"steps with a checkpoint are {steps}" if steps else "no step has one"
    return CheckpointError(f"{run}: {wanted}; {there}. Train with trainer.save_freq, or name another run")


def whole_model(run: Path, step: int) -> Path | None:
    """Return the Hugging Face folder in a checkpoint, or None: verl's holds weights only if requested."""
    folder = step_folder(run, step) / "huggingface"
    return folder if any(folder.glob("*.safetensors")) else None


def _has_model(run: Path, step: int) -> bool:
    return (step_folder(run, step) / "actor").is_dir() or whole_model(run, step) is not None


def _run_merger(actor: Path, target: Path) -> None:
    import torch

    from seele_verl.data_only import FORCED

    # Without a GPU, verl needs our platform's variables, as in training.
    environment = os.environ | ({} if torch.cuda.is_available() else ENVIRONMENT) | FORCED
    command = [sys.executable, "-m", "verl.model_merger", "merge", "--backend", "fsdp"]
    command += ["--local_dir", str(actor), "--target_dir", str(target)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    if result.returncode:
        raise CheckpointError(
            f"{actor}: verl could not merge this checkpoint; it may be incomplete. verl said:\n"
            f"{result.stderr[-2000:]}"
        )


def _step(text: str) -> int | None:
    if text != "last" and not text.isdecimal():
        raise CheckpointError(f"--step: expected a step's number or 'last', got {text!r}")
    return None if text == "last" else int(text)


def main(arguments: Sequence[str] | None = None) -> None:
    """Merge, and print the merged folder as the last line; or print the steps that can be merged."""
    parser = argparse.ArgumentParser(description="Merge a checkpoint into a Hugging Face folder.")
    parser.add_argument("run", type=Path, help="run folder, such as runs/seele")
    parser.add_argument("--step", default="last", help="step of the checkpoint, or last (default)")
    parser.add_argument("--list", action="store_true", help="only print the steps that can be merged")
    options = parser.parse_args(arguments)
    try:
        if options.list:
            said = " ".join(map(str, complete_steps(options.run)))
        else:
            said = str(merge_checkpoint(options.run, _step(options.step)))
    except (SeeleError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    sys.stdout.write(f"{said}\n")


if __name__ == "__main__":
    main()
