"""The critic of ``method=ppo``: verl's worker, whose value model starts from the run's seed and has the
policy's attention.

Values, estimates, loss and update are verl's; which rows and columns they see is the trainer's.
"""

from typing import Any

import torch
from transformers import AutoModelForTokenClassification
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils import model as verl_model
from verl.workers.engine_workers import TrainingWorker

from seele_verl.data_only import reading_data_only


class CriticWorker(TrainingWorker):
    """verl's training worker, around a value model."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def reset(self) -> None:
        """Build the model: the policy's, with a value head for the one that predicts tokens."""
        verl_model.load_valuehead_model = load_value_model
        with torch.random.fork_rng(devices=[]):
            # The head is drawn at random, which verl leaves to the process's generator.
            torch.manual_seed(self.engine_config.seed)
            super().reset()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """Load the critic's shards, and run nothing of theirs."""
        with reading_data_only(self.engine_config.strategy):
            super().load_checkpoint(*args, **kwargs)


def load_value_model(
    local_path: str, torch_dtype: torch.dtype, model_config: Any, trust_remote_code: bool
) -> torch.nn.Module:
    """In place of ``verl/utils/model.py: load_valuehead_model``, which asks for flash-attention whatever
    ``override_config.attn_implementation`` says, and so cannot load a model on a CPU.
    """
    model: torch.nn.Module = AutoModelForTokenClassification.from_pretrained(
        local_path, dtype=torch_dtype, config=model_config, trust_remote_code=trust_remote_code
    )
    return model
