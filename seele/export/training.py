"""Training data of a run, its progress, and its settings that are not the method's defaults.

Everything is read from the run's files and manifests. Paths are shown without their folders.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from seele.data.prepare import read_manifest
from seele.data.storage.files import file_sha256
from seele.data.storage.schema import read_columns
from seele.errors import DataError
from seele.export.base_model import HUB_NAME
from seele.report.run_folder import FIRST_STAGE, LARGE_PARTS, RunFolder, is_run_folder, read_run
from seele.report.series import has_totals, token_totals

UNKNOWN = "unknown"
_PINNED = re.compile(rf"({HUB_NAME.pattern})@[0-9a-f]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFile:
    """One file of training problems. None stands for what could not be determined."""

    name: str
    """Name without folders."""
    problems: int | None = None
    sha256: str | None = None
    title: str | None = None
    """Title of the data set that it was prepared from; without a manifest, the sources of its problems."""
    licence: str = UNKNOWN
    hub_names: tuple[str, ...] = ()
    """Data sets on the hub that its problems come from."""


def describe_training_files(paths: Sequence[Path]) -> list[TrainingFile]:
    """Count, checksum and origin of each file; for a missing file, the name only."""
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
    """The folder's manifest and its entry for this file; empty if no entry has the file's checksum."""
    value = read_manifest(path.parent)
    try:
        entries = value["splits"].values()
        entry = next(entry for entry in entries if entry["sha256"] == sha256)
    except (LookupError, TypeError, AttributeError, StopIteration):
        return {}, {}
    return value, entry


def _read_sources(path: Path) -> list[str] | None:
    """The data source of each problem; None if it is not a file of problems."""
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


def read_stages(folder: Path, run: RunFolder) -> list[RunFolder]:
    """The run, and before it its first stage if it has two, without the latter's large parts.

    Args:
        folder: The run folder.
        run: Its contents.
    """
    first = folder / FIRST_STAGE
    has_two = run.setting("seele.method") == "sft_rl" and is_run_folder(first)
    return [*([read_run(first, without=LARGE_PARTS)] if has_two else ()), run]


SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Position of the checkpoint in its run."""

    step: int | None
    """None if it was not recorded."""
    steps: str
    """Number of steps, in words."""
    costs: Mapping[str, str]
    """Amounts by what they count."""
    warning: str | None
    """A sentence if the run is unfinished, or continued after this checkpoint."""


def read_progress(stages: Sequence[RunFolder], *, step: int | None) -> Progress:
    """Return the progress of the last stage at ``step``, the step of its checkpoint."""
    *before, run = stages
    costs = _costs(run, step)
    if before and isinstance(steps := before[0].card.get("steps"), int):
        costs = {"supervised steps before": f"{steps:,}"} | costs
    return Progress(
        step=step,
        steps="an unknown number of steps" if step is None else f"{step:,} steps",
        costs=costs,
        warning=_warning(run, step),
    )


def _warning(run: RunFolder, step: int | None) -> str | None:
    status, last = run.card.get("status", "unknown"), run.card.get("steps")
    if status != "finished":
        planned = run.setting("trainer.total_training_steps")
        of = f"; at most {planned:,} steps were planned" if isinstance(planned, int) and planned > 0 else ""
        return f"The run was unfinished when this was exported (status: {status}){of}."
    if isinstance(last, int) and step is not None and step < last:
        return f"An intermediate checkpoint: the run continued to step {last:,}."
    return None


def _costs(run: RunFolder, step: int | None) -> dict[str, str]:
    metrics = [row for row in run.metrics if step is None or row["step"] <= step]
    totals = {
        "tokens generated": token_totals(metrics, "generated"),
        "tokens prefilled": token_totals(metrics, "prefilled"),
        "tokens trained on": token_totals(metrics, "trained"),
    }
    for what, name in (("packed", "trained_packed"), ("packed, informative", "trained_informative")):
        if has_totals(metrics, name):
            totals[f"tokens trained on, {what}"] = token_totals(metrics, name)
    costs = {what: f"{int(values[-1]):,}" for what, values in totals.items() if values and values[-1] > 0}
    seconds = sum(row.get("timing_s/step", 0.0) for row in metrics)
    return costs | ({"hours in steps": f"{seconds / SECONDS_PER_HOUR:.2f}"} if seconds else {})


LEFT_OUT = frozenset({"seele.method", "seele.seed", "seele.reward.num_workers"})
"""The card has lines for the first two; the last affects only speed."""


def changed_settings(run: RunFolder, defaults: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The run's value and the default, by dotted key, if the run has the key and they differ."""
    values = {key: run.setting(key) for key in defaults if key not in LEFT_OUT and _has(run, key)}
    return {
        key: (without_folders(value), defaults[key])
        for key, value in values.items()
        if not _equal(value, defaults[key])
    }


def _has(run: RunFolder, dotted: str) -> bool:
    section, _, key = dotted.rpartition(".")
    values = run.setting(section)
    return isinstance(values, Mapping) and key in values


def _equal(value: Any, default: Any) -> bool:
    """Compare as numbers if possible: YAML reads 5e-5 as a text and 5.0e-05 as a number."""
    try:
        return float(value) == float(default)
    except (TypeError, ValueError):
        return bool(value == default)


def without_folders(value: Any) -> Any:
    """Return the value; for an absolute path only the last part, because the rest depends on the machine."""
    if isinstance(value, str) and PurePath(value).is_absolute():  # also /path/to/file.py:Name
        return PurePath(value).name
    if isinstance(value, list):
        return [without_folders(item) for item in value]
    if isinstance(value, Mapping):
        return {key: without_folders(item) for key, item in value.items()}
    return value
