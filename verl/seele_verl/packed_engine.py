"""verl's FSDP engine over packed rows: the common beginning of rows is computed once, and logits are computed
only where they predict a token that is read (``packed_rows``).

The loss and the passes for log-probabilities get what verl's own engine would give them: a number for each
token of each row, 0 where it is not read. ``seele.packed_updates`` makes verl import this module in every
worker (``actor_rollout_ref.model.external_lib``). It registers this engine under the platform's vendor, where
verl finds it before its own. A critic keeps verl's engine.

Axes as in ``packed_rows``; V vocabulary entries, H heads, D numbers of a head.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tensordict import TensorDict
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_name, get_vendor
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from seele.errors import ConfigError
from seele.losses.imitation import HINT_WEIGHTS
from seele_verl.losses import have_weight
from seele_verl.packed_rows import Packing, pack_rows, rows_to_compute, share_prompts, split_rows
from seele_verl.protocol import INSTANCE_IDS, WEIGHT_COLUMNS

ATTENTION = "packed_rows"
"""transformers' name for ``attend``; it builds no mask for it."""
PACKED = "packed"
"""Batch-wide value: the batch belongs to this engine."""
CHUNK_NUMBERS = 2**22
"""Logits that are normalised at a time: temporaries take a few times 16 MiB."""

_verls_micro_batches = transformer_impl.prepare_micro_batches


