"""verl's settings that would do nothing here, and what has their effect."""

from collections.abc import Iterable

from seele.errors import ConfigError

_SCHEMA = "problem files have SEELE's schema (docs/data.md)"
_TEXT_ONLY = "problems are text"
_LIMITS = "seele.data.overlong=drop|refuse|truncate says what becomes of problems over the limits"
_NO_TOOLS = "a rollout is one turn without tools"
_ROUNDS = "SEELE rolls out in rounds; set seele.hints"
_GRADED_HERE = "SEELE grades answers by itself; set seele.reward"
_REWARD_MODEL = "there is no reward model; set seele.reward"
_SYNCHRONOUS = "training is synchronous"
_NO_KL_IN_REWARD = "rewards are the grader's; set actor_rollout_ref.actor.kl_loss_coef and kl_loss_type"

WITHOUT_EFFECT = {
    "data.filter_overlong_prompts": _LIMITS,
    "data.filter_overlong_prompts_workers": _LIMITS,
    "data.truncation": _LIMITS,
    "data.shuffle": "curriculum=uniform shuffles, curriculum=ordered sorts",
    "data.seed": "set seele.seed",
    "data.gen_batch_size": "set data.train_batch_size",
    "data.tokenizer": "it is that of actor_rollout_ref.model.path",
    "data.prompt_key": _SCHEMA,
    "data.reward_fn_key": _SCHEMA,
    "data.return_raw_input_ids": _SCHEMA,
    "data.return_raw_chat": _SCHEMA,
    "data.return_full_prompt": _SCHEMA,
    "data.use_shm": _SCHEMA,
    "data.custom_cls.": _SCHEMA,
    "data.image_key": _TEXT_ONLY,
    "data.video_key": _TEXT_ONLY,
    "data.audio_key": _TEXT_ONLY,
    "data.image_patch_size": _TEXT_ONLY,
    "data.return_multi_modal_inputs": _TEXT_ONLY,
    "data.mm_processor_kwargs": _TEXT_ONLY,
    "data.tool_config_path": _NO_TOOLS,
    "data.function_tool_path": _NO_TOOLS,
    "actor_rollout_ref.rollout.multi_turn.": _NO_TOOLS,
    "actor_rollout_ref.rollout.agent.default_agent_loop": _NO_TOOLS,
    "actor_rollout_ref.rollout.agent.agent_loop_config_path": _NO_TOOLS,
    "actor_rollout_ref.rollout.agent.agent_loop_manager_class": _ROUNDS,
    "actor_rollout_ref.rollout.do_sample": "set actor_rollout_ref.rollout.temperature",
    "actor_rollout_ref.rollout.val_kwargs.do_sample": "set actor_rollout_ref.rollout.val_kwargs.temperature",
    "actor_rollout_ref.actor.clip_ratio": "set actor_rollout_ref.actor.clip_ratio_low and clip_ratio_high",
    "actor_rollout_ref.actor.grad_clip": "set actor_rollout_ref.actor.optim.clip_grad",
    "actor_rollout_ref.actor.fsdp_config.strategy": "set actor_rollout_ref.actor.strategy",
    "algorithm.kl_ctrl.": _NO_KL_IN_REWARD,
    "algorithm.kl_penalty": _NO_KL_IN_REWARD,
    "algorithm.use_pf_ppo": "an update keeps its rows; set selection",
    "algorithm.pf_ppo.": "an update keeps its rows; set selection",
    "reward.num_workers": "set seele.reward.num_workers",
    "reward.reward_manager.": _GRADED_HERE,
    "reward.custom_reward_function.": _GRADED_HERE,
    "reward.sandbox_fusion.": _GRADED_HERE,
    "custom_reward_function.": _GRADED_HERE,
    "sandbox_fusion.": _GRADED_HERE,
    "reward.reward_model.": _REWARD_MODEL,
    "reward_model.": _REWARD_MODEL,
    "trainer.v1.colocate_async.": _SYNCHRONOUS,
    "trainer.v1.separate_async.": _SYNCHRONOUS,
}
"""Setting, or section with a dot at its end -> what to do instead."""


def check_has_effect(overrides: Iterable[str]) -> None:
    """Raise ``ConfigError`` where the user typed a setting that would do nothing."""
    for override in overrides:
        key = override.split("=")[0].lstrip("+~")
        for dead, instead in WITHOUT_EFFECT.items():
            if f"{key}." == dead or key == dead or (dead.endswith(".") and key.startswith(dead)):
                raise ConfigError(f"{key}: has no effect; {instead}")
