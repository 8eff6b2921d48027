"""Methods, one short file each: what it composes and how it differs. The YAML file of the same name has the
numbers.
"""

from importlib import import_module

from seele.config import SeeleConfig
from seele.errors import ConfigError
from seele.methods.method import Method

_NAMES = (
    "seele",
    "seele_paper",
    "grpo",
    "drgrpo",
    "rloo",
    "ppo",
    "dapo",
    "gspo",
    "cispo",
    "asymre",
    "opmd",
    "luffy",
    "milestones",
    "rl_sft_loss",
    "uft",
    "prefix_rft",
    "trapo",
    "adaback",
    "adaprefix",
    "mfc",
    "adhint",
    "ghpo",
    "sage",
    "scaf_grpo",
    "bread",
    "prefix_rl",
    "pope",
    "exgrpo",
    "opsd",
    "relift",
    "sft",
    "sft_rl",
)
METHODS: dict[str, Method] = {name: import_module(f"seele.methods.{name}").METHOD for name in _NAMES}


def check_method(config: SeeleConfig) -> Method:
    """Return the run's method after checking that the settings fit it.

    Raises:
        ConfigError: The method is unknown, or a setting contradicts it.
    """
    if config.method not in METHODS:
        raise ConfigError(f"seele.method: unknown method {config.method!r}; allowed are {sorted(METHODS)}")
    method = METHODS[config.method]
    method.check(config)
    return method


__all__ = ["METHODS", "Method", "check_method"]
