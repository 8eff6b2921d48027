"""From what Hydra composed to our frozen settings, and settings that follow from others by arithmetic."""

import math
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from seele.config import HintConfig, SeeleConfig, from_mapping
from seele.host import computes_in_bfloat16


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


MOST_SEQUENCES = 512
"""vLLM captures CUDA graphs for batches up to this size (vllm/config/vllm.py,
``max_cudagraph_capture_size``); larger ones would run without.
"""
FEWEST_SEQUENCES = 128
"""A validation sends all of its problems at once, whatever a round sends."""


def engine_sequences(
    prompts: int, rollouts: int, rounds: int, nodes: int, gpus: int, tensor_parallel: int
) -> int:
    """The requests of a round that one engine gets at most, within the bounds above."""
    engines = max(1, nodes * gpus // max(1, tensor_parallel))
    requests = math.ceil(prompts * rollouts / max(1, rounds) / engines)
    return min(MOST_SEQUENCES, max(FEWEST_SEQUENCES, requests))


def cpu_dtype() -> str:
    """In what models of some size compute on this machine's processor; others emulate bfloat16."""
    return "bfloat16" if computes_in_bfloat16() else "float32"


def register() -> None:
    """Make the functions of configuration files, such as ``${sum:...}``, known; again does nothing."""
    OmegaConf.register_new_resolver("sum", lambda *numbers: sum(numbers), replace=True)
    OmegaConf.register_new_resolver("max", lambda *numbers: max(numbers), replace=True)
    OmegaConf.register_new_resolver("engine_sequences", engine_sequences, replace=True)
    OmegaConf.register_new_resolver("cpu_dtype", cpu_dtype, replace=True)


register()
