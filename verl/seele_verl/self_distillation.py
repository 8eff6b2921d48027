"""On-policy self-distillation (OPSD, arXiv:2601.18734): the run's initial model sees the worked solution and
scores, token by token, what the policy wrote without it.

Axes: R tokens of a response.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from transfer_queue import KVBatchMeta

from seele.config import SeeleConfig
from seele.records import Visit
from seele.rollout.solutions import encode_with_solution
from seele.rollout.templates import Tokenizer
from seele_verl.columns import read_columns, real_rows, write_columns
from seele_verl.protocol import parse_row_key
from seele_verl.rescoring import score_behind

LOG_PROBS_OF_TEACHER = "ref_log_prob"
"""verl's column of the reference model's log-probabilities, which the KL term also reads."""


def teacher_prompts(
    batch: KVBatchMeta, visits: Mapping[str, Visit], tokenizer: Tokenizer, seele: SeeleConfig
) -> dict[str, list[int]]:
    """Return the teacher's prompt of each group of the batch that has a worked solution, as token ids."""
    how, in_batch = seele.prompt, {parse_row_key(key)[0] for key in real_rows(batch)}
    return {
        uid: encode_with_solution(tokenizer, visit.instance, seele.credit.request, how.template, how.chat)
        for uid, visit in visits.items()
        if uid in in_batch and visit.instance.steps
    }


def ask_teacher(
    batch: KVBatchMeta,
    prompts: Mapping[str, list[int]],
    score: Callable[[KVBatchMeta], Any],
    *,
    multiple: int,
    **how: Any,
) -> None:
    """Write the teacher's log-probabilities of each response into the batch, as ``ref_log_prob``.

    Args:
        batch: The step's rows.
        prompts: As from ``teacher_prompts``; rows of other groups keep their own.
        score: The reference model's forward pass.
        multiple: As for ``score_behind``.
        **how: As for ``score_behind``.
    """
    data = read_columns(batch, ("prompts", "responses"))
    asked = [
        torch.tensor(prompts[uid]) if (uid := parse_row_key(key)[0]) in prompts else own
        for key, own in zip(batch.keys, data["prompts"].unbind(), strict=True)
    ]
    log_probs = score_behind(asked, data["responses"].unbind(), score, multiple=multiple, **how)
    write_columns(batch, {LOG_PROBS_OF_TEACHER: log_probs})


def write_divergence(batch: KVBatchMeta, prompts: Mapping[str, list[int]]) -> float:
    """Give each token the advantage log pi_teacher - log pi_policy; 0 in groups without a teacher's prompt.

    The gradient is, sampled, that of the next token's negative KL divergence of the policy from the teacher
    at each prefix that the policy wrote, as if prefixes did not depend on the policy: later tokens'
    log-ratios are not part of the advantage.

    Args:
        batch: The step's rows.
        prompts: As for ``ask_teacher``.

    Returns:
        The mean of its negative over the tokens with a teacher: an estimate of that divergence, in nats a
        token; 0 without such tokens.
    """
    data = read_columns(batch, (LOG_PROBS_OF_TEACHER, "old_log_probs", "response_mask"))
    masks = [
        mask_R * (parse_row_key(key)[0] in prompts)
        for key, mask_R in zip(batch.keys, data["response_mask"].unbind(), strict=True)
    ]
    advantages = [
        (teacher_R - own_R) * mask_R
        for teacher_R, own_R, mask_R in zip(
            data[LOG_PROBS_OF_TEACHER].unbind(), data["old_log_probs"].unbind(), masks, strict=True
        )
    ]
    write_columns(batch, {"advantages": advantages, "returns": advantages})
    return float(-torch.cat(advantages).sum() / torch.cat(masks).sum().clamp(min=1))


def extra_teacher_tokens(visits: Mapping[str, Visit], prompts: Mapping[str, list[int]]) -> dict[int, int]:
    """Return the tokens that the teacher reads beyond those of the policy's own rows, by round."""
    extra: dict[int, int] = {}
    for uid, prompt in prompts.items():
        for rollout in visits[uid].rollouts:
            more = len(prompt) - visits[uid].prompt_tokens - visits[uid].hint_tokens(rollout)
            extra[rollout.round_index] = extra.get(rollout.round_index, 0) + more
    return extra
