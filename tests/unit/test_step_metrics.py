"""One step's visits -> metrics and dump, worked by hand."""

import pytest

from seele.records import Completion, Finish, Grade, GradeReason, Instance, Rollout, Visit
from seele.rollout.metrics import rollout_rows, step_metrics

INSTANCE = Instance(
    instance_id="i", data_source="chains", question="1+2", steps=("1+", "2=", "3"), answer="3", level=1
)


def rollout(round_index, index, reason, *, hint_steps, tokens=2, finish=Finish.STOP, cached=0):
    return Rollout(
        round_index=round_index,
        rollout_index=index,
        hint_ratio=hint_steps / 3,
        hint_steps=hint_steps,
        completion=Completion(
            text="x", token_ids=tuple(range(tokens)), log_probs=(), finish=finish, cached_prompt_tokens=cached
        ),
        grade=Grade(reason is GradeReason.CORRECT, reason),
    )


RIGHT, WRONG = GradeReason.CORRECT, GradeReason.WRONG
VISIT = Visit(
    instance=INSTANCE,
    step=5,
    prompt_tokens=4,
    hint_tokens=(3, 0),
    rollouts=(
        rollout(0, 0, RIGHT, hint_steps=2),
        rollout(0, 1, WRONG, hint_steps=2, cached=7),
        rollout(1, 2, GradeReason.TIMEOUT, hint_steps=0, tokens=5, finish=Finish.LENGTH),
        rollout(1, 3, GradeReason.NO_ANSWER, hint_steps=0),
    ),
)


def test_hand_worked_step():
    metrics = step_metrics([VISIT])
    expected = {
        "accuracy/mean": 0.25,
        "accuracy/round_0": 0.5,
        "accuracy/round_1": 0.0,
        "rounds/all_same_share": 0.5,
        "rounds/mean_a_1_minus_a": 0.125,
        "prompts/pooled_all_same_share": 0.0,
        "hint_ratio/mean": 1 / 3,
        "hint_ratio/p50": 1 / 3,
        "hint_ratio/p10": 2 / 30,
        "hint_ratio/p90": 18 / 30,
        "hint_ratio/round_0": 2 / 3,
        "hint_ratio/round_1": 0.0,
        "reward/ungraded_share": 0.25,
        "reward/no_answer_share": 0.25,
        "rollout/truncated_share": 0.25,
        "rollout/mean_response_tokens": 11 / 4,
        "tokens/prompt": 2 * 7 + 2 * 4,
        "tokens/prefilled": 2 * 7 + 2 * 4 - 7,
        "tokens/generated": 11,
    }
    assert metrics == pytest.approx(expected)


def test_dump_has_a_line_per_rollout_with_the_hint_that_it_saw():
    rows = list(rollout_rows(VISIT, {0: 0.75, 1: -0.25, 2: -0.25}))
    assert [row["rollout"] for row in rows] == [0, 1, 2, 3]
    assert [row["hint"] for row in rows] == ["1+2=", "1+2=", "", ""]
    assert [row["hint_tokens"] for row in rows] == [3, 3, 0, 0]
    assert [row["advantage"] for row in rows] == [0.75, -0.25, -0.25, None]
    assert (rows[2]["reason"], rows[2]["finish"], rows[2]["reward"]) == ("timeout", "length", 0.0)
    assert (rows[0]["question"], rows[0]["answer"], rows[0]["num_steps"]) == ("1+2", "3", 3)
