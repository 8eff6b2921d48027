"""vLLM's plug-in (entry-point group ``vllm.general_plugins``), loaded in every vLLM process.

Two fixes make it possible to update weights while the engine runs, one makes seeds cheap. None is applied
on a GPU.
"""

import os
import weakref
from typing import Any

import numpy as np
import torch

from seele_verl.cpu.noise import exponential_noise


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


def draw_seeded_noise_at_once() -> None:
    """Draw the noise of seeded requests for the whole batch.

    ``vllm/v1/sample/ops/topk_topp_sampler.py: forward_cpu`` fills the batch with noise, and then, where
    requests have seeds, again row by row from their generators, which costs a tiny model's engine a sixth of
    its time. Here a generator only stands for its seed. Batches with unseeded requests go the original way.
    """
    from vllm.v1.sample.ops import topk_topp_sampler as sampler

    forward_cpu = sampler.TopKTopPSampler.forward_cpu
    if hasattr(forward_cpu, "__wrapped__"):
        return  # vLLM loads its plug-ins more than once per process.
    num_draws: weakref.WeakKeyDictionary[torch.Generator, int] = weakref.WeakKeyDictionary()

    def forward_at_once(
        self: Any,
        logits: torch.Tensor,
        generators: dict[int, torch.Generator],
        k: torch.Tensor | None,
        p: torch.Tensor | None,
    ) -> Any:
        if len(generators) != len(logits) or self.use_fp64_gumbel:
            return forward_cpu(self, logits, generators, k, p)
        logits = sampler.apply_top_k_top_p(logits, k, p)
        log_probs = logits.log_softmax(dim=-1, dtype=torch.float32)
        rows = [generators[row] for row in range(len(logits))]
        draws = [num_draws.get(generator, 0) for generator in rows]
        num_draws.update((generator, draw + 1) for generator, draw in zip(rows, draws, strict=True))
        seeds = np.array([generator.initial_seed() for generator in rows], dtype=np.uint64)
        noise = exponential_noise(seeds, np.array(draws, dtype=np.uint64), logits.shape[1])
        tokens = sampler.sample_with_exponential_noise(log_probs.exp(), torch.from_numpy(noise))
        returned = {"processed_logits": logits, "processed_logprobs": log_probs}
        return tokens, returned.get(self.logprobs_mode)

    forward_at_once.__wrapped__ = forward_cpu  # type: ignore[attr-defined]
    sampler.TopKTopPSampler.forward_cpu = forward_at_once


def register() -> None:
    """vLLM calls this in each of its processes."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    keep_live_weights()
    draw_seeded_noise_at_once()
    if os.environ.get("VERL_PLATFORM") == "cpu":
        copy_received_weights()
