"""Converts our records to the rows that verl's trainer reads from TransferQueue.

Field and tag names are those of ``verl/trainer/ppo/v1/agent_loop_tq.py: _agent_loop_postprocess``. It writes
only what the trainer reads, because every field of a row is stored, shipped to the workers and moved to the
device.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from seele.losses.term import Axis, Row
from seele.methods.advantage import Advantage
from seele.methods.loss_terms import LossTerms, WeighedTerm
from seele.methods.sources import OffPolicySource
from seele.plugins import blame
from seele.records import Instance, Origin, Rollout
from seele.rollout.solutions import EncodedProblem

INSTANCE_IDS = "instance_ids"
"""Row field: the problem's id, in runs with the user's own loss terms, whose error messages name it."""

REASON, FINISH = "reason", "finish"
"""Extra reward values of a validation row: the grader's verdict, and how the response ended."""

ADVANTAGE, OFF_POLICY_ADVANTAGE = "advantage", "off_policy_advantage"
"""Row tags: advantages of a rollout's tokens, in every run without a critic."""

LOG_PROB_COLUMNS = ("input_ids", "position_ids", "prompts", "responses", "response_mask", "loss_mask")
"""Row fields that a forward pass reads; any other column would be shipped needlessly."""

UPDATE_COLUMNS = (
    *LOG_PROB_COLUMNS,
    "old_log_probs",
    "ref_log_prob",
    "advantages",
    "rollout_is_weights",
    INSTANCE_IDS,
)
"""Row fields that the actor's loss reads in addition to its terms' columns, if the run has them."""

LENGTH_TAGS = {Axis.SEQUENCE: "seq_len", Axis.RESPONSE: "response_len"}
"""Row tags: lengths of a term's columns, by axis."""

CRITIC_COLUMNS = (*LOG_PROB_COLUMNS, "values", "returns")
"""Row fields that the critic's loss reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRows:
    """Rows of one problem, ready for ``tq.async_kv_batch_put``."""

    keys: list[str]
    fields: TensorDict
    tags: list[dict[str, Any]]


WRITTEN_LATER = (*UPDATE_COLUMNS, *CRITIC_COLUMNS, "entropy", "token_level_rewards")
"""Row fields that verl's trainer adds or may add; a term's columns must have other names."""


WEIGHT_COLUMNS = "weight_columns"
"""Batch-wide value: row fields that are all 0 in a row only if it contributes no gradient to the update."""


def count_of(column: str) -> str:
    """Return the name of a batch-wide value: the step's tokens marked by a term's column, divided by the
    number of updates. It may be 0.
    """
    return f"num_{column}"


def row_key(uid: str, rollout_index: int) -> str:
    """Return verl's key of one rollout: group, session, output within the session."""
    return f"{uid}_{rollout_index}_0"


def parse_row_key(key: str) -> tuple[str, int]:
    """Return the group and the rollout's index; the inverse of ``row_key``."""
    uid, rollout_index, _ = key.rsplit("_", 2)
    return uid, int(rollout_index)


