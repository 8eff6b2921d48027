"""Checks verl's ``critic`` section, and the advantage estimator that goes with it."""

from collections.abc import Iterable

from omegaconf import DictConfig, OmegaConf

from seele.errors import ConfigError
from seele.methods import METHODS
from seele.methods.method import Method
from seele_verl.checks.verl_settings import check_critic_values
from seele_verl.model_config import read_model_config

OF_A_CRITIC = ("critic.", "algorithm.gamma", "algorithm.lam")
"""Settings that have no effect without a critic."""

# Settings that verl's V1 trainer does not read -> what has their effect.
DEAD = {
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
    "algorithm.norm_adv_by_std_in_grpo": "these advantages are whitened over the batch",
}


def check_critic(config: DictConfig, overrides: Iterable[str]) -> None:
    """Check the estimator, and the critic's settings that it needs; without a critic, refuse such settings.

    Args:
        config: The composed configuration, of a known method.
        overrides: What the user typed: settings without effect are refused.

    Raises:
        ConfigError: A setting contradicts the method, has no effect, is not allowed, or does not fit another.
    """
    method = METHODS[config.seele.method]
    _check_estimator(config, method)
    typed = [override.split("=")[0] for override in overrides]
    if config.critic.enable is not None:
        raise ConfigError(
            f"critic.enable: got {config.critic.enable}; leave it null, only method=ppo has a critic"
        )
    if not method.has_critic:
        for key in typed:
            if key.startswith(OF_A_CRITIC):
                raise ConfigError(f"{key}: has no effect, method {method.name} has no critic; ppo has one")
        return
    for key in typed:
        if key in DEAD:
            raise ConfigError(f"{key}: has no effect on a critic; {DEAD[key]}")
    check_critic_values(config)
    _check_sizes(config)


def has_critic(config: DictConfig) -> bool:
    """True if the run's method trains a critic; an unknown method has none."""
    method = METHODS.get(str(OmegaConf.select(config, "seele.method")))
    return method is not None and method.has_critic


def _check_estimator(config: DictConfig, method: Method) -> None:
    algorithm = config.algorithm
    if algorithm.adv_estimator != method.estimator:
        raise ConfigError(
            f"algorithm.adv_estimator: got {algorithm.adv_estimator!r}; allowed is {method.estimator!r} "
            f"under method {method.name}. method=ppo has 'gae', method=rloo 'rloo'; variants "
            "of 'grpo' are settings (algorithm.norm_adv_by_std_in_grpo, seele.advantage, seele.off_policy)"
        )
    if algorithm.use_kl_in_reward:
        raise ConfigError(
            "algorithm.use_kl_in_reward: rewards are the grader's; use actor_rollout_ref.actor.use_kl_loss"
        )


def check_value_head(config: DictConfig) -> None:
    """Check that a run's critic starts from the policy's model, which exists, with a value head.

    Raises:
        ConfigError: It is another model, or transformers has no value head for it.
    """
    if not has_critic(config):
        return
    path = config.critic.model.path
    if path != config.actor_rollout_ref.model.path:
        raise ConfigError(
            f"critic.model.path: got {path!r}; the critic starts from actor_rollout_ref.model.path "
            f"({config.actor_rollout_ref.model.path!r}); set only that"
        )
    from transformers import MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING

    model = type(read_model_config(config))
    if model not in MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING:
        raise ConfigError(
            f"actor_rollout_ref.model.path: transformers has no value head for {model.__name__} "
            "(AutoModelForTokenClassification), which a critic needs; take another base model or method=rloo"
        )


def _check_sizes(config: DictConfig) -> None:
    """Raise ``ConfigError`` unless the critic's batch sizes divide evenly, and its micro-batches hold the
    longest sequence.
    """
    critic, data, trainer = config.critic, config.data, config.trainer
    mini, prompts = critic.ppo_mini_batch_size, data.train_batch_size
    if prompts % mini:
        raise ConfigError(
            f"data.train_batch_size ({prompts}) must be a multiple of critic.ppo_mini_batch_size ({mini})"
        )
    ranks, rollouts = trainer.nnodes * trainer.n_gpus_per_node, config.actor_rollout_ref.rollout.n
    if mini * rollouts % ranks:
        raise ConfigError(
            f"critic.ppo_mini_batch_size ({mini}) times seele.hints.rollouts_per_prompt ({rollouts}) must be "
            f"a multiple of the {ranks} training ranks"
        )
    longest = data.max_prompt_length + data.max_response_length
    tokens, share = critic.ppo_infer_max_token_len_per_gpu, critic.fsdp.ulysses_sequence_parallel_size
    if longest > tokens * share:
        raise ConfigError(
            f"critic.ppo_max_token_len_per_gpu: got {tokens}, must hold data.max_prompt_length plus "
            f"data.max_response_length, which are {longest} together"
        )
