"""The configuration that a model brings itself, for checks before a run."""

from typing import Any

from omegaconf import DictConfig


def read_model_config(config: DictConfig) -> Any:
    """Return the run's model's own configuration, with its code where the run allows that."""
    from transformers import AutoConfig

    model = config.actor_rollout_ref.model
    return AutoConfig.from_pretrained(model.path, trust_remote_code=model.trust_remote_code)