def forward_row(prompt: torch.Tensor, response: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the fields of a row that a forward pass reads (``LOG_PROB_COLUMNS``).

    Args:
        prompt: (P,) token ids.
        response: (R,) token ids, none of which is masked.
    """
    input_ids = torch.cat([prompt, response])  # (P + R,)
    ones = torch.ones_like(response)
    return {
        "input_ids": input_ids,
        "position_ids": torch.arange(len(input_ids)),
        "prompts": prompt,
        "responses": response,
        "response_mask": ones,
        "loss_mask": ones,
    }


def training_rows(
    uid: str,
    instance: Instance,
    rollouts: Sequence[Rollout],
    *,
    encoded: EncodedProblem,
    model_version: int,
    global_step: int,
    terms: LossTerms,
    source: OffPolicySource,
    rewards: Sequence[float],
    advantages: Sequence[Advantage] | None,
    tells_accuracy: bool,
) -> TrainingRows:
    """Return the rows of one problem's rollouts.

    Args:
        uid: verl's name for the group.
        instance: The problem.
        rollouts: Its rollouts, all rounds.
        encoded: Its prompt, and the tokens that precede a response under each hint.
        model_version: Step whose weights generated the rollouts.
        global_step: Step that the rollouts belong to.
        terms: The run's loss terms, each of which writes its columns.
        source: The run's source of tokens that the policy did not write.
        rewards: Each rollout's reward, penalties included.
        advantages: Each rollout's advantage; None where verl estimates them from a critic's values.
        tells_accuracy: True if verl's group filter needs accuracy (``algorithm.filter_groups.metric=acc``),
            which is 0 throughout a group without any advantage.
    """
    # A supplied response may stand behind a hint that no round chose.
    chosen = [rollout for rollout in rollouts if rollout.origin is Origin.POLICY]
    round_size = Counter(rollout.round_index for rollout in chosen)
    same_hint = Counter((rollout.round_index, rollout.hint_steps) for rollout in chosen)
    # verl compares all rollouts of a group; its baseline may compare parts that each agree.
    has_advantage = advantages is None or any(each.generated or each.off_policy for each in advantages)
    seen: set[tuple[int, int]] = set()
    rows = []
    for index, (rollout, reward) in enumerate(zip(rollouts, rewards, strict=True)):
        before_ids = encoded.before_response(rollout.hint_steps)
        # A hint in the user's turn is part of the prompt; one in the assistant's turn may be learnt.
        prompt_tokens = len(before_ids if encoded.asking_ids else encoded.prompt_ids)
        row = _row(
            uid,
            encoded.prompt_ids if source.in_response else before_ids,
            rollout,
            prefix_ids=encoded.hint(rollout.hint_steps) if source.in_response else [],
            reward=reward,
        )
        if tells_accuracy:
            accuracy = float(rollout.grade.correct and has_advantage)
            row.fields["extra_fields"] = {"reward_extra_info": {"acc": accuracy}}
        hint = (rollout.round_index, rollout.hint_steps)
        is_own = rollout.origin is Origin.POLICY
        on_policy_tokens = len(rollout.completion.token_ids) if is_own else 0
        facts = Row(
            instance=instance,
            rollout=rollout,
            prompt_tokens=prompt_tokens,
            hint_tokens=row.tag["prompt_len"] - prompt_tokens,
            response_tokens=row.tag["response_len"],
            off_policy_tokens=row.tag["response_len"] - on_policy_tokens,
            hint_share=round_size[rollout.round_index] / same_hint[hint] if is_own else 0.0,
            is_first_of_hint=hint not in seen,
        )
        seen.add(hint)
        for each in terms:
            row.fields.update(_columns(each, facts, taken={*row.fields, *WRITTEN_LATER}))
        if terms.has_users:
            row.fields[INSTANCE_IDS] = instance.instance_id
        if advantages is not None:
            row.tag[ADVANTAGE] = advantages[index].generated
            row.tag[OFF_POLICY_ADVANTAGE] = advantages[index].off_policy
        rows.append(row)
    return _together(rows, model_version, global_step)


def _columns(each: WeighedTerm, row: Row, *, taken: Collection[str]) -> dict[str, torch.Tensor]:
    """Return a term's columns for one row: (prompt + hint + response,) or (response,) numbers.

    Raises:
        PluginError: A user's term raised, or its columns have names or lengths other than declared, names
            that are taken, or values that are not finite.
    """
    term = each.term
    if not each.is_users:
        return {name: torch.tensor(values) for name, values in term.columns_of(row).items()}
    with blame(term, f"columns_of, problem {row.instance.instance_id!r}", key=each.key):
        columns = {
            name: torch.as_tensor(values, dtype=torch.float) for name, values in term.columns_of(row).items()
        }
        lengths = {name: (row.num_tokens(axis),) for name, axis in term.columns.items()}
        found = {name: tuple(column.shape) for name, column in columns.items()}
        if found != lengths:
            raise ValueError(f"columns must have the shapes {lengths}, got {found}")
        if clashing := sorted(set(columns).intersection(taken)):
            raise ValueError(f"columns must have names of their own; {clashing} are taken")
        if not all(column.isfinite().all() for column in columns.values()):
            raise ValueError("columns must hold finite numbers")
    return columns


def validation_rows(
    uid: str,
    instance: Instance,
    rollouts: Sequence[Rollout],
    *,
    prompt_ids: list[int],
    data_source: str,
    model_version: int,
    global_step: int,
) -> TrainingRows:
    """Return the rows of a validation problem, with the columns that verl uses to group and name metrics."""
    rows = []
    for rollout in rollouts:
        # The reward is accuracy: validation compares models by answers, not by format.
        row = _row(uid, prompt_ids, rollout, prefix_ids=[], reward=float(rollout.grade.correct))
        row.fields["data_source"] = data_source
        row.fields["reward_model"] = {"style": "rule", "ground_truth": instance.answer}
        row.fields["extra_fields"] = {
            "reward_extra_info": {
                REASON: rollout.grade.reason.value,
                FINISH: rollout.completion.finish.value,
            }
        }
        rows.append(row)
    return _together(rows, model_version, global_step)


@dataclass(frozen=True, slots=True)
class _Row:
    key: str
    fields: dict[str, Any]
    tag: dict[str, Any]


def _row(uid: str, prompt_ids: list[int], rollout: Rollout, *, prefix_ids: list[int], reward: float) -> _Row:
    prompt = torch.tensor(prompt_ids)  # (P,) question and, where hints are part of the prompt, the hint
    response = torch.tensor([*prefix_ids, *rollout.completion.token_ids])  # (R,) prefix, generated tokens
    rewards = torch.zeros(len(response))  # (R,) the reward is on the last token
    rewards[-1] = reward
    fields = {
        "uid": uid,
        **forward_row(prompt, response),
        "rm_scores": rewards,
        "num_turns": 2,
    }
    if rollout.completion.log_probs:
        # (R,) from the engine; 0 on a prefix, which the engine did not score.
        fields["rollout_log_probs"] = torch.tensor(
            [*(0.0 for _ in prefix_ids), *rollout.completion.log_probs]
        )
    tag = {
        "status": "success",
        "prompt_len": len(prompt),
        "response_len": len(response),
        "seq_len": len(prompt) + len(response),
    }
    return _Row(row_key(uid, rollout.rollout_index), fields, tag)


def _together(rows: Sequence[_Row], model_version: int, global_step: int) -> TrainingRows:
    versions = {
        "global_steps": global_step,
        "min_global_steps": model_version,
        "max_global_steps": model_version,
    }
    return TrainingRows(
        keys=[row.key for row in rows],
        fields=list_of_dict_to_tensordict([row.fields for row in rows]),
        tags=[row.tag | versions for row in rows],
    )
