"""Which failed problems wait for a supervised update, and when it takes them (ReLIFT)."""

import json

import pytest

from seele.config import InterleaveConfig
from seele.errors import CheckpointError
from seele.methods.interleave import FailedProblems
from seele.records import (
    Completion,
    Finish,
    Grade,
    GradeReason,
    HintShare,
    Instance,
    Origin,
    Rollout,
    Visit,
)


def rollout(index, right, origin=Origin.POLICY):
    return Rollout(
        round_index=0,
        rollout_index=index,
        share=HintShare(0.0, 1),
        hint_steps=0,
        completion=Completion(text="", token_ids=(1,), log_probs=(-1.0,), finish=Finish.STOP),
        grade=Grade(right, GradeReason.CORRECT if right else GradeReason.WRONG),
        origin=origin,
    )


def visit(*rights, steps=("a", "b"), given=()):
    instance = Instance(instance_id="i", data_source="x", question="?", steps=steps, answer="b", level=1)
    rollouts = [rollout(index, right) for index, right in enumerate(rights)]
    rollouts += [rollout(len(rights) + index, right, Origin.TRACE) for index, right in enumerate(given)]
    return Visit(instance=instance, step=1, prompt_tokens=2, step_tokens=(1, 1), rollouts=tuple(rollouts))


FAILED, SOLVED = visit(False, False), visit(False, False, True)


def test_problems_wait_in_the_order_of_their_failures_until_they_are_enough():
    failed = FailedProblems(3)
    assert failed.take_step({7: FAILED, 2: SOLVED, 5: FAILED}) == []
    assert failed.metrics() == {"failed": 2, "learnt": 0, "waiting": 2}
    # One update a step, on those that have waited longest.
    assert failed.take_step({9: FAILED, 1: FAILED, 4: FAILED, 3: FAILED, 8: FAILED}) == [7, 5, 9]
    assert failed.metrics() == {"failed": 5, "learnt": 3, "waiting": 4}
    assert failed.take_step({0: SOLVED}) == [1, 4, 3]
    assert failed.take_step({0: SOLVED}) == []
    assert failed.metrics() == {"failed": 0, "learnt": 0, "waiting": 1}


def test_a_problem_that_fails_again_waits_again():
    failed = FailedProblems(2)
    failed.take_step({7: FAILED})
    assert failed.take_step({7: FAILED}) == [7, 7]


def test_a_problem_fails_by_what_the_policy_wrote_and_waits_only_with_a_solution():
    failed = FailedProblems(1)
    given_a_right_one, without_solution = visit(False, given=(True,)), visit(False, steps=())
    assert failed.take_step({3: without_solution, 4: given_a_right_one}) == [4]


def test_a_saved_state_goes_on_as_if_nothing_had_happened():
    failed, resumed = FailedProblems(3), FailedProblems(3)
    failed.take_step({7: FAILED, 5: FAILED})
    resumed.load_state_dict(json.loads(json.dumps(failed.state_dict())))
    assert resumed.state_dict() == failed.state_dict()
    assert resumed.take_step({1: FAILED}) == failed.take_step({1: FAILED}) == [7, 5, 1]


@pytest.mark.parametrize(
    "state",
    [{}, {"interleave": "failed", "version": 1}, {"interleave": "failed", "version": 1, "waiting": [1, -2]}],
)
def test_a_damaged_state_is_refused_and_changes_nothing(state):
    failed = FailedProblems(2)
    failed.take_step({7: FAILED})
    with pytest.raises(CheckpointError, match="saved state"):
        failed.load_state_dict(state)
    assert failed.take_step({1: FAILED}) == [7, 1]


def test_a_number_below_0_is_refused():
    with pytest.raises(ValueError, match="problems must be 0 or more, got -1"):
        InterleaveConfig(problems=-1)
