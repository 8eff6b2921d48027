"""Patches that a CPU run does not need but is much slower without; listed after ``plugin`` in
``VERL_USE_EXTERNAL_MODULES``.
"""

import functools
import os
from collections.abc import Sequence

import numpy as np
from verl.utils import seqlen_balancing, torch_functional


def take_log_probs_at_once() -> None:
    """Compute the log-probabilities of packed tokens in one operation.

    ``verl/utils/torch_functional.py: logprobs_from_logits_v2`` loops over the first axis to save memory. It
    was written for (rows, tokens, vocabulary); the FSDP engine passes (tokens, vocabulary), which makes one
    graph node per token: most of an update's time on a CPU. verl's own ``_naive`` gives the same values; on a
    GPU, verl's fused kernels (``use_fused_kernels``) or flash-attn's replace both.
    """
    torch_functional.logprobs_from_logits_v2 = torch_functional.logprobs_from_logits_naive


def group_micro_batches_by_length() -> None:
    """Put sequences of similar length into one micro-batch.

    ``verl/utils/seqlen_balancing.py: rearrange_micro_batches`` balances the tokens, which mixes
    the lengths. On a GPU nothing is padded (``use_remove_padding``); on a CPU, where that kernel is missing,
    every sequence is padded to the longest of its micro-batch, up to twice the tokens.
    """
    balanced = seqlen_balancing.get_seqlen_balanced_partitions

    @functools.wraps(balanced)
    def by_length(seqlen_list: Sequence[int], k_partitions: int, equal_size: bool) -> list[list[int]]:
        if equal_size:
            return balanced(seqlen_list, k_partitions, equal_size)  # over ranks, where balance counts
        shortest_first = np.argsort(seqlen_list, kind="stable")
        return [sorted(part.tolist()) for part in np.array_split(shortest_first, k_partitions)]

    seqlen_balancing.get_seqlen_balanced_partitions = by_length


if os.environ.get("VERL_PLATFORM") == "cpu":
    take_log_probs_at_once()
    group_micro_batches_by_length()
