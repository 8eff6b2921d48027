"""Which settings a supervised stage leaves no room for."""

from collections.abc import Sequence
from operator import attrgetter

from seele.config import SeeleConfig
from seele.errors import ConfigError

SETTINGS_OF_ROLLOUTS = {
    "curriculum.name": "uniform",
    "curriculum.spare_problems": 0,
    "selection.name": "none",
    "selection.prune_after": 0,
    "advantage.baseline": "pooled",
    "loss_terms": (),
    "rollout_correction": "none",
    "rollout_cache": None,
    "max_generated_tokens": None,
}
"""Settings that mean nothing where nothing is rolled out, with the values that leave them off."""


def check_supervised_stage(config: SeeleConfig, stages: Sequence[str]) -> None:
    """Refuse settings that a supervised stage would silently ignore.

    Raises:
        ConfigError: A setting of rollouts without an RL stage, or a share of the problems that leaves one of
            the stages without any, or nobody to train on the rest.
    """
    share = config.sft.share
    if stages == ("sft",):
        for name, off in SETTINGS_OF_ROLLOUTS.items():
            if (value := attrgetter(name)(config)) != off:
                raise ConfigError(
                    f"seele.{name}: method {config.method} rolls nothing out, "
                    f"got {value!r}; allowed is {off!r}"
                )
        if share < 1.0:
            raise ConfigError(
                f"seele.sft.share: method {config.method} trains on all problems, got {share}; allowed is 1, "
                "or choose method=sft_rl, whose second stage takes the rest"
            )
        if config.sft.train_files:
            raise ConfigError(
                f"seele.sft.train_files: method {config.method} trains on data.train_files, got "
                f"{list(config.sft.train_files)}; set those, or choose method=sft_rl"
            )
    elif "sft" in stages and share == 1.0:
        raise ConfigError(
            f"seele.sft.share: method {config.method} leaves no problem to its RL stage, got {share}; "
            "allowed is a share below 1"
        )
