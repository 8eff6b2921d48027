"""How much memory a run takes, computed: on a GPU phase by phase, on a node, and on disk.

The formulas add up what verl 0.9.1 (FSDP2), transformers 5 and vLLM 0.24 keep, term by term. Each docstring
names the source line of a coefficient; allowances are marked as such. The results are upper estimates: what
fits here should fit on the machine. ``docs/memory.md`` compares them with published peaks.
``seele_verl.memory`` reads the settings; nothing here is measured.

Units: bytes, tokens, parameters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from seele.maths.model_shapes import ModelShape
from seele.maths.tables import markdown_table

GIB = 2.0**30

TRAINER_CONTEXT = 1.5 * GIB
"""Allowance: CUDA context and the NCCL and cuBLAS buffers of a training process."""
ENGINE_CONTEXT = 1.8 * GIB
"""The same for an engine, twice as much with tensor parallelism: "non_torch_memory" 1.79 and 3.58 GiB in
vllm-project/vllm#10511. It stays allocated while the engine sleeps.
"""
CUDA_GRAPHS = 1.0 * GIB
"""Allowance: captured after the KV cache is laid out, so outside the engine's share, and kept in sleep."""
UNUSED_SHARE = 0.1
"""Allowance: share of temporary memory that PyTorch's allocator holds but does not use."""
LOGIT_BYTES_OF_ENGINE = 40.0
"""Bytes per word and sequence in vLLM's profiling run, including sampling: "PyTorch activation peak memory"
1.26 GiB with 256 sequences and 128,256 words (vllm-project/vllm#10511), 1.42 with 152,064 (#13882).
"""
FUSED_CHUNK = 512
"""Tokens whose logits exist at once (``FusedLinearForPPO``, verl/utils/experimental/torch_functional.py)."""
ENTROPY_CHUNK = 2048
"""verl's ``entropy_from_logits_chunk_size``."""
BUCKET = 2048 * 2.0**20
"""verl's ``update_weights_bucket_megabytes``: weights in transfer to the engine."""
TRAINER_PROCESS, ENGINE_PROCESS, WORKER_PROCESS, OTHER_PROCESSES = 4 * GIB, 4 * GIB, 1.5 * GIB, 6 * GIB
"""Allowances for Python, its libraries and CUDA's in host memory: per training rank, engine rank and rollout
worker; and for driver, task runner, Ray and TransferQueue together.
"""
ROW_BYTES = 64.0
"""Bytes per token of a rollout in TransferQueue: nine columns of 4 or 8 (``protocol.UPDATE_COLUMNS``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """How a model computes, which determines its activations and logits."""

    tokens: int
    """Largest number of tokens per micro-batch and GPU (verl's ``..._max_token_len_per_gpu``, which verl
    0.9.1 never exceeds: utils/seqlen_balancing.py, ``rearrange_micro_batches``).
    """
    longest: int
    """Tokens of the longest sequence."""
    has_head: bool = True
    """False for a critic, whose output layer has one value per token."""
    is_fused: bool = False
    """True if logits exist only in chunks (verl's ``use_fused_kernels``)."""
    entropy: str = "none"
    """``none``, ``whole`` or ``chunked`` (verl's ``entropy_from_logits_with_chunking``)."""
    has_checkpointing: bool = True
    """True if layers are recomputed in the backward pass."""
    width: int = 2
    """Bytes per number in the passes: 2 in bfloat16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A model under FSDP2."""

    shape: ModelShape
    shards: int
    """Number of GPUs that parameters are sharded over."""
    lora_rank: int = 0
    """0 trains all parameters."""
    has_head: bool = True
    master: int = 4
    """Bytes per stored weight, gradient or moment: 4 in verl's ``model_dtype: fp32``."""
    param_offload: bool = False
    optimizer_offload: bool = False
    cpu_policy: bool = False
    """FSDP2's own offloading (``offload_policy``), which keeps weights, gradients and moments in host memory
    even during training.
    """
    defers_sync: bool = False
    """verl's ``use_no_sync_for_gradient_accumulation``, which keeps whole gradients."""

    @property
    def parameters(self) -> float:
        """Parameters of the whole model."""
        head = 0 if self.has_head else self.shape.head_parameters
        return self.shape.parameters - head + self.shape.lora_parameters(self.lora_rank)

    @property
    def trained_parameters(self) -> float:
        """Parameters that have gradients and moments."""
        return self.shape.lora_parameters(self.lora_rank) if self.lora_rank else self.parameters

    @property
    def weights(self) -> float:
        """Bytes of weights in a GPU's shard (verl loads a trained model in fp32,
        workers/engine/fsdp/transformer_impl.py, line 260).
        """
        return self.master * self.parameters / self.shards

    @property
    def moments(self) -> float:
        """Bytes of Adam's two moments in a GPU's shard."""
        return 2.0 * self.master * self.trained_parameters / self.shards

    @property
    def gradients(self) -> float:
        """Bytes of gradients in a GPU's shard (torch, _fully_shard/_fsdp_collectives.py, ``foreach_reduce``);
        with deferred reduction, of whole gradients in fp32 (_fsdp_param.py,
        ``to_accumulated_grad_if_needed``).
        """
        return 4.0 * self.trained_parameters * (1.0 if self.defers_sync else 1.0 / self.shards)

    @property
    def resident(self) -> dict[str, float]:
        """The parts that stay on the GPU while the engine rolls out: all that is not offloaded (verl moves
        offloaded parts back for a pass, workers/engine/base.py, ``_context_switch``).
        """
        kept = {}
        if not (self.param_offload or self.cpu_policy):
            kept["weights"] = self.weights
        if not (self.optimizer_offload or self.cpu_policy):
            kept["Adam's moments"] = self.moments
        return kept

    @property
    def in_training(self) -> dict[str, float]:
        """The parts on the GPU during an update, for which verl loads offloaded weights and moments."""
        if self.cpu_policy:
            return {}
        return {"weights": self.weights, "gradients": self.gradients, "Adam's moments": self.moments}


def gathered(shape: ModelShape, width: int = 2) -> float:
    """Bytes of whole weights on a GPU at a time: the output layer and three layers, one in use, one being
    copied out of the all-gather's buffer, and the next one (verl/utils/fsdp_utils.py,
    ``_select_fsdp2_wrap_targets``; torch, _fully_shard/_fsdp_collectives.py,
    ``foreach_all_gather_copy_out``).
    """
    return width * (shape.embedding_parameters + 3.0 * shape.layer_parameters)


def reduced(shape: ModelShape, width: int = 2) -> float:
    """Bytes of whole gradients on a GPU at a time: of the output layer, until the backward pass ends, and of
    one layer, once as computed and twice in fp32 during their reduction to shards (torch,
    _fsdp_collectives.py, ``foreach_reduce``: the input of one reduction, and of the one before).
    """
    return width * shape.embedding_parameters + (width + 8.0) * shape.layer_parameters


def kept_activations(shape: ModelShape, passes: Passes) -> float:
    """Bytes that an update's forward pass keeps for the backward pass: with gradient checkpointing the input
    of every layer, without it everything that the layers compute.
    """
    per_layer = passes.width * shape.hidden_size if passes.has_checkpointing else layer_token(shape, passes)
    return passes.tokens * shape.num_hidden_layers * per_layer


def layer_token(shape: ModelShape, passes: Passes) -> float:
    """Bytes that one layer saves per token for its backward pass: two norms (input and normed in fp32,
    output), queries and keys before and after rotation, values, attention's output, the residual sum; gate,
    its activation, up and product (transformers, models/qwen2/modeling_qwen2.py, ``Qwen2DecoderLayer``).
    """
    hidden, query, key_value = shape.hidden_size, shape.query_size, shape.key_value_size
    norms = 2.0 * hidden * (8.0 + passes.width)
    attention = passes.width * (3.0 * query + 3.0 * key_value + hidden)
    return norms + attention + passes.width * 4.0 * shape.intermediate_size


def layer_backward(shape: ModelShape, passes: Passes) -> float:
    """Bytes of one layer in its backward pass: what it saved, and the gradients of its three wide tensors."""
    gradients = passes.width * 3.0 * shape.intermediate_size
    return passes.tokens * (layer_token(shape, passes) + gradients)


def layer_forward(shape: ModelShape, passes: Passes) -> float:
    """Bytes of one layer without gradients: its input, a norm in fp32, and the MLP's three wide tensors."""
    per_token = (8.0 + 2.0 * passes.width) * shape.hidden_size + 3.0 * passes.width * shape.intermediate_size
    return passes.tokens * per_token


def head(shape: ModelShape, passes: Passes, *, with_gradient: bool) -> float:
    """Peak bytes of logits and of what is computed from them. The figures below are bytes per word and token.

    Fused, for one chunk at a time (verl/utils/experimental/torch_functional.py, lines 36-100): 14 without
    gradients, 22 with, 30 with those of the entropy. Otherwise the logits, in the passes' precision. Without
    flash-attn verl takes log-softmax row by row, in fp32 under autocast (utils/torch_functional.py,
    ``logprobs_from_logits_v2``): with gradients every row's result, its gradient, and their stack. Entropy
    adds 8 for probabilities and products, or 12 for one chunk if chunked; with gradients 16, or 26 if
    chunked, because autograd keeps every chunk. ``tests/contract/test_memory.py`` counts the tensors of
    verl's functions.
    """
    if not passes.has_head:
        return passes.tokens * 8.0
    tokens, width, vocab = passes.tokens, passes.width, shape.vocab_size
    has_entropy = passes.entropy != "none"
    last_hidden = (3.0 if with_gradient else 1.0) * width * shape.hidden_size * tokens
    if passes.is_fused:
        per_word = (30.0 if has_entropy else 22.0) if with_gradient else 14.0
        return last_hidden + per_word * min(FUSED_CHUNK, tokens) * vocab
    words, chunk = tokens * vocab, min(ENTROPY_CHUNK, tokens) * vocab
    if with_gradient:
        per_word = 4.0 + 3.0 * width + {"none": 0.0, "whole": 16.0, "chunked": 26.0}[passes.entropy]
        return last_hidden + per_word * words
    return (
        last_hidden
        + width * words
        + {"none": 0.0, "whole": 8.0 * words, "chunked": 12.0 * chunk}[passes.entropy]
    )


def update_peak(model: Trained, passes: Passes) -> dict[str, float]:
    """An update's parts at its peak: at the output layer, before any layer's gradients exist, in the backward
    pass of a layer, or in Adam's step, which takes the square roots of all second moments of a shard at once
    (torch, optim/adam.py, ``_multi_tensor_adam``).
    """
    shape, width = model.shape, passes.width
    kept = kept_activations(shape, passes)
    gradients = 0.0 if model.lora_rank else reduced(shape, width)
    of_head = 0.0 if model.lora_rank else 2.0 * width * shape.embedding_parameters
    at_head = {
        "activations": kept,
        "logits": head(shape, passes, with_gradient=True),
        "whole gradients": of_head,
    }
    at_layer = {
        "activations": kept + (layer_backward(shape, passes) if passes.has_checkpointing else 0.0),
        "whole gradients": gradients,
    }
    of_layers = {"gathered weights": gathered(shape, width), **_larger(at_head, at_layer)}
    at_step = {} if model.cpu_policy else {"Adam's square roots": model.moments / 2.0}
    passing = _larger(of_layers, at_step)
    return model.in_training | passing | {"unused by the allocator": UNUSED_SHARE * total(passing)}


def forward_peak(shape: ModelShape, passes: Passes) -> dict[str, float]:
    """The parts that a pass without gradients adds at its peak, at the output layer or in a layer."""
    at_head = {"logits": head(shape, passes, with_gradient=False)}
    at_layer = {"activations": layer_forward(shape, passes)}
    passing = {"gathered weights": gathered(shape, passes.width), **_larger(at_head, at_layer)}
    return passing | {"unused by the allocator": UNUSED_SHARE * total(passing)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """vLLM beside the trainer."""

    shape: ModelShape
    tensor_parallel: int
    memory_share: float
    """verl's ``gpu_memory_utilization``, of the whole card."""
    window: int
    """Tokens of the longest sequence (``max_model_len``)."""
    sequences: int
    """``max_num_seqs``."""
    batched_tokens: int
    """``max_num_batched_tokens``."""
    kv_cache: float | None = None
    """``kv_cache_memory_bytes``, which overrides the share."""
    has_graphs: bool = True
    sleeps: bool = True
    """True if it frees weights and cache while the trainer works."""
    keeps_copy: bool = False
    """True if its weights then go to host memory: with LoRA adapters (verl's ``_resolve_sleep_level``)."""
    width: int = 2

    @property
    def weights(self) -> float:
        """Bytes of weights per GPU."""
        return self.width * self.shape.parameters / self.tensor_parallel

    @property
    def context(self) -> float:
        """Bytes of CUDA context per GPU, awake or asleep."""
        return ENGINE_CONTEXT * (1 if self.tensor_parallel == 1 else 2)

    @property
    def graphs(self) -> float:
        """Bytes of CUDA graphs per GPU, awake or asleep."""
        return CUDA_GRAPHS if self.has_graphs else 0.0

    @property
    def activations(self) -> float:
        """Bytes of activations in vLLM's profiling run (v1/worker/gpu_worker.py,
        ``determine_available_memory``): the MLP of a full batch, or the logits of the most sequences that may
        run.
        """
        shape = self.shape
        mlp = 3.0 * shape.intermediate_size / self.tensor_parallel + 4.0 * shape.hidden_size
        return max(
            self.batched_tokens * self.width * mlp,
            LOGIT_BYTES_OF_ENGINE * self.sequences * shape.vocab_size,
        )

    @property
    def kv_token(self) -> float:
        """Bytes of keys and values per token and GPU; heads are copied if there are fewer than GPUs."""
        return self.shape.kv_token(self.width) / min(self.tensor_parallel, self.shape.num_key_value_heads)

    @property
    def start(self) -> dict[str, float]:
        """The parts that its share must hold for vLLM to start: among them one sequence that fills the window
        (v1/core/kv_cache_utils.py, ``check_enough_kv_cache_memory``).
        """
        return {
            "weights": self.weights,
            "activations": self.activations,
            "CUDA context": self.context,
            "KV cache of one window": self.kv_token * self.window,
        }

    def cache(self, card: float) -> float:
        """Bytes of its KV cache on a card of this size."""
        if self.kv_cache is not None:
            return self.kv_cache
        return self.memory_share * card - self.weights - self.activations - self.context

    def awake(self, card: float) -> dict[str, float]:
        """The parts that it holds while it rolls out."""
        return {
            "engine's weights": self.weights,
            "engine's KV cache": max(0.0, self.cache(card)),
            "engine's activations": self.activations,
            "engine's context and CUDA graphs": self.context + self.graphs,
        }

    @property
    def asleep(self) -> dict[str, float]:
        """The parts that it holds while it sleeps."""
        return {"engine asleep": self.context + self.graphs}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that decides how much memory a run takes."""

    card: float
    """A GPU's memory; 0 for a run without GPUs, which is entirely in host memory."""
    ranks: int
    ranks_per_node: int
    policy: Trained
    update: Passes
    old_log_probs: Passes | None = None
    reference: Passes | None = None
    """None without a reference, or with LoRA, where the reference is the policy without adapters."""
    critic: Trained | None = None
    critic_passes: Passes | None = None
    engine: Engine | None = None
    """None for a supervised run, whose validation comes after it."""
    rollout_workers: int = 0
    """Rollout workers per node."""
    rollouts: int = 0
    """Rollouts per step."""
    checkpoints: int = 0
    """Largest number of checkpoints on disk at a time, including the one being written."""
    whole_models: int = 0
    """Largest number of whole models beside them: one in each supervised checkpoint, and a merged one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The memory needed in one place, in one phase."""

    place: str
    """``GPU``, ``engine``, ``host`` or ``disk``."""
    phase: str
    parts: Mapping[str, float]
    available: float | None
    """None if unknown."""

    @property
    def needed(self) -> float:
        """The sum of all parts."""
        return total(self.parts)

    @property
    def fits(self) -> bool:
        """True if there is enough, or if it is unknown how much there is."""
        return self.available is None or self.needed <= self.available


def predict(plan: Plan, *, host: float | None = None, disk: float | None = None) -> list[Need]:
    """What the plan needs, phase by phase: on a GPU, in the engine's share, on a node, on disk.

    Args:
        plan: The run.
        host: Memory of a node, if known.
        disk: Free space where checkpoints are saved, if known.
    """
    needs = [] if not plan.card else [*_gpu_phases(plan)]
    if plan.card and plan.engine is not None and plan.engine.kv_cache is None:
        share = plan.engine.memory_share * plan.card
        needs.append(Need(place="engine", phase="start", parts=plan.engine.start, available=share))
    for phase, parts in _host_phases(plan).items():
        needs.append(Need(place="host", phase=phase, parts=parts, available=host))
    needs.append(Need(place="disk", phase="checkpoints", parts=_disk(plan), available=disk))
    return needs


def peak(needs: Sequence[Need], place: str) -> Need | None:
    """The largest need of a place; None if it has none."""
    return max((need for need in needs if need.place == place), key=lambda need: need.needed, default=None)


def memory_table(needs: Sequence[Need]) -> str:
    """A table of what a run needs, one line per phase, without parts under 0.05 GiB."""
    rows = []
    for need in needs:
        parts = sorted(need.parts.items(), key=lambda part: -part[1])
        words = ", ".join(f"{name} {size / GIB:.1f}" for name, size in parts if size >= 0.05 * GIB)
        available = "?" if need.available is None else f"{need.available / GIB:.1f}"
        rows.append([need.place, need.phase, words, f"{need.needed / GIB:.1f}", available])
    return markdown_table(("where", "when", "parts", "GiB", "of"), rows, num_names=3)


def total(parts: Mapping[str, float]) -> float:
    """The sum of parts."""
    return sum(parts.values())


def _larger(first: dict[str, float], second: dict[str, float]) -> dict[str, float]:
    return first if total(first) > total(second) else second


def _gpu_phases(plan: Plan) -> list[Need]:
    policy, critic, engine = plan.policy, plan.critic, plan.engine
    context = {"CUDA context": TRAINER_CONTEXT}
    beside = dict(context)
    if engine is not None:
        beside |= engine.asleep if engine.sleeps else engine.awake(plan.card)
    of_critic = {f"critic's {name}": size for name, size in critic.resident.items()} if critic else {}
    phases: dict[str, Mapping[str, float]] = {}
    if engine is not None:
        kept = policy.resident | of_critic | context
        phases["rolling out"] = kept | engine.awake(plan.card)
        whole = 4.0 * policy.shape.embedding_parameters
        phases["handing weights over"] = (
            kept
            | (engine.asleep if engine.sleeps else engine.awake(plan.card))
            | {
                "engine's weights": engine.weights,
                "weights on their way": BUCKET + whole,
            }
        )
    weights = {} if policy.cpu_policy else {"weights": policy.weights}
    for name, passes in (("old log-probabilities", plan.old_log_probs), ("reference", plan.reference)):
        if passes is None:
            continue
        # The reference's own shard is in host memory (verl, transformer_impl.py, line 408: CPUOffloadPolicy).
        own = policy.resident if name == "reference" else policy.resident | weights
        phases[name] = own | of_critic | beside | forward_peak(policy.shape, passes)
    phases["update"] = update_peak(policy, plan.update) | of_critic | beside
    if critic is not None and plan.critic_passes is not None:
        phases["critic's update"] = (
            update_peak(critic, plan.critic_passes)
            | beside
            | {f"policy's {name}": size for name, size in policy.resident.items()}
        )
    return [
        Need(place="GPU", phase=phase, parts=parts, available=plan.card) for phase, parts in phases.items()
    ]


def _host_phases(plan: Plan) -> dict[str, dict[str, float]]:
    """Parts of the phases of loading and of the steps after it. verl loads a model with tied embeddings in
    fp32 in every rank, any other only in the first (utils/fsdp_utils.py, line 64; transformer_impl.py, line
    266); the reference is loaded first and stays.
    """
    if not plan.card:
        return {"steps": _without_gpus(plan)}
    of_node = plan.ranks_per_node
    processes = TRAINER_PROCESS * of_node + OTHER_PROCESSES + WORKER_PROCESS * plan.rollout_workers
    if plan.engine is not None:
        processes += ENGINE_PROCESS * of_node
    shape, policy = plan.policy.shape, plan.policy
    common = {"processes": processes}
    if plan.reference is not None:
        common["reference"] = 4.0 * shape.parameters / policy.shards * of_node
    loading = 4.0 * shape.parameters * (of_node if shape.tied else 1)
    steps = dict(common)
    for owner, model in (("policy", policy), ("critic", plan.critic)):
        if model is None:
            continue
        if model.param_offload or model.cpu_policy:
            steps[f"{owner}'s weights"] = model.weights * of_node
        if model.optimizer_offload or model.cpu_policy:
            steps[f"{owner}'s moments"] = model.moments * of_node
        if model.cpu_policy:
            steps[f"{owner}'s gradients"] = model.gradients * of_node
    if plan.engine is not None and plan.engine.keeps_copy:
        steps["engine's weights in sleep"] = plan.engine.weights * of_node
    if plan.engine is None:
        steps["whole model for a checkpoint"] = 4.0 * shape.parameters
    steps["rollouts of a step"] = 2.0 * ROW_BYTES * plan.rollouts * plan.update.longest
    return {"loading": common | {"weights in fp32": loading}, "steps": steps}


def _without_gpus(plan: Plan) -> dict[str, float]:
    """Parts of a run without GPUs: everything of all ranks and of the engine, with its own cache size."""
    # What is offloaded is in the same memory.
    peaks = [total(update_peak(replace(plan.policy, cpu_policy=False), plan.update))]
    if plan.critic is not None and plan.critic_passes is not None:
        peaks.append(total(update_peak(replace(plan.critic, cpu_policy=False), plan.critic_passes)))
    parts = {
        "processes": OTHER_PROCESSES,
        "training": plan.ranks * max(peaks),
        "rollouts of a step": 2.0 * ROW_BYTES * plan.rollouts * plan.update.longest,
    }
    if plan.engine is not None:
        # It multiplies with a packed copy of its weights (seele_verl.engine.plugin).
        parts["engine"] = 2 * plan.engine.weights + (plan.engine.kv_cache or 0.0)
    if plan.reference is not None:
        parts["reference"] = 4.0 * plan.policy.shape.parameters
    return parts


def _disk(plan: Plan) -> dict[str, float]:
    """Weights and moments in fp32, 12 bytes per parameter and checkpoint, and 4 for each whole model."""
    models = {"policy": plan.policy} | ({"critic": plan.critic} if plan.critic else {})
    parts = {
        name: plan.checkpoints * (4.0 * model.parameters + 8.0 * model.trained_parameters)
        for name, model in models.items()
    }
    if plan.whole_models:
        parts["whole models"] = plan.whole_models * 4.0 * plan.policy.parameters
    return parts


def as_critic(policy: Trained) -> Trained:
    """The critic that starts from this policy, without its output layer."""
    return replace(policy, has_head=False, lora_rank=0)
