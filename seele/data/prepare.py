"""A folder of prepared problems: one parquet file per split, and a manifest that describes them.

The files get their names only when all of them are complete, the manifest last. If the manifest is missing,
the preparation was killed while it replaced files and must be run again.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from seele.data.sources.rows import Counts
from seele.data.split import Sample
from seele.data.steps.leakage import with_revelation
from seele.data.storage.files import file_sha256, write_manifest
from seele.data.storage.parquet import ParquetSink
from seele.data.storage.schema import SCHEMA, SCHEMA_VERSION, fill
from seele.errors import ConfigError, DataError
from seele.records import Instance

MANIFEST = "manifest.json"

NUM_GOLDS_CHECKED = 2000
"""Most reference answers of a split that are checked."""

CheckGolds = Callable[[str, Sequence[tuple[int, Instance]]], Mapping[str, Any]]
"""Takes a split's name and a sample of its problems with their rows; returns the manifest's entry about the
check. Raises ``DataError`` if too many of their reference answers cannot be met.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The problems of one file."""

    instances: Iterable[Instance]
    """Iterated once."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """Where the problems come from, the same on every machine."""
    files: tuple[Path, ...] = ()
    """Local files that ``instances`` are read from."""
    counts: Counts | None = None
    """What became of the source's rows; filled while ``instances`` is iterated."""


def prepare(
    out: Path,
    splits: Mapping[str, Split],
    *,
    about: Mapping[str, Any],
    check_golds: CheckGolds | None = None,
) -> dict[str, Any]:
    """Write ``out/SPLIT.parquet`` for each split, then ``out/manifest.json``. The same input gives the same
    bytes.

    Leading steps that reveal the answer are marked (``Instance.revealed_at``) unless they already are.

    Args:
        out: Folder, created if needed. Its old files stay until all splits are complete; then files of
            splits that an earlier preparation of the same source wrote, and this one does not, are removed,
            with a line on standard error.
        splits: Splits by name.
        about: First entries of the manifest: source, licence, settings.
        check_golds: Checks a sample of each split's reference answers; None skips the check.

    Returns:
        The manifest.

    Raises:
        ConfigError: If a file would be replaced or removed that is an input, or that no earlier preparation
            of the same source wrote.
        DataError: If a problem breaks the rules of ``seele.data.storage.schema``, a split has no problems, or
            ``check_golds`` refuses a split.
        OSError: If the folder cannot be written.
    """
    before = read_manifest(out)
    earlier = [name for name in _splits_of(before) if name not in splits]
    _check_inputs(out, (*splits, *earlier), splits.values())
    _check_targets(out, (*splits, *earlier), before, about.get("source"))
    entries: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        sinks = []
        for name, split in splits.items():
            sinks.append(stack.enter_context(ParquetSink(out / f"{name}.parquet", SCHEMA)))
            entries[name] = _write(sinks[-1], split, name, check_golds)
        for file in (out / f"{name}.parquet" for name in earlier):
            if file.exists():
                file.unlink()
                sys.stderr.write(f"{file}: removed; only an earlier preparation has this split\n")
        (out / MANIFEST).unlink(missing_ok=True)
        for sink in sinks:
            sink.commit()
    for entry in entries.values():
        entry["sha256"] = file_sha256(out / entry["file"])
    manifest = {**about, "schema": SCHEMA_VERSION, "splits": entries}
    write_manifest(out / MANIFEST, manifest)
    return manifest


def update_checksum(file: Path, *, before: str) -> None:
    """Give a file that was rewritten its new checksum in the manifests beside it: that of the folder, and the
    file's own, which `seele data annotate` and `filter` write.

    Args:
        file: The file.
        before: Its SHA-256 before; a manifest that has another one stays as it is.
    """
    for path in (file.parent / MANIFEST, file.with_suffix(".manifest.json")):
        content = _read_json(path)
        for entry in (content, *_splits_of(content).values()):
            if isinstance(entry, dict) and (entry.get("file"), entry.get("sha256")) == (file.name, before):
                entry["sha256"] = file_sha256(file)
                write_manifest(path, content)


