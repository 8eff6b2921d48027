"""Checks with ``seele.maths.memory`` whether a composed configuration fits its GPUs, its node and its disk.

    python -m seele_verl.memory recipe=seele_qwen2.5-7b [overrides] [--config-dir FOLDER]   the table of a run
    python -m seele_verl.memory --recipes   a line for every recipe

``preflight.py`` refuses a run that does not fit, before Ray starts. docs/memory.md says what is counted.
"""

import argparse
import dataclasses
import math
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from seele.config import SeeleConfig
from seele.data.storage.files import nearest_existing
from seele.errors import ConfigError, SeeleError
from seele.host import host_memory
from seele.maths.memory import (
    GIB,
    Engine,
    Need,
    Passes,
    Plan,
    Trained,
    as_critic,
    memory_table,
    peak,
    predict,
)
from seele.maths.model_shapes import HUB_NAMES, SHAPES, ModelShape
from seele.maths.tables import markdown_table
from seele.methods import METHODS
from seele.methods.sources import build_source
from seele.report.run_folder import FIRST_STAGE, MERGED
from seele_verl import options
from seele_verl.changes import with_changes
from seele_verl.checks.cluster import LOCAL, cluster_address
from seele_verl.checks.command_line import check_job
from seele_verl.checks.memory_changes import Change, advice, possible_changes, smallest_change
from seele_verl.runs.card import read_run_card
from seele_verl.runs.checkpoints import saved_steps
from seele_verl.settings import planned_steps, read_settings, sequence_parallel_size, supervised_steps

DENSE = ("llama", "mistral", "qwen2", "qwen3")
"""Model types whose parameters ``ModelShape`` counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Available memory and disk space, in bytes; None where this node cannot tell."""

    card: float
    """0 for a run without GPUs."""
    card_is_assumed: bool
    host: float | None
    disk: float | None


def check_memory(config: DictConfig, seele: SeeleConfig, *, supervised: bool, num_problems: int) -> None:
    """Check that the run fits, by arithmetic.

    Raises:
        ConfigError: Something does not fit, and ``seele.memory.check`` is ``refuse``.
    """
    if seele.memory.check == "off":
        return
    model = config.actor_rollout_ref.model
    shape = shape_of(model.path, trust_remote_code=model.trust_remote_code)
    if shape is None:
        return
    machine = this_machine(config, seele)

    def needs_with(change: Change) -> list[Need]:
        changed = with_changes(config, change)
        plan = plan_of(
            changed,
            read_settings(changed),
            shape,
            card=machine.card,
            supervised=supervised,
            num_problems=num_problems,
        )
        return predict(plan, host=machine.host, disk=machine.disk)

    needs = needs_with({})
    short = [need for need in needs if not need.fits]
    if not short:
        return
    alone = cluster_address(config) == LOCAL
    changes = possible_changes(
        config,
        supervised=supervised,
        heads=shape.num_attention_heads,
        gpus_per_node=num_cards() if alone and config.trainer.device == "cuda" else math.inf,
        more_nodes=not alone,
    )
    change = smallest_change(needs_with, changes)
    said = "memory: " + "; ".join(_shortage(need, machine) for need in short) + ". " + advice(change)
    if seele.memory.check == "refuse":
        raise ConfigError(f"{said}; seele.memory.check=warn starts anyway")
    sys.stderr.write(f"warning: {said}\n")


def this_machine(config: DictConfig, seele: SeeleConfig) -> Machine:
    """Return what this node has. Where it has no GPUs but the run needs some, as on a cluster's head node,
    the card is the hardware file's, and the other nodes' memory is unknown.
    """
    folder = nearest_existing(Path(config.trainer.default_local_dir).resolve())
    disk = float(shutil.disk_usage(folder).free)
    if config.trainer.device == "cpu":
        return Machine(card=0.0, card_is_assumed=False, host=host_memory(), disk=disk)
    card = card_memory()
    if card is None:
        return Machine(card=seele.memory.gpu_gib * GIB, card_is_assumed=True, host=None, disk=disk)
    return Machine(card=card, card_is_assumed=False, host=host_memory(), disk=disk)


