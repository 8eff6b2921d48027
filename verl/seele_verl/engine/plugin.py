"""vLLM's plug-in (entry-point group ``vllm.general_plugins``), loaded in every vLLM process.

It makes seeds cheap (``seeded_sampling``), and on a CPU also the first response. Two fixes for the CPU make
it possible to update weights while the engine runs.
"""

import functools
import os
import weakref
from fractions import Fraction
from typing import Any

import torch

from seele_verl.cpu.resources import threads_per_rank
from seele_verl.engine.seeded_sampling import sample_seeded_at_once

ONE_THREAD = 256
"""Largest hidden size of a model that computes in one thread."""
_packed_layers: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()


def keep_packed_weights() -> None:
    """Keep the weights of layers that multiply with a packed copy of them, so that both can be updated.

    ``vllm/model_executor/layers/utils.py: dispatch_cpu_unquantized_gemm`` packs a layer's weight for the
    CPU kernels after loading and drops the parameter; the next weight update then fails with "'Parameter'
    object has no attribute 'weight_loader'".
    """
    import vllm.model_executor.layers.utils as layer_utils

    dispatch = layer_utils.dispatch_cpu_unquantized_gemm
    if hasattr(dispatch, "__wrapped__"):
        return  # vLLM loads its plug-ins more than once per process.

    def pack_and_keep(layer: torch.nn.Module, remove_weight: bool) -> None:
        dispatch(layer, remove_weight=False)
        _packed_layers.add(layer)

    pack_and_keep.__wrapped__ = dispatch  # type: ignore[attr-defined]
    layer_utils.dispatch_cpu_unquantized_gemm = pack_and_keep


def pack_weights_again() -> None:
    """Pack all layers' current weights again."""
    import vllm.model_executor.layers.utils as layer_utils

    for layer in list(_packed_layers):
        layer_utils.dispatch_cpu_unquantized_gemm(layer, remove_weight=False)


def copy_received_weights() -> None:
    """Give the engine its own copies of weights instead of views into shared memory, and pack them.

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
        pack_weights_again()

    receive_copies.__wrapped__ = receive_weights  # type: ignore[attr-defined]
    BucketedWeightReceiver.receive_weights = receive_copies


def use_share_of_cores() -> None:
    """Compute with this engine's share of the cores (``SEELE_CPU_SHARE``, such as ``1/2``); a small model in
    one thread, because waking a second one takes longer than its part of a layer.

    It must be set before vLLM sets up the device: afterwards vLLM ignores ``torch.set_num_threads``
    (``vllm/v1/worker/cpu_worker.py: init_device``).
    """
    from vllm.v1.worker.cpu_worker import CPUWorker

    init_device = CPUWorker.init_device
    if hasattr(init_device, "__wrapped__"):
        return  # vLLM loads its plug-ins more than once per process.

    @functools.wraps(init_device)
    def init_with_share(self: Any) -> None:
        ranks = Fraction(os.environ.get("SEELE_CPU_SHARE", "1")).denominator
        is_small = self.model_config.get_hidden_size() <= ONE_THREAD
        torch.set_num_threads(1 if is_small else threads_per_rank(ranks))
        init_device(self)

    CPUWorker.init_device = init_with_share


def register() -> None:
    """Apply the fixes; vLLM calls this in each of its processes."""
    from vllm.platforms import current_platform

    sample_seeded_at_once()
    if not current_platform.is_cpu():
        return
    keep_packed_weights()
    if os.environ.get("VERL_PLATFORM") == "cpu":
        copy_received_weights()
        use_share_of_cores()
