"""Predicted cost of one training step: seconds by phase, from the sizes of model, GPUs and job.

It combines a roofline for decoding (Williams et al., doi:10.1145/1498765.1498785), 2 and 6 FLOPs per
parameter and token for forward passes and for training (Kaplan et al., arXiv:2001.08361), bytes over
bandwidth for FSDP's traffic (arXiv:2304.11277), and drawn response lengths for waiting times. These are
predictions, not measurements: ``docs/scaling.md`` has the assumptions, and the deviation from published runs.
Not included: attention's FLOPs, latency of collectives, offloading, grading, the driver, checkpoints and
validation.

Units: seconds, bytes, FLOPs, tokens. Axes: P prompts, R rounds, N rollouts of a round, T decode steps.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from seele.maths.irt import Array
from seele.records import HintShare
from seele.simulate.cost_setup import WEIGHT_BYTES, Job, Setup

GRADIENT_BYTES = 4.0
"""FSDP reduces gradients in single precision (verl's ``mixed_precision.reduce_dtype``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Seconds of one step by phase; rollouts take ``prefill_s + decode_s + tail_s + rounds_s``."""

    prefill_s: float
    decode_s: float
    """Decoding time if all rollouts ran at once and every response had the mean length."""
    tail_s: float
    """Time that the spread of lengths adds: engines wait for the longest responses."""
    rounds_s: float
    """Time that rounds add to both: smaller batches, and a longest response in every round."""
    old_log_prob_s: float
    reference_s: float
    update_s: float
    weight_sync_s: float
    num_gpus: int
    generated_tokens: float

    @property
    def step_s(self) -> float:
        """Seconds of all phases, one after the other."""
        rollout_s = self.prefill_s + self.decode_s + self.tail_s + self.rounds_s
        return rollout_s + self.old_log_prob_s + self.reference_s + self.update_s + self.weight_sync_s

    @property
    def gpu_hours(self) -> float:
        """GPU-hours of one step."""
        return self.num_gpus * self.step_s / 3600.0

    @property
    def tokens_per_s(self) -> float:
        """Generated tokens per second of the whole step."""
        return self.generated_tokens / self.step_s

    @property
    def waiting_share(self) -> float:
        """Share of the step spent waiting for other responses: tail and rounds."""
        return (self.tail_s + self.rounds_s) / self.step_s

    @property
    def rounds_share(self) -> float:
        """Share of the step that one round instead of several would save."""
        return self.rounds_s / self.step_s


def step_cost(setup: Setup, *, seed: int = 0, draws: int = 4) -> StepCost:
    """Return the seconds of a step by phase, averaged over ``draws`` steps with different lengths.

    Decoding is simulated three times: as it is; in one round, with the same lengths; in one round, with every
    response of the mean length. The phases are the differences.
    """
    job = setup.job
    one_round = (job.prompts, 1, job.rollouts)
    even_s = rollout_s(setup, np.full(one_round, round(job.response_tokens)))
    generator = np.random.default_rng(seed)
    seconds = []
    for _ in range(draws):
        lengths_PRN = draw_lengths(job, generator)
        single_s = rollout_s(setup, lengths_PRN.reshape(one_round))
        seconds.append((single_s, single_s if job.rounds == 1 else rollout_s(setup, lengths_PRN)))
    single_s, whole_s = np.mean(seconds, axis=0)
    passes_s = forward_pass_s(setup)
    return StepCost(
        prefill_s=prefill_s(setup),
        decode_s=even_s,
        tail_s=float(single_s - even_s),
        rounds_s=float(whole_s - single_s),
        old_log_prob_s=passes_s if job.has_old_log_probs else 0.0,
        reference_s=passes_s if job.has_reference else 0.0,
        update_s=update_s(setup),
        weight_sync_s=weight_sync_s(setup),
        num_gpus=setup.cluster.num_gpus,
        generated_tokens=job.prompts * job.rollouts * job.response_tokens,
    )


def prefill_s(setup: Setup) -> float:
    """Return the prefill time of prompts and hints, once per round for all its rollouts; 2 FLOPs per
    parameter and token.

    With the prefix cache, later rounds prefill only their hint. This is an upper bound, since a shorter hint
    is a prefix of a longer one.
    """
    job = setup.job
    later = job.hint_tokens if job.has_prefix_cache else job.prompt_tokens + job.hint_tokens
    tokens = job.prompts * (job.prompt_tokens + job.hint_tokens + (job.rounds - 1) * later)
    gpus = min(setup.cluster.engines, job.prompts) * setup.cluster.tensor_parallel
    flops = 2.0 * setup.model.matmul_parameters * tokens
    return flops / (gpus * setup.gpu.peak_flops * setup.efficiency.forward_mfu)


def decode_step_s(setup: Setup, sequences_T: Array, kv_tokens_T: Array) -> Array:
    """Return the time to decode one token of each of an engine's sequences: the larger of memory and compute.

        max((weights + kv_tokens kv_bytes) / bandwidth, 2 parameters sequences / FLOPs) + layers layer_s

    Args:
        setup: Model, GPU and the rest.
        sequences_T: (T,) number of sequences that are decoded together.
        kv_tokens_T: (T,) tokens of all their contexts, read from the cache.

    Returns:
        (T,) seconds.
    """
    model, gpu, efficiency = setup.model, setup.gpu, setup.efficiency
    bandwidth = setup.cluster.tensor_parallel * gpu.memory_bandwidth * efficiency.decode_bandwidth
    flops = setup.cluster.tensor_parallel * gpu.peak_flops * efficiency.forward_mfu
    read_T = model.matmul_parameters * WEIGHT_BYTES + kv_tokens_T * setup.kv_bytes
    compute_T = 2.0 * model.matmul_parameters * sequences_T
    layers_s = model.num_hidden_layers * efficiency.layer_s
    seconds_T: Array = np.maximum(read_T / bandwidth, compute_T / flops) + layers_s
    return seconds_T


def rollout_s(setup: Setup, lengths_PRN: NDArray[np.int64]) -> float:
    """Return the decoding time of a whole step: that of the slowest engine; with a barrier, round by round.

    Prompts are distributed over engines and stay there for all their rounds.
    """
    if setup.job.has_barrier and lengths_PRN.shape[1] > 1:
        return sum(rollout_s(setup, lengths_PRN[:, [r]]) for r in range(lengths_PRN.shape[1]))
    engines = min(setup.cluster.engines, len(lengths_PRN))
    return max(_engine_s(setup, lengths_PRN[engine::engines]) for engine in range(engines))


def _engine_s(setup: Setup, lengths_PRN: NDArray[np.int64]) -> float:
    """Return the decoding time of one engine's prompts.

    Every sequence advances one token per step, and a prompt's next round begins when its longest response
    ends, or the last of its quorum.
    If more sequences are open than the engine holds at their mean context, they share it evenly and the step
    takes proportionally longer. vLLM serves them in turn instead, at the same tokens per second.
    """
    enough = HintShare(0.0, lengths_PRN.shape[2]).num_awaited(setup.job.quorum)
    waits_PR = np.sort(lengths_PRN, axis=2)[:, :, enough - 1]
    starts_PRN = np.broadcast_to((waits_PR.cumsum(axis=1) - waits_PR)[:, :, None], lengths_PRN.shape)
    start, end = starts_PRN.ravel(), (starts_PRN + lengths_PRN).ravel()
    steps = int(end.max())

    def open_sum(weights: NDArray[np.int64] | None = None) -> Array:
        begun_T = np.bincount(start, weights, steps + 1) - np.bincount(end, weights, steps + 1)
        total_T: Array = np.cumsum(begun_T)[:steps].astype(np.float64)
        return total_T

    open_T = open_sum()
    prefix = setup.job.prompt_tokens + setup.job.hint_tokens
    kv_tokens_T = (prefix + np.arange(steps)) * open_T - open_sum(start)
    mean_context = kv_tokens_T.sum() / open_T.sum()
    most = min(setup.cluster.max_sequences, setup.kv_tokens / mean_context)
    running_T = np.minimum(open_T, most)
    read_T = np.where(open_T > most, most * mean_context, kv_tokens_T)
    return float(np.sum(decode_step_s(setup, running_T, read_T) * open_T / running_T))


def draw_lengths(job: Job, generator: np.random.Generator) -> NDArray[np.int64]:
    """Draw (P, R, N) response lengths: log-normal, cut at the maximum, with the job's mean after the cut."""
    shape = (job.prompts, job.rounds, job.rollouts // job.rounds)
    sigma = math.sqrt(math.log1p(job.cv**2))
    if not sigma:
        return np.full(shape, round(job.response_tokens))
    low, high = -60.0, 60.0
    for _ in range(64):
        middle = 0.5 * (low + high)
        is_short = cut_mean(middle, sigma, job.max_response_tokens) < job.response_tokens
        low, high = (middle, high) if is_short else (low, middle)
    lengths_PRN = generator.lognormal(low, sigma, shape)
    return np.clip(np.rint(lengths_PRN), 1, job.max_response_tokens).astype(np.int64)


def cut_mean(mu: float, sigma: float, longest: float) -> float:
    """Return the mean of min(X, longest) for log X ~ N(mu, sigma^2).

    exp(mu + sigma^2 / 2) Phi(z - sigma) + longest (1 - Phi(z)),  z = (log longest - mu) / sigma
    """
    z, phi = (math.log(longest) - mu) / sigma, NormalDist().cdf
    return math.exp(mu + 0.5 * sigma**2) * phi(z - sigma) + longest * phi(-z)


def forward_pass_s(setup: Setup) -> float:
    """Return the time for log-probabilities of every sequence: 2 FLOPs per parameter and token, weights
    gathered once per micro-batch.
    """
    tokens = setup.job.trained_tokens / setup.cluster.num_gpus
    return _trainer_s(
        setup,
        flops=2.0,
        mfu=setup.efficiency.forward_mfu,
        gathered_bytes=WEIGHT_BYTES,
        micro_batches=math.ceil(tokens / (2 * setup.cluster.micro_batch_tokens)),
    )


def update_s(setup: Setup) -> float:
    """Return the time to train on every sequence ``ppo_epochs`` times: 6 FLOPs per parameter and token.

    For each micro-batch, weights are gathered twice, forward and backward, and gradients are reduced.
    """
    job = setup.job
    tokens = job.trained_tokens / setup.cluster.num_gpus / job.mini_batches
    return job.ppo_epochs * _trainer_s(
        setup,
        flops=6.0,
        mfu=setup.efficiency.update_mfu,
        gathered_bytes=2.0 * WEIGHT_BYTES + GRADIENT_BYTES,
        micro_batches=job.mini_batches * math.ceil(tokens / setup.cluster.micro_batch_tokens),
    )


def _trainer_s(setup: Setup, *, flops: float, mfu: float, gathered_bytes: float, micro_batches: int) -> float:
    """Return the longer of compute and FSDP's traffic, which overlap.

    A collective's bytes pass every GPU once; between nodes, all network cards of a node carry them.
    """
    cluster, gpu = setup.cluster, setup.gpu
    work = flops * setup.model.matmul_parameters * setup.job.trained_tokens
    link = gpu.intra_node_bandwidth
    if cluster.num_gpus > cluster.gpus_per_node:
        link = min(link, cluster.gpus_per_node * gpu.inter_node_bandwidth)
    sent = micro_batches * gathered_bytes * setup.model.parameters * (1.0 - 1.0 / cluster.num_gpus)
    return max(work / (cluster.num_gpus * gpu.peak_flops * mfu), sent / (link * setup.efficiency.link_share))


def weight_sync_s(setup: Setup) -> float:
    """Return the time to send all weights over the slowest link of one GPU, plus the engine's overhead."""
    gpu, cluster = setup.gpu, setup.cluster
    one_node = cluster.num_gpus <= cluster.gpus_per_node
    link = gpu.intra_node_bandwidth if one_node else gpu.inter_node_bandwidth
    sent = setup.model.parameters * WEIGHT_BYTES * (1.0 - 1.0 / cluster.num_gpus)
    return sent / (link * setup.efficiency.link_share) + setup.efficiency.sync_overhead_s
