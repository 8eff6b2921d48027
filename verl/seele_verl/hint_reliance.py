"""Hint reliance (HiLL, arXiv:2604.00698): how much less likely right responses are without the hint that they
follow. Near 0, what was practised with hints carries over.

Axes: R tokens of a response.
"""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.utils.tensordict_utils import list_of_dict_to_tensordict
from verl.workers.utils.padding import response_from_nested

from seele.records import Visit
from seele_verl.protocol import parse_row_key

MOST_ROWS = 64
"""Responses that are scored anew; more cost time and hardly tell more."""


def measure_hint_reliance(
    batch: KVBatchMeta, visits: Mapping[str, Visit], workers: Any, *, temperature: float, ranks: int
) -> dict[str, float]:
    """Score the step's right hinted responses behind their question alone, with the policy before its update.

    Args:
        batch: The step's rows, with the engine's log-probabilities; hints stand behind the question.
        visits: The step's, by group.
        workers: verl's group of actors.
        temperature: Of the rollouts.
        ranks: Number of training ranks, over which rows are divided evenly.

    Returns:
        ``hints/reliance``: mean over responses y of the mean over their tokens of log pi(y | question) -
        log pi(y | question, hint); nothing where too few responses are right.
    """
    real = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding")]
    keys = [key for key in real if _is_right_and_hinted(key, visits)][:MOST_ROWS]
    keys = keys[: len(keys) // ranks * ranks]
    if not keys:
        return {}
    read = ["prompts", "responses", "rollout_log_probs"]
    data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=read)
    prompt_tokens = [visits[parse_row_key(key)[0]].prompt_tokens for key in keys]
    rows = [
        _row(prompt[:length], response)
        for prompt, response, length in zip(
            data["prompts"].unbind(), data["responses"].unbind(), prompt_tokens, strict=True
        )
    ]
    partition = "hint_reliance"
    unhinted = tq.kv_batch_put(
        keys=keys,
        partition_id=partition,
        fields=list_of_dict_to_tensordict(rows),
        tags=[{"seq_len": len(row["input_ids"])} for row in rows],
    )
    unhinted.extra_info.update(calculate_entropy=False, compute_loss=False, temperature=temperature)
    workers.compute_log_prob(unhinted)
    read = ["log_probs", "response_mask"]
    scored = tq.kv_batch_get(keys=keys, partition_id=partition, select_fields=read)
    tq.kv_clear(keys=keys, partition_id=partition)
    # (R,) of each response.
    alone = response_from_nested(scored["log_probs"], scored["response_mask"]).unbind()
    behind = data["rollout_log_probs"].unbind()
    differences = [float((own - hinted).mean()) for own, hinted in zip(alone, behind, strict=True)]
    return {"hints/reliance": fmean(differences)}


def _is_right_and_hinted(key: str, visits: Mapping[str, Visit]) -> bool:
    uid, rollout_index = parse_row_key(key)
    found = [each for each in visits[uid].generated if each.rollout_index == rollout_index]
    return bool(found) and found[0].hint_steps > 0 and found[0].grade.correct


def _row(prompt: torch.Tensor, response: torch.Tensor) -> dict[str, Any]:
    """What a forward pass reads of a row (``LOG_PROB_COLUMNS``)."""
    input_ids = torch.cat([prompt, response])
    ones = torch.ones_like(response)
    return {
        "input_ids": input_ids,
        "position_ids": torch.arange(len(input_ids)),
        "prompts": prompt,
        "responses": response,
        "response_mask": ones,
        "loss_mask": ones,
    }
