"""The likelihood of a hint in the response (TRAPO, arXiv:2512.17636)."""

from collections.abc import Mapping
from typing import ClassVar

import torch

from seele.losses.off_policy import OFF_POLICY_MASK, OffPolicyTerm
from seele.losses.term import Axis, LossBatch, Row

LEARNT_ONCE = "learnt_once"
"""Column: 1 on the hint in the first rollout of a round that has it."""


class ExpertPrefixTerm(OffPolicyTerm):
    """Excludes all hints from the surrogate, and learns each once per round."""

    columns: ClassVar[Mapping[str, Axis]] = {**OffPolicyTerm.columns, LEARNT_ONCE: Axis.RESPONSE}

    def columns_of(self, row: Row) -> dict[str, list[float]]:
        """Ones on the hint, or zeros if an earlier rollout has it, then zeros where the policy wrote."""
        marked = super().columns_of(row)[OFF_POLICY_MASK]
        is_learnt = float(row.is_first_of_hint)
        return {OFF_POLICY_MASK: marked, LEARNT_ONCE: [is_learnt * mark for mark in marked]}

    def compute(self, batch: LossBatch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss of the hints."""
        log_probs_BR, mask_BR = batch.log_probs_BR, batch.response_column(LEARNT_ONCE)
        loss_BR = trust_region_likelihood(log_probs_BR, alpha=self._settings.shaping)
        return batch.aggregate(loss_BR, mask_BR.to(log_probs_BR.dtype)), {}


def trust_region_likelihood(log_probs: torch.Tensor, *, alpha: float) -> torch.Tensor:
    """TRAPO's loss of a token that an expert wrote (TrSFT, as in the authors' code).

        L = -p / max(p, alpha),  the denominator without gradient

    Its gradient is that of -log p if p >= alpha, and p / alpha of it otherwise, so that tokens that the
    policy finds unlikely hardly count. Any shape.
    """
    probs = log_probs.exp()
    return -probs / probs.detach().clamp(min=alpha)