class PackedEngine(FSDPEngineWithLMHead):
    """verl's engine of a policy or reference model, over packed rows."""

    def _build_module(self) -> torch.nn.Module:
        """verl's model, whose tokens attend along the paths of packed rows."""
        module: torch.nn.Module = super()._build_module()
        module.set_attn_implementation(ATTENTION)
        # transformers only warns where a model's attention cannot be replaced.
        if module.config._attn_implementation != ATTENTION:
            raise ConfigError(
                f"seele.packed_updates: true, but {type(module).__name__} has an attention that cannot be "
                "replaced; set it to false"
            )
        return module

    def forward_backward_batch(
        self, data: TensorDict, loss_function: Callable[..., Any], forward_only: bool = False
    ) -> Any:
        """verl's, in micro-batches that keep rows of one prompt together."""
        tu.assign_non_tensor(data, **{PACKED: True})
        return super().forward_backward_batch(data, loss_function, forward_only=forward_only)

    def prepare_model_inputs(self, micro_batch: TensorDict) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the (1, C) tokens and the arguments of attention; and the packing, for the outputs."""
        ids_T, positions_T = micro_batch["input_ids"].values(), micro_batch["position_ids"].values()
        lengths, prompt_lengths = _lengths(micro_batch)
        packing = pack_rows(ids_T.tolist(), lengths, prompt_lengths, _is_wanted(micro_batch).cpu())
        packing = packing.to(ids_T.device)
        inputs = {
            "input_ids": ids_T[packing.source_C][None],
            "position_ids": positions_T[packing.source_C][None],
            "attention_mask": None,
            "logits_to_keep": packing.predictor_L,
            "packing": packing,
        }
        return inputs, {"packing": packing}

    def prepare_model_outputs(
        self, output: Any, output_args: dict[str, Any], micro_batch: TensorDict, logits_processor_func: Any
    ) -> dict[str, torch.Tensor]:
        """Return log-probabilities, and entropies where requested: (B, tokens of the row), nested."""
        packing: Packing = output_args["packing"]
        ids = micro_batch["input_ids"]
        log_probs_P, entropy_L = score(
            output.logits[0],
            packing.predictor_P,
            ids.values()[packing.predicted_P],
            float(micro_batch["temperature"]),
        )
        outputs = {"log_probs": log_probs_P}
        if tu.get_non_tensor_data(micro_batch, "calculate_entropy", default=False):
            outputs["entropy"] = entropy_L[packing.predictor_P]
        zeros_T = log_probs_P.new_zeros(len(ids.values()))
        # verl stores a prediction at the position of the token before it.
        return {
            name: torch.nested.nested_tensor_from_jagged(
                zeros_T.index_copy(0, packing.predicted_P - 1, values_P), ids.offsets()
            )
            for name, values_P in outputs.items()
        }


def prepare_micro_batches(
    data: TensorDict, dp_group: Any = None, **options: Any
) -> tuple[list[TensorDict], Any]:
    """Replaces ``verl/workers/engine/utils.py: prepare_micro_batches``: for this engine's batches, it keeps
    rows of one prompt in one micro-batch, and applies the token limit to computed tokens.

    An update skips the rows that contribute no gradient (``WEIGHT_COLUMNS``). The loss is still divided by
    the rows and tokens of the whole batch, which verl has counted before.
    """
    if not tu.get_non_tensor_data(data, PACKED, default=False):
        return _verls_micro_batches(data=data, dp_group=dp_group, **options)
    if not tu.get_non_tensor_data(data, "use_dynamic_bsz", default=True):
        micro_batches, indices = _verls_micro_batches(data=data, dp_group=dp_group, **options)
        return [_without_idle_rows(each) for each in micro_batches], indices
    has_weight, (lengths, prompt_lengths) = _have_weight(data), _lengths(data)
    trunks = share_prompts([prompt.tolist() for prompt in data["prompts"].unbind()])
    responses = [length - prompt for length, prompt in zip(lengths, prompt_lengths, strict=True)]

    def split(at_least: int) -> list[list[int]]:
        rows = rows_to_compute(has_weight, lengths, at_least=at_least)
        computed = [kept for trunk in trunks if (kept := [row for row in trunk if row in rows])]
        most_tokens = data["max_token_len_per_gpu"]
        return split_rows(computed, prompt_lengths, responses, most_tokens=most_tokens, at_least=at_least)

    parts = split(1)
    if dp_group is not None:
        # Every rank gathers the model's layers for every micro-batch of any rank.
        count = torch.tensor(len(parts), device=get_device_name())
        torch.distributed.all_reduce(count, op=torch.distributed.ReduceOp.MAX, group=dp_group)
        parts = split(int(count))
    return [_select(data, part, has_weight) for part in parts], parts


def _without_idle_rows(micro_batch: TensorDict) -> TensorDict:
    """Return the rows that have a gradient, or else one."""
    has_weight = _have_weight(micro_batch)
    rows = sorted(rows_to_compute(has_weight, _lengths(micro_batch)[0]))
    return _select(micro_batch, rows, has_weight)


def _select(batch: TensorDict, rows: Sequence[int], has_weight: Sequence[bool]) -> TensorDict:
    """Return these rows; the responses of those without a gradient, which only fill it up, are masked out, so
    that verl's means leave them out. ``has_weight`` is of all the batch's rows.
    """
    part = tu.index_select_tensor_dict(batch, rows)
    if not all(has_weight[row] for row in rows):
        pairs = zip(part["response_mask"].unbind(), rows, strict=True)
        masks = [mask if has_weight[row] else torch.zeros_like(mask) for mask, row in pairs]
        part["response_mask"] = torch.nested.as_nested_tensor(masks, layout=torch.jagged)
    return part


def attend(
    module: torch.nn.Module,
    query_1HCD: torch.Tensor,
    key_1HCD: torch.Tensor,
    value_1HCD: torch.Tensor,
    attention_mask: None,
    *,
    packing: Packing,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of every computed token to its path, by transformers' function, block by block.

    Returns:
        (1, C, H, D), and None for the weights.
    """
    query_CHD, key_CHD, value_CHD = (each[0].transpose(0, 1) for each in (query_1HCD, key_1HCD, value_1HCD))
    attended = []
    for block in packing.blocks:
        rows = (
            _take(query_CHD, block.query_SQ),
            _take(key_CHD, block.key_SK),
            _take(value_CHD, block.key_SK),
        )
        output_SQHD, _ = sdpa_attention_forward(module, *rows, block.mask_S1QK, **options)
        attended.append(output_SQHD.flatten(0, 1))
    return torch.cat(attended).index_select(0, packing.place_C)[None], None


def _take(tokens_CHD: torch.Tensor, index_SQ: torch.Tensor) -> torch.Tensor:
    """Return the tokens at these indices, (S, H, Q, D)."""
    return tokens_CHD.index_select(0, index_SQ.flatten()).unflatten(0, index_SQ.shape).transpose(1, 2)


