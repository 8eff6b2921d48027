"""Keeps keys and tokens out of a run's settings, which end up in its folder, its log and its trackers."""

import re

from omegaconf import DictConfig, OmegaConf

from seele.errors import ConfigError

SECRET = re.compile(r"[A-Z0-9_]*(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)")
"""Names of environment variables that hold secrets, such as WANDB_API_KEY and HF_TOKEN."""
VARIABLES = "ray_kwargs.ray_init.runtime_env.env_vars"


def refuse_secrets(config: DictConfig) -> None:
    """Raise ``ConfigError`` if a variable that is passed to the workers has the name of a secret."""
    for name in OmegaConf.select(config, VARIABLES) or {}:
        if SECRET.fullmatch(name):
            raise ConfigError(
                f"{VARIABLES}.{name}: settings are written to the run's folder and log and sent to its "
                f"trackers; export {name} in the shell that starts the run, and on a cluster in the one of "
                "`ray start` on each node"
            )
