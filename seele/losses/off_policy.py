"""Losses of response tokens that the policy did not write in this step."""

from collections.abc import Mapping
from typing import ClassVar

import torch

from seele.config import OffPolicyConfig
from seele.losses.term import Axis, LossBatch, LossTerm, Row

OFF_POLICY_MASK = "off_policy_mask"
"""Column: 1 on the tokens of a response that the policy did not write in this step."""


class OffPolicyTerm(LossTerm):
    """Marks off-policy tokens, and excludes them from the surrogate if they have their own loss."""

    name: ClassVar[str] = "off_policy_loss"
    columns: ClassVar[Mapping[str, Axis]] = {OFF_POLICY_MASK: Axis.RESPONSE}

    def __init__(self, settings: OffPolicyConfig, *, has_rows: bool, has_loss: bool) -> None:
        """Build the term of a run.

        Args:
            settings: The run's off-policy settings.
            has_rows: Whether whole rollouts are off-policy.
            has_loss: Whether off-policy tokens have their own loss.
        """
        self._settings = settings
        self.has_loss = has_loss
        self.counted = (OFF_POLICY_MASK,) if has_rows or has_loss else ()
        self.takes_over = OFF_POLICY_MASK if has_loss else None
        self.unclips = None if settings.clip else OFF_POLICY_MASK

    def columns_of(self, row: Row) -> dict[str, list[float]]:
        """Ones on the off-policy tokens, then zeros where the policy wrote."""
        on_policy_tokens = row.response_tokens - row.off_policy_tokens
        return {OFF_POLICY_MASK: [1.0] * row.off_policy_tokens + [0.0] * on_policy_tokens}

    def compute(self, batch: LossBatch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss of the off-policy tokens, and their mean probability."""
        log_probs_BR = batch.log_probs_BR
        mask_BR = batch.response_column(OFF_POLICY_MASK).to(log_probs_BR.dtype)
        num_tokens = batch.num_marked(OFF_POLICY_MASK) or 1.0
        probability = (log_probs_BR.detach().exp() * mask_BR).sum() / num_tokens
        metrics = {"off_policy_probability": probability}
        if self._settings.loss == "nll":
            return negative_log_likelihood(log_probs_BR, mask_BR, num_tokens=num_tokens), metrics
        if self._settings.loss == "likelihood":
            return batch.aggregate(-log_probs_BR, mask_BR), metrics
        loss_BR = shaped_surrogate(
            log_probs_BR,
            batch.response_column("old_log_probs"),
            batch.response_column("advantages"),
            shaping=self._settings.shaping,
        )
        return batch.aggregate(loss_BR, mask_BR), metrics


def shaped_surrogate(
    log_probs: torch.Tensor, behaviour_log_probs: torch.Tensor, advantages: torch.Tensor, *, shaping: float
) -> torch.Tensor:
    """LUFFY's policy shaping (arXiv:2504.14945, section 3.2), per token and without clipping.

        L = -f(r) A,  f(x) = x / (x + gamma),  r = pi(token) / pi_behaviour(token)

    The weight of the token's score function is gamma r / (r + gamma)^2 A: largest, 1/4, at r = gamma, so that
    tokens that the policy finds unlikely count most.

    Args:
        log_probs: Log-probabilities under the policy, with gradient. Any shape, the same for all three
            tensors.
        behaviour_log_probs: Log-probabilities under the token's author; 0 for a worked solution, whose
            author's probabilities are unknown and set to 1.
        advantages: Advantage of each token's rollout.
        shaping: gamma, positive; 0.1 in the paper.
    """
    # f(r) = sigmoid(log r - log gamma), which neither overflows nor divides 0 by 0.
    shift = torch.log(torch.as_tensor(shaping, dtype=log_probs.dtype, device=log_probs.device))
    return -torch.sigmoid(log_probs - behaviour_log_probs - shift) * advantages


def negative_log_likelihood(
    log_probs: torch.Tensor, mask: torch.Tensor, *, num_tokens: float
) -> torch.Tensor:
    """Mean of -log pi over the masked tokens, of which the whole (global) batch has ``num_tokens``.

    Dividing by a micro-batch's own count would instead give a mean of means, in which tokens of a short
    micro-batch weigh more (arXiv:2604.23747).
    """
    return -(log_probs * mask).sum() / num_tokens
