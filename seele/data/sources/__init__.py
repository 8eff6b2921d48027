"""Problems from named sources (the YAML files here), user-defined sources, the Hugging Face hub and local
files.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from seele.data.sources.local import find_files, iterate_file
from seele.data.sources.mapping import parse_path
from seele.data.sources.reference import HubReference, is_function, open_function, parse_reference
from seele.data.sources.rows import Counts
from seele.data.sources.settings import SourceSettings, find_settings, source_names
from seele.data.storage.files import file_sha256
from seele.data.storage.hub import ChooseColumns, HubSource, commit_of, iterate_hub_rows, open_configs
from seele.errors import ConfigError

__all__ = [
    "Counts",
    "OpenSplit",
    "SourceSettings",
    "find_settings",
    "open_split",
    "source_names",
]

_INSTEAD = (
    "Without a network (or with HF_HUB_OFFLINE=1) the cache of an earlier run is read; if there is none, "
    "fetch the files elsewhere and give them with --source PATH"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSplit:
    """Rows of a split that were found but not yet read."""

    rows: Iterable[tuple[str, Any]]
    """Each row with its location for messages."""
    origin: Mapping[str, Any]
    """Where the rows come from, the same on every machine: name and commit, or files and checksums."""
    files: tuple[Path, ...] = ()
    """Local files that hold the rows."""


def open_split(
    settings: SourceSettings, split: str, *, source: Path | None = None, all_columns: bool = False
) -> OpenSplit:
    """Find the rows of a split, given by the source's name for it.

    Args:
        settings: The source.
        split: The source's name of the split.
        source: A local copy in the place of the reference.
        all_columns: Read whole rows, also of a file of problems.

    Raises:
        ConfigError: If the reference is a function that does not exist, or ``source`` is given with one.
        DataError: If the rows are unavailable.
        DependencyError: If the hub is needed and ``datasets`` is not installed.
    """
    if is_function(settings.reference):
        if source is not None:
            raise ConfigError(f"--source {source}: the rows come from a function, {settings.reference}")
        rows, made_by = open_function(settings.reference, split)
        return OpenSplit(rows=rows, origin=made_by)
    reference = parse_reference(settings.reference)
    choose: ChooseColumns | None = None if settings.detect else partial(_columns_to_read, settings)
    if all_columns:
        choose = list
    configs = reference.configs if isinstance(reference, HubReference) else ()
    if isinstance(reference, HubReference) and source is None:
        return _open_hub(reference, split, choose)
    path = source if source is not None else Path(settings.reference).expanduser()
    files = find_files(path, split, configs)
    # With the folder's name, the manifest would differ from machine to machine.
    root = path if path.is_dir() else path.parent
    return OpenSplit(
        rows=chain.from_iterable(iterate_file(file, choose) for file in files),
        origin={"files": {file.relative_to(root).as_posix(): file_sha256(file) for file in files}},
        files=tuple(files),
    )


def _open_hub(reference: HubReference, split: str, choose: ChooseColumns | None) -> OpenSplit:
    source = HubSource(reference.name, split, reference.revision)
    opened = open_configs(source, reference.configs, instead=_INSTEAD, choose=choose)
    commits = {commit_of(rows) for rows, _ in opened} - {None}
    return OpenSplit(
        rows=chain.from_iterable(iterate_hub_rows(rows, each) for rows, each in opened),
        origin={
            "hub": reference.name,
            "configs": [each.config for _, each in opened if each.config is not None],
            "split": split,
            "revision": commits.pop() if len(commits) == 1 else reference.revision,
        },
    )


def _columns_to_read(settings: SourceSettings, names: Sequence[str]) -> list[str]:
    """Return those of a source's columns that the settings name; all if one is missing, for the message."""
    needed = {path if path in names else parse_path(path)[0] for path in settings.columns.named.values()}
    return [name for name in names if name in needed or not needed.issubset(names)]
