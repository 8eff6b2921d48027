"""Which parts can be combined. Every refusal here is a row of the table in docs/methods/README.md."""

from omegaconf import DictConfig, OmegaConf

from seele.config import SeeleConfig
from seele.errors import ConfigError
from seele.hints import steers_on_milestones
from seele.methods import METHODS
from seele.methods.sources import build_source
from seele_verl.rollout_correction import check_rollout_correction


def check_composition(config: DictConfig, seele: SeeleConfig) -> None:
    """Refuse parts that would undo each other, before anything starts.

    Raises:
        ConfigError: Two parts conflict; the message names both settings and a fix.
    """
    # Imported here because torch reads the run's environment when it is imported.
    from seele.methods.loss_terms import LossTerms

    LossTerms(seele)
    if METHODS[seele.method].has_critic:
        _check_all_groups_are_learnt_from(config, seele, learner="a critic")
    if seele.credit.by_distillation:
        _check_all_groups_are_learnt_from(config, seele, learner=f"seele.credit.name={seele.credit.name}")
    if seele.credit.by_distillation and not config.actor_rollout_ref.actor.use_kl_loss:
        raise ConfigError(
            "actor_rollout_ref.actor.use_kl_loss: false, but with seele.credit.name=self_distillation the "
            "reference model is the teacher; set it to true, with kl_loss_coef=0 for no KL term"
        )
    divides = config.algorithm.norm_adv_by_std_in_grpo and not METHODS[seele.method].leaves_one_out
    if seele.advantage.shift and divides:
        raise ConfigError(
            f"seele.advantage.shift: {seele.advantage.shift}, but advantages are divided by the standard "
            "deviation and the shift is in units of reward; set algorithm.norm_adv_by_std_in_grpo=false, or "
            "the shift to 0"
        )
    walks = seele.credit.walks or steers_on_milestones(seele.hints.controller)
    if walks and seele.hints.kind == "tiers" and seele.hints.gives_hints:
        raise ConfigError(
            "seele.hints.kind: 'tiers', but seele.credit or seele.hints.controller uses the milestones "
            "that a hint states, which are counted in the solution's steps; allowed is 'prefix'"
        )
    _check_group_filter(config, seele)
    _check_spare_problems(config, seele)
    _check_overlong_penalty(config, seele)
    check_rollout_correction(config, seele)
    if seele.reward.after_thinking and seele.hints.gives_hints and seele.hints.user_request is None:
        raise ConfigError(
            "seele.reward.after_thinking: true, but a hint "
            f"(seele.hints.controller={seele.hints.controller}) may end the thoughts, which a rollout's text "
            "does not show; leave it false, or set seele.hints.placement=user"
        )
    _check_sampling(config, seele)
    if not config.actor_rollout_ref.rollout.calculate_log_probs:
        _check_log_probs_are_not_needed(config, seele)


def _check_sampling(config: DictConfig, seele: SeeleConfig) -> None:
    """Refuse old log-probabilities of a truncated distribution, from which those of the update differ."""
    rollout, key = config.actor_rollout_ref.rollout, "algorithm.rollout_correction.bypass_mode"
    if not (config.algorithm.rollout_correction.bypass_mode and build_source(seele.off_policy).has_log_probs):
        return
    if rollout.top_p < 1 or rollout.top_k > 0:
        raise ConfigError(
            f"actor_rollout_ref.rollout: got top_p={rollout.top_p} and top_k={rollout.top_k}, but with "
            f"{key}, which hardware=cpu sets, the old log-probabilities are the engine's, computed with "
            f"both; set top_p=1 and top_k=-1, or {key}=false"
        )


