"""Keeps keys and tokens out of a run's settings, which end up in its folder, its log and its trackers."""

import re
from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seele.errors import ConfigError

SECRET_VARIABLE = re.compile(
    r"(?i)(?:.*_)?(?:KEYS?|TOKEN|SECRETS?|PASSW(?:OR)?D|PASSPHRASE|BEARER|CREDENTIALS?|PAT)(?:_.*)?"
    r"|.*_(?:PASS|PWD)"
)
"""Names of environment variables that hold secrets, such as WANDB_API_KEY and HF_TOKEN."""
SECRET_SETTING = re.compile(
    r"(?i)(?:.*_)?(?:(?:api|access|private)_?keys?|(?:api|auth|access)_?token"
    r"|secrets?|passw(?:or)?d|passphrase|bearer|credentials?|authorization)(?:_.*)?"
)
"""Names of settings that hold secrets, whatever their value."""
SECRET_TEXT = re.compile(r"(?i)(?:.*_)?token|.*_(?:keys?|pass|pwd|pat)")
"""Names of settings that hold secrets if their value is a text; a number may count tokens."""
ORDINARY = re.compile(
    r"(?i)(?:pad|eos|bos|unk|sep|cls|mask|stop|start|end|image|video|audio)_token"
    r"|(?:prompt|reward_fn|image|video|audio|teacher|answer|score|label|group|sort)_keys?"
)
"""Tokens of a vocabulary, and names of columns."""
PASSWORD_IN_ADDRESS = re.compile(r"://[^/?\s:@]*:[^/?\s@]+@|(?i:https?)://[^/?\s@]+@")
"""A text with the beginning of an address such as ``https://user:password@host``."""
VARIABLES = "ray_kwargs.ray_init.runtime_env.env_vars"


def refuse_secrets(config: DictConfig) -> None:
    """Raise ``ConfigError`` if a setting, or a variable that is passed to the workers, has the name of a
    secret, or an address with a password.
    """
    for name in OmegaConf.select(config, VARIABLES) or {}:
        if SECRET_VARIABLE.fullmatch(name):
            raise ConfigError(
                f"{VARIABLES}.{name}: settings are written to the run's folder and log and sent to its "
                f"trackers; export {name} in the shell that starts the run, and on a cluster also in the "
                "shell that runs `ray start` on each node"
            )
    for key, value in _values(_resolved(config)):
        has_address = isinstance(value, str) and PASSWORD_IN_ADDRESS.search(value)
        if has_address or any(_is_secret(name, value) for name in key):
            reason = "an address with a password or token, but " if has_address else ""
            raise ConfigError(
                f"{'.'.join(key)}: {reason}settings are written to the run's folder and log and sent to its "
                "trackers, with the values of variables; export a secret in the shell instead, or rename the "
                "setting if it holds none"
            )


def _resolved(config: DictConfig) -> Any:
    """Return the settings with their values, as the run's folder has them: a value may be a variable's."""
    try:
        return OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException:  # told later, with its place
        return OmegaConf.to_container(config, resolve=False)


def _is_secret(name: str, value: Any) -> bool:
    name = name.replace("-", "_")
    if SECRET_SETTING.fullmatch(name):
        return True
    return bool(isinstance(value, str) and SECRET_TEXT.fullmatch(name) and not ORDINARY.fullmatch(name))


def _values(part: Any, key: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield all values that are set, with their keys; a list's are its indices."""
    if isinstance(part, dict | list):
        for name, value in part.items() if isinstance(part, dict) else enumerate(part):
            yield from _values(value, (*key, str(name)))
    elif part is not None:
        yield key, part
