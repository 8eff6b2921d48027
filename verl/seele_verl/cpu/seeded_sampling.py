"""Noise of seeded requests for a whole batch at once; bound to vLLM by ``vllm_plugin``."""

import functools
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

Words = NDArray[np.uint64]

# SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
GAMMA = np.uint64(0x9E3779B97F4A7C15)


def exponential_noise(seeds_R: Words, positions_R: Words, vocab_size: int) -> torch.Tensor:
    """Exponential variables of mean 1 that depend on nothing but seed, position and token.

    Args:
        seeds_R: (R,), seeds of the requests.
        positions_R: (R,), tokens that each request has drawn before.
        vocab_size: V.

    Returns:
        (R, V) float32, positive; near 0 it is a multiple of 2^-24.
    """
    keys_R = mix(seeds_R + mix((positions_R + np.uint64(1)) * GAMMA))
    tokens_V = np.arange(1, vocab_size + 1, dtype=np.uint64) * GAMMA
    words_RV = mix(keys_R[:, None] + tokens_V)
    words_RV >>= np.uint64(41)
    uniform_RV = torch.from_numpy(words_RV.view(np.int64)).to(torch.float32).add_(0.5).mul_(2.0**-23)
    return uniform_RV.neg_().log1p_().neg_()


def mix(words: Words) -> Words:
    """SplitMix64's mixing of states, in place: many times faster than torch, whose shifts have a sign."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def sample_seeded_at_once() -> None:
    """Sample requests that all have seeds in one operation.

    ``vllm/v1/sample/ops/topk_topp_sampler.py: TopKTopPSampler.forward_cpu`` asks each request's generator for
    the noise of each token, an eighth of an engine step with 512 requests. Here a generator only stands for
    its seed. Which requests share a batch does not matter, as before.
    """
    from vllm.v1.sample.ops import topk_topp_sampler
    from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler

    forward_cpu = TopKTopPSampler.forward_cpu
    if hasattr(forward_cpu, "__wrapped__"):
        return  # vLLM loads its plug-ins more than once per process.
    num_drawn: WeakKeyDictionary[torch.Generator, int] = WeakKeyDictionary()

    @functools.wraps(forward_cpu)
    def forward(
        self: Any,
        logits_RV: torch.Tensor,
        generators: dict[int, torch.Generator],
        k: torch.Tensor | None,
        p: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        all_seeded = len(generators) == len(logits_RV)
        if not all_seeded or self.use_fp64_gumbel or self.logprobs_mode == "processed_logits":
            return forward_cpu(self, logits_RV, generators, k, p)  # type: ignore[no-any-return]
        ordered = [generators[row] for row in range(len(logits_RV))]
        positions = [num_drawn.get(generator, 0) for generator in ordered]
        num_drawn.update(zip(ordered, (position + 1 for position in positions), strict=True))
        seeds = [generator.initial_seed() for generator in ordered]
        noise_RV = exponential_noise(
            np.array(seeds, dtype=np.uint64), np.array(positions, dtype=np.uint64), logits_RV.shape[1]
        )
        logits_RV = topk_topp_sampler.apply_top_k_top_p(logits_RV, k, p)
        wants_log_probs = self.logprobs_mode == "processed_logprobs"
        log_probs_RV = logits_RV.log_softmax(dim=-1) if wants_log_probs else None
        # The first of the tokens' exponential clocks to ring, each at the rate of its probability.
        first_R = (logits_RV - noise_RV.log_()).numpy().argmax(axis=-1)  # a tenth of torch's time
        return torch.from_numpy(first_R), log_probs_RV

    TopKTopPSampler.forward_cpu = forward
