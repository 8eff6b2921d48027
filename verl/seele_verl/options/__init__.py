"""Hydra groups with many small options: each entry of a YAML file is an option.

``recipe.yaml``, ``model.yaml`` and ``data.yaml`` hold the options of ``recipe=``, ``model=`` and ``data=``;
``parts.yaml`` holds the other groups. A user's own option is a file ``recipe/NAME.yaml`` in a folder that
``--config-dir`` names.
"""

from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

FOLDER = Path(__file__).parent
GROUPS = ("adapter", "curriculum", "data", "job", "model", "recipe", "replay", "selection")


def read_group(group: str) -> dict[str, Any]:
    """Return a group's options by name. A name with a slash is a part that options share, not an option."""
    file = FOLDER / f"{group}.yaml"
    parts: Any = OmegaConf.load(FOLDER / "parts.yaml")
    table: Any = OmegaConf.to_container(OmegaConf.load(file) if file.is_file() else parts[group])
    return table  # type: ignore[no-any-return]


def names(group: str) -> list[str]:
    """Return the options that a user may choose."""
    return sorted(name for name in read_group(group) if "/" not in name)


OWN_RECIPES = ("smollm2_gsm8k",)
"""Our own recipes, for a CPU; the others are experiments from papers, for eight GPUs."""


def published_recipes() -> list[str]:
    """Return the recipes that repeat a paper's experiment."""
    return [name for name in names("recipe") if name not in OWN_RECIPES]


def register() -> None:
    """Register the options with Hydra; safe to call again. Options of ``data`` set keys of that section,
    others set keys anywhere.
    """
    store = ConfigStore.instance()
    for group in GROUPS:
        package = None if group == "data" else "_global_"
        for name, node in read_group(group).items():
            folder, _, leaf = f"{group}/{name}".rpartition("/")
            store.store(group=folder, name=leaf, node=node, package=package, provider="seele")


register()
