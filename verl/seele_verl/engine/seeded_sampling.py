"""Seeded sampling for a whole batch at once, the same on CPU and GPU; bound to vLLM by ``engine.plugin``.

A token's noise is a hash of the request's seed, of the position in the sequence and of the token. It does not
depend on which requests share a batch, on how a prompt was split into chunks, or on a preemption.
"""

import functools
from collections.abc import Mapping
from typing import Any

import torch

BLOCK_NUMBERS = 2**20
"""Numbers that the CPU processes at a time: with fewer, waking threads costs more than the cache saves."""


def draw_tokens(logits_RV: torch.Tensor, seeds_R: torch.Tensor, positions_R: torch.Tensor) -> torch.Tensor:
    """Draw one token per request, with its softmax probability.

    The tokens' exponential clocks run at the rates of their probabilities, and the first to ring is drawn. A
    token's noise is the same on every device to about 1e-6, so two devices draw different tokens only where
    two clocks ring that close to each other.

    Args:
        logits_RV: (R, V) float32; minus infinity excludes a token.
        seeds_R: (R,) int64, seeds of the requests.
        positions_R: (R,) int64, positions of the drawn tokens in their sequences.

    Returns:
        (R,) int64.
    """
    tokens_V = torch.arange(logits_RV.shape[1], dtype=torch.int32, device=logits_RV.device)
    if logits_RV.is_cuda:
        return _compiled()(logits_RV, tokens_V, seeds_R, positions_R)[1]
    size = max(1, BLOCK_NUMBERS // max(1, len(logits_RV)))
    firsts = [
        _first_to_ring(logits_RB, tokens_B, seeds_R, positions_R)
        for logits_RB, tokens_B in zip(logits_RV.split(size, dim=1), tokens_V.split(size), strict=True)
    ]
    if len(firsts) == 1:
        return firsts[0][1]
    scores_RN = torch.stack([scores_R for scores_R, _ in firsts], dim=1)  # N blocks
    tokens_RN = torch.stack([tokens_R for _, tokens_R in firsts], dim=1)
    return tokens_RN.gather(1, scores_RN.argmax(dim=1, keepdim=True)).squeeze(1)


def exponential_noise(
    seeds_R: torch.Tensor, positions_R: torch.Tensor, tokens_V: torch.Tensor
) -> torch.Tensor:
    """Return exponential variables of mean 1 that depend only on seed, position and token.

    Args:
        seeds_R: (R,) int64.
        positions_R: (R,) int64.
        tokens_V: (V,) int32.

    Returns:
        (R, V) float32, from 2^-32 to 16.7.
    """
    keys_R = mix_64(seeds_R + mix_64((positions_R + 1) * GAMMA))
    low_R, high_R = keys_R.to(torch.int32), (keys_R >> 32).to(torch.int32)
    words_RV = mix_32(low_R[:, None] + tokens_V)
    words_RV = mix_32(words_RV.bitwise_xor_(high_R[:, None]))
    # 31 bits, of which float32 keeps the leading 24: fine steps near 0, where the first clock rings. The
    # result is never 1, even where the conversion rounds up.
    bits_RV = words_RV.bitwise_and_(0x7FFFFFFF).to(torch.float32)
    uniform_RV = bits_RV.add_(0.5).mul_(2.0**-31 * (1 - 2.0**-24))
    return uniform_RV.neg_().log1p_().neg_()


GAMMA = -0x61C8864680B583EB
"""SplitMix64's increment, signed (Steele, Lea, Flood: Fast splittable pseudorandom generators, 2014)."""


def mix_64(states: torch.Tensor) -> torch.Tensor:
    """Mix int64 states as SplitMix64 does."""
    states = (states ^ _shifted(states, 30, 64)) * -0x40A7B892E31B1A47
    states = (states ^ _shifted(states, 27, 64)) * -0x6B2FB644ECCEEE15
    return states ^ _shifted(states, 31, 64)


def mix_32(words: torch.Tensor) -> torch.Tensor:
    """Apply the last step of MurmurHash3 (Appleby, 2011; public domain) to int32 words, in place."""
    words.bitwise_xor_(_shifted(words, 16, 32)).mul_(-0x7A143595)
    words.bitwise_xor_(_shifted(words, 13, 32)).mul_(-0x3D4D51CB)
    return words.bitwise_xor_(_shifted(words, 16, 32))


def _shifted(words: torch.Tensor, by: int, bits: int) -> torch.Tensor:
    """Shift right without the sign bits that torch shifts in."""
    return (words >> by).bitwise_and_((1 << (bits - by)) - 1)


def _first_to_ring(
    logits_RV: torch.Tensor, tokens_V: torch.Tensor, seeds_R: torch.Tensor, positions_R: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (R,) float32 and (R,) int64: minus the logarithm of the first ring's time, and its token."""
    noise_RV = exponential_noise(seeds_R, positions_R, tokens_V)
    scores_R, places_R = (logits_RV - noise_RV.log_()).max(dim=1)
    return scores_R, places_R + tokens_V[0]


@functools.cache
def _compiled() -> Any:
    """Return one kernel for a GPU: a large batch's (R, V) tensors would take memory that vLLM has not
    measured.
    """
    return torch.compile(_first_to_ring, dynamic=True)


def sample_seeded_at_once() -> None:
    """Make vLLM's runner V1 use ``draw_tokens`` for batches in which a request has a seed.

    ``vllm/v1/sample/ops/topk_topp_sampler.py`` asks each request's generator for the noise of each token: one
    kernel per request and decoding step on a GPU. Here a generator only supplies its seed. A request without
    a seed is given one.
    """
    from vllm.platforms import current_platform
    from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler, apply_top_k_top_p

    init = TopKTopPSampler.__init__
    if hasattr(init, "__wrapped__"):
        return  # vLLM loads its plug-ins more than once per process.

    @functools.wraps(init)
    def init_and_bind(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        # The runner builds its sampler. Importing it earlier would take seconds in processes without one.
        _tell_the_sampler_positions()
        if current_platform.is_cpu():
            _count_ranks_without_compiling()
        vllms_own = self.forward
        self.seeds_and_positions = None

        def forward(
            logits_RV: torch.Tensor,
            generators: dict[int, torch.Generator],
            k: torch.Tensor | None,
            p: torch.Tensor | None,
        ) -> tuple[torch.Tensor, torch.Tensor | None]:
            told = self.seeds_and_positions
            if not generators or told is None or self.use_fp64_gumbel:
                return vllms_own(logits_RV, generators, k, p)  # type: ignore[no-any-return]
            logits_RV = apply_top_k_top_p(logits_RV, k, p)
            returned_RV = None
            if self.logprobs_mode == "processed_logits":
                returned_RV = logits_RV
            elif self.logprobs_mode == "processed_logprobs":
                returned_RV = logits_RV.log_softmax(dim=-1, dtype=torch.float32)
            return draw_tokens(logits_RV, *told), returned_RV

        self.forward = forward

    TopKTopPSampler.__init__ = init_and_bind


def _tell_the_sampler_positions() -> None:
    """Make the runner give its sampler the seeds and the positions of the tokens to draw."""
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    sample = GPUModelRunner._sample
    if hasattr(sample, "__wrapped__"):
        return

    @functools.wraps(sample)
    def sample_with_positions(self: Any, logits_RV: torch.Tensor, spec_decode_metadata: Any) -> Any:
        metadata, sampler = self.input_batch.sampling_metadata, self.sampler.topk_topp_sampler
        if metadata.generators and spec_decode_metadata is None:
            if not hasattr(
                metadata, "seeds_R"
            ):  # vLLM makes new metadata when a request comes, goes or moves.
                metadata.seeds_R = seeds_of(metadata.generators, len(logits_RV)).to(logits_RV.device)
            sampler.seeds_and_positions = metadata.seeds_R, self.seq_lens[: len(logits_RV)].long()
        try:
            return sample(self, logits_RV, spec_decode_metadata)
        finally:
            sampler.seeds_and_positions = None

    GPUModelRunner._sample = sample_with_positions


def _count_ranks_without_compiling() -> None:
    """Make vLLM count the tokens above a sampled one with PyTorch's own operations.

    vLLM compiles that sum over the vocabulary (``vllm/v1/sample/ops/logprobs.py``) to save GPU memory. On a
    CPU the compiler takes seconds before the first response, in each engine of each run.
    """
    from vllm.v1.sample import sampler

    compiled = sampler.batched_count_greater_than
    sampler.batched_count_greater_than = getattr(compiled, "_torchdynamo_orig_callable", compiled)


def seeds_of(generators: Mapping[int, torch.Generator], num_requests: int) -> torch.Tensor:
    """Return (R,) int64: the seeds of the requests' generators by row, random ones for other requests."""
    seeds_R = torch.randint(-(2**63), 2**63 - 1, (num_requests,), dtype=torch.int64)
    rows = torch.tensor(list(generators), dtype=torch.int64)
    seeds = [generator.initial_seed() for generator in generators.values()]
    # initial_seed is unsigned; a seed of -1 is its largest value.
    seeds_R[rows] = torch.tensor([(seed + 2**63) % 2**64 - 2**63 for seed in seeds], dtype=torch.int64)
    return seeds_R
