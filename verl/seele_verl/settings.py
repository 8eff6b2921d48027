"""From what Hydra composed to our frozen settings."""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from seele.config import HintConfig, SeeleConfig, from_mapping


def read_settings(config: DictConfig) -> SeeleConfig:
    """The ``seele:`` block of a composed configuration, and the number of steps that verl's part plans.

    Raises:
        ConfigError: A key is unknown, missing or of the wrong type, or a value is not allowed.
    """
    raw: Mapping[str, Any] = OmegaConf.to_container(config.seele, resolve=True)  # type: ignore[assignment]
    planned = {"training_steps": config.trainer.total_training_steps}
    return from_mapping(SeeleConfig, {**raw, **planned}, "seele")


def read_hints(section: DictConfig) -> HintConfig:
    """The ``seele.hints`` block alone, for those whom verl hands no more.

    Raises:
        ConfigError: As ``read_settings``.
    """
    raw: Mapping[str, Any] = OmegaConf.to_container(section, resolve=True)  # type: ignore[assignment]
    return from_mapping(HintConfig, raw, "seele.hints")


def sequence_parallel_size(section: DictConfig) -> int:
    """GPUs that share a sequence, of verl's section ``actor`` or ``ref``, which has an older key for it."""
    older: int = section.ulysses_sequence_parallel_size
    return older if older > 1 else section.fsdp_config.ulysses_sequence_parallel_size
