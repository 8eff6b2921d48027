"""The only place that writes to a configuration."""

import copy
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict


def with_changes(config: DictConfig, changes: Mapping[str, Any]) -> DictConfig:
    """Return a changed copy of the configuration, which verl may write to; the given one is not modified.

    Args:
        config: Any configuration, read-only or not.
        changes: Value by dotted key. A section replaces the existing one.
    """
    changed = copy.deepcopy(config)
    OmegaConf.set_readonly(changed, None)
    with open_dict(changed):
        for key, value in changes.items():
            OmegaConf.update(changed, key, value, merge=False)
    return changed
