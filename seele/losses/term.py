"""The contract of loss terms: columns that a term writes into a rollout's row, and a loss on the model's
log-probabilities that is added to the surrogate.

A user's own term derives from ``LossTerm`` and is named in ``seele.loss_terms``. Rollout workers, the trainer
and the processes of the update each build one from the settings, so a term must not keep state from one batch
to the next.

Axes: B sequences of a micro-batch, R tokens of its longest response, T tokens of all its sequences, packed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Protocol

import torch

from seele.records import Instance, Rollout


class Axis(StrEnum):
    """The tokens for which a column has one number each."""

    SEQUENCE = "sequence"
    """Prompt, hint and response."""
    RESPONSE = "response"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A rollout as tokens: prompt, hint, then a response whose first tokens may be off-policy."""

    instance: Instance
    rollout: Rollout
    prompt_tokens: int
    """Tokens of the prompt without the hint."""
    hint_tokens: int
    """Tokens of the hint in the prompt; 0 if hints are in the response."""
    response_tokens: int
    off_policy_tokens: int
    """Leading tokens of the response that the policy did not write in this step."""
    hint_share: float
    """n/k if k of a round's n rollouts share this one's hint; 0 for a response that is not of this step."""
    is_first_of_hint: bool = True
    """True if no earlier rollout of the round shares this one's hint."""

    def num_tokens(self, axis: Axis) -> int:
        """Length of a column with that axis."""
        before = self.prompt_tokens + self.hint_tokens if axis == Axis.SEQUENCE else 0
        return before + self.response_tokens


class LossBatch(Protocol):
    """A micro-batch as a term sees it. Losses of micro-batches are summed."""

    @property
    def log_probs_BR(self) -> torch.Tensor:
        """(B, R) log-probabilities of the response's tokens under the model, with gradient; 0 after it."""
        ...

    @property
    def next_log_probs_T(self) -> torch.Tensor:
        """(T,) the same for all tokens: position t holds that of token t + 1, as a causal model returns it,
        with gradient. The last position of a sequence is meaningless.
        """
        ...

    @property
    def lengths_B(self) -> torch.Tensor:
        """(B,) tokens of each sequence, adding up to T."""
        ...

    @property
    def num_sequences(self) -> float:
        """The divisor of a mean over sequences: their number in the whole update, over all ranks."""
        ...

    def response_column(self, name: str) -> torch.Tensor:
        """(B, R) column, 0 after the response: a term's own, or ``response_mask``, ``old_log_probs`` or
        ``advantages``.
        """
        ...

    def sequence_column(self, name: str) -> torch.Tensor:
        """(T,) column with a number for each token of a sequence."""
        ...

    def num_marked(self, name: str) -> float:
        """The divisor of a mean over a counted column's tokens: the number of nonzero ones in the step,
        over all ranks, divided by the step's number of updates. May be 0.
        """
        ...

    def aggregate(self, loss_BR: torch.Tensor, mask_BR: torch.Tensor) -> torch.Tensor:
        """A scalar, aggregated over tokens and sequences as the surrogate is."""
        ...


class LossTerm:
    """Base of all terms."""

    name: ClassVar[str] = ""
    """``actor/NAME`` is its metric, before the coefficient."""

    columns: ClassVar[Mapping[str, Axis]] = {}
    """Columns that it writes into every row. They are 0 in rows that pad a batch."""

    counted: tuple[str, ...] = ()
    """Those of its columns whose marked tokens are counted over the step (``LossBatch.num_marked``)."""

    takes_over: str | None = None
    """A column over responses: the tokens that it marks are excluded from the surrogate."""

    unclips: str | None = None
    """A counted column: the surrogate's ratio is not clipped in steps in which it marks a token."""

    has_loss: bool = True
    """True if there is anything to ``compute``."""

    def columns_of(self, row: Row) -> Mapping[str, list[float]]:
        """The columns' values for one rollout, one number for each token of their axis."""
        return {}

    def compute(self, batch: LossBatch) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        """The loss of a micro-batch, a scalar before the coefficient, and further metrics of the group
        ``actor/``, scalars that are summed over micro-batches.
        """
        raise NotImplementedError
