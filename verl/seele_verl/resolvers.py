"""Settings that follow from others by arithmetic, which interpolation alone cannot do."""

import math

from omegaconf import OmegaConf

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


def register() -> None:
    """Make ``${sum:...}``, ``${max:...}`` and ``${engine_sequences:...}`` known to OmegaConf; again does
    nothing.
    """
    OmegaConf.register_new_resolver("sum", lambda *numbers: sum(numbers), replace=True)
    OmegaConf.register_new_resolver("max", lambda *numbers: max(numbers), replace=True)
    OmegaConf.register_new_resolver("engine_sequences", engine_sequences, replace=True)


register()