def plan_of(
    config: DictConfig,
    seele: SeeleConfig,
    shape: ModelShape,
    *,
    card: float,
    supervised: bool,
    num_problems: int = 0,
) -> Plan:
    """Return the settings that the arithmetic needs.

    Args:
        config: The composed configuration.
        seele: Its ``seele`` block.
        shape: The model's shape.
        card: Memory of a GPU in bytes, 0 for a run without GPUs.
        supervised: True if verl's SFT trainer runs.
        num_problems: Number of training problems; 0 if unknown, where the epochs of RL count as no step.
    """
    section, trainer = config.actor_rollout_ref, config.trainer
    ranks = trainer.nnodes * trainer.n_gpus_per_node
    policy = _trained(shape, section.actor.fsdp_config, ranks, lora_rank=section.model.lora_rank)
    if supervised:
        # verl's SFT trainer is told not to offload anything (sft/config.py).
        policy = dataclasses.replace(policy, param_offload=False, optimizer_offload=False)
        checkpoints = _supervised_checkpoints(config, seele, num_problems)
        return Plan(
            card=card,
            ranks=ranks,
            ranks_per_node=trainer.n_gpus_per_node,
            policy=policy,
            update=_passes(config, section.actor, rows=seele.sft.batch_size, entropy=False),
            checkpoints=checkpoints,
            whole_models=checkpoints,
        )
    rollout = section.rollout
    actor_entropy = bool(section.actor.calculate_entropy or section.actor.entropy_coeff)
    uses_engines = (
        config.algorithm.rollout_correction.bypass_mode and build_source(seele.off_policy).has_log_probs
    )
    has_critic = METHODS[seele.method].has_critic
    rows = config.data.train_batch_size * rollout.n
    update_rows = section.actor.ppo_mini_batch_size * rollout.n
    of_first_stage, whole_models = _left_by_first_stage(config, seele)
    return Plan(
        card=card,
        ranks=ranks,
        ranks_per_node=trainer.n_gpus_per_node,
        policy=policy,
        update=_passes(config, section.actor, rows=update_rows, entropy=actor_entropy),
        old_log_probs=None
        if uses_engines
        else _passes(config, section.actor, forward=rollout, rows=rows, entropy=True),
        reference=_passes(config, section.ref, forward=section.ref, rows=rows, entropy=False)
        if section.actor.use_kl_loss and not policy.lora_rank
        else None,
        critic=as_critic(_trained(shape, config.critic.fsdp, ranks, lora_rank=0)) if has_critic else None,
        critic_passes=Passes(
            tokens=min(config.critic.ppo_max_token_len_per_gpu, _all_tokens(config, update_rows)),
            longest=_longest(config),
            has_head=False,
            has_checkpointing=config.critic.model.enable_gradient_checkpointing,
            width=_width(config.critic.fsdp),
        )
        if has_critic
        else None,
        engine=_engine(config, shape, has_adapters=bool(policy.lora_rank)),
        rollout_workers=math.ceil(rollout.agent.num_workers / trainer.nnodes),
        rollouts=rows,
        checkpoints=_checkpoints(config, planned_steps(config, num_problems)) + of_first_stage,
        whole_models=whole_models,
    )


def shape_of(model: str, *, trust_remote_code: bool = False) -> ModelShape | None:
    """Return the shape of a model whose shape we know, or of one in a folder, in the hub's cache or on the
    hub; None if it is not a dense transformer of a known type, or cannot be reached.
    """
    from transformers import AutoConfig

    if model in HUB_NAMES and not Path(model).exists():
        return SHAPES[HUB_NAMES[model]]
    try:
        config = AutoConfig.from_pretrained(model, trust_remote_code=trust_remote_code)
    except (OSError, ValueError):
        return None
    return shape_from(config)


def shape_from(config: Any) -> ModelShape | None:
    """Return the shape that a Hugging Face configuration describes; None for another type of model."""
    if config.model_type not in DENSE:
        return None
    return ModelShape(
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        num_key_value_heads=config.num_key_value_heads,
        vocab_size=config.vocab_size,
        head_dim=getattr(config, "head_dim", None),
        tied=config.tie_word_embeddings,
        qkv_bias=config.model_type == "qwen2",
        qk_norm=config.model_type == "qwen3",
    )


def describe_recipes(compose: Callable[..., DictConfig]) -> str:
    """Return a table row for each published recipe: peak needs on its script's hardware, and its choices."""
    rows = []
    for recipe in options.published_recipes():
        # As its script does, which makes room for one more checkpoint of a supervised run.
        config = compose([f"recipe={recipe}", "seele.save_every_minutes=30"])
        needs = needs_of(config)
        section = config.actor_rollout_ref
        fsdp = section.actor.fsdp_config
        offload = [name for name in ("param", "optimizer") if fsdp[f"{name}_offload"]]
        largest = [peak(needs, place) for place in ("GPU", "host", "disk")]
        gpu = largest[0]
        cells = [f"`{recipe}`", Path(section.model.path).name, gpu.phase if gpu else ""]
        cells += [f"{need.needed / GIB:.0f}" if need else "" for need in largest]
        cells += [str(section.rollout.tensor_model_parallel_size), " and ".join(offload) or "none"]
        cells += [f"{section.rollout[key]:,}" for key in ("max_model_len", "max_num_seqs")]
        rows.append(cells)
    heads = ("recipe", "model", "GPU's peak in", "GPU, GiB", "host, GiB", "disk, GiB", "TP", "offloaded")
    return markdown_table((*heads, "window", "sequences"), rows, num_names=3)


