"""Checks values of verl's own settings that verl refuses late (after Ray's start or a step) or not at all.

Settings of its profiler are described in docs/debugging.md.
"""

import shutil
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from omegaconf import DictConfig, ListConfig, OmegaConf

from seele.errors import ConfigError, DataError


class _Allowed(NamedTuple):
    words: str
    holds: Callable[[Any], bool]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _one_of(*names: str) -> _Allowed:
    return _Allowed(f"one of {list(names)}", lambda value: value in names)


_WHOLE = _Allowed("a whole number", _is_whole)
_COUNT = _Allowed("a whole number of at least 1", lambda value: _is_whole(value) and value >= 1)
_COUNT_OR_NULL = _Allowed(f"{_COUNT.words}, or null", lambda value: value is None or _COUNT.holds(value))
_COUNT_OR_ALL = _Allowed(f"{_COUNT.words}, or -1 for all", lambda value: value == -1 or _COUNT.holds(value))
_SHARE = _Allowed("a number from 0 to 1", lambda value: _is_number(value) and 0 <= value <= 1)
_POSITIVE = _Allowed("a number above 0", lambda value: _is_number(value) and value > 0)
_AGGREGATION = _one_of("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
_KL = ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3")
_RANK = _Allowed(
    "a whole number from 0 (no LoRA) to 512", lambda value: _is_whole(value) and 0 <= value <= 512
)
_STRATEGY = _one_of("fsdp", "fsdp2")
_SAVED = ("model", "optimizer", "extra")
_CONTENTS = _Allowed(
    f"a list with {list(_SAVED)}, all of which a resumed run needs",
    lambda value: isinstance(value, ListConfig) and {*value} >= {*_SAVED},
)
_SCHEDULE = _one_of("constant", "cosine")
FUSED_HEAD = "seele_verl.fused_head"
LOSSES = (
    *("vanilla", "dppo_tv", "dppo_kl", "gspo", "sapo", "gpg", "clip_cov", "kl_cov", "geo_mean", "dro"),
    *("cispo", "bypass_mode"),
)
"""Names in verl's registry of policy losses."""
_LOGGERS = ("console", "tensorboard", "wandb", "swanlab", "mlflow", "clearml", "trackio", "file")

ALLOWED = {
    "data.train_batch_size": _COUNT,
    "data.max_prompt_length": _COUNT,
    "data.max_response_length": _COUNT,
    "data.train_max_samples": _COUNT_OR_ALL,
    "data.val_max_samples": _COUNT_OR_ALL,
    "trainer.nnodes": _COUNT,
    "trainer.n_gpus_per_node": _COUNT,
    "trainer.total_training_steps": _COUNT_OR_NULL,
    "trainer.total_epochs": _COUNT,
    "trainer.max_actor_ckpt_to_keep": _COUNT_OR_NULL,
    "trainer.default_local_dir": _Allowed("a folder", lambda value: isinstance(value, str) and value != ""),
    "trainer.save_freq": _WHOLE,
    "trainer.watchdog_minutes": _Allowed(
        f"{_POSITIVE.words}, or null", lambda value: value is None or _POSITIVE.holds(value)
    ),
    "trainer.max_restarts": _Allowed("0 or more", lambda value: _is_whole(value) and value >= 0),
    "trainer.test_freq": _WHOLE,
    "trainer.critic_warmup": _Allowed("0, as every step updates the policy", lambda value: value == 0),
    "trainer.max_critic_ckpt_to_keep": _Allowed(
        "null, as trainer.max_actor_ckpt_to_keep counts whole checkpoints", lambda value: value is None
    ),
    "trainer.resume_mode": _one_of("auto", "disable", "resume_path"),
    "trainer.logger": _Allowed(
        f"a list of some of {list(_LOGGERS)}",
        lambda value: isinstance(value, ListConfig) and set(value) <= {*_LOGGERS},
    ),
    "actor_rollout_ref.actor.checkpoint.async_save": _Allowed(
        "false, as FSDP cannot save otherwise and verl would mark no checkpoint complete",
        lambda value: not value,
    ),
    "actor_rollout_ref.actor.checkpoint.save_contents": _CONTENTS,
    "actor_rollout_ref.actor.checkpoint.load_contents": _CONTENTS,
    "trainer.device": _one_of("cpu", "cuda"),
    "trainer.use_v1": _Allowed("true, as SEELE builds on that trainer", lambda value: value is True),
    "actor_rollout_ref.model.lora_rank": _RANK,
    "actor_rollout_ref.model.lora_alpha": _COUNT,
    "actor_rollout_ref.actor.strategy": _STRATEGY,
    "actor_rollout_ref.ref.strategy": _STRATEGY,
    "actor_rollout_ref.actor.optim.lr": _POSITIVE,
    "actor_rollout_ref.actor.optim.lr_scheduler_type": _SCHEDULE,
    "actor_rollout_ref.actor.ppo_mini_batch_size": _COUNT,
    "actor_rollout_ref.actor.loss_agg_mode": _AGGREGATION,
    "actor_rollout_ref.actor.kl_loss_type": _one_of(*_KL, *(f"{name}+" for name in _KL)),
    "actor_rollout_ref.rollout.name": _one_of("vllm"),
    "actor_rollout_ref.rollout.agent.agent_loop_manager_class": _Allowed(
        "seele_verl.rollout_workers.RoundsManager, or the import path of a class derived from it",
        lambda value: isinstance(value, str) and "." in value,
    ),
    "actor_rollout_ref.rollout.temperature": _POSITIVE,
    "actor_rollout_ref.rollout.tensor_model_parallel_size": _COUNT,
    "actor_rollout_ref.rollout.val_kwargs.n": _COUNT,
}

ALLOWED_OF_A_CRITIC = {
    "algorithm.gamma": _SHARE,
    "algorithm.lam": _SHARE,
    "critic.strategy": _STRATEGY,
    "critic.optim.lr": _POSITIVE,
    "critic.cliprange_value": _POSITIVE,
    "critic.ppo_epochs": _COUNT,
    "critic.ppo_mini_batch_size": _COUNT,
    "critic.ppo_infer_max_token_len_per_gpu": _COUNT,
    "critic.loss_agg_mode": _AGGREGATION,
    "critic.checkpoint.async_save": _Allowed("false, as FSDP cannot save otherwise", lambda value: not value),
    "critic.checkpoint.save_contents": _CONTENTS,
    "critic.checkpoint.load_contents": _CONTENTS,
    "critic.optim.lr_scheduler_type": _SCHEDULE,
}


def check_verl_settings(config: DictConfig) -> None:
    """Check types, ranges and names.

    Raises:
        ConfigError: A value is not allowed.
        DataError: A list of data files is empty.
    """
    _check_values(config, ALLOWED)
    for key in ("data.train_files", "data.val_files"):
        files = OmegaConf.select(config, key)
        if not files or not all(isinstance(file, str) for file in files):
            raise DataError(f"{key}: expected a file or a list of files, got {files!r}")
    loss = config.actor_rollout_ref.actor.policy_loss.loss_mode
    if loss not in LOSSES and config.actor_rollout_ref.model.external_lib in (None, FUSED_HEAD):
        raise ConfigError(
            f"actor_rollout_ref.actor.policy_loss.loss_mode: expected one of {list(LOSSES)}, or what a "
            f"library of yours (actor_rollout_ref.model.external_lib) registers, got {loss!r}"
        )
    trainer = config.trainer
    ranks = trainer.nnodes * trainer.n_gpus_per_node
    share = config.actor_rollout_ref.rollout.tensor_model_parallel_size
    if ranks % share:
        raise ConfigError(
            f"actor_rollout_ref.rollout.tensor_model_parallel_size ({share}) must divide the {ranks} ranks"
        )
    of_node = trainer.n_gpus_per_node
    if max(share, of_node) % min(share, of_node):
        raise ConfigError(
            f"actor_rollout_ref.rollout.tensor_model_parallel_size ({share}) must divide "
            f"trainer.n_gpus_per_node ({of_node}), or be a multiple of it: verl places an engine on whole "
            "nodes or within one"
        )


def check_critic_values(config: DictConfig) -> None:
    """Raise ``ConfigError`` where a value of a run's critic is not allowed."""
    _check_values(config, ALLOWED_OF_A_CRITIC)


def _check_values(config: DictConfig, allowed: Mapping[str, _Allowed]) -> None:
    for key, values in allowed.items():
        value = OmegaConf.select(config, key)
        if not values.holds(value):
            raise ConfigError(f"{key}: expected {values.words}, got {value!r}")


TOOLS = ("torch", "torch_memory", "nsys")
PROFILED = (
    *(f"actor_rollout_ref.{part}.profiler.enable" for part in ("actor", "ref", "rollout")),
    "critic.profiler.enable",
)
"""Switches of the parts that can be profiled."""


def check_profiler(config: DictConfig, *, supervised: bool) -> None:
    """Raise ``ConfigError`` where a requested part would not be profiled, or the tool is missing."""
    tool, steps = config.global_profiler.tool, config.global_profiler.steps
    enabled = [part for part in PROFILED if OmegaConf.select(config, part)]
    if tool is None and not steps and not enabled:
        return
    if supervised:
        raise ConfigError(
            f"global_profiler: got tool {tool} and steps {steps}, but supervised training is not profiled; "
            "leave both null"
        )
    if tool not in TOOLS:
        raise ConfigError(f"global_profiler.tool: got {tool!r}; allowed are {list(TOOLS)}")
    if not steps:
        raise ConfigError(
            f"global_profiler.steps: got {steps}, so no step is profiled; name some, such as [3]"
        )
    if not enabled:
        raise ConfigError(
            f"global_profiler.tool: {tool}, but no part is profiled; set "
            "actor_rollout_ref.actor.profiler.enable=true (docs/debugging.md lists the others)"
        )
    if tool == "torch_memory" and config.trainer.device == "cpu":
        raise ConfigError(
            "global_profiler.tool: torch_memory records the memory of GPUs; allowed with hardware=cpu is "
            "'torch'"
        )
    if tool == "nsys" and (config.trainer.device == "cpu" or shutil.which("nsys") is None):
        raise ConfigError(
            "global_profiler.tool: nsys is Nsight Systems, for GPUs, and must be on the PATH of every node; "
            "install it, or set the tool to torch"
        )
