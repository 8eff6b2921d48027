"""Puts the advantages into a batch, in place of verl's, and handles the tokens that the policy did not write.

T counts the response tokens of all rows of a batch, row by row. A column of TransferQueue is a nested tensor
(N, R of each row) of N rows: ``_flat`` turns it into (T,), ``_rows`` back into rows.
"""

from collections.abc import Mapping, Sequence

import torch
from transfer_queue import KVBatchMeta

from seele.losses.off_policy import OFF_POLICY_MASK
from seele.maths.advantages import highest
from seele.methods.credit import Span
from seele.methods.sources import OffPolicySource
from seele_verl.columns import read_columns, write_columns
from seele_verl.protocol import ADVANTAGE, OFF_POLICY_ADVANTAGE


def write_advantages(batch: KVBatchMeta, source: OffPolicySource) -> KVBatchMeta:
    """Replace verl's estimates with the advantages in the rows' tags; 0 where a token's loss reads none."""
    entropy_share = source.settings.entropy_share
    by_entropy = entropy_share < 1.0
    columns = ["response_mask"] + [OFF_POLICY_MASK] * source.marks_tokens + ["entropy"] * by_entropy
    data = read_columns(batch, columns)
    lengths = torch.tensor([len(row) for row in data["response_mask"].unbind()])  # (N,) adding up to T

    def spread(tag_name: str) -> torch.Tensor:
        """Return (T,): the (N,) numbers in the rows' tags, each repeated over its row's response."""
        of_row = [0.0 if tag.get("is_padding") else tag[tag_name] for tag in batch.tags]
        return torch.repeat_interleave(torch.tensor(of_row), lengths)

    advantage_T = spread(ADVANTAGE)
    if source.marks_tokens:
        is_off_policy_T, off_policy_T = _flat(data[OFF_POLICY_MASK]).bool(), spread(OFF_POLICY_ADVANTAGE)
        if source.has_own_loss and not source.settings.has_advantages:
            off_policy_T.zero_()
        if by_entropy:
            # The share is of the whole batch's off-policy tokens, not of each row's.
            is_high = highest(_flat(data["entropy"])[is_off_policy_T].float().numpy(), entropy_share)
            off_policy_T[is_off_policy_T] *= torch.from_numpy(is_high)
        advantage_T = torch.where(is_off_policy_T, off_policy_T, advantage_T)
    advantages = _rows(advantage_T * _flat(data["response_mask"]), lengths.tolist())
    return write_columns(batch, {"advantages": advantages, "returns": advantages})


def write_spans(batch: KVBatchMeta, spans: Mapping[str, Sequence[Span]]) -> KVBatchMeta:
    """Replace verl's estimates with each span's advantage on its tokens, by row; 0 on all others."""
    masks = read_columns(batch, ["response_mask"])["response_mask"].unbind()
    rows = [
        span_advantages(len(mask), spans.get(key, ())) for key, mask in zip(batch.keys, masks, strict=True)
    ]
    return write_columns(batch, {"advantages": rows, "returns": rows})


def span_advantages(num_tokens: int, spans: Sequence[Span]) -> torch.Tensor:
    """Return the advantages of a response of R tokens, (R,); 0 outside the spans."""
    advantage_R = torch.zeros(num_tokens)
    for start, end, advantage in spans:
        advantage_R[start:end] = advantage
    return advantage_R


def exchange_log_probs(batch: KVBatchMeta, *, has_log_probs: bool) -> None:
    """Make the engine's and the trainer's log-probabilities agree on off-policy tokens.

    Where these tokens have log-probabilities (a trace, a replayed success), the row's also serve as the old
    ones. Where they have none (a prefix), the trainer's serve as the engine's.
    """
    of_trainer, of_row = "old_log_probs", "rollout_log_probs"
    written, read = (of_trainer, of_row) if has_log_probs else (of_row, of_trainer)
    _write_on_off_policy_tokens(batch, written, _flat(read_columns(batch, [read])[read]))


def weigh_on_policy_tokens_only(batch: KVBatchMeta) -> None:
    """Set the weights between engine and trainer to 1 on tokens that the engine did not write. At sequence
    level, a prefix would otherwise get its response's weight.
    """
    _write_on_off_policy_tokens(batch, "rollout_is_weights", 1.0)


def _write_on_off_policy_tokens(batch: KVBatchMeta, name: str, values_T: torch.Tensor | float) -> None:
    """Write (T,) values, or one for all, into a column on off-policy tokens; its others stay as they were."""
    data = read_columns(batch, [name, OFF_POLICY_MASK])
    written_T = torch.where(_flat(data[OFF_POLICY_MASK]).bool(), values_T, _flat(data[name]))
    write_columns(batch, {name: _rows(written_T, [len(row) for row in data[name].unbind()])})


def _flat(column: torch.Tensor) -> torch.Tensor:
    """Nested (N, R of each row) -> (T,)."""
    return torch.cat(column.unbind())


def _rows(values_T: torch.Tensor, lengths: Sequence[int]) -> Sequence[torch.Tensor]:
    """(T,) -> (R of the row,) for each row."""
    return torch.split(values_T, list(lengths))