def needs_of(config: DictConfig) -> list[Need]:
    """Return what a configuration needs on its hardware file's cards, over all its stages. A preset's model
    is not fetched, because its shape is known.
    """
    seele, model = read_settings(config), config.actor_rollout_ref.model.path
    shape = SHAPES[HUB_NAMES[model]] if model in HUB_NAMES else shape_of(model)
    if shape is None:
        raise ConfigError(
            f"actor_rollout_ref.model.path: the shape of {model!r} is unknown; allowed are models of the "
            f"types {list(DENSE)}: a folder, or one of {list(HUB_NAMES)}"
        )
    card = 0.0 if config.trainer.device == "cpu" else seele.memory.gpu_gib * GIB
    return [
        need
        for stage in METHODS[seele.method].stages
        for need in predict(plan_of(config, seele, shape, card=card, supervised=stage == "sft"))
    ]


def _trained(shape: ModelShape, fsdp: DictConfig, ranks: int, *, lora_rank: int) -> Trained:
    sharded = fsdp.fsdp_size if 0 < fsdp.fsdp_size < ranks else ranks
    return Trained(
        shape=shape,
        shards=sharded,
        lora_rank=lora_rank,
        master=2 if fsdp.model_dtype in ("bf16", "bfloat16", "fp16", "float16") else 4,
        param_offload=fsdp.param_offload,
        optimizer_offload=fsdp.optimizer_offload,
        cpu_policy=fsdp.offload_policy,
        defers_sync=fsdp.use_no_sync_for_gradient_accumulation,
    )


def _passes(
    config: DictConfig, section: DictConfig, *, forward: DictConfig | None = None, rows: int, entropy: bool
) -> Passes:
    """Return the passes of verl's section ``actor`` or ``ref`` over this many rows: an update, or forward
    passes in the micro-batches of the section ``forward``.
    """
    model = config.actor_rollout_ref.model
    batches, switch, prefix = (section, "", "ppo") if forward is None else (forward, "log_prob_", "log_prob")
    if batches[f"{switch}use_dynamic_bsz"]:
        tokens = min(batches[f"{prefix}_max_token_len_per_gpu"], _all_tokens(config, rows))
    else:
        size = batches[f"{prefix}_micro_batch_size_per_gpu"] or 1
        tokens = size * _longest(config) // sequence_parallel_size(section)
    return Passes(
        tokens=tokens,
        longest=_longest(config),
        is_fused=model.use_fused_kernels,
        entropy="none" if not entropy else _entropy(config),
        has_checkpointing=model.enable_gradient_checkpointing,
        width=_width(section.fsdp_config),
    )


def _entropy(config: DictConfig) -> str:
    return "chunked" if config.actor_rollout_ref.actor.entropy_from_logits_with_chunking else "whole"


def _width(fsdp: DictConfig) -> int:
    precision = OmegaConf.select(fsdp, "mixed_precision") or {}
    return 4 if precision.get("param_dtype", "bf16") in ("fp32", "float32") else 2


def _longest(config: DictConfig) -> int:
    longest: int = config.data.max_prompt_length + config.data.max_response_length
    return longest


def _all_tokens(config: DictConfig, rows: int) -> int:
    """Return the most tokens in a rank's part of the rows: a small job never fills a micro-batch."""
    ranks = config.trainer.nnodes * config.trainer.n_gpus_per_node
    return math.ceil(rows / ranks) * _longest(config)


def _engine(config: DictConfig, shape: ModelShape, *, has_adapters: bool) -> Engine:
    rollout = config.actor_rollout_ref.rollout
    extra = rollout.engine_kwargs.vllm
    cache = extra.get("kv_cache_memory_bytes")
    if config.trainer.device == "cpu":
        cache = float(config.ray_kwargs.ray_init.runtime_env.env_vars.VLLM_CPU_KVCACHE_SPACE) * GIB
    return Engine(
        shape=shape,
        tensor_parallel=rollout.tensor_model_parallel_size,
        memory_share=rollout.gpu_memory_utilization,
        window=rollout.max_model_len or _longest(config),
        sequences=rollout.max_num_seqs,
        batched_tokens=rollout.max_num_batched_tokens,
        kv_cache=None if cache is None else float(cache),
        has_graphs=not rollout.enforce_eager,
        sleeps=rollout.free_cache_engine,
        keeps_copy=has_adapters,
        width=4 if rollout.dtype == "float32" else 2,
    )