def _check_log_probs_are_not_needed(config: DictConfig, seele: SeeleConfig) -> None:
    key = "actor_rollout_ref.rollout.calculate_log_probs"
    if build_source(seele.off_policy).marks_tokens:
        raise ConfigError(
            f"{key}: false, but seele.off_policy.source={seele.off_policy.source} reads the engine's "
            "log-probabilities; leave it true"
        )
    if seele.rollout_correction != "none":
        raise ConfigError(
            f"{key}: false, but seele.rollout_correction={seele.rollout_correction} computes weights from "
            "the engine's log-probabilities; leave it true"
        )
    if config.algorithm.rollout_correction.bypass_mode:
        raise ConfigError(
            f"{key}: false, but algorithm.rollout_correction.bypass_mode, which hardware=cpu sets, uses the "
            "engine's log-probabilities as the old ones; set it to true, or bypass_mode=false"
        )


def _check_all_groups_are_learnt_from(config: DictConfig, seele: SeeleConfig, *, learner: str) -> None:
    """Refuse to skip groups where a group whose rollouts all agree has advantages too."""
    if seele.selection.name != "none":
        raise ConfigError(
            f"seele.selection.name: got {seele.selection.name!r}, but {learner} learns from every group, "
            "even if all rollouts agree; allowed is 'none'"
        )
    if config.algorithm.filter_groups.enable:
        raise ConfigError(
            f"algorithm.filter_groups.enable: {learner} learns from every group, even if all rollouts "
            "agree; allowed is false"
        )


def _check_group_filter(config: DictConfig, seele: SeeleConfig) -> None:
    groups = config.algorithm.filter_groups
    if not (groups and groups.enable):
        return
    if groups.metric not in ("acc", "reward"):
        raise ConfigError(
            f"algorithm.filter_groups.metric: got {groups.metric!r}; allowed are 'acc' (correct or not) and "
            "'reward' (with penalties)"
        )
    if seele.selection.name != "none":
        raise ConfigError(
            f"algorithm.filter_groups.enable with seele.selection.name={seele.selection.name}: both choose "
            "the groups of an update; switch one of them off"
        )
    if seele.curriculum.spare_problems:
        raise ConfigError(
            "algorithm.filter_groups.enable with seele.curriculum.spare_problems="
            f"{seele.curriculum.spare_problems}: both decide when a step has enough groups; switch one of "
            "them off"
        )
    if config.data.gen_batch_size not in (None, 1):
        raise ConfigError(
            f"data.gen_batch_size: got {config.data.gen_batch_size}, but algorithm.filter_groups.enable "
            "replaces groups one by one; leave it null"
        )


def _check_spare_problems(config: DictConfig, seele: SeeleConfig) -> None:
    spare, batch = seele.curriculum.spare_problems, config.data.train_batch_size
    if not spare:
        return
    if spare > batch:
        raise ConfigError(
            f"seele.curriculum.spare_problems: got {spare}, but a step trains on the problems that the one "
            f"before it left behind; allowed are 0 to data.train_batch_size ({batch})"
        )
    for name in ("custom_sampler.path", "sync_refill_failed_groups"):
        if value := OmegaConf.select(config.trainer.v1.sampler, name):
            raise ConfigError(
                f"trainer.v1.sampler.{name}: got {value}, but seele.curriculum.spare_problems={spare} has a "
                "sampler of its own; remove one of the two"
            )


def _check_overlong_penalty(config: DictConfig, seele: SeeleConfig) -> None:
    kwargs = config.reward.reward_kwargs
    if not kwargs.overlong_buffer_cfg.enable:
        return
    if seele.credit.gives_advantages:
        raise ConfigError(
            "reward.reward_kwargs.overlong_buffer_cfg.enable: true, but with seele.credit.name="
            f"{seele.credit.name} a response has an advantage for each of its parts and none for its length; "
            "switch one of them off"
        )
    if not 0 < kwargs.overlong_buffer_cfg.len <= kwargs.max_resp_len:
        raise ConfigError(
            f"reward.reward_kwargs.overlong_buffer_cfg.len: got {kwargs.overlong_buffer_cfg.len}, "
            f"allowed are 1 to reward.reward_kwargs.max_resp_len ({kwargs.max_resp_len})"
        )
