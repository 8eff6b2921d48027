"""Our records -> the rows that verl's trainer reads from TransferQueue. The one file that knows verl's
field names.

Field and tag names are those of ``verl/trainer/ppo/v1/agent_loop_tq.py: _agent_loop_postprocess``. Only
what the trainer reads is written: every field of a row is stored, shipped to the workers and moved to the
device.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from seele.config import SeeleConfig
from seele.losses.imitation import hint_token_weights
from seele.methods.advantage import group_advantages
from seele.records import Instance, Rollout

HINT_WEIGHTS = "hint_weights"
"""Row field: (prompt + response,) weight of each token in the imitation term."""

ADVANTAGE = "advantage"
"""Row tag: the rollout's advantage, where verl's own estimate is not the one wanted."""

LOG_PROB_COLUMNS = ("input_ids", "position_ids", "prompts", "responses", "response_mask", "loss_mask")
"""Row fields that a forward pass reads; every other column would be shipped for nothing."""

UPDATE_COLUMNS = (
    *LOG_PROB_COLUMNS,
    "old_log_probs",
    "ref_log_prob",
    "advantages",
    "rollout_is_weights",
    HINT_WEIGHTS,
)
"""Row fields that the actor's loss reads, where the run has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRows:
    """Rows of one problem, ready for ``tq.async_kv_batch_put``."""

    keys: list[str]
    fields: TensorDict
    tags: list[dict[str, Any]]


def row_key(uid: str, rollout_index: int) -> str:
    """verl's key of one trajectory: group, session, output within the session."""
    return f"{uid}_{rollout_index}_0"


def parse_row_key(key: str) -> tuple[str, int]:
    """The group and the rollout's index; the inverse of ``row_key``."""
    uid, rollout_index, _ = key.rsplit("_", 2)
    return uid, int(rollout_index)


def training_rows(
    uid: str,
    instance: Instance,
    rollouts: Sequence[Rollout],
    *,
    prompt_ids: list[int],
    step_ids: list[list[int]],
    data_source: str,
    model_version: int,
    global_step: int,
    settings: SeeleConfig,
    divide_by_std: bool,
    validate: bool = False,
) -> TrainingRows:
    """The rows of one problem's rollouts.

    Args:
        uid: verl's name of the group.
        instance: The problem.
        rollouts: Its rollouts, all rounds.
        prompt_ids: Tokens of the prompt without hint.
        step_ids: Tokens of each solution step.
        data_source: Name that verl's validation groups its metrics by.
        model_version: Step whose weights generated the rollouts.
        global_step: Step that the rollouts belong to.
        settings: The run's; rollouts of a round that share a hint share its imitation term.
        divide_by_std: Whether advantages are divided by a standard deviation.
        validate: Whether they go to verl's validation, which groups and names them, and are never trained on.
    """
    keys, fields, tags = [], [], []
    same_hint = Counter((rollout.round_index, rollout.hint_steps) for rollout in rollouts)
    advantages = group_advantages(rollouts, settings, divide_by_std=divide_by_std)
    for rollout, advantage in zip(rollouts, advantages, strict=True):
        hint_ids = [token for step in step_ids[: rollout.hint_steps] for token in step]
        prompt = torch.tensor(prompt_ids + hint_ids)
        response = torch.tensor(rollout.completion.token_ids)
        ones = torch.ones_like(response)
        rewards = torch.zeros(len(response))
        rewards[-1] = rollout.reward
        field = {
            "uid": uid,
            "prompts": prompt,
            "responses": response,
            "input_ids": torch.cat([prompt, response]),
            "position_ids": torch.arange(len(prompt) + len(response)),
            "response_mask": ones,
            "loss_mask": ones,
            "rm_scores": rewards,
            "num_turns": 2,
        }
        if validate:
            field |= {
                "data_source": data_source,
                "reward_model": {"style": "rule", "ground_truth": instance.answer},
                "extra_fields": {},
            }
        elif settings.imitation.coefficient:
            field[HINT_WEIGHTS] = torch.tensor(
                hint_token_weights(
                    len(prompt_ids),
                    len(hint_ids),
                    len(response),
                    share=1.0 / same_hint[rollout.round_index, rollout.hint_steps],
                    form=settings.imitation.form,
                )
            )
        if rollout.completion.log_probs:
            field["rollout_log_probs"] = torch.tensor(rollout.completion.log_probs)
        keys.append(row_key(uid, rollout.rollout_index))
        fields.append(field)
        tags.append(
            {
                "status": "success",
                "prompt_len": len(prompt),
                "response_len": len(response),
                "seq_len": len(prompt) + len(response),
                "global_steps": global_step,
                "min_global_steps": model_version,
                "max_global_steps": model_version,
                **({} if advantage is None else {ADVANTAGE: advantage}),
            }
        )
    return TrainingRows(keys=keys, fields=list_of_dict_to_tensordict(fields), tags=tags)
