"""Checks of a supervised stage before anything starts."""

from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from seele.config import SeeleConfig
from seele.curriculum.planner import OTHER_PROBLEMS, problems_sha256
from seele.data.overlong import Problem
from seele.errors import CheckpointError, ConfigError, DataError
from seele.records import Instance
from seele_verl.model_config import read_model_config
from seele_verl.runs.checkpoints import load_part
from seele_verl.runs.resume import checkpoint_to_resume, find_start
from seele_verl.settings import sequence_parallel_size

VERL_SETTINGS_OF_ROLLOUTS = (
    "algorithm.filter_groups.enable",
    "reward.reward_kwargs.overlong_buffer_cfg.enable",
)
"""verl's switches that have no effect without rollouts."""


def check_supervised(
    config: DictConfig,
    seele: SeeleConfig,
    problems: Sequence[tuple[Instance, Path]],
) -> None:
    """Check batches, validation and solutions.

    Raises:
        ConfigError: The ranks or micro-batches do not divide the batch, there is more than one node,
            checkpoints do not match the validation, or the validation does not support a decoding setting.
        DataError: There are fewer problems than one step needs, or a problem has no solution.
    """
    _check_settings(config, seele)
    if len(problems) < seele.sft.batch_size:
        raise DataError(
            f"data.train_files: {len(problems)} problems are fewer than the {seele.sft.batch_size} of one "
            "supervised step; add data or lower data.train_batch_size (sft_rl: seele.sft.batch_size)"
        )
    for instance, path in problems:
        if not instance.steps:
            raise DataError(
                f"{path}: problem {instance.instance_id!r} has no worked solution to train on; remove it or "
                "give it steps"
            )


def check_validated_model(config: DictConfig) -> None:
    """Raise ``ConfigError`` if the run's validation, which executes no code of a model, cannot load it."""
    model, trainer = config.actor_rollout_ref.model, config.trainer
    if trainer.test_freq <= 0 and not trainer.val_before_train:
        return
    if type(read_model_config(config)).__module__.startswith("transformers_modules."):
        raise ConfigError(
            f"actor_rollout_ref.model.path: {model.path} needs code of its own, which the validation of "
            "supervised training does not execute; set trainer.test_freq=-1 and "
            "trainer.val_before_train=false"
        )


def check_same_problems(config: DictConfig, problems: Sequence[Problem]) -> None:
    """Check that a run resumes with the problems of its checkpoint; older checkpoints do not tell.

    Raises:
        CheckpointError: It was trained on others, or on the same in another order.
    """
    step = find_start(config)
    if step is None:
        return
    checkpoint = checkpoint_to_resume(config, step)
    own = problems_sha256(problem.instance.instance_id for problem in problems)
    if load_part(checkpoint, "problems", otherwise={}).get("sha256", own) != own:
        raise CheckpointError(f"{checkpoint}: {OTHER_PROBLEMS}")


def _check_settings(config: DictConfig, seele: SeeleConfig) -> None:
    for name in VERL_SETTINGS_OF_ROLLOUTS:
        if OmegaConf.select(config, name):
            raise ConfigError(f"{name}: supervised training has no rollouts; switch it off")
    trainer, decoding = config.trainer, config.actor_rollout_ref.rollout.val_kwargs
    if trainer.nnodes != 1:
        raise ConfigError(
            f"trainer.nnodes: supervised training runs on one node, got {trainer.nnodes}; allowed is 1"
        )
    _check_batches(config, seele.sft.batch_size)
    every = seele.sft.save_freq
    if trainer.test_freq > 0 and every is not None and (every <= 0 or trainer.test_freq % every):
        raise ConfigError(
            f"trainer.test_freq ({trainer.test_freq}) must be a multiple of seele.sft.save_freq ({every}), "
            "which follows trainer.save_freq: supervised training is validated on its checkpoints"
        )
    if decoding.top_p != 1.0 or decoding.top_k != -1:
        raise ConfigError(
            "actor_rollout_ref.rollout.val_kwargs: supervised training is validated without top_p and top_k, "
            f"got {decoding.top_p} and {decoding.top_k}; allowed are 1 and -1"
        )


def _check_batches(config: DictConfig, batch_size: int) -> None:
    """Raise ``ConfigError`` unless ranks and fixed micro-batches divide a step's problems. GPUs that share
    sequences are one rank.
    """
    actor, gpus = config.actor_rollout_ref.actor, config.trainer.n_gpus_per_node
    size = sequence_parallel_size(actor)
    if gpus % size:
        raise ConfigError(
            f"trainer.n_gpus_per_node: got {gpus}, must be a multiple of the {size} GPUs that share a "
            "sequence (actor_rollout_ref.actor.ulysses_sequence_parallel_size)"
        )
    ranks = gpus // size
    if batch_size % ranks:
        raise ConfigError(
            f"data.train_batch_size (sft_rl: seele.sft.batch_size) must be a multiple of the "
            f"{ranks} training ranks, got {batch_size}"
        )
    rows, fixed = batch_size // ranks, actor.ppo_micro_batch_size_per_gpu
    if not actor.use_dynamic_bsz and (not isinstance(fixed, int) or fixed < 1 or rows % fixed):
        raise ConfigError(
            f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu: got {fixed}, must divide the {rows} "
            "problems of a rank's step; or set actor_rollout_ref.actor.use_dynamic_bsz=true"
        )
