"""Converts what Hydra composed to our frozen settings; computes settings that follow from others."""

import math
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from seele.config import HintConfig, SeeleConfig, from_mapping
from seele.host import computes_in_bfloat16


def read_settings(config: DictConfig) -> SeeleConfig:
    """Return the ``seele:`` block of a composed configuration, with the steps planned in verl's part.

    Raises:
        ConfigError: A key is unknown, missing or of the wrong type, or a value is not allowed.
    """
    raw: Mapping[str, Any] = OmegaConf.to_container(config.seele, resolve=True)  # type: ignore[assignment]
    planned = {"training_steps": config.trainer.total_training_steps}
    return from_mapping(SeeleConfig, {**raw, **planned}, "seele")


def read_hints(section: DictConfig) -> HintConfig:
    """Return the ``seele.hints`` block alone, for callers to which verl passes nothing else.

    Raises:
        ConfigError: As ``read_settings``.
    """
    raw: Mapping[str, Any] = OmegaConf.to_container(section, resolve=True)  # type: ignore[assignment]
    return from_mapping(HintConfig, raw, "seele.hints")


def sequence_parallel_size(section: DictConfig) -> int:
    """Return the number of GPUs that share a sequence in verl's section ``actor`` or ``ref``, from its older
    key where that is set.
    """
    older: int = section.ulysses_sequence_parallel_size
    return older if older > 1 else section.fsdp_config.ulysses_sequence_parallel_size


def planned_steps(config: DictConfig, num_problems: int) -> int:
    """Return an RL run's steps, as verl counts them; ``seele.max_generated_tokens`` may end it earlier."""
    by_epochs: int = num_problems // config.data.train_batch_size * config.trainer.total_epochs
    return config.trainer.total_training_steps or by_epochs


def supervised_steps(config: DictConfig, num_problems: int) -> int:
    """Return the steps of a supervised run: its epochs without a last partial batch, but at most
    ``trainer.total_training_steps``.
    """
    sft, bound = config.seele.sft, config.trainer.total_training_steps
    steps: int = sft.epochs * num_problems // sft.batch_size
    return steps if bound is None else min(steps, bound)


MOST_SEQUENCES = 512
"""vLLM captures CUDA graphs for batches up to this size (vllm/config/vllm.py,
``max_cudagraph_capture_size``); larger ones would run without.
"""
FEWEST_SEQUENCES = 128
"""A validation sends all of its problems at once, regardless of what a round sends."""


def engine_sequences(
    prompts: int, hints: Mapping[str, Any], nodes: int, gpus: int, tensor_parallel: int
) -> int:
    """Return the most requests that one engine gets in a round, within the bounds above; ``hints`` is the
    section ``seele.hints``.
    """
    engines = max(1, nodes * gpus // max(1, tensor_parallel))
    # After a failure, a problem is rolled out again: its first round already has all rollouts.
    rounds = 1 if hints["when"] in ("until_success", "rescue") else max(1, hints["rounds"])
    shares = hints["round_sizes"] or [1] * rounds
    requests = math.ceil(prompts * hints["rollouts_per_prompt"] * max(shares) / sum(shares) / engines)
    return min(MOST_SEQUENCES, max(FEWEST_SEQUENCES, requests))


def dtype_on(device: str) -> str:
    """Return the dtype in which larger models compute on a device: bfloat16, unless this CPU emulates it."""
    return "float32" if device == "cpu" and not computes_in_bfloat16() else "bfloat16"


def register() -> None:
    """Register the functions of configuration files, such as ``${sum:...}``; safe to call again."""
    OmegaConf.register_new_resolver("sum", lambda *numbers: sum(numbers), replace=True)
    OmegaConf.register_new_resolver("max", lambda *numbers: max(numbers), replace=True)
    OmegaConf.register_new_resolver("quotient", lambda number, divisor: number / divisor, replace=True)
    OmegaConf.register_new_resolver("engine_sequences", engine_sequences, replace=True)
    OmegaConf.register_new_resolver("dtype_on", dtype_on, replace=True)


register()
