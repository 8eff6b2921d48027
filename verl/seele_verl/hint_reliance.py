"""Hint reliance (HiLL, arXiv:2604.00698): how much less likely right responses are without the hint that they
follow. Near 0, what the policy learns with hints carries over.
"""

import math
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

import torch
from transfer_queue import KVBatchMeta

from seele.records import Visit
from seele_verl.columns import read_columns, real_rows
from seele_verl.protocol import parse_row_key, row_key
from seele_verl.rescoring import score_behind

MOST_ROWS = 64
"""Maximum number of responses that are scored again; more take time and hardly add information."""


def measure_hint_reliance(
    batch: KVBatchMeta,
    visits: Mapping[str, Visit],
    workers: Any,
    *,
    ask: Callable[[str], list[int]],
    temperature: float,
    multiple: int,
) -> dict[str, float]:
    """Score the step's right hinted responses after their question alone, with the policy before its update.

    Args:
        batch: The step's rows, with their old log-probabilities; hints are in their prompts.
        visits: The step's visits, by group.
        workers: verl's group of actors.
        ask: Returns the token ids of a question's prompt without a hint.
        temperature: The rollouts' temperature.
        multiple: As for ``score_behind``.

    Returns:
        ``hints/reliance``: mean over responses y of the mean over their tokens of log pi(y | question) -
        log pi(y | question, hint); empty where no hinted response is right.
    """
    keys = right_hinted_rows(batch, visits)
    if not keys:
        return {}
    keys = keys[:: math.ceil(len(keys) / MOST_ROWS)]  # a problem's rows follow each other
    data = read_columns(batch.select_keys(keys), ["responses", "old_log_probs"])
    questions = [torch.tensor(ask(visits[parse_row_key(key)[0]].instance.question)) for key in keys]
    alone = score_behind(
        questions,
        data["responses"].unbind(),
        workers.compute_log_prob,
        multiple=multiple,
        temperature=temperature,
    )
    behind = data["old_log_probs"].unbind()
    differences = [float((own - hinted).mean()) for own, hinted in zip(alone, behind, strict=True)]
    return {"hints/reliance": fmean(differences)}


def right_hinted_rows(batch: KVBatchMeta, visits: Mapping[str, Visit]) -> list[str]:
    """Return the keys of rows whose response is right and follows a hint, without padding rows."""
    right = {
        row_key(uid, rollout.rollout_index)
        for uid, visit in visits.items()
        for rollout in visit.generated
        if rollout.hint_steps and rollout.grade.correct
    }
    return [key for key in real_rows(batch) if key in right]
