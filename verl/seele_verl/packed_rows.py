"""Lays out rows with a common beginning so that the model computes what they share once.

The rollouts of a problem share its prompt, and a longer hint begins with a shorter one's tokens. Rows whose
prompts (hints included) are prefixes of one another branch off the longest of them, their trunk, each where
its own prompt ends. This module does not depend on a model or on verl; ``packed_engine`` does.

Axes: B rows; T tokens of all rows, concatenated; C computed tokens; P tokens that are predicted;
L computed tokens that predict them; S stretches of an attention block, with Q queries and K keys each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence

BLOCK_STRETCHES = 16
"""Stretches that attend in one call, padded to the longest: few calls, and little padding."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Stretches of computed tokens, each of which attends to a path from a prompt's first token to its own
    last one.
    """

    query_SQ: torch.Tensor
    """(S, Q) computed tokens; 0 after the stretch."""
    key_SK: torch.Tensor
    """(S, K) the path's computed tokens; 0 after it."""
    mask_S1QK: torch.Tensor
    """(S, 1, Q, K) True where the query sees the key: keys up to the query itself."""

    def to(self, device: torch.device) -> "Block":
        """Return a copy on a device."""
        return Block(self.query_SQ.to(device), self.key_SK.to(device), self.mask_S1QK.to(device))


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """The layout of packed rows, as indices."""

    source_C: torch.Tensor
    """(C,) the index of each computed token among the rows' tokens."""
    blocks: tuple[Block, ...]
    """Attention blocks; every computed token is a query in one of them."""
    place_C: torch.Tensor
    """(C,) each computed token's place among the queries of all blocks, padding included."""
    predicted_P: torch.Tensor
    """(P,) the rows' tokens that are predicted, ascending."""
    predictor_L: torch.Tensor
    """(L,) computed tokens that predict any of the P tokens, ascending."""
    predictor_P: torch.Tensor
    """(P,) which of the L tokens predicts each."""

    def to(self, device: torch.device) -> "Packing":
        """Return a copy on a device."""
        blocks = tuple(block.to(device) for block in self.blocks)
        tensors = (self.source_C, self.place_C, self.predicted_P, self.predictor_L, self.predictor_P)
        source_C, *others = (tensor.to(device) for tensor in tensors)
        return Packing(source_C, blocks, *others)


def share_prompts(prompts: Sequence[list[int]]) -> list[list[int]]:
    """Return rows by trunk: the first of each list has the longest prompt; the others' are prefixes of it."""
    trunks: list[list[int]] = []
    # In reverse lexicographic order, everything that begins with a prompt comes right before it.
    for row in sorted(range(len(prompts)), key=prompts.__getitem__, reverse=True):
        if trunks and prompts[trunks[-1][0]][: len(prompts[row])] == prompts[row]:
            trunks[-1].append(row)
        else:
            trunks.append([row])
    return trunks


def rows_to_compute(has_weight: Sequence[bool], lengths: Sequence[int], *, at_least: int = 1) -> set[int]:
    """Return the rows that have weight, filled up to ``at_least`` rows with the shortest others.

    Args:
        has_weight: (B,) True if the row must be part of the result.
        lengths: (B,) tokens.
        at_least: Minimum number of rows; at most B.
    """
    rows = {row for row, has in enumerate(has_weight) if has}
    others = sorted((row for row, has in enumerate(has_weight) if not has), key=lengths.__getitem__)
    return rows.union(others[: max(0, at_least - len(rows))])


def split_rows(
    trunks: Sequence[Sequence[int]],
    prompt_lengths: Sequence[int],
    response_lengths: Sequence[int],
    *,
    most_tokens: int,
    at_least: int = 1,
) -> list[list[int]]:
    """Split rows into parts that compute at most this many tokens each. A trunk split over several parts is
    computed in each of them.

    Args:
        trunks: From ``share_prompts``.
        prompt_lengths: (B,) tokens, hints included.
        response_lengths: (B,) tokens.
        most_tokens: Maximum tokens of a part; a single row may exceed it.
        at_least: Minimum number of parts; at most B.
    """
    parts: list[list[int]] = []
    left = 0
    for trunk in trunks:
        begun = False
        for row in trunk:
            if parts and left >= response_lengths[row] + (0 if begun else prompt_lengths[row]):
                left -= 0 if begun else prompt_lengths[row]
                parts[-1].append(row)
            else:
                left = most_tokens - prompt_lengths[row]
                parts.append([row])
            left -= response_lengths[row]
            begun = True
    while len(parts) < at_least:
        longest = max(range(len(parts)), key=lambda part: len(parts[part]))
        half = len(parts[longest]) // 2
        parts[longest : longest + 1] = [parts[longest][:half], parts[longest][half:]]
    return parts


