"""Converts the run's configuration to that of verl's SFT trainer
(``verl/trainer/config/sft_trainer_engine.yaml``).

Sections that both of verl's trainers know are passed whole: model, engine, optimiser and checkpoint are those
of the actor. Everything else is set key by key.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from seele.config import SftConfig
from seele_verl.changes import with_changes
from seele_verl.settings import read_settings, sequence_parallel_size


def steps_between_checkpoints(sft: SftConfig | DictConfig, total_steps: int) -> int:
    """Return ``seele.sft.save_freq``, or an epoch's steps, rounded up."""
    return math.ceil(total_steps / sft.epochs) if sft.save_freq is None else sft.save_freq


def verl_sft_config(
    config: DictConfig, *, verl_folder: Path, total_steps: int, checkpoint: Path | None
) -> DictConfig:
    """Return verl's configuration for the run ``config``.

    Args:
        config: A run's configuration, as in ``resolved.yaml``.
        verl_folder: The folder of verl's own configuration.
        total_steps: Steps of the whole run, which the learning rate schedule spans.
        checkpoint: The checkpoint folder to resume from; None starts from scratch.
    """
    with initialize_config_dir(str(verl_folder), version_base=None):
        sft: DictConfig = compose("sft_trainer_engine")
    seele = read_settings(config)
    cuts = seele.data.overlong == "truncate"
    model, actor, trainer = config.actor_rollout_ref.model, config.actor_rollout_ref.actor, config.trainer
    # Also save a whole model, in single precision as it is trained: accuracy is measured on it.
    contents = [*actor.checkpoint.save_contents, "hf_model"]
    sections = {
        "model": _plain(model),
        # Offloading frees no memory that anything needs here: each step would load everything again.
        "engine": _plain(actor.fsdp_config)
        | {
            "strategy": actor.strategy,
            "ulysses_sequence_parallel_size": sequence_parallel_size(actor),
            "param_offload": False,
            "optimizer_offload": False,
        },
        "optim": _plain(actor.optim)
        | {
            "lr": seele.sft.learning_rate,
            "lr_scheduler_type": "cosine",
            "lr_warmup_steps": -1,  # by the ratio
            "lr_warmup_steps_ratio": seele.sft.warmup_ratio,
            "min_lr_ratio": seele.sft.final_lr_ratio,
            "total_training_steps": total_steps,
        },
        "checkpoint": _plain(actor.checkpoint)
        | {"save_contents": contents, "load_contents": list(actor.checkpoint.save_contents)},
    }
    data = {
        "train_files": list(config.data.train_files),
        "train_max_samples": config.data.train_max_samples,
        "val_files": None,
        "train_batch_size": seele.sft.batch_size,
        "use_dynamic_bsz": actor.use_dynamic_bsz,
        "max_token_len_per_gpu": actor.ppo_max_token_len_per_gpu,
        "micro_batch_size_per_gpu": actor.ppo_micro_batch_size_per_gpu,
        "custom_cls": {"path": "pkg://seele_verl.sft.dataset", "name": "SolutionDataset"},
        "template": seele.prompt.template,
        "chat": dataclasses.asdict(seele.prompt.chat),
        "seed": seele.seed,
        "overlong_record": config.data.get("overlong_record"),
        "max_response_tokens": config.data.max_response_length if cuts else None,
    }
    steps = {
        "default_local_dir": trainer.default_local_dir,
        "project_name": trainer.project_name,
        "experiment_name": trainer.experiment_name,
        "total_epochs": seele.sft.epochs,
        "total_training_steps": total_steps,
        "logger": list(trainer.logger),
        "save_freq": steps_between_checkpoints(seele.sft, total_steps) or -1,  # verl would divide by 0
        "save_every_minutes": seele.save_every_minutes,
        # Accuracy is measured afterwards, on the checkpoints (seele_verl/sft/run.py).
        "test_freq": -1,
        "resume_mode": "resume_path" if checkpoint else "disable",
        "resume_from_path": str(checkpoint) if checkpoint else None,
        "device": trainer.device,
        "nnodes": trainer.nnodes,
        "n_gpus_per_node": trainer.n_gpus_per_node,
    }
    return with_changes(
        sft,
        sections
        | {f"data.{key}": value for key, value in data.items()}
        | {f"trainer.{key}": value for key, value in steps.items()},
    )


def _plain(section: DictConfig) -> dict[str, Any]:
    plain: dict[str, Any] = OmegaConf.to_container(section, resolve=True)  # type: ignore[assignment]
    return plain