def score(
    logits_LV: torch.Tensor, predictor_P: torch.Tensor, ids_P: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probabilities of tokens, and entropies of the distributions that they come from.

    Args:
        logits_LV: (L, V); their gradient overwrites them in memory.
        predictor_P: (P,) which of the L distributions each token comes from.
        ids_P: (P,) the tokens.
        temperature: The logits are divided by it.

    Returns:
        (P,) and (L,), in single precision.
    """
    scores: tuple[torch.Tensor, torch.Tensor] = _Score.apply(logits_LV, predictor_P, ids_P, temperature)
    return scores


class _Score(torch.autograd.Function):
    """``score`` in chunks, so that no other tensor is as large as the logits.

    With z the logits over the temperature, p their softmax and H its entropy:

        d log p_i / dz = onehot(i) - p
        dH / dz = -p (log p + H)
    """

    @staticmethod
    def forward(
        ctx: Any, logits_LV: torch.Tensor, predictor_P: torch.Tensor, ids_P: torch.Tensor, temperature: float
    ) -> Any:
        normaliser, entropy = [], []
        for logits in logits_LV.split(_chunk(logits_LV)):
            scaled = logits.float() / temperature
            normaliser.append(scaled.logsumexp(-1))
            log_probs = scaled - normaliser[-1][:, None]
            entropy.append(-(log_probs.exp() * log_probs).sum(-1))
        normaliser_L, entropy_L = torch.cat(normaliser), torch.cat(entropy)
        ctx.save_for_backward(logits_LV, predictor_P, ids_P, normaliser_L, entropy_L)
        ctx.temperature = temperature
        return logits_LV[predictor_P, ids_P].float() / temperature - normaliser_L[predictor_P], entropy_L

    @staticmethod
    def backward(ctx: Any, of_log_probs_P: torch.Tensor, of_entropy_L: torch.Tensor) -> Any:
        logits_LV, predictor_P, ids_P, normaliser_L, entropy_L = ctx.saved_tensors
        of_log_probs_L = normaliser_L.new_zeros(len(normaliser_L)).index_add_(0, predictor_P, of_log_probs_P)
        columns = zip(
            *(
                each.split(_chunk(logits_LV))
                for each in (logits_LV, normaliser_L, entropy_L, of_log_probs_L, of_entropy_L)
            ),
            strict=True,
        )
        of_chosen_P, start = of_log_probs_P / ctx.temperature, 0
        for logits, normaliser, entropy, of_log_probs, of_entropy in columns:
            log_probs = logits.float() / ctx.temperature - normaliser[:, None]
            gradient = of_entropy[:, None] * (log_probs + entropy[:, None]) + of_log_probs[:, None]
            gradient.mul_(log_probs.exp_()).div_(-ctx.temperature)
            # Added before the sum is rounded to the logits' precision: near p = 1 the two parts cancel.
            here_P = (predictor_P >= start) & (predictor_P < start + len(logits))
            chosen = predictor_P[here_P] - start, ids_P[here_P]
            gradient.index_put_(chosen, of_chosen_P[here_P], accumulate=True)
            logits.copy_(gradient)
            start += len(logits)
        return logits_LV, None, None, None


def _chunk(logits_LV: torch.Tensor) -> int:
    """Return the number of distributions that are normalised at a time."""
    return max(1, CHUNK_NUMBERS // logits_LV.shape[1])


def _have_weight(batch: TensorDict) -> list[bool]:
    """Return True for each row that contributes a gradient; log-probability passes need all rows."""
    return have_weight(batch, tu.get_non_tensor_data(batch, WEIGHT_COLUMNS, default=()))


def _lengths(batch: TensorDict) -> tuple[list[int], list[int]]:
    """Return the number of tokens of each row, and of its prompt."""
    return tuple(batch[name].offsets().diff().tolist() for name in ("input_ids", "prompts"))  # type: ignore[return-value]


def _is_wanted(batch: TensorDict) -> torch.Tensor:
    """Return (T,), True for tokens whose log-probability is read: responses, hints with a weight, and, where
    a user's own term may read them, all but a row's first.
    """
    lengths_B, prompts_B = (batch[name].offsets().diff() for name in ("input_ids", "prompts"))
    starts_T = torch.repeat_interleave(batch["input_ids"].offsets()[:-1], lengths_B)
    place_T = torch.arange(len(starts_T), device=starts_T.device) - starts_T
    if INSTANCE_IDS in batch:
        return place_T > 0
    is_wanted_T = place_T >= torch.repeat_interleave(prompts_B, lengths_B)
    if HINT_WEIGHTS in batch:
        is_wanted_T |= batch[HINT_WEIGHTS].values() != 0
    return is_wanted_T


AttentionInterface.register(ATTENTION, attend)
transformer_impl.prepare_micro_batches = prepare_micro_batches
EngineRegistry.register(
    model_type="language_model",
    backend=["fsdp", "fsdp2"],
    device=os.environ.get("VERL_ENGINE_DEVICE") or get_device_name(),
    vendor=get_vendor(),
)(PackedEngine)
