"""Settings that would have no effect, and what to set instead."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from omegaconf import DictConfig, OmegaConf

from seele.config import SeeleConfig
from seele.errors import ConfigError
from seele.hints import aims_at_target, steers_on_milestones
from seele.methods import METHODS
from seele.methods.sources import SOURCES, build_source
from seele.reward.graders import GRADERS

_SCHEMA = "problem files have SEELE's schema (docs/data.md)"
_TEXT_ONLY = "problems are text"
_LIMITS = "seele.data.overlong=drop|refuse|truncate decides what happens to problems over the limits"
_NO_TOOLS = "a rollout is one turn without tools"
_GRADED_HERE = "SEELE grades answers itself; set seele.reward"
_REWARD_MODEL = "there is no reward model; set seele.reward"
_SYNCHRONOUS = "training is synchronous"
_PROCESS_GROUP = "verl 0.9.1 starts process groups with time limits of its own"
_NOT_READ = "verl 0.9.1's engine does not read it"
_NO_KL_IN_REWARD = "rewards are the grader's; set actor_rollout_ref.actor.kl_loss_coef and kl_loss_type"

WITHOUT_EFFECT = {
    "data.filter_overlong_prompts": _LIMITS,
    "data.filter_overlong_prompts_workers": _LIMITS,
    "data.truncation": _LIMITS,
    "data.shuffle": "curriculum=uniform shuffles, curriculum=ordered sorts",
    "data.seed": "set seele.seed",
    "data.gen_batch_size": "set data.train_batch_size",
    "data.tokenizer": "the tokenizer is that of actor_rollout_ref.model.path",
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
    "actor_rollout_ref.rollout.do_sample": "set actor_rollout_ref.rollout.temperature",
    "actor_rollout_ref.rollout.val_kwargs.do_sample": "set actor_rollout_ref.rollout.val_kwargs.temperature",
    "actor_rollout_ref.actor.clip_ratio": "set actor_rollout_ref.actor.clip_ratio_low and clip_ratio_high",
    "actor_rollout_ref.actor.grad_clip": "set actor_rollout_ref.actor.optim.clip_grad",
    "actor_rollout_ref.actor.fsdp_config.strategy": "set actor_rollout_ref.actor.strategy",
    "actor_rollout_ref.actor.use_prefix_grouper": _NOT_READ,
    "actor_rollout_ref.model.tiled_mlp.": _NOT_READ,
    "actor_rollout_ref.nccl_timeout": _PROCESS_GROUP,
    "critic.model.tiled_mlp.": _NOT_READ,
    "algorithm.kl_ctrl.": _NO_KL_IN_REWARD,
    "algorithm.kl_penalty": _NO_KL_IN_REWARD,
    "algorithm.use_pf_ppo": "an update keeps its rows; set selection",
    "algorithm.pf_ppo.": "an update keeps its rows; set selection",
    "reward.num_workers": "set seele.reward.num_workers",
    "reward.reward_manager.": _GRADED_HERE,
    "reward.sandbox_fusion.": _GRADED_HERE,
    "sandbox_fusion.": _GRADED_HERE,
    "reward.reward_model.": _REWARD_MODEL,
    "reward_model.": _REWARD_MODEL,
    "trainer.balance_batch": "every update is balanced over the ranks",
    "trainer.default_hdfs_dir": "checkpoints are written to trainer.default_local_dir",
    "trainer.v1.colocate_async.": _SYNCHRONOUS,
    "trainer.v1.separate_async.": _SYNCHRONOUS,
}
"""verl's setting, or its section with a final dot -> what to do instead."""


WITHOUT_EFFECT_UNDER_SFT = {
    "trainer.total_epochs": "set seele.sft.epochs",
    "actor_rollout_ref.actor.optim.lr_scheduler_type": "the schedule is half a cosine; "
    "seele.sft.final_lr_ratio=1 keeps the learning rate constant",
    "actor_rollout_ref.actor.optim.min_lr_ratio": "set seele.sft.final_lr_ratio",
    "actor_rollout_ref.actor.optim.lr_warmup_steps": "set seele.sft.warmup_ratio",
    "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio": "set seele.sft.warmup_ratio",
}
WITHOUT_EFFECT_ON_A_CRITIC = {
    "critic.use_dynamic_bsz": "micro-batches are always filled up to critic.ppo_max_token_len_per_gpu",
    "critic.ppo_micro_batch_size": "set critic.ppo_max_token_len_per_gpu",
    "critic.ppo_micro_batch_size_per_gpu": "set critic.ppo_max_token_len_per_gpu",
    "critic.forward_micro_batch_size": "set critic.ppo_max_token_len_per_gpu",
    "critic.forward_micro_batch_size_per_gpu": "set critic.ppo_max_token_len_per_gpu",
    "critic.forward_max_token_len_per_gpu": "set critic.ppo_max_token_len_per_gpu",
    "critic.ulysses_sequence_parallel_size": "set critic.fsdp.ulysses_sequence_parallel_size",
    "critic.grad_clip": "set critic.optim.clip_grad",
    "critic.rollout_n": "set seele.hints.rollouts_per_prompt",
    "critic.fsdp.strategy": "set critic.strategy",
    "algorithm.norm_adv_by_std_in_grpo": "with a critic, advantages are whitened over the batch",
}

