"""The data that a run keeps on every response token, for the rollout browser (``seele.dump_tokens``)."""

from collections.abc import Callable
from typing import Any

import torch
from transfer_queue import KVBatchMeta

from seele_verl.columns import read_columns

DIGITS = 4


def token_columns(
    batch: KVBatchMeta, decode: Callable[[list[list[int]]], list[str]]
) -> dict[str, dict[str, list[Any]]]:
    """Return, by row key and then by column of the row's line in the dump, a value for each response token.

    Args:
        batch: The rows of an update, after it.
        decode: Sequences of token ids -> their texts. A token that holds only part of a character becomes a
            replacement character.
    """
    compared = {"rollout_log_probs", "old_log_probs"} <= set(batch.fields or ())
    read = ["responses", "advantages"] + ["rollout_log_probs", "old_log_probs"] * compared
    columns = {name: column.unbind() for name, column in read_columns(batch, read).items()}
    dumped: dict[str, dict[str, list[Any]]] = {}
    for row, (key, tag) in enumerate(zip(batch.keys, batch.tags, strict=True)):
        if tag.get("is_padding"):
            continue
        tokens = columns["responses"][row].tolist()
        text_of = _texts(set(tokens), decode)
        dumped[key] = {
            "tokens": [text_of[token] for token in tokens],
            "token_advantages": _rounded(columns["advantages"][row]),
        }
        if compared:
            log_ratios = columns["old_log_probs"][row] - columns["rollout_log_probs"][row]
            dumped[key]["token_log_ratios"] = _rounded(log_ratios)
    return dumped


def _texts(tokens: set[int], decode: Callable[[list[list[int]]], list[str]]) -> dict[int, str]:
    """Return each token's text as it is within a response: some tokenizers drop the blank that a text begins
    with, so it is what the token adds to itself.
    """
    once = decode([[token] for token in tokens])
    twice = decode([[token, token] for token in tokens])
    return {token: two[len(one) :] for token, one, two in zip(tokens, once, twice, strict=True)}


def _rounded(values: torch.Tensor) -> list[float]:
    return [round(value, DIGITS) for value in values.tolist()]
