"""Prepares problem files that are references to the hub before a run starts.

A reference becomes a folder with one file under ``data/prepared``, named after the reference and the settings
that decide its contents; the next run finds it there. The rest of the run sees only files.
"""

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from seele.config.settings import RewardConfig
from seele.data.prepare import MANIFEST, read_manifest
from seele.data.sources import SourceSettings, find_settings
from seele.data.sources.prepare_source import prepare_source
from seele.data.sources.reference import HubReference, parse_reference
from seele.data.storage.files import file_sha256
from seele.data.storage.schema import SCHEMA_VERSION
from seele.errors import DataError
from seele.reward.golds import GoldCheck
from seele.reward.graders import GRADERS
from seele_verl.changes import with_changes
from seele_verl.settings import read_settings

FOLDER = Path("data") / "prepared"
KEYS = ("data.train_files", "data.val_files", "seele.sft.train_files")


def has_references(config: DictConfig) -> bool:
    """True if at least one of a run's data files is a reference."""
    return any(_is_reference(file) for key in KEYS for file in _files(config, key))


def prepare_references(config: DictConfig) -> DictConfig:
    """Return the configuration with a prepared file in place of each reference, and with the reference by
    file in ``data.references``.

    Raises:
        ConfigError, DataError, DependencyError: A reference cannot be parsed or fetched, or has no problems;
            nothing of it remains. Earlier references stay prepared for the next run.
    """
    grader, references = read_settings(config).reward.grader, {}
    if grader not in GRADERS:  # a user's function may ask for more than an answer
        grader = RewardConfig().grader
    changes: dict[str, Any] = {}
    for key in KEYS:
        files = _files(config, key)
        for place, reference in enumerate(files):
            if _is_reference(reference):
                files[place] = str(_prepare(reference, grader, key))
                references[files[place]] = reference
        if files:
            changes[key] = files
    return with_changes(config, changes | {"data.references": references})


def _files(config: DictConfig, key: str) -> list[str]:
    files = OmegaConf.select(config, key)
    if isinstance(files, str):
        return [files]
    # Any other type is refused elsewhere.
    return list(files) if isinstance(files, ListConfig) else []


def _is_reference(file: object) -> bool:
    return isinstance(file, str) and "://" in file and isinstance(parse_reference(file), HubReference)


def _prepare(reference: str, grader: str, key: str) -> Path:
    """Return the file of a reference: the existing one, or a new one."""
    settings = _settings(reference)
    [split] = settings.splits
    folder = FOLDER / _folder_name(reference, settings, grader)
    file = folder / f"{split}.parquet"
    if _is_complete(folder):
        _say(f"{key}: {reference} is prepared in {folder}; remove that folder to fetch it again")
        return file.resolve()
    _say(f"{key}: preparing {reference} in {folder}")
    for damaged in (file, folder / MANIFEST):
        damaged.unlink(missing_ok=True)
    try:
        manifest = prepare_source(folder, settings, check_golds=GoldCheck(grader=grader))
    except DataError as error:
        _remove_empty(folder)
        raise DataError(
            f"{key}: {error}. For --map, --source or --grader, run `seele data prepare` first, and pass the "
            "file that it writes"
        ) from error
    for entry in manifest["splits"].values():
        columns = " ".join(f"{name}={path}" for name, path in entry.get("columns", {}).items())
        left_out = ", ".join(f"{count} {reason}" for reason, count in entry["left_out"].items())
        _say(
            f"{file}: {entry['problems']} problems of {entry['rows_read']} rows"
            + (f"; left out: {left_out}" if left_out else "")
            + (f"; columns: {columns}" if columns else "")
        )
    return file.resolve()


def _settings(reference: str) -> SourceSettings:
    """Return how the reference is read; its one split keeps its name, which validation metrics use."""
    settings = find_settings(reference)
    [theirs] = settings.splits.values()
    ours = re.sub(r"[^\w-]", "_", theirs)
    return find_settings(reference, changes={"splits": {ours: theirs}})


def _folder_name(reference: str, settings: SourceSettings, grader: str) -> str:
    """Return ``OWNER-NAME-SPLIT-`` and ten digits of a hash of all that decides the folder's contents."""
    parsed = parse_reference(reference)
    assert isinstance(parsed, HubReference), "a path is not a hub reference"
    decides = json.dumps([asdict(settings), grader, SCHEMA_VERSION], sort_keys=True)
    digest = hashlib.sha256(decides.encode()).hexdigest()[:10]
    plain = re.sub(r"[^\w.-]+", "-", "-".join([parsed.name, *settings.splits]))
    return f"{plain}-{digest}"


def _is_complete(folder: Path) -> bool:
    """True if the folder has a manifest, and all files match it."""
    manifest = read_manifest(folder)
    try:
        entries = manifest["splits"].values()
        return all(file_sha256(folder / entry["file"]) == entry["sha256"] for entry in entries)
    except (OSError, KeyError, AttributeError, TypeError):
        return False


def _remove_empty(folder: Path) -> None:
    """Remove the folders that a refused preparation has made, if they are empty."""
    for made in _parents(folder):
        try:
            made.rmdir()
        except OSError:
            return


def _parents(folder: Path) -> Iterator[Path]:
    yield folder
    yield FOLDER
    yield FOLDER.parent


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
