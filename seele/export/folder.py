"""Start here: the folder of an export, written completely or not at all.

Weights, configuration and tokenizer are copies of the merged checkpoint's files; ``README.md`` is the model
card, ``seele_export.json`` lists the export's files with checksums; a later export replaces them.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seele.data.storage.files import file_sha256, weight_files
from seele.errors import CheckpointError, ConfigError
from seele.export.base_model import find_base_model, find_licence, licence_files
from seele.export.card import CardFacts, render_card
from seele.export.evaluation import find_evaluations
from seele.export.prompt import read_prompt_form
from seele.export.training import changed_settings, describe_training_files, read_progress, read_stages
from seele.report.run_folder import MERGED, STEP_FILE, read_run, read_step

CARD, RECORD = "README.md", "seele_export.json"
CHAT_TEMPLATES = "additional_chat_templates"
"""Folder in which transformers keeps the chat templates other than the default."""

Merge = Callable[[Path, int | None], Path]
"""Makes the Hugging Face folder of a run's checkpoint, at this step or the last one."""

Defaults = Callable[[str], Mapping[str, Any]]
"""The settings of a method, by dotted key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The user's options."""

    run: Path
    out: Path
    step: int | None = None
    """Step of the checkpoint; None for the last."""
    name: str | None = None
    """Name on the hub, if the model is uploaded."""
    base_model: str | None = None
    """The base model's name on the hub, if the run used a local copy."""
    licence: str | None = None
    overwrite: bool = False
    """Also replace an export that was changed afterwards."""


def export(wish: Wish, *, merge: Merge, defaults: Defaults) -> list[str]:
    """Write the folder.

    Args:
        wish: The user's options.
        merge: Called once everything else has been checked.
        defaults: As ``Defaults``.

    Returns:
        Sentences for the user.

    Raises:
        CheckpointError: If it is not a run folder, its settings are missing, or it has no such checkpoint.
        ConfigError: If an option is not allowed, or the folder holds something else; nothing is changed.
    """
    run = read_run(wish.run, without=("rollouts", "controller"))
    form, stages = read_prompt_form(run), read_stages(wish.run, run)
    base = find_base_model(run, hub_name=wish.base_model)
    licence = find_licence(base, wish.licence)
    changed = changed_settings(run, defaults(str(run.setting("seele.method"))))
    check_out(wish, base_folder=base.folder)
    with _written_whole(wish.out.resolve()) as partial:
        merged = _merged(wish, merge)
        place = merged.stat().st_ino
        step = read_step(merged / STEP_FILE) if wish.step is None else wish.step
        _copy_model(merged, partial)
        if not merged.is_dir() or merged.stat().st_ino != place:
            raise CheckpointError(f"{merged}: was made again while it was copied; give the command again")
        for file in licence_files(base.folder) if base.folder else ():
            shutil.copy(file, partial)
        evaluations, notes = find_evaluations(wish.run, partial, step=step)
        facts = CardFacts(
            name=(wish.name or _name(wish)).rpartition("/")[2],
            loads_as=wish.name or _shown(wish.out),
            run=run,
            progress=read_progress(stages, step=step),
            base=base,
            licence=licence,
            files=describe_training_files([file for stage in stages for file in stage.train_files]),
            changed=changed,
            evaluations=evaluations,
            prompt=form,
            dtype=_dtype(partial),
        )
        (partial / CARD).write_text(render_card(facts), encoding="utf-8")
        _write_record(partial, run=run.name, step=step)
    return [*notes, *_advice(facts)]


def _advice(facts: CardFacts) -> Iterator[str]:
    if facts.progress.warning:
        yield facts.progress.warning
    if facts.licence.identifier == "unknown":
        yield f"{facts.licence.source} Give one with --licence."
    if not facts.base.is_on_hub:
        yield f"The base model {facts.base.name} was a local folder; give its hub name with --base-model."