UNREAD_BY_LOSS = {
    "gpg": ("clip_ratio_low", "clip_ratio_high", "clip_ratio_c"),
    "gspo": ("clip_ratio_c",),
    "cispo": ("clip_ratio_c",),
}
"""verl's policy loss -> settings of the actor that it does not read (``verl/trainer/ppo/core_algos.py``)."""

_OF_A_CRITIC = ("critic.", "algorithm.gamma", "algorithm.lam")
_OF_HINTS = ("kind", "refresh", "placement", "when", "dropout", "unit", "revealing")
_OF_ROLLOUTS = (
    *("seele.dump_tokens", "seele.advantage.shift", "seele.reward.format_score"),
    *("seele.hints.rounds", "seele.hints.rollouts_per_prompt", "algorithm.norm_adv_by_std_in_grpo"),
)
_OF_FUNCTIONS = ("kwargs.", "isolation", "correct_from")
_OF_SEC = ("learning_rate", "temperature", "with_replacement")
_OF_LZE = ("ratio", "warmup_epochs", "transition_epochs", "momentum", "decay", "noise")


def check_has_effect(overrides: Iterable[str]) -> None:
    """Raise ``ConfigError`` where the user typed a setting that has no effect in any run."""
    _refuse(overrides, WITHOUT_EFFECT)


def check_part_is_used(overrides: Iterable[str], config: DictConfig, seele: SeeleConfig) -> None:
    """Raise ``ConfigError`` where the user typed a setting of a part that the run does not use."""
    _refuse(overrides, dict([*_left_off_of_verl(config), *_left_off(seele)]))


def _left_off_of_verl(config: DictConfig) -> Iterator[tuple[str, str]]:
    """Yield pairs as in ``WITHOUT_EFFECT``, of verl's settings, for a run of a known method."""
    method, steps = METHODS[config.seele.method], config.trainer.total_training_steps
    if steps is not None:
        instead = "which methods and jobs set; set that to null"
        yield "trainer.total_epochs", f"trainer.total_training_steps is {steps}, {instead}"
    for part, switch in (
        ("actor.ppo", "actor.use_dynamic_bsz"),
        ("rollout.log_prob", "rollout.log_prob_use_dynamic_bsz"),
        ("ref.log_prob", "ref.log_prob_use_dynamic_bsz"),
    ):
        if OmegaConf.select(config.actor_rollout_ref, switch):
            tokens = f"set actor_rollout_ref.{part}_max_token_len_per_gpu"
            why = f"actor_rollout_ref.{switch} is true; {tokens}"
            yield f"actor_rollout_ref.{part}_micro_batch_size_per_gpu", why
    actor = config.actor_rollout_ref.actor
    loss = actor.policy_loss.loss_mode
    for name in UNREAD_BY_LOSS.get(loss, ()):
        why = f"actor_rollout_ref.actor.policy_loss.loss_mode is {loss}"
        yield f"actor_rollout_ref.actor.{name}", why
    if not actor.use_kl_loss:
        why = "actor_rollout_ref.actor.use_kl_loss is false; true adds a KL term"
        yield from ((f"actor_rollout_ref.actor.{name}", why) for name in ("kl_loss_coef", "kl_loss_type"))
    if not config.actor_rollout_ref.model.lora_rank:
        why = "no adapter is trained (actor_rollout_ref.model.lora_rank is 0); adapter=lora trains one"
        names = ("lora_alpha", "target_modules", "exclude_modules")
        yield from ((f"actor_rollout_ref.model.{name}", why) for name in names)
    if method.has_critic:
        yield from WITHOUT_EFFECT_ON_A_CRITIC.items()
    else:
        yield from ((key, f"method {method.name} has no critic; ppo has one") for key in _OF_A_CRITIC)
    if method.is_supervised:
        yield from WITHOUT_EFFECT_UNDER_SFT.items()


