"""Checks verl's ``critic`` section, and the advantage estimator that goes with it."""

from omegaconf import DictConfig, OmegaConf

from seele.errors import ConfigError
from seele.methods import METHODS
from seele.methods.method import Method
from seele_verl.checks.verl_settings import check_critic_values
from seele_verl.model_config import read_model_config


def check_critic(config: DictConfig) -> None:
    """Check the estimator, and the settings of the critic that it needs, in a run of a known method.

    Raises:
        ConfigError: A setting contradicts the method, or is not allowed.
    """
    method = METHODS[config.seele.method]
    _check_estimator(config, method)
    if config.critic.enable is not None:
        raise ConfigError(
            f"critic.enable: got {config.critic.enable}; leave it null, only method=ppo has a critic"
        )
    if method.has_critic:
        check_critic_values(config)


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
