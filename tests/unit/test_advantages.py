from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seele.maths.advantages import (
    highest,
    hint_conditional_advantages,
    leave_one_out_advantages,
    per_round_advantages,
    pooled_advantages,
    prefix_advantages,
    split_advantages,
)

# Two rounds of two rollouts under different hints, so that every outcome can be enumerated.
ROUND_G = np.array([0, 0, 1, 1])
RATIO_G = np.array([0.8, 0.8, 0.2, 0.2])
ACCURACY_G = np.array([0.9, 0.9, 0.3, 0.3])


def outcomes(accuracy_G):
    """Every vector of 0/1 rewards with its probability."""
    for rewards in product([0.0, 1.0], repeat=len(accuracy_G)):
        rewards_G = np.array(rewards)
        yield np.where(rewards_G == 1.0, accuracy_G, 1.0 - accuracy_G).prod(), rewards_G


def expectation(accuracy_G, statistic):
    return sum(probability * statistic(rewards_G) for probability, rewards_G in outcomes(accuracy_G))


def gradients(accuracy_G, estimator):
    """Per rollout: E[A d log pi] and the true gradient of its accuracy, by the logit of that accuracy.

    With q = sigmoid(logit), d log pi(r) = r - q and dq = q (1 - q).
    """
    estimate_G = expectation(accuracy_G, lambda rewards_G: estimator(rewards_G) * (rewards_G - accuracy_G))
    return estimate_G, accuracy_G * (1.0 - accuracy_G)


def pooled(rewards_G):
    return pooled_advantages(rewards_G, divide_by_std=False)


@pytest.mark.parametrize(
    ("num_correct", "divide_by_std", "of_correct", "of_wrong"),
    [
        # Mean 1/8; sample variance (49 + 7)/64 / 7 = 1/8, std .353553.
        pytest.param(1, True, 2.474867, -0.353552, id="1 of 8, with std"),
        pytest.param(1, False, 0.875, -0.125, id="1 of 8"),
        # Mean 1/2; sample variance 8/4 / 7 = 2/7, std .534522.
        pytest.param(4, True, 0.935413, -0.935413, id="4 of 8, with std"),
        pytest.param(4, False, 0.5, -0.5, id="4 of 8"),
    ],
)
def test_hand_worked_groups(num_correct, divide_by_std, of_correct, of_wrong):
    rewards_G = np.repeat([1.0, 0.0], [num_correct, 8 - num_correct])
    expected_G = np.where(rewards_G == 1.0, of_correct, of_wrong)
    np.testing.assert_allclose(
        pooled_advantages(rewards_G, divide_by_std=divide_by_std), expected_G, atol=5e-7
    )
    np.testing.assert_allclose(
        per_round_advantages(np.tile(rewards_G, 2), np.repeat([0, 1], 8), divide_by_std=divide_by_std),
        np.tile(expected_G, 2),
        atol=5e-7,
    )


@pytest.mark.parametrize("divide_by_std", [False, True])
def test_group_means_and_deviations_are_those_of_verl(divide_by_std):
    reason = "verl is not installed"
    pytest.importorskip("verl.trainer", reason=reason)
    torch = pytest.importorskip("torch", reason=reason)
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

    rng = np.random.default_rng(0)
    # The last two groups hold a single rollout and equal rewards.
    group_B = np.concatenate([rng.integers(0, 5, size=40), [5], [6] * 4])
    rewards_B = np.concatenate([rng.integers(0, 2, size=20), rng.random(21), [1.0] * 4])
    of_verl_B1, _ = compute_grpo_outcome_advantage(
        torch.tensor(rewards_B)[:, None],
        torch.ones(len(rewards_B), 1, dtype=torch.float64),
        group_B,
        norm_adv_by_std_in_grpo=divide_by_std,
    )
    np.testing.assert_allclose(
        per_round_advantages(rewards_B, group_B, divide_by_std=divide_by_std),
        of_verl_B1[:, 0].numpy(),
        atol=1e-12,
    )


