"""Rows that begin alike, laid out so that the model computes what they share once.

The rollouts of a problem share its prompt, and a longer hint begins with a shorter one's tokens: rows whose
prompts (hints included) are prefixes of one another hang on the longest of them, their trunk, each where its
own prompt ends. Nothing here knows a model or verl; ``packed_engine`` does.

Axes: B rows; T tokens of all rows, one row after the other; C computed tokens; P tokens that are predicted;
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
    """(S, Q) computed tokens; 0 behind the stretch."""
    key_SK: torch.Tensor
    """(S, K) those of the path; 0 behind it."""
    mask_S1QK: torch.Tensor
    """(S, 1, Q, K) True where the query sees the key: the ones up to itself."""

    def to(self, device: torch.device) -> "Block":
        """On a device."""
        return Block(self.query_SQ.to(device), self.key_SK.to(device), self.mask_S1QK.to(device))


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Where everything is."""

    source_C: torch.Tensor
    """(C,) the token of the rows that is computed there."""
    blocks: tuple[Block, ...]
    """Every computed token is a query in one of them."""
    place_C: torch.Tensor
    """(C,) its place among the queries of all blocks, padding included."""
    predicted_P: torch.Tensor
    """(P,) tokens of the rows that are predicted, ascending."""
    predictor_L: torch.Tensor
    """(L,) computed tokens that predict any of them, ascending."""
    predictor_P: torch.Tensor
    """(P,) which of the L predicts it."""

    def to(self, device: torch.device) -> "Packing":
        """On a device."""
        blocks = tuple(block.to(device) for block in self.blocks)
        tensors = (self.source_C, self.place_C, self.predicted_P, self.predictor_L, self.predictor_P)
        source_C, *others = (tensor.to(device) for tensor in tensors)
        return Packing(source_C, blocks, *others)


def share_prompts(prompts: Sequence[list[int]]) -> list[list[int]]:
    """Rows by trunk: the first of each list has the longest prompt, and the others' are prefixes of it."""
    trunks: list[list[int]] = []
    # From the last in lexicographic order on, everything that begins with a prompt stands right before it.
    for row in sorted(range(len(prompts)), key=prompts.__getitem__, reverse=True):
        if trunks and _begins_with(prompts[trunks[-1][0]], prompts[row]):
            trunks[-1].append(row)
        else:
            trunks.append([row])
    return trunks


def _begins_with(longer: list[int], prompt: list[int]) -> bool:
    return longer[: len(prompt)] == prompt


def rows_to_compute(has_weight: Sequence[bool], lengths: Sequence[int], *, at_least: int = 1) -> set[int]:
    """The rows that have weight, and the shortest others up to ``at_least`` rows.

    Args:
        has_weight: (B,) whether a row is part of the result.
        lengths: (B,) tokens.
        at_least: Rows that there must be; B at most.
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
    """Rows in parts that compute at most this many tokens each. What is cut out of a trunk pays for it again.

    Args:
        trunks: From ``share_prompts``.
        prompt_lengths: (B,) tokens, hints included.
        response_lengths: (B,) tokens.
        most_tokens: Of a part; a row alone may have more.
        at_least: Parts that there must be; B at most.
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
    """Lay rows out.

    Args:
        ids: T tokens.
        lengths: (B,) tokens of each row, adding up to T.
        prompt_lengths: (B,) those of its prompt, hint included; at least 1, and fewer than the row's.
        is_wanted_T: (T,) True for the tokens whose log-probabilities are wanted; not for a row's first.
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
    """Tokens of a row that are computed one after the other: a trunk, or a response without its last token,
    which predicts nothing.
    """

    first: int
    """Among the tokens of the rows."""
    end: int
    at: int
    """Of its first token, among the computed ones."""
    root: int
    """Of its trunk's first token, among the computed ones."""
    depth: int
    """Tokens of the trunk that it follows on."""

    @property
    def num_tokens(self) -> int:
        return self.end - self.first


def _block(stretches: Sequence[_Stretch]) -> Block:
    queries = [torch.arange(each.at, each.at + each.num_tokens) for each in stretches]
    trunks = [torch.arange(each.root, each.root + each.depth) for each in stretches]
    query_SQ = pad_sequence(queries, batch_first=True)
    key_SK = pad_sequence([torch.cat(path) for path in zip(trunks, queries, strict=True)], batch_first=True)
    # (S, Q) keys before the query on its path. What stands behind a stretch sees its first key.
    before = [torch.arange(each.depth, each.depth + each.num_tokens) for each in stretches]
    mask_SQK = torch.arange(key_SK.shape[1]) <= pad_sequence(before, batch_first=True)[:, :, None]
    return Block(query_SQ, key_SK, mask_SQK[:, None])