def _left_off(seele: SeeleConfig) -> Iterator[tuple[str, str]]:
    """Yield pairs as in ``WITHOUT_EFFECT``, of SEELE's settings, for a run of a known method."""
    method, of_off_policy = METHODS[seele.method], "seele.off_policy."
    source = build_source(seele.off_policy)
    if not source.marks_tokens:
        why = f"method {method.name} has no off-policy rows"
        fields = (field.name for field in dataclasses.fields(seele.off_policy))
        yield from ((of_off_policy + name, why) for name in fields if name != "source")
    if source.in_response:
        yield of_off_policy + "statistics", "prefixes are trained like the rest of their response"
    loss = seele.off_policy.loss
    if source.marks_tokens and seele.off_policy.source in SOURCES:
        if not source.has_own_loss:
            why = "off-policy tokens are trained like all others (seele.off_policy.loss is surrogate)"
            yield from ((of_off_policy + name, why) for name in ("shaping", "coefficient"))
        elif loss not in ("shaped", "trust_region"):
            yield of_off_policy + "shaping", f"seele.off_policy.loss is {loss}"
    if seele.rollout_correction == "none":
        names = ("rollout_correction_level", "rollout_correction_threshold")
        yield from ((f"seele.{name}", "seele.rollout_correction is none") for name in names)
    if not source.replays:
        why = "replay=successes has no settings" if source.replays_visited else "exgrpo replays from a pool"
        yield "seele.replay.", f"method {method.name} replays nothing from a pool; {why}"
    if not seele.hints.gives_hints:
        why = "there are no hints (seele.hints.controller=none)"
        yield from (
            (key, why) for key in ("seele.imitation.", *(f"seele.hints.{name}" for name in _OF_HINTS))
        )
    if not seele.imitation.coefficient:
        yield "seele.imitation.form", "no hint is imitated (seele.imitation.coefficient is 0)"
    predicts, controller = seele.advantage.baseline == "hint_conditional", seele.hints.controller
    spreads = controller == "bayes" and seele.hints.settings.get("spread")
    if not predicts and (spreads or not aims_at_target(controller)):
        what = "with seele.hints.settings.spread=true" if spreads else controller
        yield "seele.hints.target_accuracy", f"controller {what} aims at no accuracy"
    if seele.hints.placement == "assistant":
        yield "seele.hints.request", "hints are in the assistant's turn (seele.hints.placement)"
    if seele.hints.when == "always":
        yield "seele.hints.failing_accuracy", "seele.hints.when is always"
    if seele.hints.when != "until_success":
        yield "seele.hints.passing_accuracy", f"seele.hints.when is {seele.hints.when}"
    if not method.has_supervised_stage:
        yield "seele.sft.", f"method {method.name} has no supervised stage; sft and sft_rl have one"
    elif seele.sft.train_files:
        yield "seele.sft.share", "seele.sft.train_files are trained on whole"
    if seele.credit.gives_advantages:
        why = f"seele.credit.name={seele.credit.name} does not divide by a deviation"
        yield "algorithm.norm_adv_by_std_in_grpo", why
    elif (source.in_response and not source.has_own_loss) or method.leaves_one_out:
        yield "algorithm.norm_adv_by_std_in_grpo", f"method {method.name} does not divide by a deviation"
    if seele.hints.rounds == 1:
        yield "seele.hints.round_quorum", "no round follows the only one (seele.hints.rounds)"
    if method.is_supervised:
        yield from ((key, f"method {method.name} trains without rollouts") for key in _OF_ROLLOUTS)
        yield (
            "seele.callbacks",
            f"method {method.name} trains without rollouts, and verl's SFT trainer has no callbacks",
        )
    if not seele.credit.by_distillation:
        yield "seele.credit.request", "no reference model sees the solution (seele.credit.name)"
    if not seele.credit.by_milestones:
        yield "seele.credit.prior_rollouts", f"seele.credit.name is {seele.credit.name}"
    if not (seele.credit.walks or steers_on_milestones(seele.hints.controller)):
        why = f"no response is walked along milestones (seele.credit.name is {seele.credit.name})"
        yield "seele.credit.walk", why
    if not seele.credit.stop:
        yield "seele.credit.stop_below", "seele.credit.stop is false"
    if seele.reward.grader in GRADERS:
        why = f"it is for a reward function of your own, and seele.reward.grader is {seele.reward.grader}"
        yield from ((f"seele.reward.{name}", why) for name in _OF_FUNCTIONS)
    else:
        why = "your own reward function gives the reward"
        yield from ((f"seele.reward.{name}", why) for name in ("format_score", "max_answer_chars"))
        if seele.reward.isolation == "none":
            yield "seele.reward.memory_limit_mb", "seele.reward.isolation is none"
    if seele.curriculum.name != "sec":
        yield from ((f"seele.curriculum.{name}", "only curriculum=sec uses it") for name in _OF_SEC)
    if seele.curriculum.name == "uniform":
        yield "seele.curriculum.columns", "curriculum=uniform looks at no column"
    if seele.selection.name != "lze":
        yield from ((f"seele.selection.{name}", "only selection=lze uses it") for name in _OF_LZE)
    if not seele.selection.prune_after:
        yield "seele.selection.replay_share", "nothing is pruned (seele.selection.prune_after)"
    if not predicts:
        yield "seele.advantage.prior_rollouts", "only seele.advantage.baseline=hint_conditional uses it"


def _refuse(overrides: Iterable[str], without_effect: Mapping[str, str]) -> None:
    for override in overrides:
        key = override.split("=")[0].lstrip("+~")
        for dead, why in without_effect.items():
            if key in (dead, dead.removesuffix(".")) or (dead.endswith(".") and key.startswith(dead)):
                raise ConfigError(f"{key}: has no effect; {why}")