@pytest.mark.parametrize("divide_by_std", [False, True])
def test_a_round_that_agrees_adds_nothing_alone_and_something_in_the_pool(divide_by_std):
    rewards_G = np.array([1.0, 1.0, 1.0, 0.0, 1.0, 0.0])
    round_G = np.array([0, 0, 0, 1, 1, 1])
    alone_G = per_round_advantages(rewards_G, round_G, divide_by_std=divide_by_std)
    in_pool_G = pooled_advantages(rewards_G, divide_by_std=divide_by_std)
    assert alone_G[:3].tolist() == [0.0, 0.0, 0.0]
    assert np.all(alone_G[3:] != 0.0)
    assert np.all(in_pool_G[:3] > 0.0)


@pytest.mark.parametrize("divide_by_std", [False, True])
def test_a_lone_rollout_keeps_its_reward(divide_by_std):
    expected = pytest.approx([1.0], abs=2e-6)
    assert pooled_advantages([1.0], divide_by_std=divide_by_std) == expected
    assert per_round_advantages([1.0, 0.0, 1.0], [7, 8, 8], divide_by_std=divide_by_std)[:1] == expected


@pytest.mark.parametrize("outcome", [0.0, 1.0])
def test_a_hint_under_which_all_agree_gets_what_the_prediction_missed(outcome):
    rewards_G, ratio_G = np.full(4, outcome), np.full(4, 0.4)
    for prior_rollouts in (0.0, 1.0):
        advantages_G = hint_conditional_advantages(
            rewards_G, ratio_G, np.full(4, 0.7), prior_rollouts=prior_rollouts, divide_by_std=False
        )
        # Baseline (3 r + m f) / (3 + m), so A = m (r - f) / (3 + m): with m = 0 exactly nothing.
        expected = prior_rollouts * (outcome - 0.7) / (3.0 + prior_rollouts)
        np.testing.assert_allclose(advantages_G, np.full(4, expected), rtol=1e-12)


def test_hand_worked_shrinkage():
    # Others of the first rollout: 1 and 0; with two more of .75 the baseline is (1 + 1.5) / 4 = .625.
    # The last rollout has no others, so its baseline is the prediction.
    advantages_G = hint_conditional_advantages(
        [1.0, 1.0, 0.0, 1.0],
        [0.6, 0.6, 0.6, 0.2],
        [0.75, 0.75, 0.75, 0.1],
        prior_rollouts=2.0,
        divide_by_std=False,
    )
    np.testing.assert_allclose(advantages_G, [0.375, 0.375, -0.875, 0.9])


def test_without_others_and_prior_the_prediction_is_the_baseline():
    alone_G = hint_conditional_advantages(
        [1.0, 0.0], [0.2, 0.4], [0.1, 0.3], prior_rollouts=0.0, divide_by_std=False
    )
    np.testing.assert_allclose(alone_G, [0.9, -0.3])


def test_hand_worked_standard_deviation():
    # One of eight correct. Correct: b = 0, c = (0 + 1) / 9, A = 1 / sqrt(8/81) = 9 / sqrt(8), the bound for
    # k = 7. Wrong: b = 1/7, c = (1 + 1) / 9, A = -(1/7) / sqrt(14/81).
    rewards_G = np.repeat([1.0, 0.0], [1, 7])
    advantages_G = hint_conditional_advantages(
        rewards_G, np.zeros(8), np.full(8, 0.5), prior_rollouts=0.0, divide_by_std=True
    )
    np.testing.assert_allclose(advantages_G[0], 9.0 / np.sqrt(8.0))
    np.testing.assert_allclose(advantages_G[1:], -(9.0 / 7.0) / np.sqrt(14.0))


def test_a_pooled_baseline_takes_one_rollout_off_the_gradient():
    # Of r_i - mean, r_i itself holds the share 1 - 1/4; the others are independent of it.
    estimate_G, true_G = gradients(ACCURACY_G, pooled)
    np.testing.assert_allclose(estimate_G, 3.0 / 4.0 * true_G)


def test_a_round_baseline_takes_one_rollout_off_the_gradient_of_its_round():
    accuracy_G = np.array([0.9, 0.9, 0.3, 0.3, 0.3])
    estimate_G, true_G = gradients(
        accuracy_G,
        lambda rewards_G: per_round_advantages(rewards_G, [0, 0, 1, 1, 1], divide_by_std=False),
    )
    np.testing.assert_allclose(estimate_G, np.array([1 / 2, 1 / 2, 2 / 3, 2 / 3, 2 / 3]) * true_G)