def read_manifest(folder: Path) -> Any:
    """Return the content of the manifest; None if there is none or it is damaged."""
    return _read_json(folder / MANIFEST)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def _splits_of(manifest: Any) -> dict[str, dict[str, Any]]:
    """Return the entries of ``prepare`` by split."""
    splits = manifest.get("splits") if isinstance(manifest, dict) else None
    entries = splits.items() if isinstance(splits, dict) else ()
    return {name: entry for name, entry in entries if isinstance(entry, dict) and "sha256" in entry}


def _check_inputs(out: Path, names: Iterable[str], splits: Iterable[Split]) -> None:
    targets = {(out / name).resolve() for name in (MANIFEST, *(f"{name}.parquet" for name in names))}
    for file in (file for split in splits for file in split.files):
        if file.resolve() in targets:
            raise ConfigError(
                f"--out {out}: this would replace {file}, which is an input; choose another folder"
            )


def _check_targets(out: Path, names: Iterable[str], manifest: Any, source: object) -> None:
    """Refuse to replace or remove what no preparation of this source wrote."""
    written = _splits_of(manifest)
    if written and manifest.get("source") != source:
        raise ConfigError(
            f"--out {out}: has the problems of {manifest.get('source')!r} (manifest.json), and these are of "
            f"{source!r}; choose another folder, or remove that one"
        )
    foreign = [out / MANIFEST] if (out / MANIFEST).exists() and not written else []
    for name in names:
        file = out / f"{name}.parquet"
        if not file.exists():
            continue
        # A preparation that was killed while it replaced files leaves no manifest.
        is_ours = (
            written[name]["sha256"] == file_sha256(file)
            if name in written
            else not written and _has_our_schema(file)
        )
        foreign += [] if is_ours else [file]
    if foreign:
        raise ConfigError(
            f"--out {out}: this would replace or remove {', '.join(map(str, foreign))}, which no preparation "
            "wrote, or which has changed since; move it, or choose another folder"
        )


def _has_our_schema(file: Path) -> bool:
    try:
        return bool(pq.read_schema(file).equals(SCHEMA))
    except (pa.ArrowException, OSError):
        return False


def _write(sink: ParquetSink, split: Split, name: str, check_golds: CheckGolds | None) -> dict[str, Any]:
    problems = unhintable = revealed_early = 0
    sample = Sample(NUM_GOLDS_CHECKED)
    for instance in fill(sink, map(with_revelation, split.instances), split=name):
        sample.add(problems, instance)
        problems += 1
        unhintable += instance.num_hint_units < 2
        revealed_early += instance.revealed_at is not None and instance.revealed_at < len(instance.steps)
    if not problems:
        raise DataError(_without_problems(name, split))
    sink.finish()
    entry: dict[str, Any] = {"file": f"{name}.parquet"}
    if split.origin:
        entry["origin"] = dict(split.origin)
    if split.counts is not None:
        entry["rows_read"] = split.counts.read
        entry["left_out"] = dict(sorted(split.counts.left_out.items()))
        if split.counts.columns:
            entry["columns"] = split.counts.columns
    entry |= {"problems": problems, "unhintable": unhintable, "revealed_early": revealed_early}
    if check_golds is not None:
        entry["golds"] = dict(check_golds(name, sample.problems))
    return entry


def _without_problems(name: str, split: Split) -> str:
    counts = split.counts
    where = ", ".join(map(str, split.files)) or next(iter(split.origin.values()), name)
    if counts is None:
        return f"{name}: no problems; check the source"
    if not counts.read:
        return f"{where}: no rows for {name}.parquet; expected one row per problem; name another file"
    skipped = f"{counts.read} rows (skipped: {dict(counts.left_out)})"
    return f"{where}: no problems for {name}.parquet in {skipped}; check the rows and leave_out"
