"""Inputs of a step's cost: model, GPU, cluster, job and efficiencies; public figures for GPUs.

The formulas are in ``seele.simulate.cost``. Units: seconds, bytes, FLOPs, tokens.
"""

import math
from dataclasses import dataclass

from seele.maths.model_shapes import ModelShape

WEIGHT_BYTES = 2.0
"""Bytes of a weight, and of a number in the KV cache: bf16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """Datasheet figures; link bandwidths are per GPU in one direction."""

    peak_flops: float
    """Peak FLOP/s, dense bf16."""
    memory_bandwidth: float
    memory: float
    intra_node_bandwidth: float
    inter_node_bandwidth: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """GPUs that alternate between rollouts and training."""

    num_gpus: int
    gpus_per_node: int = 8
    tensor_parallel: int = 1
    """GPUs of one engine."""
    engine_memory_share: float = 0.7
    """verl's ``rollout.gpu_memory_utilization``."""
    max_sequences: int = 512
    """verl's ``rollout.max_num_seqs``, per engine. ``hardware=gpu8`` sets what a round needs, at most 512."""
    micro_batch_tokens: int = 24_576
    """verl's ``ppo_max_token_len_per_gpu``; passes without gradient use twice as many."""

    def __post_init__(self) -> None:
        if min(self.num_gpus, self.gpus_per_node, self.tensor_parallel, self.max_sequences) < 1:
            raise ValueError("GPUs, GPUs of a node, tensor parallelism and sequences must be at least 1")
        if not 0.0 < self.engine_memory_share <= 1.0:
            raise ValueError(f"engine_memory_share must be in (0, 1], got {self.engine_memory_share:g}")
        if self.num_gpus > self.gpus_per_node and self.num_gpus % self.gpus_per_node:
            raise ValueError(f"num_gpus ({self.num_gpus}) must fill nodes of {self.gpus_per_node}")
        if self.num_gpus % self.tensor_parallel:
            raise ValueError(
                f"num_gpus ({self.num_gpus}) must be a multiple of tensor_parallel ({self.tensor_parallel})"
            )

    @property
    def engines(self) -> int:
        """Number of engines, each with a copy of the model."""
        return self.num_gpus // self.tensor_parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One training step; defaults are the paper's (arXiv:2509.06923) where it states them."""

    prompts: int = 256
    rollouts: int = 32
    """Rollouts per prompt, over all its rounds."""
    rounds: int = 4
    prompt_tokens: float = 200.0  # not stated
    hint_tokens: float = 300.0  # not stated
    response_tokens: float = 1000.0  # not stated
    """Mean length of a response, after the cut at ``max_response_tokens``."""
    cv: float = 1.0  # not stated
    """Standard deviation over mean of the log-normal lengths, before the cut."""
    max_response_tokens: int = 2048
    mini_batches: int = 4
    ppo_epochs: int = 1
    has_old_log_probs: bool = True
    has_reference: bool = True
    has_barrier: bool = False
    """True if a round waits for the last response of the previous round, over all prompts."""
    quorum: float = 1.0
    """Share of a prompt's responses in a round, the first ones, that its next round waits for."""
    has_prefix_cache: bool = True
    """True if later rounds find the prompt in the engine's cache, so that only their hint is prefilled."""

    def __post_init__(self) -> None:
        for name in ("prompts", "rollouts", "rounds", "mini_batches", "ppo_epochs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.rollouts % self.rounds:
            raise ValueError(f"rollouts ({self.rollouts}) must be a multiple of rounds ({self.rounds})")
        if not 0.0 < self.quorum <= 1.0 or (self.has_barrier and self.quorum < 1.0):
            raise ValueError(f"quorum must be in (0, 1], and 1 with a barrier, got {self.quorum:g}")
        if self.mini_batches > self.prompts:
            raise ValueError(f"mini_batches ({self.mini_batches}) must not exceed prompts ({self.prompts})")
        for name, most in {"prompt_tokens": 1e9, "hint_tokens": 1e9, "cv": 10.0}.items():
            if not 0.0 <= getattr(self, name) <= most:
                raise ValueError(f"{name} must be in [0, {most:g}], got {getattr(self, name):g}")
        longest = self.max_response_tokens
        if not 1.0 <= self.response_tokens <= longest or (self.cv and self.response_tokens == longest):
            raise ValueError(
                f"response_tokens ({self.response_tokens:g}) must be in [1, {longest}), its maximum"
            )

    @property
    def trained_tokens(self) -> float:
        """Tokens of all sequences, including prompts and hints."""
        sequence = self.prompt_tokens + self.hint_tokens + self.response_tokens
        return self.prompts * self.rollouts * sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Achieved shares of the datasheet figures. Assumptions; set them to what your own runs show."""

    forward_mfu: float = 0.4
    """Share of peak FLOPs in passes without gradient; also limits prefill and large decode batches."""
    update_mfu: float = 0.3
    """Share of peak FLOPs in training, without recomputation: 0.4 x 6 / 8 with gradient checkpointing."""
    decode_bandwidth: float = 0.8
    """Share of the memory bandwidth while decoding."""
    layer_s: float = 3e-5
    """Seconds that a layer adds to a decode step, whatever the batch: kernels too small to fill a GPU."""
    link_share: float = 0.7
    """Share of the bandwidth between GPUs."""
    sync_overhead_s: float = 3.0
    """Seconds to wake the engine and pass it every tensor, in addition to the transfer."""

    def __post_init__(self) -> None:
        for name in ("forward_mfu", "update_mfu", "decode_bandwidth", "link_share"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must be in (0, 1], got {getattr(self, name):g}")
        for name in ("layer_s", "sync_overhead_s"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be finite and not negative, got {getattr(self, name):g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """All inputs of the formulas.

    Raises:
        ValueError: If the model does not fit an engine.
    """

    model: ModelShape
    gpu: Gpu
    cluster: Cluster
    job: Job
    efficiency: Efficiency = Efficiency()

    def __post_init__(self) -> None:
        longest = self.job.prompt_tokens + self.job.hint_tokens + self.job.max_response_tokens
        if self.kv_tokens < longest:
            raise ValueError(
                f"the weights and one sequence of {longest:g} tokens do not fit an engine with "
                f"tensor_parallel={self.cluster.tensor_parallel}: raise it"
            )

    @property
    def kv_tokens(self) -> float:
        """Tokens that fit an engine's KV cache, in the memory beside the weights (vLLM, arXiv:2309.06180)."""
        memory = self.gpu.memory * self.cluster.engine_memory_share * self.cluster.tensor_parallel
        return (memory - self.model.parameters * WEIGHT_BYTES) / self.kv_bytes

    @property
    def kv_bytes(self) -> float:
        """Bytes of KV cache per token on all GPUs of an engine, which copy heads if there are fewer heads."""
        copies = max(1.0, self.cluster.tensor_parallel / self.model.num_key_value_heads)
        return self.model.kv_token(WEIGHT_BYTES) * copies


def _datasheet(teraflops: float, bandwidth: float, gigabytes: float, nvlink: float, network: float) -> Gpu:
    """Convert from TFLOP/s, TB/s, GB, and GB/s for both links."""
    return Gpu(
        peak_flops=teraflops * 1e12,
        memory_bandwidth=bandwidth * 1e12,
        memory=gigabytes * 1e9,
        intra_node_bandwidth=nvlink * 1e9,
        inter_node_bandwidth=network * 1e9,
    )


GPUS = {
    "a100-40gb": _datasheet(312, 1.555, 40, 300, 25),
    "a100": _datasheet(312, 2.039, 80, 300, 25),
    "h100": _datasheet(989, 3.35, 80, 450, 50),
    "h200": _datasheet(989, 4.8, 141, 450, 50),
}
"""NVIDIA's datasheets, SXM: dense bf16 (the H100's prints twice as much, for sparse matrices), half of the
two-way bandwidth of NVLink, and one network card per GPU as in DGX (200 Gbit/s with A100, 400 otherwise)."""