@pytest.mark.parametrize("prior_rollouts", [0.0, 2.5])
@pytest.mark.parametrize("predicted_G", [ACCURACY_G, 1.0 - ACCURACY_G, np.array([0.0, 1.0, 0.2, 0.7])])
def test_a_hint_conditional_baseline_leaves_the_gradient_whole_however_wrong_the_prediction(
    predicted_G, prior_rollouts
):
    estimate_G, true_G = gradients(
        ACCURACY_G,
        lambda rewards_G: hint_conditional_advantages(
            rewards_G, RATIO_G, predicted_G, prior_rollouts=prior_rollouts, divide_by_std=False
        ),
    )
    np.testing.assert_allclose(estimate_G, true_G)


def test_dividing_by_the_deviation_scales_the_gradient_of_a_hint():
    estimate_G, true_G = gradients(
        ACCURACY_G,
        lambda rewards_G: hint_conditional_advantages(
            rewards_G, RATIO_G, ACCURACY_G, prior_rollouts=1.0, divide_by_std=True
        ),
    )
    scale_G = estimate_G / true_G
    assert np.all(scale_G > 0.0)
    np.testing.assert_allclose(scale_G[::2], scale_G[1::2])

    # Accuracy .9, one other, one predicted rollout of .9: k = 2, c = (r_other + .9 + 1) / 4.
    c_if_wrong, c_if_correct = 1.9 / 4.0, 2.9 / 4.0
    expected = 0.1 / np.sqrt(c_if_wrong * (1 - c_if_wrong)) + 0.9 / np.sqrt(c_if_correct * (1 - c_if_correct))
    np.testing.assert_allclose(scale_G[0], expected)


def test_a_prediction_that_has_seen_the_reward_shrinks_the_gradient():
    # The prediction is the mean of both rollouts, half of it r_i, and has the weight 2 / (1 + 2) in b_i.
    estimate_G, true_G = gradients(
        ACCURACY_G,
        lambda rewards_G: hint_conditional_advantages(
            rewards_G,
            RATIO_G,
            np.repeat(rewards_G.reshape(2, 2).mean(axis=1), 2),
            prior_rollouts=2.0,
            divide_by_std=False,
        ),
    )
    np.testing.assert_allclose(estimate_G, (1.0 - 1.0 / 3.0) * true_G)


def test_where_rewards_choose_the_next_hint_a_call_per_round_keeps_the_gradient_whole():
    # Round 1 keeps the hint unless both rollouts of round 0 are correct, in which case it reveals less.
    accuracy_at = {0.8: 0.6, 0.2: 0.3}

    def error(advantages_of):
        total_G = np.zeros(4)
        for first_probability, first_2 in outcomes(np.array([0.6, 0.6])):
            second_ratio = 0.2 if first_2.all() else 0.8
            ratio_G = np.array([0.8, 0.8, second_ratio, second_ratio])
            accuracy_G = np.array([accuracy_at[ratio] for ratio in ratio_G])
            for second_probability, second_2 in outcomes(accuracy_G[2:]):
                rewards_G = np.concatenate([first_2, second_2])
                estimate_G = advantages_of(rewards_G, ratio_G) * (rewards_G - accuracy_G)
                true_G = accuracy_G * (1.0 - accuracy_G)
                total_G += first_probability * second_probability * (estimate_G - true_G)
        return total_G

    def at_once(rewards_G, ratio_G):
        return hint_conditional_advantages(
            rewards_G, ratio_G, np.full(4, 0.5), prior_rollouts=1.0, divide_by_std=False
        )

    def per_round(rewards_G, ratio_G):
        # Round 1 may predict from the rewards of round 0.
        predicted_G = np.repeat([0.5, rewards_G[:2].mean()], 2)
        rounds = [
            hint_conditional_advantages(
                rewards_G[part], ratio_G[part], predicted_G[part], prior_rollouts=1.0, divide_by_std=False
            )
            for part in (slice(0, 2), slice(2, 4))
        ]
        return np.concatenate(rounds)

    np.testing.assert_allclose(error(per_round), 0.0, atol=1e-12)
    assert np.abs(error(at_once)[:2]).min() > 1e-3


