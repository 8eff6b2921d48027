"""Noise of seeded requests for a whole batch at once; bound to vLLM by ``vllm_plugin``."""

import functools
from typing import Any
from weakref import WeakKeyDictionary

import torch

# SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014), as signed words.
GAMMA = 0x9E3779B97F4A7C15 - 2**64
FIRST_FACTOR, SECOND_FACTOR = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64


def exponential_noise(seeds_R: torch.Tensor, positions_R: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Exponential variables of mean 1 that depend on nothing but seed, position and token.

    Args:
        seeds_R: (R,) int64, seeds of the requests.
        positions_R: (R,) int64, tokens that each request has drawn before.
        vocab_size: V.

    Returns:
        (R, V) float32, positive; a multiple of 2^-24 apart near 0.
    """
    keys_R = _mix(seeds_R + _mix((positions_R + 1) * GAMMA))
    tokens_V = torch.arange(1, vocab_size + 1) * GAMMA
    words_RV = _mix(keys_R[:, None] + tokens_V)
    uniform_RV = _shifted(words_RV, 41).to(torch.float32).add_(0.5).mul_(2.0**-23)
    return uniform_RV.neg_().log1p_().neg_()


def _mix(words: torch.Tensor) -> torch.Tensor:
    words = (words ^ _shifted(words, 30)) * FIRST_FACTOR
    words = (words ^ _shifted(words, 27)) * SECOND_FACTOR
    return words ^ _shifted(words, 31)


def _shifted(words: torch.Tensor, bits: int) -> torch.Tensor:
    """Shift to the right without the sign."""
    return (words >> bits) & ((1 << (64 - bits)) - 1)


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
        if len(generators) != len(logits_RV) or self.logprobs_mode == "processed_logits":
            return forward_cpu(self, logits_RV, generators, k, p)  # type: ignore[no-any-return]
        ordered = [generators[row] for row in range(len(logits_RV))]
        positions = [num_drawn.get(generator, 0) for generator in ordered]
        num_drawn.update(zip(ordered, (position + 1 for position in positions), strict=True))
        noise_RV = exponential_noise(
            torch.tensor([generator.initial_seed() for generator in ordered]),
            torch.tensor(positions),
            logits_RV.shape[1],
        )
        logits_RV = topk_topp_sampler.apply_top_k_top_p(logits_RV, k, p)
        wants_log_probs = self.logprobs_mode == "processed_logprobs"
        log_probs_RV = logits_RV.log_softmax(dim=-1) if wants_log_probs else None
        # The first of the tokens' exponential clocks to ring, each at the rate of its probability.
        return (logits_RV - noise_RV.log_()).argmax(dim=-1), log_probs_RV

    TopKTopPSampler.forward_cpu = forward
