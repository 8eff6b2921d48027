"""Scores responses again after a prompt other than the one they answered, through TransferQueue as verl
scores them.

Axes: P tokens of a prompt, R tokens of a response.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transfer_queue import KVBatchMeta
from verl.workers.utils.padding import response_from_nested

from seele_verl.columns import read_columns, rows_apart
from seele_verl.protocol import forward_row


def score_behind(
    prompts: Sequence[torch.Tensor],
    responses: Sequence[torch.Tensor],
    score: Callable[[KVBatchMeta], Any],
    *,
    multiple: int,
    **how: Any,
) -> list[torch.Tensor]:
    """Return the log-probability of every token of each response after its prompt.

    Args:
        prompts: (P,) token ids each; not empty.
        responses: (R,) token ids, as many responses as prompts.
        score: A forward pass of verl's workers.
        multiple: The first row is repeated until this divides the number of rows.
        **how: Further arguments of the pass, such as the temperature.

    Returns:
        (R,) for each response.
    """
    rows = [forward_row(prompt, response) for prompt, response in zip(prompts, responses, strict=True)]
    rows += [rows[0]] * (-len(rows) % multiple)
    with rows_apart(rows, "rescored") as batch:
        batch.extra_info.update(calculate_entropy=False, compute_loss=False, **how)
        score(batch)
        scored = read_columns(batch, ["log_probs", "response_mask"])
    log_probs = response_from_nested(scored["log_probs"], scored["response_mask"]).unbind()
    return list(log_probs[: len(prompts)])