def noise(accuracy_G, estimator):
    """Variance of the gradient for a token that the reward ignores, per rollout and choice of variance 1/4.

    Such a choice is independent of all rewards, so Var[A d log pi] = E[A^2] / 4.
    """
    return expectation(accuracy_G, lambda rewards_G: np.mean(estimator(rewards_G) ** 2)) / 4.0


def leave_one_out(rewards_G):
    """Two rounds of four under different hints, without a prediction."""
    return hint_conditional_advantages(
        rewards_G, np.repeat([0.8, 0.2], 4), np.full(8, 0.5), prior_rollouts=0.0, divide_by_std=False
    )


def pooled_to_scale(rewards_G):
    """Scaled so that the expected gradient is the true one, as for the leave-one-out baseline."""
    return len(rewards_G) / (len(rewards_G) - 1) * pooled(rewards_G)


def test_noise_is_several_times_lower_where_the_rounds_differ():
    # For many rollouts (q(1-q) + (q-1/2)^2) / q(1-q) = .25 / .0475 = 5.3.
    apart_G = np.repeat([0.95, 0.05], 4)
    assert noise(apart_G, pooled_to_scale) > 5.0 * noise(apart_G, leave_one_out)
    # The mean of three others adds a third of the variance of a reward: .0475 * 4/3 / 4.
    np.testing.assert_allclose(noise(apart_G, leave_one_out), 0.0475 / 3.0)


def test_noise_is_hardly_higher_where_the_rounds_are_alike():
    # Three others instead of seven: (1 + 1/3) / (1 + 1/7) = 7/6.
    alike_G = np.full(8, 0.5)
    np.testing.assert_allclose(noise(alike_G, leave_one_out), 7.0 / 6.0 * noise(alike_G, pooled_to_scale))


def test_a_good_prediction_stands_in_for_the_missing_rollouts():
    def shrunk(rewards_G):
        return hint_conditional_advantages(
            rewards_G, np.repeat([0.8, 0.2], 4), np.full(8, 0.5), prior_rollouts=4.0, divide_by_std=False
        )

    alike_G = np.full(8, 0.5)
    assert noise(alike_G, shrunk) < noise(alike_G, pooled_to_scale)


def test_for_the_choice_that_decides_the_reward_the_pooled_baseline_can_be_the_quieter_one():
    # By the logit of q itself the best constant is 1 - q, because the rare outcome has the large score.
    apart_G = np.repeat([0.95, 0.05], 4)

    def second_moment(estimator):
        return expectation(
            apart_G, lambda rewards_G: np.mean((estimator(rewards_G) * (rewards_G - apart_G)) ** 2)
        )

    assert second_moment(pooled_to_scale) < second_moment(leave_one_out)


ROLLOUT = st.tuples(
    st.sampled_from([0.0, 1.0]) | st.floats(0.0, 1.0),
    st.integers(0, 3),
    st.sampled_from([0.0, 0.25, 0.5, 0.75]),
    st.floats(0.0, 1.0),
)
GROUPS = st.lists(ROLLOUT, min_size=1, max_size=12).map(lambda rollouts: np.array(rollouts).T)
ESTIMATORS = {
    "pooled": lambda reward_G, round_G, ratio_G, predicted_G, **settings: pooled_advantages(
        reward_G, **settings
    ),
    "per round": lambda reward_G, round_G, ratio_G, predicted_G, **settings: per_round_advantages(
        reward_G, round_G, **settings
    ),
    "hint-conditional": lambda reward_G, round_G, ratio_G, predicted_G, **settings: (
        hint_conditional_advantages(reward_G, ratio_G, predicted_G, prior_rollouts=1.5, **settings)
    ),
}


@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)
@given(group_4G=GROUPS, divide_by_std=st.booleans(), data=st.data())
def test_the_order_of_the_rollouts_does_not_matter(estimator, group_4G, divide_by_std, data):
    order_G = np.array(data.draw(st.permutations(range(group_4G.shape[1]))))
    advantages_G = estimator(*group_4G, divide_by_std=divide_by_std)
    reordered_G = estimator(*group_4G[:, order_G], divide_by_std=divide_by_std)
    np.testing.assert_allclose(reordered_G, advantages_G[order_G], atol=1e-8)


