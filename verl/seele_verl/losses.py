"""The actor's loss: verl's own ``ppo_loss`` on the tokens that the policy wrote, plus a term for the others:
hint tokens of the prompt, off-policy tokens of the response.
"""

import dataclasses
from typing import Any

import torch
from tensordict import TensorDict
from verl.trainer.ppo.core_algos import agg_loss
from verl.utils import tensordict_utils as tu
from verl.utils.metric import AggregationType, Metric
from verl.workers.config import ActorConfig
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import no_padding_2_padding

from seele.config import ImitationConfig, OffPolicyConfig, SeeleConfig
from seele.losses.imitation import imitation_loss, imitation_probability
from seele.losses.off_policy import negative_log_likelihood, shaped_surrogate
from seele_verl.protocol import HINT_TOKENS, HINT_WEIGHTS, OFF_POLICY_MASK, OFF_POLICY_TOKENS

UNLIMITED = 1e9
"""verl clamps the logarithm of a ratio to 20, so no ratio comes near."""


def seele_loss(
    config: ActorConfig,
    model_output: dict[str, Any],
    data: TensorDict,
    dp_group: Any = None,
    *,
    imitation: ImitationConfig,
    off_policy: OffPolicyConfig,
) -> tuple[Any, dict[str, Any]]:
    """verl's ``ppo_loss`` + gamma * imitation + the off-policy term; installed with ``set_loss_fn``.

    Generated tokens carry the clipped surrogate, KL and entropy of verl; hint tokens never the advantage
    (arXiv:2509.06923, Eq. 10). The micro-batches' losses are summed and FSDP averages over ranks, hence the
    factor ``dp_size`` over the global batch, as in verl's own aggregation.
    """
    terms, metrics = [], {}
    if imitation.coefficient:
        imitated = _imitation(model_output, data, form=imitation.form)
        terms.append(imitation.coefficient * imitated)
        metrics["imitation_loss"] = _summed(imitated)
    if not off_policy.clip and _tokens(data, OFF_POLICY_TOKENS):
        config = dataclasses.replace(
            config, clip_ratio_low=1.0, clip_ratio_high=UNLIMITED, clip_ratio_c=UNLIMITED
        )
    if off_policy.has_own_loss:
        loss, probability = _off_policy(config, model_output, data, off_policy)
        terms.append(off_policy.coefficient * loss)
        metrics["off_policy_loss"] = _summed(loss)
        metrics["off_policy_probability"] = _summed(probability)
        data = _without_off_policy(data)
    loss, verls = ppo_loss(config, model_output, data, dp_group)
    return sum(terms, start=loss), verls | metrics


def needs_seele_loss(settings: SeeleConfig) -> bool:
    """Whether a run's loss has terms that verl's has not."""
    off_policy = settings.off_policy
    return bool(settings.imitation.coefficient) or off_policy.has_own_loss or not off_policy.clip


def _imitation(model_output: dict[str, Any], data: TensorDict, *, form: str) -> torch.Tensor:
    weights, log_probs_T = data[HINT_WEIGHTS], model_output["log_probs"].values()
    num_sequences = data["global_batch_size"] / data["dp_size"]
    if form == "prob":
        lengths_S = weights.offsets().diff()
        return imitation_probability(log_probs_T, weights.values(), lengths_S, num_sequences=num_sequences)
    divisor = (_tokens(data, HINT_TOKENS) or 1.0) if form == "token_mean" else num_sequences
    return imitation_loss(log_probs_T, weights.values(), divisor=divisor)


def _off_policy(
    config: ActorConfig, model_output: dict[str, Any], data: TensorDict, settings: OffPolicyConfig
) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss of the off-policy tokens, and their mean probability. B sequences, R longest response."""
    log_probs_BR = no_padding_2_padding(model_output["log_probs"], data)
    fields = data.select(OFF_POLICY_MASK, "old_log_probs", "advantages").to_padded_tensor()
    mask_BR = fields[OFF_POLICY_MASK].to(log_probs_BR.dtype)
    num_tokens = _tokens(data, OFF_POLICY_TOKENS) or 1.0
    probability = (log_probs_BR.detach().exp() * mask_BR).sum() / num_tokens
    if settings.loss == "nll":
        return negative_log_likelihood(log_probs_BR, mask_BR, num_tokens=num_tokens), probability
    loss_BR = shaped_surrogate(
        log_probs_BR, fields["old_log_probs"], fields["advantages"], shaping=settings.shaping
    )
    loss = agg_loss(
        loss_BR,
        mask_BR,
        config.loss_agg_mode,
        dp_size=data["dp_size"],
        batch_num_tokens=data["batch_num_tokens"],
        global_batch_size=data["global_batch_size"],
        loss_scale_factor=config.loss_scale_factor,
    )
    return loss, probability


def _tokens(data: TensorDict, name: str) -> float:
    """What this rank's part of a token mean over the update is divided by; 0 without such tokens."""
    return float(tu.get_non_tensor_data(data, name, default=None) / data["dp_size"])


def _without_off_policy(data: TensorDict) -> TensorDict:
    """The batch with off-policy tokens masked out of the response."""
    pairs = zip(data["response_mask"].unbind(), data[OFF_POLICY_MASK].unbind(), strict=True)
    own = [mask * (1 - off_policy).to(mask.dtype) for mask, off_policy in pairs]
    data = data.copy()
    data["response_mask"] = torch.nested.as_nested_tensor(own, layout=torch.jagged)
    return data


def _summed(value: torch.Tensor) -> Metric:
    return Metric(value=value.detach(), aggregation=AggregationType.SUM)
