"""The critic of ``method=ppo``: verl's worker, whose value model is initialised from the run's seed and uses
the policy's attention implementation.

Values, estimates, loss and update are verl's; the trainer chooses the rows and columns that they see.
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
        """Build the model: the policy's, with a value head in place of the language-model head."""
        verl_model.load_valuehead_model = load_value_model
        with torch.random.fork_rng(devices=[]):
            # The head is initialised at random, and verl uses the process's generator for it.
            torch.manual_seed(self.engine_config.seed)
            super().reset()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """Load the critic's shards without executing code from them."""
        with reading_data_only(self.engine_config.strategy):
            super().load_checkpoint(*args, **kwargs)


def load_value_model(
    local_path: str, torch_dtype: torch.dtype, model_config: Any, trust_remote_code: bool
) -> torch.nn.Module:
    """Replaces ``verl/utils/model.py: load_valuehead_model``, which requests flash-attention regardless of
    ``override_config.attn_implementation``, and so cannot load a model on a CPU.
    """
    model: torch.nn.Module = AutoModelForTokenClassification.from_pretrained(
        local_path, dtype=torch_dtype, config=model_config, trust_remote_code=trust_remote_code
    )
    return model
