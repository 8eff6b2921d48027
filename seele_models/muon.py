"""Muon and Adam as one optimizer."""

from collections.abc import Callable

import torch
from transformers import PreTrainedModel


class MuonWithAdam(torch.optim.Optimizer):
    """Muon on the matrices inside the layers, Adam on embeddings and norms, as one optimizer for the Trainer.

    With Adam alone a model of this size needs several times the steps before it holds a table of facts.
    """

    def __init__(
        self, model: PreTrainedModel, *, muon_learning_rate: float, adam_learning_rate: float
    ) -> None:
        inside: list[torch.Tensor] = []
        outside: list[torch.Tensor] = []
        for name, weight in model.named_parameters():
            (inside if weight.ndim == 2 and "embed" not in name else outside).append(weight)
        self._parts = (
            torch.optim.Muon(inside, lr=muon_learning_rate, weight_decay=0.0),
            torch.optim.Adam(outside, lr=adam_learning_rate, betas=(0.9, 0.98)),
        )
        super().__init__([dict(group) for group in self._groups_of_parts()], {})

    def _groups_of_parts(self) -> list[dict[str, object]]:
        return [group for part in self._parts for group in part.param_groups]

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "the Trainer steps without a closure"
        # The scheduler writes into our groups; accelerate replaces them, so they cannot be the parts' own.
        for group, scheduled in zip(self._groups_of_parts(), self.param_groups, strict=True):
            group["lr"] = scheduled["lr"]
        for part in self._parts:
            part.step()
