"""One step's visits -> metrics and dump, worked by hand."""

from dataclasses import replace

import pytest

from seele.records import Completion, Finish, Grade, GradeReason, HintShare, Instance, Origin, Rollout, Visit
from seele.rollout.metrics import rollout_rows, step_metrics, teacher_forced_tokens

INSTANCE = Instance(
    instance_id="i", data_source="chains", question="1+2", steps=("1+", "2=", "3"), answer="3", level=1
)


def rollout(
    round_index, index, reason, *, hint_steps, tokens=2, finish=Finish.STOP, cached=0, is_probe=False
):
    return Rollout(
        round_index=round_index,
        rollout_index=index,
        share=HintShare(hint_steps / 3, 2, is_probe=is_probe),
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
    step_tokens=(2, 1, 1),
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
        # 2/1 * 1/2 * 1/2 in the first round, 0 in the second.
        "rounds/mean_a_1_minus_a": 0.25,
        "rounds/mean_distance": 0.25,
        "prompts/nonzero_variance_share": 1.0,
        # Within rounds 1/4 on average; of all four rollouts together 4/3 * 1/4 * 3/4 = 1/4.
        "prompts/variance_between_hints": 0.0,
        "hint_ratio/mean": 1 / 3,
        "hint_ratio/p50": 1 / 3,
        "hint_ratio/p10": 2 / 30,
        "hint_ratio/p90": 18 / 30,
        "hint_ratio/round_0": 2 / 3,
        "hint_ratio/round_1": 0.0,
        "reward/ungraded_share": 0.25,
        "reward/no_answer_share": 0.25,
        "reward/malformed_share": 0.0,
        "reward/format_share": 0.0,
        "reward/mean": 0.25,
        "rollout/truncated_share": 0.25,
        "rollout/mean_response_tokens": 11 / 4,
        "group/on_policy": 4.0,
        "group/off_policy": 0.0,
        "group/hinted": 2.0,
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


def test_numbers_of_a_reward_function_are_logged_and_all_it_returned_is_dumped():
    grades = [
        Grade(False, WRONG, 0.25, {"steps": 1.0, "said": "no"}),
        Grade(True, RIGHT, 0.75, {"steps": 3.0}),
    ]
    own = [replace(each, grade=grade) for each, grade in zip(VISIT.rollouts, grades, strict=False)]
    visit = replace(VISIT, rollouts=tuple(own))
    metrics = step_metrics([visit])
    assert (metrics["reward/steps"], metrics["reward/mean"]) == (2.0, 0.5)
    assert "reward/said" not in metrics
    assert metrics["accuracy/mean"] == 0.5 and metrics["reward/format_share"] == 0.5
    rows = list(rollout_rows(visit, {}))
    assert [row["reward"] for row in rows] == [0.25, 0.75]
    assert [row["reward_extra"] for row in rows] == [{"steps": 1.0, "said": "no"}, {"steps": 3.0}]
    assert "reward_extra" not in next(rollout_rows(VISIT, {}))


def test_probes_count_as_rollouts_but_not_as_hinted_accuracy():
    probes = tuple(rollout(0, index, RIGHT, hint_steps=0, is_probe=True) for index in (4, 5))
    metrics, without = step_metrics([replace(VISIT, rollouts=VISIT.rollouts + probes)]), step_metrics([VISIT])
    assert metrics["accuracy/probes"] == 1.0
    for name in ("accuracy/mean", "accuracy/round_0", "rounds/mean_a_1_minus_a", "hint_ratio/mean"):
        assert metrics[name] == without[name]
    assert metrics["group/on_policy"] == without["group/on_policy"] + 2


def test_what_nobody_generated_counts_as_given_only():
    trace = replace(rollout(0, 4, RIGHT, hint_steps=0, tokens=9), origin=Origin.TRACE)
    visit = replace(VISIT, rollouts=(*VISIT.rollouts, trace))
    metrics, without = step_metrics([visit]), step_metrics([VISIT])
    assert metrics["accuracy/off_policy"] == 1.0 and metrics["group/off_policy"] == 1.0
    added = {"accuracy/off_policy", "group/off_policy"}
    assert {name: value for name, value in metrics.items() if name not in added} == {
        name: value for name, value in without.items() if name not in added
    }
    last = list(rollout_rows(visit, {}))[-1]
    assert (last["origin"], last["generated_tokens"]) == ("trace", 0)


def test_teacher_forced_tokens_are_given_rollouts_and_hints_that_are_learnt():
    trace = replace(rollout(0, 4, RIGHT, hint_steps=0, tokens=9), origin=Origin.REPLAY)
    visit = replace(VISIT, rollouts=(*VISIT.rollouts, trace))
    assert teacher_forced_tokens([visit], learns_hints=False) == 9
    assert teacher_forced_tokens([visit, VISIT], learns_hints=True) == 9 + 2 * 2 * 3


def test_variance_between_hints_is_what_the_rounds_do_not_explain():
    # One round always right, one always wrong: all variance is between them.
    rollouts = tuple(
        rollout(index // 2, index, RIGHT if index < 2 else WRONG, hint_steps=2 - index // 2 * 2)
        for index in range(4)
    )
    metrics = step_metrics([replace(VISIT, rollouts=rollouts)])
    assert metrics["prompts/variance_between_hints"] == pytest.approx(1.0)
    assert metrics["rounds/mean_a_1_minus_a"] == 0.0


def test_a_reward_for_the_form_leaves_every_accuracy_as_it_was():
    """The second rollout of four is wrong and earns 0.1: (1 + 0.1) / 4 on average."""
    formal = replace(VISIT.rollouts[1], grade=Grade(False, WRONG, score=0.1))
    visit = replace(VISIT, rollouts=(VISIT.rollouts[0], formal, *VISIT.rollouts[2:]))
    before, after = step_metrics([VISIT]), step_metrics([visit])
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"reward/format_share", "reward/mean"}
    assert (after["reward/format_share"], after["reward/mean"]) == (0.25, pytest.approx(0.275))
    assert visit.accuracy == VISIT.accuracy == 0.25
    assert [row["reward"] for row in rollout_rows(visit, {})] == [1.0, 0.1, 0.0, 0.0]
