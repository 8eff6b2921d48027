"""The pool of the policy's own successes."""

import json
from collections import Counter

import pytest

from seele.config import ReplayConfig
from seele.curriculum.replay import SuccessPool
from seele.errors import CheckpointError
from seele.records import Completion, Finish, Grade, GradeReason, HintShare, Rollout


def rollouts(*outcomes, log_prob=-1.0, finish=Finish.STOP):
    """One rollout an outcome; the i-th has its log-probability i + 1 times."""
    return [
        Rollout(
            round_index=0,
            rollout_index=index,
            share=HintShare(0.0, len(outcomes)),
            hint_steps=0,
            completion=Completion(
                text=f"{index}",
                token_ids=tuple(range(index + 1)),
                log_probs=(log_prob * (index + 1),) * (index + 1),
                finish=finish,
            ),
            grade=Grade(bool(right), GradeReason.CORRECT if right else GradeReason.WRONG),
        )
        for index, right in enumerate(outcomes)
    ]


def pool(**settings):
    return SuccessPool(ReplayConfig(**{"start_accuracy": 0.0, "problem_share": 1.0} | settings), seed=0)


def test_the_surest_success_of_the_latest_visit_is_replayed():
    successes = pool()
    successes.observe({7: rollouts(0, 1, 1, 0)})
    assert successes.draw(4, step=1)[7].text == "1"
    successes.observe({7: rollouts(0, 0, 0, 1)})
    assert successes.draw(4, step=2)[7].text == "3"


def test_a_visit_without_success_leaves_the_problem_in_the_pool():
    successes = pool()
    successes.observe({1: rollouts(0, 1), 2: rollouts(0, 0)})
    assert set(successes.draw(9, step=1)) == {1}
    successes.observe({1: rollouts(0, 0)})
    assert successes.draw(9, step=2)[1].text == "1"


def test_a_visit_that_solves_the_problem_throughout_takes_it_out_for_good():
    successes = pool()
    successes.observe({1: rollouts(0, 1), 2: rollouts(1, 1)})
    successes.observe({1: rollouts(1, 1)})
    successes.observe({1: rollouts(1, 0), 2: rollouts(0, 1)})
    assert successes.draw(9, step=1) == {}
    assert successes.metrics()["retired"] == 2


def test_the_pool_opens_for_good_with_the_first_step_that_is_good_enough():
    successes = pool(start_accuracy=0.5)
    successes.observe({1: rollouts(0, 0, 0, 1)})
    assert successes.draw(9, step=1) == {}
    successes.observe({2: rollouts(0, 1)})
    assert set(successes.draw(9, step=2)) == {1, 2}
    successes.observe({3: rollouts(0, 0, 0, 1)})
    assert set(successes.draw(9, step=3)) == {1, 2, 3}


def test_the_share_bounds_a_draw_and_carried_problems_are_left_out():
    successes = pool(problem_share=0.5)
    successes.observe({problem: rollouts(0, 1) for problem in range(10)})
    drawn = successes.draw(8, step=1, avoid=[0, 1, 2, 3, 4, 5, 6])
    assert set(drawn) == {7, 8, 9}
    assert len(successes.draw(8, step=1)) == 4


@pytest.mark.parametrize("percent", [29, 30, 57, 58])
def test_a_share_is_rounded_down_to_whole_problems_and_no_further(percent):
    successes = pool(problem_share=percent / 100)
    successes.observe({problem: rollouts(0, 1) for problem in range(100)})
    assert len(successes.draw(100, step=1)) == percent
    assert len(successes.draw(50, step=1)) == percent // 2


def test_problems_solved_half_the_time_come_first():
    # Weights of the buckets at 1, 4 and 7 of 8 with sd 1: exp(-4.5), 1, exp(-4.5).
    successes = pool(problem_share=0.1)
    for problem, correct in enumerate([1] * 10 + [4] * 10 + [7] * 10):
        successes.observe({problem: rollouts(*[1] * correct, *[0] * (8 - correct))})
    drawn = Counter(problem // 10 for step in range(2000) for problem in successes.draw(10, step=step))
    assert drawn.total() == 2000
    assert drawn[1] / 2000 == pytest.approx(1 / (1 + 2 * 2.718281828**-4.5), abs=0.01)


def test_a_restored_pool_goes_on_alike_and_has_the_same_state():
    first, second = pool(), pool()
    first.observe({problem: rollouts(0, 1, 1, 0, log_prob=-0.1 * (problem + 1)) for problem in range(5)})
    first.observe({4: rollouts(1, 1), 9: rollouts(1, 1)})
    state = json.loads(json.dumps(first.state_dict()))
    second.load_state_dict(state)
    assert second.state_dict() == state == first.state_dict()
    assert second.draw(3, step=9) == first.draw(3, step=9)


def test_a_restored_success_that_was_cut_off_stays_one():
    first, second = pool(), pool()
    first.observe({1: rollouts(0, 1), 2: rollouts(0, 1, finish=Finish.LENGTH)})
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.draw(2, step=1) == first.draw(2, step=1)
    assert second.draw(2, step=1)[2].finish is Finish.LENGTH


@pytest.mark.parametrize("damage", [{"pool": "others"}, {"problems": [{"problem": -1}]}, {"problems": 3}])
def test_a_foreign_or_damaged_state_changes_nothing(damage):
    successes = pool()
    successes.observe({1: rollouts(0, 1)})
    before = successes.state_dict()
    with pytest.raises(CheckpointError):
        successes.load_state_dict(before | damage)
    assert successes.state_dict() == before