def check_out(wish: Wish, *, base_folder: Path | None) -> None:
    """Refuse a folder that holds anything but an export.

    Raises:
        ConfigError: If it is a file, holds the run or a model that the run needs, holds foreign files, or
            is an export that was changed afterwards and ``overwrite`` was not given.
    """
    run, out = wish.run.resolve(), wish.out.resolve()
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {wish.out}: is a file; give a folder, or a path that does not exist")
    needed = [run, *([base_folder.resolve()] if base_folder else [])]
    of_run = [run / MERGED, *run.glob("global_step_*")]
    if any(each.is_relative_to(out) for each in needed) or any(out.is_relative_to(each) for each in of_run):
        raise ConfigError(
            f"--out {wish.out}: holds files of the run or of its base model; name another folder"
        )
    if out.is_mount():
        raise ConfigError(
            f"--out {wish.out}: is a mount point, which cannot be replaced; name a folder in it"
        )
    if not out.is_dir() or not any(out.iterdir()):
        return
    record = _read_record(out)
    if record is None:
        raise ConfigError(
            f"--out {wish.out}: is neither empty nor an export; name another folder, or empty it"
        )
    if (changed := _changes(out, record)) and not wish.overwrite:
        raise ConfigError(
            f"--out {wish.out}: {', '.join(changed)} have changed since the export and would be lost; "
            "name another folder, or give --overwrite"
        )


def _read_record(out: Path) -> Mapping[str, Any] | None:
    try:
        value = json.loads((out / RECORD).read_text(encoding="utf-8"))
        return value if isinstance(value["files"], dict) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _changes(out: Path, record: Mapping[str, Any]) -> list[str]:
    """Return the files that were added or edited since the record was written."""
    return [name for name, sha256 in _sha256_by_name(out).items() if record["files"].get(name) != sha256]


def _sha256_by_name(folder: Path) -> dict[str, str]:
    files = (file for file in sorted(folder.rglob("*")) if file.is_file() and file != folder / RECORD)
    return {file.relative_to(folder).as_posix(): file_sha256(file) for file in files}


def _write_record(partial: Path, *, run: str, step: int | None) -> None:
    record = {"run": run, "step": step, "files": _sha256_by_name(partial)}
    (partial / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


@contextmanager
def _written_whole(out: Path) -> Iterator[Path]:
    """Yield a folder beside ``out`` that replaces it at the end, or is removed on failure."""
    partial, old = (out.with_name(f".{out.name}.{what}") for what in ("partial", "old"))
    if old.exists() and not out.exists():
        # A process ended between the two renames below.
        old.rename(out)
    for leftover in (partial, old):
        shutil.rmtree(leftover, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        if out.exists():
            out.rename(old)
        partial.rename(out)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _merged(wish: Wish, merge: Merge) -> Path:
    merged = wish.run / MERGED
    is_all_there_is = (merged / STEP_FILE).is_file() and not any(wish.run.glob("global_step_*"))
    return merged if wish.step is None and is_all_there_is else merge(wish.run, wish.step)


def _copy_model(merged: Path, partial: Path) -> None:
    """Copy only the files of the model itself: an evaluation may be beside them."""
    if not (merged / "config.json").is_file() or not weight_files(merged):
        raise CheckpointError(f"{merged}: lacks config.json or weights; remove it to have it made again")
    for file in sorted(merged.iterdir()):
        if file.is_file() and file.name not in (STEP_FILE, CARD):
            shutil.copy(file, partial)
    if (merged / CHAT_TEMPLATES).is_dir():
        shutil.copytree(merged / CHAT_TEMPLATES, partial / CHAT_TEMPLATES)


def _dtype(model: Path) -> str | None:
    """Return ``float32`` for a model in single precision, which vLLM would round; else None."""
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    dtype = config.get("dtype", config.get("torch_dtype"))
    return dtype if dtype == "float32" else None


def _name(wish: Wish) -> str:
    """Name of the folder; for the default folder, that of the run."""
    out = wish.out.resolve()
    return out.parent.name if out.parent == wish.run.resolve() else out.name


def _shown(out: Path) -> str:
    """Return the folder as the user gave it, without the machine's parent folders."""
    return out.name if out.is_absolute() or ".." in out.parts else out.as_posix()
