"""The one place that writes to a configuration."""

import copy
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict


def with_changes(config: DictConfig, changes: Mapping[str, Any]) -> DictConfig:
    """A copy of the configuration under some changes, which verl may write to; the given one stays as it is.

    Args:
        config: Any configuration, read-only or not.
        changes: Value by dotted key. A section takes the place of the one that was there.
    """
    changed = copy.deepcopy(config)
    OmegaConf.set_readonly(changed, None)
    with open_dict(changed):
        for key, value in changes.items():
            OmegaConf.update(changed, key, value, merge=False)
    return changed