def _checkpoints(config: DictConfig, steps: int) -> int:
    """Return how many checkpoints may be on disk at once, not counting those that already exist."""
    trainer, is_timed = config.trainer, config.seele.save_every_minutes is not None
    if trainer.save_freq <= 0 and not is_timed:
        return 0
    kept = trainer.max_actor_ckpt_to_keep
    if kept is None:
        kept = is_timed + (steps // trainer.save_freq if trainer.save_freq > 0 else 0)
    return _still_to_come(config, kept + 1)


def _supervised_checkpoints(config: DictConfig, seele: SeeleConfig, num_problems: int) -> int:
    """Return how many checkpoints may be on disk at once, not counting those that already exist. All are kept
    until the last step: one per epoch or ``save_freq``, of which the number of problems says how many.
    """
    every, kept = seele.sft.save_freq, seele.sft.epochs
    if every is not None and every < 1:
        kept = 1
    elif every is not None and num_problems:
        kept = math.ceil(supervised_steps(config, num_problems) / every)
    return _still_to_come(config, kept + (seele.save_every_minutes is not None))


def _left_by_first_stage(config: DictConfig, seele: SeeleConfig) -> tuple[int, int]:
    """Return what a first stage leaves beside the checkpoints of the second, without what already exists: its
    checkpoints, and whole models, which are one in each and the merged one.
    """
    trainer, epochs = config.trainer, seele.sft.epochs
    if not METHODS[seele.method].has_two_stages:
        return 0, 0
    first = Path(trainer.default_local_dir) / FIRST_STAGE
    left = max(0, min(trainer.max_actor_ckpt_to_keep or epochs, epochs) - len(saved_steps(first)))
    if trainer.resume_mode != "disable" and read_run_card(first).get("status") == "finished":
        left = 0
    return left, left + (not (first / MERGED).exists())


def _still_to_come(config: DictConfig, most: int) -> int:
    """Return how many of ``most`` checkpoints are not on disk yet, at least 1."""
    return max(1, most - len(saved_steps(Path(config.trainer.default_local_dir))))


def _shortage(need: Need, machine: Machine) -> str:
    assert need.available is not None, "what is not known is not short"
    parts = sorted(need.parts.items(), key=lambda part: -part[1])[:4]
    words = ", ".join(f"{name} {size / GIB:.1f}" for name, size in parts)
    where = {
        "GPU": "a GPU",
        "engine": "the engine's share of a GPU (gpu_memory_utilization)",
        "host": "a node's memory",
        "disk": "the disk of trainer.default_local_dir",
    }[need.place]
    assumed = machine.card_is_assumed and need.place in ("GPU", "engine")
    of = " (seele.memory.gpu_gib, because this node has no GPU)" if assumed else ""
    return (
        f"{need.phase} needs {need.needed / GIB:.1f} GiB of {where}, which has "
        f"{need.available / GIB:.1f}{of}: {words}"
    )


def card_memory() -> float | None:
    """Return the memory of this node's first GPU, in bytes, as CUDA and vLLM see it; None without a GPU."""
    import torch

    if not torch.cuda.is_available():
        return None
    return float(torch.cuda.get_device_properties(0).total_memory)


def num_cards() -> int:
    """Return the number of this node's GPUs that torch sees."""
    import torch

    return torch.cuda.device_count()


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m seele_verl.memory",
        description="A run's memory by phase.",
    )
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="the arguments of seele train")
    parser.add_argument("--config-dir", metavar="FOLDER", help="as for seele train: compositions of your own")
    parser.add_argument("--recipes", action="store_true", help="print a line for every recipe instead")
    given = parser.parse_intermixed_args(arguments)
    if given.recipes and (given.settings or given.config_dir):
        parser.error("--recipes takes nothing else")
    from seele_verl.train import compose

    try:
        if given.recipes:
            sys.stdout.write(describe_recipes(compose))
        else:
            check_job(given.settings)
            config = compose(given.settings, config_dir=given.config_dir)
            sys.stdout.write(memory_table(needs_of(config)))
    except SeeleError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
