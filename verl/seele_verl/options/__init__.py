"""Hydra groups with many small options: an entry of a YAML file is an option.

``recipe.yaml`` holds the options of ``recipe=``, likewise ``model.yaml`` and ``data.yaml``; ``parts.yaml``
holds the other groups. A user's own option is a file ``recipe/NAME.yaml`` in a folder that ``--config-dir``
names.
"""

from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

FOLDER = Path(__file__).parent
GROUPS = ("adapter", "curriculum", "data", "job", "model", "recipe", "replay", "selection")


def read_group(group: str) -> dict[str, Any]:
    """The options of a group by name. A name with a slash is shared by others and no option by itself."""
    file = FOLDER / f"{group}.yaml"
    parts: Any = OmegaConf.load(FOLDER / "parts.yaml")
    table: Any = OmegaConf.to_container(OmegaConf.load(file) if file.is_file() else parts[group])
    return table  # type: ignore[no-any-return]


def names(group: str) -> list[str]:
    """The options that a user may choose."""
    return sorted(name for name in read_group(group) if "/" not in name)


OWN_RECIPES = ("smollm2_gsm8k",)
"""Recipes of ours, for a CPU; the others are experiments of papers, for eight GPUs."""


def published_recipes() -> list[str]:
    """The recipes that repeat an experiment of a paper."""
    return [name for name in names("recipe") if name not in OWN_RECIPES]


def register() -> None:
    """Make the options known to Hydra; again does nothing. Those of ``data`` set keys of that section, others
    keys anywhere.
    """
    store = ConfigStore.instance()
    for group in GROUPS:
        package = None if group == "data" else "_global_"
        for name, node in read_group(group).items():
            folder, _, leaf = f"{group}/{name}".rpartition("/")
            store.store(group=folder, name=leaf, node=node, package=package, provider="seele")


register()