@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)
@given(group_4G=GROUPS, divide_by_std=st.booleans())
def test_advantages_are_finite_doubles_one_per_rollout(estimator, group_4G, divide_by_std):
    advantages_G = estimator(*group_4G, divide_by_std=divide_by_std)
    assert advantages_G.dtype == np.float64
    assert advantages_G.shape == group_4G[0].shape
    assert np.all(np.isfinite(advantages_G))


@given(group_4G=GROUPS, divide_by_std=st.booleans(), labels=st.permutations([-5, 0, 17, 2**40]))
def test_rounds_may_carry_any_labels(group_4G, divide_by_std, labels):
    reward_G, round_G = group_4G[0], group_4G[1].astype(int)
    np.testing.assert_array_equal(
        per_round_advantages(reward_G, np.array(labels)[round_G], divide_by_std=divide_by_std),
        per_round_advantages(reward_G, round_G, divide_by_std=divide_by_std),
    )


@given(group_4G=GROUPS)
def test_advantages_of_a_round_of_several_sum_to_nothing(group_4G):
    reward_G, round_G, *_ = group_4G
    advantages_G = per_round_advantages(reward_G, round_G, divide_by_std=False)
    for label, num_rollouts in zip(*np.unique(round_G, return_counts=True), strict=True):
        if num_rollouts > 1:
            assert advantages_G[round_G == label].sum() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.filterwarnings("error")
@given(group_4G=GROUPS, prior_rollouts=st.floats(0.0, 1e100))
def test_the_deviation_of_a_baseline_keeps_advantages_bounded(group_4G, prior_rollouts):
    reward_G, _, ratio_G, predicted_G = group_4G
    advantages_G = hint_conditional_advantages(
        reward_G, ratio_G, predicted_G, prior_rollouts=prior_rollouts, divide_by_std=True
    )
    support_G = np.array([np.sum(ratio_G == ratio) - 1.0 + prior_rollouts for ratio in ratio_G])
    support_G[support_G == 0.0] = 1.0
    assert np.all(np.abs(advantages_G) <= (support_G + 2.0) / np.sqrt(support_G + 1.0) * (1.0 + 1e-9))


@pytest.mark.parametrize("rewards", [[], [[1.0, 0.0]], 1.0])
@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)
def test_what_is_not_one_group_is_refused(estimator, rewards):
    with pytest.raises(ValueError, match=r"rewards_G must be a non-empty \(G,\) array, got shape"):
        estimator(rewards, rewards, rewards, rewards, divide_by_std=False)


def test_columns_of_other_lengths_are_refused():
    with pytest.raises(ValueError, match=r"round_G must have the shape \(2,\) of rewards_G, got \(1,\)"):
        per_round_advantages([1.0, 0.0], [0], divide_by_std=False)
    for ratios, predictions, name in [([0.5], [0.5, 0.5], "hint_ratio_G"), ([0.5, 0.5], 0.5, "predicted_G")]:
        with pytest.raises(ValueError, match=f"{name} must have the shape"):
            hint_conditional_advantages(
                [1.0, 0.0], ratios, predictions, prior_rollouts=1.0, divide_by_std=False
            )


@pytest.mark.parametrize("accuracy", [-0.1, 1.1, float("nan")])
def test_rewards_and_predictions_that_are_no_accuracies_are_refused(accuracy):
    with pytest.raises(ValueError, match=r"predicted_G must lie in \[0, 1\]"):
        hint_conditional_advantages(
            [1.0, 0.0], [0.5, 0.5], [0.5, accuracy], prior_rollouts=1.0, divide_by_std=False
        )
    with pytest.raises(ValueError, match=r"rewards_G must lie in \[0, 1\]"):
        hint_conditional_advantages(
            [accuracy, 0.0], [0.5, 0.5], [0.5, 0.5], prior_rollouts=1.0, divide_by_std=False
        )


@pytest.mark.parametrize("prior_rollouts", [-1.0, float("inf"), float("nan")])
def test_a_prior_of_no_number_of_rollouts_is_refused(prior_rollouts):
    with pytest.raises(ValueError, match="prior_rollouts must be finite and at least 0"):
        hint_conditional_advantages(
            [1.0, 0.0], [0.5, 0.5], [0.5, 0.5], prior_rollouts=prior_rollouts, divide_by_std=False
        )


