"""vLLM's plug-in (entry-point group ``vllm.general_plugins``), loaded in every vLLM process.

It makes seeds cheap (``seeded_sampling``). On a CPU two fixes make it possible to update weights while the
engine runs.
"""

import os
from fractions import Fraction
from typing import Any

import torch

from seele_verl.cpu.resources import threads_per_rank
from seele_verl.engine.seeded_sampling import sample_seeded_at_once


def keep_live_weights() -> None:
    """Keep linear layers on their live weight.

    ``vllm/model_executor/layers/utils.py: dispatch_cpu_unquantized_gemm`` packs a layer's weight for the
    CPU kernels after loading and drops the parameter; the next weight update then fails with "'Parameter'
    object has no attribute 'weight_loader'".
    """
    import vllm.model_executor.layers.utils as layer_utils

    def keep_live_weight(layer: torch.nn.Module, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    layer_utils.dispatch_cpu_unquantized_gemm = keep_live_weight


def copy_received_weights() -> None:
    """Give the engine weights of its own instead of views into shared memory.

    ``BucketedWeightReceiver.receive_weights`` moves each tensor with ``.to(device)``, which copies nothing
    on a CPU; closing the segment afterwards raises "cannot close exported pointers exist".
    """
    from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver

    receive_weights = BucketedWeightReceiver.receive_weights
    if hasattr(receive_weights, "__wrapped__"):
        return  # vLLM loads its plug-ins more than once per process.

    def receive_copies(self: Any, on_bucket_received: Any) -> None:
        def load_copies(weights: list[tuple[str, torch.Tensor]], is_last: bool) -> None:
            on_bucket_received([(name, tensor.clone()) for name, tensor in weights], is_last)
            weights.clear()

        receive_weights(self, load_copies)

    receive_copies.__wrapped__ = receive_weights  # type: ignore[attr-defined]
    BucketedWeightReceiver.receive_weights = receive_copies


def use_share_of_cores() -> None:
    """Compute with this engine's share of the cores (``SEELE_CPU_SHARE``, such as ``1/2``).

    Called before the engine is made: from then on vLLM ignores ``torch.set_num_threads``
    (``vllm/v1/worker/cpu_worker.py: init_device``).
    """
    torch.set_num_threads(threads_per_rank(Fraction(os.environ.get("SEELE_CPU_SHARE", "1")).denominator))


def register() -> None:
    """vLLM calls this in each of its processes."""
    from vllm.platforms import current_platform

    sample_seeded_at_once()
    if not current_platform.is_cpu():
        return
    keep_live_weights()
    if os.environ.get("VERL_PLATFORM") == "cpu":
        copy_received_weights()
        use_share_of_cores()
