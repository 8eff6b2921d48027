"""Makes verl's fused kernels work under FSDP2 on models whose output layer is not the embedding.

The fused forward pass reads ``lm_head.weight`` without calling ``lm_head`` (verl/models/transformers/
dense_common.py, line 158), while verl shards an untied ``lm_head`` by itself (verl/utils/fsdp_utils.py, line
549), so that nothing gathers its weight: "got mixed torch.Tensor and DTensor". Here ``lm_head`` is left to
the root module, which gathers it like a tied one. verl imports this module in every worker
(``actor_rollout_ref.model.external_lib``).
"""

from collections.abc import Sequence
from typing import Any

from verl.utils import fsdp_utils

_verls_targets = fsdp_utils._select_fsdp2_wrap_targets


def wrap_targets(model: Any, layer_classes: Sequence[str]) -> list[Any]:
    """Return the modules that FSDP2 shards separately: verl's, without the output layer of a fused model."""
    modules: list[Any] = _verls_targets(model, layer_classes)
    if not hasattr(model, "_verl_fused_kernels_backend"):
        return modules
    return [module for module in modules if module is not model.get_output_embeddings()]


fsdp_utils._select_fsdp2_wrap_targets = wrap_targets
