"""Finds settings that would make a run fit, by trying them on the arithmetic in the order of their cost."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from seele.maths.memory import Need

TOKEN_LIMITS = (
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu",
    "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu",
    "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu",
)
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"

Change = dict[str, Any]
"""Settings that would make a run smaller."""


def smallest_change(
    needs_with: Callable[[Change], list[Need]], groups: Sequence[Sequence[Change]]
) -> Change | None:
    """Return the least costly changes that make everything fit, all of which are necessary.

    Kinds are tried in order, each on top of those before it. From each kind it takes the first change that is
    enough, or else the one that helps most.

    Args:
        needs_with: Returns what a run needs under some changes.
        groups: Kinds of changes, the least costly first, and within a kind the smallest first.

    Returns:
        None if all kinds together are not enough.
    """

    def shortage(changes: Sequence[Change]) -> float:
        needs = needs_with(_joined(changes))
        missing = (need.needed - need.available for need in needs if need.available is not None)
        return sum(max(0.0, bytes_missing) for bytes_missing in missing)

    chosen: list[Change] = []
    missing = shortage([])
    for group in groups:
        best = None
        for change in group:
            left = shortage([*chosen, change])
            if left < missing:
                best, missing = change, left
            if not missing:
                break
        if best is not None:
            chosen.append(best)
        if not missing:
            break
    if missing:
        return None
    for change in list(chosen):
        others = [other for other in chosen if other is not change]
        if not shortage(others):
            chosen = others
    return _joined(chosen)


def possible_changes(
    config: DictConfig,
    *,
    supervised: bool,
    heads: int,
    gpus_per_node: float = math.inf,
    more_nodes: bool = True,
) -> list[list[Change]]:
    """Return possible changes in the order of their cost: kinds of changes, each with the smallest first.

    Args:
        config: The composed configuration.
        supervised: True if verl's SFT trainer runs.
        heads: Number of the model's attention heads, which an engine's GPUs share.
        gpus_per_node: The most GPUs that a node of the run may have.
        more_nodes: False if the run starts Ray itself, so that it has one node.
    """
    section = config.actor_rollout_ref
    now = {key: OmegaConf.select(config, key) for key in TOKEN_LIMITS}
    longest = config.data.max_prompt_length + config.data.max_response_length
    limits = sorted({24_576, 16_384, 12_288, 8192, 4096, longest}, reverse=True)
    fewer = [
        {key: limit for key, tokens in now.items() if tokens > limit} for limit in limits if limit >= longest
    ]
    fused = {
        "actor_rollout_ref.model.use_fused_kernels": True,
        f"{ACTOR}.entropy_from_logits_with_chunking": True,
    }
    ranks = config.trainer.nnodes * config.trainer.n_gpus_per_node
    of_node = config.trainer.n_gpus_per_node
    groups: list[list[Change]] = [
        [change for change in fewer if change],
        [] if section.model.use_fused_kernels or config.seele.packed_updates else [fused],
        [{"trainer.max_actor_ckpt_to_keep": 1}],
    ]
    if not supervised:
        groups += [
            [{f"{ROLLOUT}.gpu_memory_utilization": tenths / 10} for tenths in range(8, 1, -1)],
            [{f"{ACTOR}.fsdp_config.optimizer_offload": True}],
            [{f"{ACTOR}.fsdp_config.param_offload": True}],
            [{f"{ACTOR}.fsdp_config.offload_policy": True}],
            [
                {f"{ROLLOUT}.tensor_model_parallel_size": size}
                for size in (2, 4, 8)
                if section.rollout.tensor_model_parallel_size < size <= of_node
                and ranks % size == heads % size == 0
            ],
            # These help where host memory is short.
            [
                {f"{ACTOR}.fsdp_config.{name}": False for name in ("param_offload", "optimizer_offload")}
                | {f"{ACTOR}.fsdp_config.offload_policy": False}
            ],
            [] if section.model.lora_rank else [{"actor_rollout_ref.model.lora_rank": 32}],
        ]
    groups.append(
        [{"trainer.n_gpus_per_node": size} for size in (2, 4, 8) if of_node < size <= gpus_per_node]
    )
    if more_nodes and not supervised:
        groups.append([{"trainer.nnodes": config.trainer.nnodes * n} for n in (2, 4, 8)])
    return groups


def advice(change: Change | None) -> str:
    """Return the settings to type, if any are known to help."""
    if change is None:
        return "No setting that is known to help makes it fit: use a smaller model or more GPUs"
    typed = {key: str(value).lower() if isinstance(value, bool) else value for key, value in change.items()}
    return "This would fit: " + " ".join(f"{key}={value}" for key, value in typed.items())


def _joined(changes: Sequence[Change]) -> Change:
    return {key: value for change in changes for key, value in change.items()}
