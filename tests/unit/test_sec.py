"""SEC's bandit: its softmax, its rewards, and where its problems come from."""

import json
from collections import Counter

import numpy as np
import pytest

from seele.curriculum import SecCurriculum
from seele.curriculum.sec import softmax
from seele.errors import CheckpointError
from seele.maths.advantages import pooled_advantages


def build(
    rows, *, columns=("level",), learning_rate=0.5, temperature=1.0, with_replacement=False, seed=0
) -> SecCurriculum:
    return SecCurriculum(
        rows,
        columns=columns,
        learning_rate=learning_rate,
        temperature=temperature,
        with_replacement=with_replacement,
        seed=seed,
    )


def levels(*sizes):
    """One level after the other, with so many problems in each."""
    return [{"level": level} for level, size in enumerate(sizes) for _ in range(size)]


def metric(curriculum, name):
    values = curriculum.metrics()
    return [value for key, value in values.items() if key.startswith(f"{name}/")]


@pytest.mark.parametrize(
    ("temperature", "probabilities"),
    [(1.0, [0.186324, 0.307196, 0.506480]), (0.2, [0.006188, 0.075389, 0.918423])],
)
def test_softmax_of_known_values(temperature, probabilities):
    values = softmax(np.array([0.0, 0.5, 1.0]), temperature=temperature)
    np.testing.assert_allclose(values, probabilities, atol=5e-7)


def test_softmax_of_large_values_does_not_overflow():
    np.testing.assert_allclose(
        softmax(np.array([1000.0, 1001.0]), temperature=0.5), [0.119203, 0.880797], rtol=1e-5
    )


@pytest.mark.parametrize("num_correct", range(9))
def test_what_an_arm_is_rewarded_with_is_largest_at_even_odds(num_correct):
    # n = 8 rollouts, p = k/8. Unbiased standard deviation: 2 sqrt(p (1 - p)) sqrt(7/8), at 4 of 8 .9354.
    rewards_G = np.repeat([1.0, 0.0], [num_correct, 8 - num_correct])
    p = num_correct / 8
    divided, undivided = (
        float(np.abs(pooled_advantages(rewards_G, divide_by_std=divide)).mean()) for divide in (True, False)
    )
    assert divided == pytest.approx(2 * np.sqrt(p * (1 - p)) * np.sqrt(7 / 8), abs=1e-5)
    assert undivided == pytest.approx(2 * p * (1 - p))
    if num_correct == 4:
        assert (divided, undivided) == pytest.approx((0.9354, 0.5), abs=1e-4)


def test_values_are_moving_averages_and_arms_without_problems_keep_theirs():
    curriculum = build(levels(2, 2, 2), learning_rate=0.25)
    assert metric(curriculum, "q") == [0.0, 0.0, 0.0]
    curriculum.observe({0: 0.2, 1: 0.6, 4: 1.0})
    assert metric(curriculum, "q") == pytest.approx([0.1, 0.0, 0.25])
    curriculum.observe({4: 1.0, 5: 0.0, 2: 0.8})
    assert metric(curriculum, "q") == pytest.approx([0.1, 0.2, 0.3125])
    curriculum.observe({})
    assert metric(curriculum, "q") == pytest.approx([0.1, 0.2, 0.3125])


def test_the_order_in_which_problems_are_observed_does_not_matter():
    signals = {problem: 0.1 * problem for problem in range(9)}
    states = []
    for problems in (range(9), reversed(range(9))):
        curriculum = build(levels(9))
        curriculum.observe({problem: signals[problem] for problem in problems})
        states.append(json.dumps(curriculum.state_dict()))
    assert states[0] == states[1]


@pytest.mark.parametrize("signal", [float("nan"), float("inf"), -0.1])
def test_a_signal_that_is_no_mean_of_magnitudes_is_refused_and_changes_nothing(signal):
    curriculum = build(levels(2, 2))
    with pytest.raises(ValueError, match=r"problem 2 must be finite and at least 0"):
        curriculum.observe({0: 1.0, 2: signal})
    assert metric(curriculum, "q") == [0.0, 0.0]


