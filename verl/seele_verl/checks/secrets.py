"""Keeps keys and tokens out of a run's settings, which end up in its folder, its log and its trackers."""

import re
from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf

from seele.errors import ConfigError

SECRET_VARIABLE = re.compile(r"(?i)(?:.*_)?(?:KEYS?|TOKEN|SECRET|PASSWORD|CREDENTIALS|PAT)(?:_.*)?")
"""Names of environment variables that hold secrets, such as WANDB_API_KEY and HF_TOKEN."""
SECRET_SETTING = re.compile(
    r"(?i)(?:.*_)?(?:(?:api|access|private)_?keys?|(?:api|auth|access)_?token|secret|password)(?:_.*)?"
)
"""Names of settings that hold secrets; ``token`` and ``key`` alone may be something else."""
VARIABLES = "ray_kwargs.ray_init.runtime_env.env_vars"


def refuse_secrets(config: DictConfig) -> None:
    """Raise ``ConfigError`` if a setting, or a variable that is passed to the workers, has the name of a
    secret.
    """
    for name in OmegaConf.select(config, VARIABLES) or {}:
        if SECRET_VARIABLE.fullmatch(name):
            raise ConfigError(
                f"{VARIABLES}.{name}: settings are written to the run's folder and log and sent to its "
                f"trackers; export {name} in the shell that starts the run, and on a cluster in the one of "
                "`ray start` on each node"
            )
    for key in _keys(OmegaConf.to_container(config, resolve=False)):
        if SECRET_SETTING.fullmatch(key.rpartition(".")[2]):
            raise ConfigError(
                f"{key}: settings are written to the run's folder and log and sent to its trackers; read a "
                "secret from an environment variable instead"
            )


def _keys(section: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys of all values that are set."""
    if not isinstance(section, dict):
        if section is not None:
            yield prefix
        return
    for name, value in section.items():
        yield from _keys(value, f"{prefix}.{name}" if prefix else str(name))
