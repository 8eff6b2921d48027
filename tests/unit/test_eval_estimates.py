"""Accuracies at k, votes and intervals: hand-worked, enumerated, simulated."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seele_eval.estimates import (
    attempts,
    effective_sample_size,
    estimate,
    estimate_mean,
    generator_for,
    majority,
    pass_at_k,
    random_flips_p_value,
    wilson_interval,
)


def test_wilson_interval_of_a_published_example():
    # 10 of 20: p = .5, z² / n = .19207; centre .5, half width sqrt(.0125 + .0024) / 1.19207 * 1.96 = .2007.
    low, high = wilson_interval(0.5, 20)
    assert (low, high) == pytest.approx((0.2993, 0.7007), abs=1e-4)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_an_interval_contains_its_accuracy_stays_in_bounds_and_is_never_empty(counts):
    correct, total = counts
    low, high = wilson_interval(correct / total, total)
    assert 0.0 <= low <= correct / total + 1e-12
    assert correct / total - 1e-12 <= high <= 1.0
    assert high - low > 1e-3


def test_one_sample_a_problem_counts_for_one():
    assert effective_sample_size([1.0, 0.0, 0.0, 1.0, 1.0], samples=1) == pytest.approx(5)


def test_samples_that_always_agree_add_nothing_and_unrelated_ones_add_much():
    # Four problems, always right or always wrong: four independent draws whatever the number of samples.
    assert effective_sample_size([1.0, 0.0, 1.0, 0.0], samples=8) == pytest.approx(4)
    # p = .5, variance of the problems' means .25 / 8: .25 * 4 / .03125 = 32 draws.
    spread = (0.25 / 8) ** 0.5
    assert effective_sample_size([0.5 + spread, 0.5 - spread] * 2, samples=8) == pytest.approx(32)
    assert effective_sample_size([0.5] * 4, samples=8) == 4


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_all_choices_of_k_that_hold_a_correct_sample(numbers):
    correct, total, k = numbers
    samples = [True] * correct + [False] * (total - correct)
    choices = list(itertools.combinations(samples, k))
    assert pass_at_k(correct, total, k) == pytest.approx(sum(map(any, choices)) / len(choices))


def test_a_curve_has_powers_of_two_and_all_samples():
    assert [attempts(n) for n in (1, 2, 3, 8, 20)] == [
        [1], [1, 2], [1, 2, 3], [1, 2, 4, 8], [1, 2, 4, 8, 16, 20],
    ]  # fmt: skip


def test_pass_at_k_is_unbiased():
    # Problems solved with chance .2: four new samples solve one with 1 - .8^4 = .5904.
    generator = np.random.default_rng(0)
    counts = generator.binomial(8, 0.2, size=40_000)
    mean = np.mean([pass_at_k(int(count), 8, 4) for count in counts])
    # Standard deviation of one estimate is below .4, of the mean below .002.
    assert mean == pytest.approx(0.5904, abs=0.008)


def test_the_most_frequent_answer_wins_and_a_tie_is_shared():
    assert majority(["4", "5", "4"], [True, False, True]) == 1.0
    assert majority(["4", "5", "5"], [True, False, False]) == 0.0
    assert majority(["4", "5"], [True, False]) == 0.5
    # Samples without an answer have no vote, however many.
    assert majority([None, None, "4"], [False, False, True]) == 1.0
    assert majority([None, None], [False, False]) == 0.0


def test_an_interval_is_over_problems_and_agrees_with_theory():
    values = np.array([1.0] * 30 + [0.0] * 70)
    found = estimate(values, generator_for("x"))
    # Standard error sqrt(.3 * .7 / 100) = .0458: .3 -+ 1.96 * .0458.
    assert found.value == pytest.approx(0.3)
    assert found.interval_95 == pytest.approx((0.21, 0.39), abs=0.015)


def test_where_all_problems_agree_resampling_is_not_believed():
    assert estimate(np.zeros(30), generator_for("x")).interval_95 == pytest.approx(wilson_interval(0.0, 30))
    assert estimate(np.full(3, 12.0), generator_for("x"), is_share=False).interval_95 == (12.0, 12.0)


def test_the_mean_of_benchmarks_weighs_them_equally_and_resamples_each_by_itself():
    small, large = np.array([1.0, 0.0]), np.array([0.0] * 90 + [1.0] * 10)
    found = estimate_mean([small, large], [generator_for("small"), generator_for("large")])
    assert found.value == pytest.approx((0.5 + 0.1) / 2)
    # The small one's mean is 0, 0.5 or 1: the interval is wide because of it.
    low, high = found.interval_95
    assert low < 0.1 and high > 0.5


def test_the_same_name_gives_the_same_interval():
    values = np.random.default_rng(1).random(50)
    assert estimate(values, generator_for("gsm8k")) == estimate(values, generator_for("gsm8k"))
    assert estimate(values, generator_for("gsm8k")) != estimate(values, generator_for("math500"))


def test_flips_agree_with_the_exact_test():
    # Ten of ten in one direction: 2 / 2^10.
    assert random_flips_p_value(np.ones(10), generator_for("x")) == pytest.approx(2 / 1024, abs=0.0015)
    # Eight against two: sums of +-1 with |sum| >= 6: 2 * (1 + 10 + 45) / 1024.
    eight = np.array([1.0] * 8 + [-1.0] * 2)
    assert random_flips_p_value(eight, generator_for("x")) == pytest.approx(112 / 1024, abs=0.01)
    assert random_flips_p_value(np.zeros(5), generator_for("x")) == 1.0
    # Their sum is 0, and 3e-17 in floating point.
    assert random_flips_p_value(np.array([0.2, 0.2, -0.2, 0.1, -0.2, -0.1]), generator_for("x")) == 1.0


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=1, max_size=30))
def test_problems_on_which_nothing_differs_do_not_matter(differences):
    with_ties = np.array([*differences, 0.0, 0.0])
    assert random_flips_p_value(with_ties, generator_for("x")) == random_flips_p_value(
        np.array(differences), generator_for("x")
    )
