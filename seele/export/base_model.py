"""The base model of a run: its name, and the licence that it states."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from seele.errors import CheckpointError, ConfigError
from seele.report.run_folder import RunFolder

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_CACHED = re.compile(r"models--([^/]+?)--([^/]+)/snapshots/[^/]+$")
_IDENTIFIER = re.compile(r"[a-z0-9][a-z0-9.+-]*")

UNKNOWN = "unknown"
LICENCE_FILES = ("LICENSE*", "LICENCE*", "COPYING*", "NOTICE*")
_MARKS = {
    "apache-2.0": "apache license version 2.0, january 2004",
    "mit": "permission is hereby granted, free of charge",
}
"""A phrase of a licence's own text, in lower case, by its identifier on the hub."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseModel:
    """The model that training began with."""

    name: str
    """Its name on the hub, or the name of its folder: never a path."""
    is_on_hub: bool
    folder: Path | None
    """Its files on this machine, if they are here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Licence:
    """A licence as in the hub's front matter."""

    identifier: str
    """The hub's identifier, such as ``apache-2.0``; ``other`` or ``unknown`` if there is none."""
    name: str | None = None
    """Name of a licence that is ``other``."""
    link: str | None = None
    source: str
    """Where the licence is stated, as a sentence."""


def find_base_model(folder: RunFolder, *, hub_name: str | None = None) -> BaseModel:
    """The base model of the run; with two stages, the one that the first stage began with.

    Args:
        folder: Contents of the run folder.
        hub_name: The base model's name on the hub, if the run used a local copy.

    Raises:
        ConfigError: If ``hub_name`` is not ``OWNER/NAME``.
        CheckpointError: If the settings do not name a model.
    """
    if hub_name is not None and not HUB_NAME.fullmatch(hub_name):
        raise ConfigError(f"--base-model {hub_name}: expected OWNER/NAME, such as Qwen/Qwen2.5-7B")
    if not folder.base_model:
        raise CheckpointError("resolved.yaml does not name a model (actor_rollout_ref.model.path)")
    found = _find(str(folder.base_model))
    if hub_name is None:
        return found
    return BaseModel(name=hub_name, is_on_hub=True, folder=found.folder or _cached_folder(hub_name))


def _find(path: str) -> BaseModel:
    if cached := _CACHED.search(path.rstrip("/")):
        name = "/".join(cached.groups())
        return BaseModel(name=name, is_on_hub=True, folder=_existing(Path(path)))
    # A run's settings have a local folder's whole path.
    if HUB_NAME.fullmatch(path) and not Path(path).is_dir():
        return BaseModel(name=path, is_on_hub=True, folder=_cached_folder(path))
    folder = Path(path)
    name = f"{folder.parent.name}, merged" if folder.name == "merged" else folder.name
    return BaseModel(name=name, is_on_hub=False, folder=_existing(folder))


def _existing(folder: Path) -> Path | None:
    return folder if folder.is_dir() else None


def _cached_folder(name: str) -> Path | None:
    """The model's files in the cache of ``huggingface_hub``, at the newest commit of its main branch."""
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    model = cache / f"models--{name.replace('/', '--')}"
    reference = model / "refs" / "main"
    return _existing(model / "snapshots" / reference.read_text().strip()) if reference.is_file() else None


def find_licence(base: BaseModel, chosen: str | None) -> Licence:
    """Return the chosen licence, or else the one in the base model's card or licence file.

    Raises:
        ConfigError: If the chosen licence cannot be an identifier of the hub.
    """
    if chosen is not None:
        if not _IDENTIFIER.fullmatch(chosen.lower()):
            raise ConfigError(
                f"--licence {chosen}: expected an identifier of the hub, such as apache-2.0, mit or other"
            )
        return Licence(identifier=chosen.lower(), source="Chosen by the person who exported the model.")
    if base.folder is not None:
        if found := _licence_of_card(base.folder / "README.md"):
            return found
        if found := _licence_of_file(base.folder):
            return found
    return Licence(identifier=UNKNOWN, source="The available files of the base model state no licence.")


def _licence_of_card(card: Path) -> Licence | None:
    values = read_front_matter(card)
    identifier = values.get("license")
    if isinstance(identifier, list) and len(identifier) == 1:
        (identifier,) = identifier
    if not isinstance(identifier, str):
        return None
    return Licence(
        identifier=identifier,
        name=_text(values.get("license_name")),
        link=_text(values.get("license_link")),
        source="As the base model's card states.",
    )


def read_front_matter(card: Path) -> Mapping[str, Any]:
    """The YAML between the ``---`` lines that a model card begins with; empty if there is none."""
    if not card.is_file():
        return {}
    head, *rest = card.read_text(encoding="utf-8", errors="replace").split("\n---", 1)
    if not rest or not head.startswith("---"):
        return {}
    try:
        values = yaml.safe_load(head.removeprefix("---"))
    except yaml.YAMLError:
        return {}
    return values if isinstance(values, Mapping) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def licence_files(folder: Path) -> list[Path]:
    """Files that must accompany a model's weights, such as licences and notices."""
    return sorted({file for pattern in LICENCE_FILES for file in folder.glob(pattern) if file.is_file()})


def _licence_of_file(folder: Path) -> Licence | None:
    texts = [file for file in licence_files(folder) if not file.name.startswith("NOTICE")]
    if not texts:
        return None
    text = texts[0].read_text(encoding="utf-8", errors="replace")
    words = " ".join(text.lower().split())
    source = f"As the base model's file {texts[0].name} states."
    for identifier, mark in _MARKS.items():
        if mark in words:
            return Licence(identifier=identifier, source=source)
    title = next((line.strip() for line in text.splitlines() if line.strip()), texts[0].name)
    return Licence(identifier="other", name=title, link=texts[0].name, source=source)