def pack_rows(
    ids: list[int], lengths: Sequence[int], prompt_lengths: Sequence[int], is_wanted_T: torch.Tensor
) -> Packing:
    """Return the layout of rows.

    Args:
        ids: T tokens.
        lengths: (B,) tokens of each row, adding up to T.
        prompt_lengths: (B,) tokens of each prompt, hint included; at least 1, and fewer than the row's.
        is_wanted_T: (T,) True for tokens whose log-probabilities are wanted; False for a row's first token.
    """
    starts = [0, *accumulate(lengths)]
    prompts = [ids[start : start + prompt] for start, prompt in zip(starts, prompt_lengths, strict=False)]
    stretches: list[_Stretch] = []
    computed = 0
    at_T = torch.zeros(len(ids), dtype=torch.long)  # (T,) where the token is computed; 0 for a row's last
    for trunk in share_prompts(prompts):
        root, start = computed, starts[trunk[0]]
        stretches.append(_Stretch(start, start + prompt_lengths[trunk[0]], at=root, root=root, depth=0))
        computed += stretches[-1].num_tokens
        for row in trunk:
            start, branch, last = starts[row], starts[row] + prompt_lengths[row], starts[row + 1] - 1
            at_T[start:branch] = torch.arange(root, root + prompt_lengths[row])
            at_T[branch:last] = torch.arange(computed, computed + last - branch)
            if branch < last:
                stretches.append(_Stretch(branch, last, at=computed, root=root, depth=prompt_lengths[row]))
                computed += stretches[-1].num_tokens
    source_C = torch.cat([torch.arange(each.first, each.end) for each in stretches])

    stretches.sort(key=lambda each: (each.depth + each.num_tokens, each.num_tokens))
    blocks: list[Block] = []
    place_C = torch.empty(computed, dtype=torch.long)
    places = 0
    for first in range(0, len(stretches), BLOCK_STRETCHES):
        of_block = stretches[first : first + BLOCK_STRETCHES]
        blocks.append(_block(of_block))
        query_SQ = blocks[-1].query_SQ
        num_queries_S = torch.tensor([each.num_tokens for each in of_block])
        is_query_SQ = torch.arange(query_SQ.shape[1]) < num_queries_S[:, None]
        place_C[query_SQ[is_query_SQ]] = places + is_query_SQ.flatten().nonzero()[:, 0]
        places += query_SQ.numel()

    (predicted_P,) = is_wanted_T.nonzero(as_tuple=True)
    predictor_L, predictor_P = at_T[predicted_P - 1].unique(return_inverse=True)
    return Packing(source_C, tuple(blocks), place_C, predicted_P, predictor_L, predictor_P)


class _Stretch(NamedTuple):
    """Consecutive computed tokens of a row: a trunk, or a response without its last token, which predicts
    nothing.
    """

    first: int
    """Index of the first token among the rows' tokens."""
    end: int
    at: int
    """Index of its first token among the computed ones."""
    root: int
    """Index of its trunk's first token among the computed ones."""
    depth: int
    """Number of the trunk's tokens that precede it."""

    @property
    def num_tokens(self) -> int:
        return self.end - self.first


def _block(stretches: Sequence[_Stretch]) -> Block:
    queries = [torch.arange(each.at, each.at + each.num_tokens) for each in stretches]
    trunks = [torch.arange(each.root, each.root + each.depth) for each in stretches]
    query_SQ = pad_sequence(queries, batch_first=True)
    key_SK = pad_sequence([torch.cat(path) for path in zip(trunks, queries, strict=True)], batch_first=True)
    # (S, Q) keys before the query on its path. Padding after a stretch sees its first key.
    before = [torch.arange(each.depth, each.depth + each.num_tokens) for each in stretches]
    mask_SQK = torch.arange(key_SK.shape[1]) <= pad_sequence(before, batch_first=True)[:, :, None]
    return Block(query_SQ, key_SK, mask_SQK[:, None])
