import math

import numpy as np
import pytest

from seele.maths.efficiency import descent_bound, reward_variance, unbiased_reward_variance


def test_variance_is_that_of_the_rewards_themselves():
    rewards = np.array([1.0, 0.0, 0.0, 0.0])
    assert reward_variance(rewards.mean()) == rewards.var()


def test_variance_is_largest_at_one_half_and_nothing_where_all_rollouts_agree():
    accuracy = np.linspace(0.0, 1.0, 101)
    variance = reward_variance(accuracy)
    assert accuracy[variance.argmax()] == 0.5
    assert variance.max() == 0.25
    assert variance[0] == variance[-1] == 0.0


def test_variance_does_not_tell_success_from_failure():
    accuracy = np.linspace(0.0, 1.0, 11)
    np.testing.assert_allclose(reward_variance(accuracy), reward_variance(1.0 - accuracy))


def test_hand_worked_bound():
    # a = 1/2, beta = 0.001: (1/4) / 0.002 = 125.
    np.testing.assert_allclose(descent_bound([0.5, 0.0], kl_coefficient=0.001), [125.0, 0.0])


@pytest.mark.parametrize("kl_coefficient", [0.0, -1.0, float("nan")])
def test_without_kl_term_there_is_no_bound(kl_coefficient):
    with pytest.raises(ValueError, match="kl_coefficient must be positive"):
        descent_bound(0.5, kl_coefficient=kl_coefficient)


@pytest.mark.parametrize("accuracy", [0.0, 0.2, 0.5, 0.9])
def test_the_estimate_of_the_variance_is_right_on_average(accuracy):
    # All outcomes of three rollouts, by their probability.
    chances = {c: math.comb(3, c) * accuracy**c * (1 - accuracy) ** (3 - c) for c in range(4)}
    mean = sum(chance * float(unbiased_reward_variance(c / 3, 3)) for c, chance in chances.items())
    assert mean == pytest.approx(accuracy * (1 - accuracy))


def test_one_rollout_shows_no_variance():
    np.testing.assert_array_equal(unbiased_reward_variance([0.0, 1.0], [1, 1]), [0.0, 0.0])