def test_split_statistics_leave_the_given_rollouts_out():
    # Two of four own rollouts right: mean .5, sample deviation .57735; the solution is right.
    advantages = split_advantages([1, 1, 0, 0, 1], [True] * 4 + [False], divide_by_std=False)
    assert advantages.tolist() == [0.5, 0.5, -0.5, -0.5, 0.5]
    divided = split_advantages([1, 1, 0, 0, 1], [True] * 4 + [False], divide_by_std=True)
    np.testing.assert_allclose(divided, advantages / (1 / np.sqrt(3) + 1e-6))


def test_split_statistics_leave_out_the_rollout_itself_too():
    advantages = split_advantages(
        [1, 0, 0, 0, 1], [True] * 4 + [False], divide_by_std=False, leave_one_out=True
    )
    np.testing.assert_allclose(advantages, [1, -1 / 3, -1 / 3, -1 / 3, 0.75])


@pytest.mark.parametrize("own", [[0, 0, 0], [1, 1, 1], [0.1, 0.1, 0.1]])
def test_equal_own_rewards_count_as_deviation_one(own):
    # Not 0: divided by verl's 1e-6 the solution would get an advantage of a million.
    advantages = split_advantages([*own, 1.0], [True] * 3 + [False], divide_by_std=True)
    # Exactly 0, which says that a row is not informative; three times 0.1 have the mean 0.10000000000000002.
    assert advantages[:3].tolist() == [0.0] * 3
    assert advantages[3] == pytest.approx((1.0 - own[0]) / (1 + 1e-6))
    assert pooled_advantages(own, divide_by_std=True).tolist() == [0.0] * 3
    assert leave_one_out_advantages(own).tolist() == [0.0] * 3


def test_split_statistics_of_a_single_own_rollout_keep_its_reward():
    assert split_advantages([1, 1], [True, False], divide_by_std=True).tolist() == pytest.approx(
        [1, 1], abs=1e-5
    )


def test_split_statistics_need_an_own_rollout():
    with pytest.raises(ValueError, match="at least one rollout must be on-policy"):
        split_advantages([1.0], [False], divide_by_std=False)


def test_prefix_advantages_of_one_continuation():
    # Seven rollouts without prefix, two of them right; the continuation is right.
    rewards, prefixed = [1, 1, 1, 0, 0, 0, 0, 0], [True] + [False] * 7
    generated, prefix = prefix_advantages(rewards, prefixed)
    np.testing.assert_allclose(generated, [1] + [5 / 7] * 2 + [-2 / 7] * 5)
    np.testing.assert_allclose(prefix, [1 - 2 / 7] + [0] * 7)


def test_a_single_rollout_without_a_prefix_keeps_its_reward():
    generated, prefix = prefix_advantages([1, 0, 1], [False, True, True])
    np.testing.assert_array_equal(generated, [1, -0.5, 0.5])
    np.testing.assert_array_equal(prefix, [0, -0.25, 0.25])


def test_prefix_advantages_of_several_continuations_are_taken_among_them():
    generated, prefix = prefix_advantages([1, 0, 1, 0], [True, True, False, False])
    np.testing.assert_allclose(generated, [0.5, -0.5, 0.5, -0.5])
    np.testing.assert_allclose(prefix, [(0.5 - 0.5) / 2, (-0.5 - 0.5) / 2, 0, 0])


def test_without_a_prefix_they_are_the_pooled_ones():
    generated, prefix = prefix_advantages([1, 0, 0, 1], [False] * 4)
    np.testing.assert_allclose(generated, pooled_advantages([1, 0, 0, 1], divide_by_std=False))
    assert not prefix.any()


def test_the_highest_share_is_rounded_up_and_ties_go_by_position():
    assert highest([0.1, 0.9, 0.5, 0.9, 0.2], 0.2).tolist() == [False, True, False, False, False]
    assert highest([0.1, 0.9, 0.5, 0.9, 0.2], 0.3).tolist() == [False, True, False, True, False]
    assert highest([], 0.2).tolist() == []