def test_arms_are_groups_of_equal_values_in_sorted_order():
    rows = [{"data_source": source, "level": level} for source in ("gsm8k", "chains") for level in (10, 9)]
    curriculum = build(rows * 2, columns=("data_source", "level"))
    curriculum.draw(8)
    assert curriculum.metrics() == {
        f"{name}/data_source={source},level={level}": value
        for name, value in {"q": 0.0, "probability": 0.25, "drawn": 2.0}.items()
        for source in ("chains", "gsm8k")
        for level in (9, 10)
    }


@pytest.mark.parametrize("with_replacement", [False, True])
def test_arms_are_drawn_with_the_probabilities_of_the_softmax(with_replacement):
    curriculum = build(levels(900, 300, 600), learning_rate=1.0, with_replacement=with_replacement)
    curriculum.observe({0: 0.0, 900: 0.5, 1200: 1.0})
    assert metric(curriculum, "probability") == pytest.approx([0.186324, 0.307196, 0.506480], abs=1e-6)
    drawn = np.zeros(3)
    for _ in range(250):
        curriculum.draw(40)
        drawn += metric(curriculum, "drawn")
    # 10,000 draws: a share's standard deviation is at most .005.
    np.testing.assert_allclose(drawn / drawn.sum(), [0.186324, 0.307196, 0.506480], atol=0.02)


def test_an_arm_without_eligible_problems_is_passed_over_however_much_it_is_worth():
    curriculum = build(levels(3, 50, 50), learning_rate=1.0, temperature=0.001)
    curriculum.observe({0: 1.0, 3: 0.5, 53: 0.0})
    curriculum.draw(20, postponed={0}, pruned={1})
    assert metric(curriculum, "drawn") == [1.0, 19.0, 0.0]
    curriculum.draw(60)
    assert metric(curriculum, "drawn") == [3.0, 50.0, 7.0]


def test_without_replacement_all_problems_of_an_arm_have_their_turn_before_any_repeats():
    curriculum = build(levels(10, 25))
    turns = Counter(dict.fromkeys(range(35), 0))
    for _ in range(40):
        turns.update(curriculum.draw(7))
        for arm in (range(10), range(10, 35)):
            assert max(turns[problem] for problem in arm) - min(turns[problem] for problem in arm) <= 1


def test_with_replacement_a_problem_may_come_again_but_not_in_the_same_draw():
    curriculum = build(levels(50), with_replacement=True)
    draws = [curriculum.draw(10) for _ in range(5)]
    assert all(len(set(drawn)) == 10 for drawn in draws)
    assert len({problem for drawn in draws for problem in drawn}) < 50


def test_with_replacement_the_problems_of_an_arm_are_equally_likely():
    curriculum = build(levels(5), with_replacement=True)
    turns = Counter(problem for _ in range(2000) for problem in curriculum.draw(1))
    # 2,000 draws of probability 1/5: 400, standard deviation 18.
    assert all(abs(turns[problem] - 400) < 90 for problem in range(5))


def test_a_pruned_problem_loses_its_turn_and_a_postponed_one_keeps_it():
    order = build(levels(6)).draw(6)
    curriculum = build(levels(6))
    assert curriculum.draw(2, postponed={order[0]}, pruned={order[1]}) == order[2:4]
    assert curriculum.draw(3) == [order[0], *order[4:]]


def test_a_state_of_other_arms_is_refused():
    state = build(levels(2, 4)).state_dict()
    with pytest.raises(CheckpointError, match=r"'level=2'.*got .*'level=1'"):
        build(levels(2, 2, 2)).load_state_dict(state)


def test_settings_may_change_where_a_run_is_resumed():
    curriculum = build(levels(4, 4), learning_rate=1.0)
    curriculum.draw(4)
    curriculum.observe({0: 0.5})
    resumed = build(levels(4, 4), temperature=0.1, with_replacement=True)
    resumed.load_state_dict(curriculum.state_dict())
    assert metric(resumed, "q") == [0.5, 0.0]
    assert metric(resumed, "probability") == pytest.approx([0.993307, 0.006693], abs=1e-6)
