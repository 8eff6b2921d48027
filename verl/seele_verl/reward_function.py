"""Translates verl's keys for a reward function to SEELE's, so that a verl user can keep typing verl's."""

from collections.abc import Sequence

from omegaconf import DictConfig, OmegaConf

from seele.config import SeeleConfig
from seele.errors import ConfigError
from seele.records import Instance
from seele.reward.function_grader import FunctionGrader, open_grader
from seele_verl.changes import with_changes

VERL_KEYS = ("reward.custom_reward_function", "custom_reward_function")
"""verl's section, under its current and its older name."""
VERL_DEFAULT_NAME = "compute_score"


def adopt_reward_function(config: DictConfig, overrides: Sequence[str]) -> DictConfig:
    """Return the configuration with the function that verl's keys name moved to ``seele.reward.grader`` and
    ``seele.reward.kwargs``.

    Args:
        config: The composed configuration.
        overrides: What the user typed.

    Raises:
        ConfigError: Two functions are named, or arguments are given without a function.
    """
    for section in VERL_KEYS:
        named = OmegaConf.select(config, section)
        kwargs = named.get("reward_kwargs") or {}
        if not named.path:
            if kwargs:
                raise ConfigError(
                    f"{section}.reward_kwargs: has no effect without {section}.path; name the file"
                )
            continue
        typed = [each for each in overrides if each.lstrip("+").startswith("seele.reward.grader=")]
        others = [key for key in VERL_KEYS if key != section and OmegaConf.select(config, f"{key}.path")]
        if typed or others:
            raise ConfigError(
                f"{section}.path: names a reward function, and so does {[*typed, *others][0]!r}; "
                "keep one of them"
            )
        spec = f"{_location(named.path)}:{named.name or VERL_DEFAULT_NAME}"
        changes = {
            "seele.reward.grader": spec,
            "seele.reward.kwargs": {**config.seele.reward.kwargs, **kwargs},
            section: {"path": None, "name": named.name},
        }
        return with_changes(config, changes)
    return config


def check_reward_function(seele: SeeleConfig, instance: Instance) -> None:
    """Import the run's reward function, if it has one, and try it on a problem.

    Raises:
        ConfigError: The grader or function does not exist, does not take the arguments, or hits a limit.
        PluginError: It raised, or returned something that is not a reward.
    """
    grader = open_grader(seele.reward)
    if isinstance(grader, FunctionGrader):
        with grader:
            grader.try_on(instance)


def _location(path: str) -> str:
    """Return the file or module of a path as verl writes it: with ``pkg://``, with ``file://`` or plain."""
    return path.removeprefix("file://").removeprefix("pkg://")
