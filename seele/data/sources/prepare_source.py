"""Preparation of a source's problems in a folder, split by split, for ``seele data prepare SOURCE`` and for
runs whose data files are references.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from seele.data.prepare import CheckGolds, Split, prepare
from seele.data.sources import Counts, SourceSettings, open_split
from seele.data.sources.reference import plain_name
from seele.data.sources.rows import to_instances
from seele.data.split import is_in_first_part
from seele.errors import DataError
from seele.records import Instance

Choose = Callable[[Iterable[Instance], Counts], Iterable[Instance]]


def prepare_source(
    out: Path,
    settings: SourceSettings,
    *,
    source: Path | None = None,
    check_golds: CheckGolds | None = None,
    choose: Choose | None = None,
    about: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write the splits of a source.

    Args:
        out: Folder for files and manifest.
        settings: The source, from ``find_settings``.
        source: Local copy of its files; None reads them from the reference.
        check_golds: As in ``prepare``.
        choose: Yields the problems to keep, and counts the others.
        about: Entries of the manifest besides the source's settings.

    Returns:
        The manifest.

    Raises:
        ConfigError, DataError, OSError: As in ``open_split`` and ``prepare``, or if two splits have the same
            rows.
        DependencyError: If the hub is needed and ``datasets`` is not installed.
    """

    def read(theirs: str) -> Split:
        opened, counts = open_split(settings, theirs, source=source), Counts()
        instances: Iterable[Instance] = to_instances(opened.rows, settings, counts)
        if choose is not None:
            instances = choose(instances, counts)
        return Split(instances=instances, origin=opened.origin, files=opened.files, counts=counts)

    splits: dict[str, Split] = {}
    for ours, theirs in settings.splits.items():
        split = read(theirs)
        for other, before in splits.items():
            digests = {*before.origin.get("files", {}).values()}
            shared = [name for name, digest in split.origin.get("files", {}).items() if digest in digests]
            if shared or split.origin == before.origin:
                raise DataError(
                    f"{settings.reference}: {other!r} and {ours!r} would be the same rows, "
                    f"{shared or dict(split.origin)}; name other splits or files, or take a part of train "
                    "with --set heldout_share=0.05"
                )
        splits[ours] = split
    if share := settings.heldout_share:
        both = {"train": splits["train"], "heldout": read(settings.splits["train"])}
        splits |= {
            name: replace(split, instances=_part_of(split.instances, share, heldout=name == "heldout"))
            for name, split in both.items()
        }
    return prepare(out, splits, about={**_about(settings), **(about or {})}, check_golds=check_golds)


def _part_of(instances: Iterable[Instance], share: float, *, heldout: bool) -> Iterator[Instance]:
    """Yield the problems that are, or are not, in the share that is held out.

    Raises:
        DataError: At the end, if there are problems and none is in this part.
    """
    num_problems, is_empty = 0, True
    for instance in instances:
        num_problems += 1
        if is_in_first_part(instance.instance_id, share=share, seed=0) is heldout:
            is_empty = False
            yield instance
    if num_problems and is_empty:
        part, change = ("heldout", "raise") if heldout else ("train", "lower")
        raise DataError(
            f"{part}: heldout_share={share} gives it none of {num_problems} problems; {change} the share, or "
            "take held-out problems from another split or file (--split heldout=NAME)"
        )


def _about(settings: SourceSettings) -> Mapping[str, Any]:
    """Return the manifest's entries about a source; for a local file, its name without the folder."""
    said = asdict(settings)
    if "://" not in settings.reference:
        said["reference"] = plain_name(Path(settings.reference))
    first = {"source": said.pop("data_source"), "title": said.pop("title"), "licence": said.pop("licence")}
    return first | {"reference": said.pop("reference"), "settings": said}
