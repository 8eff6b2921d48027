"""What a run was trained on, as far as its files and their manifests say."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seele.data.prepare import MANIFEST
from seele.data.storage.files import file_sha256
from seele.data.storage.schema import read_columns
from seele.errors import DataError
from seele.export.base_model import FIRST_STAGE, HUB_NAME
from seele.report.run_folder import RunFolder, read_run

UNKNOWN = "unknown"
_PINNED = re.compile(rf"({HUB_NAME.pattern})@[0-9a-f]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFile:
    """One file of training problems. None is what could not be found out."""

    name: str
    """Without folders."""
    problems: int | None = None
    sha256: str | None = None
    title: str | None = None
    """Of the data set that it was prepared from; without a manifest, the data sources of its problems."""
    licence: str = UNKNOWN
    hub_names: tuple[str, ...] = ()
    """Data sets on the hub that its problems come from."""


def describe_training_files(paths: Sequence[Path]) -> list[TrainingFile]:
    """Count, checksum and origin of each file; of a file that is gone, the name alone."""
    return [_describe(path) for path in paths]


def _describe(path: Path) -> TrainingFile:
    if not path.is_file():
        return TrainingFile(name=path.name)
    sha256 = file_sha256(path)
    manifest, entry = _find_manifest(path, sha256)
    sources = _read_sources(path)
    return TrainingFile(
        name=path.name,
        problems=None if sources is None else len(sources),
        sha256=sha256,
        title=_text(manifest.get("title")) or ", ".join(sorted(set(sources or ()))) or None,
        licence=_text(manifest.get("licence")) or UNKNOWN,
        hub_names=_hub_names(manifest, entry),
    )


def _find_manifest(path: Path, sha256: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The manifest of the folder and its entry for this very file; empty where the bytes are others."""
    manifest = path.with_name(MANIFEST)
    try:
        value = json.loads(manifest.read_text(encoding="utf-8"))
        entries = value["splits"].values()
        entry = next(entry for entry in entries if entry["sha256"] == sha256)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, StopIteration):
        return {}, {}
    return value, entry


def _read_sources(path: Path) -> list[str] | None:
    """The data source of each problem; None for a file that is none of problems."""
    try:
        return [str(row["data_source"]) for row in read_columns(path, ["data_source"])]
    except DataError:
        return None


def _hub_names(manifest: Mapping[str, Any], entry: Mapping[str, Any]) -> tuple[str, ...]:
    origin = entry.get("origin", manifest.get("origin"))
    if isinstance(origin, Mapping):
        name = origin.get("hub")
        return (name,) if isinstance(name, str) else ()
    pinned = _PINNED.fullmatch(origin) if isinstance(origin, str) else None
    return (pinned[1],) if pinned else ()


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def training_files(run: Path, folder: RunFolder) -> list[Path]:
    """The files that a run was trained on; of two stages, the first stage's before the second's."""
    first = run / FIRST_STAGE
    stages = [folder]
    if folder.setting("seele.method") == "sft_rl" and (first / "resolved.yaml").is_file():
        stages.insert(0, read_run(first))
    named = [stage.setting("data.train_files") for stage in stages]
    return [Path(file) for files in named for file in ([files] if isinstance(files, str) else files or ())]
