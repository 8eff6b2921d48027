"""The supervised imitation term on hint tokens (arXiv:2509.06923, Eq. 10).

The paper adds ``gamma * pi(y[1:l] | x)`` to the advantage (form ``prob``), which vanishes for long hints. The
other forms are log-probabilities with the same coefficient; ``token_mean`` is that of UFT's code
(arXiv:2505.16984). Axes: T tokens of a packed batch.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch

from seele.config import ImitationConfig
from seele.losses.term import Axis, LossBatch, LossTerm, Row

HINT_WEIGHTS = "hint_weights"
"""Column: weight of each token of a sequence in the imitation term."""


class ImitationTerm(LossTerm):
    """The term on the tokens of hints in the prompt."""

    name: ClassVar[str] = "imitation_loss"
    columns: ClassVar[Mapping[str, Axis]] = {HINT_WEIGHTS: Axis.SEQUENCE}

    def __init__(self, settings: ImitationConfig) -> None:
        self._form = settings.form
        self.counted = (HINT_WEIGHTS,) if settings.form == "token_mean" else ()

    def columns_of(self, row: Row) -> dict[str, list[float]]:
        """Weights of the hint's tokens; rollouts of a round with the same hint share its term."""
        weights = hint_token_weights(
            row.prompt_tokens, row.hint_tokens, row.response_tokens, share=row.hint_share, form=self._form
        )
        return {HINT_WEIGHTS: weights}

    def compute(self, batch: LossBatch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The term in the run's form."""
        weights_T, log_probs_T = batch.sequence_column(HINT_WEIGHTS), batch.next_log_probs_T
        if self._form == "prob":
            loss = imitation_probability(
                log_probs_T, weights_T, batch.lengths_B, num_sequences=batch.num_sequences
            )
            return loss, {}
        is_token_mean = self._form == "token_mean"
        divisor = (batch.num_marked(HINT_WEIGHTS) or 1.0) if is_token_mean else batch.num_sequences
        return imitation_loss(log_probs_T, weights_T, divisor=divisor), {}


def hint_token_weights(
    prompt_tokens: int, hint_tokens: int, generated_tokens: int, *, share: float, form: str
) -> list[float]:
    """Weight of each token of one sequence in the imitation term, prompt first.

    Args:
        prompt_tokens: Tokens before the hint.
        hint_tokens: Tokens of the hint; may be 0.
        generated_tokens: Tokens after the hint.
        share: Weight of the sequence: n/k if k of a round's n sequences share their hint. In the mean over
            sequences, a hint then weighs as all n, however many saw it: rounds weigh by their size, and a
            round with J hints counts J times.
        form: ``logprob_mean`` (weights add up to ``share``), ``logprob_sum`` (to ``share`` times the hint's
            tokens), ``prob`` (each token of the hint has ``share``) or ``token_mean`` (each has 1, or 0 if
            the share is 0).
    """
    weight = share / hint_tokens if form == "logprob_mean" and hint_tokens else share
    weight = float(share > 0.0) if form == "token_mean" else weight
    return [0.0] * prompt_tokens + [weight] * hint_tokens + [0.0] * generated_tokens


def imitation_loss(log_probs_T: torch.Tensor, weights_T: torch.Tensor, *, divisor: float) -> torch.Tensor:
    """Negative weighted log-likelihood of the hint tokens.

        L = -(1/N) * sum_t w_t * log pi(token_t | tokens before t)

    Args:
        log_probs_T: (T,) packed log-probabilities; position t holds that of token t + 1, as a causal model
            returns them.
        weights_T: (T,) weight of token t, from ``hint_token_weights``. The first token of a sequence weighs
            0, so the shift never crosses into a neighbour.
        divisor: N, the number of sequences in the whole (global) batch, or for ``token_mean`` of its hint
            tokens.
    """
    return -(log_probs_T * torch.roll(weights_T, shifts=-1, dims=0)).sum() / divisor


def imitation_probability(
    log_probs_T: torch.Tensor, weights_T: torch.Tensor, lengths_S: torch.Tensor, *, num_sequences: float
) -> torch.Tensor:
    """The term as the paper prints it: minus the probability of each sequence's whole hint.

        L = -(1/N) * sum_s share_s * exp(sum over the hint's tokens of log pi)

    Its gradient is the hint's probability times the gradient of its log-probability, so it vanishes for all
    but the shortest or best-known hints.

    Args:
        log_probs_T: As in ``imitation_loss``.
        weights_T: (T,) ``share`` on the tokens of the hint, else 0 (form ``prob``).
        lengths_S: (S,) tokens of each sequence, adding up to T.
        num_sequences: N.
    """
    weights_T = torch.roll(weights_T, shifts=-1, dims=0)
    sequence_T = torch.repeat_interleave(torch.arange(len(lengths_S), device=weights_T.device), lengths_S)
    zeros_S = log_probs_T.new_zeros(len(lengths_S))
    in_hint_T = (weights_T > 0).to(log_probs_T.dtype)
    hint_log_prob_S = zeros_S.index_add(0, sequence_T, log_probs_T * in_hint_T)
    hint_tokens_S = zeros_S.index_add(0, sequence_T, in_hint_T).clamp(min=1.0)
    share_S = zeros_S.index_add(0, sequence_T, weights_T.to(log_probs_T.dtype)) / hint_tokens_S
    return -(share_S * hint_log_prob_S.exp()).sum() / num_sequences
