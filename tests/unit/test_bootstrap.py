"""Intervals and tests over a few repetitions: against hand-worked cases, enumeration and simulation."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seele.maths.bootstrap import bootstrap_interval, sign_flip_p_value, t_interval


def generator(seed=0):
    return np.random.default_rng(seed)


def enumerated_p_value(differences):
    """The definition, one choice of signs after the other."""
    bound = abs(sum(differences)) - 1e-9
    sums = [
        sum(sign * each for sign, each in zip(signs, differences, strict=True))
        for signs in itertools.product((-1, 1), repeat=len(differences))
    ]
    return sum(abs(total) >= bound for total in sums) / len(sums)


@pytest.mark.parametrize(
    ("differences", "p_value"),
    [
        pytest.param([0.1], 1.0, id="one pair says nothing"),
        pytest.param([0.1, 0.2], 2 / 4, id="two of one sign"),
        # |sum| >= 0.3 only with all signs alike.
        pytest.param([0.1, 0.1, 0.1], 2 / 8, id="three of one sign"),
        # Sums of 1, 2, 4 are 7, 5, 3, 1 and their negatives; observed 5.
        pytest.param([-1.0, 2.0, 4.0], 4 / 8, id="one against two"),
        pytest.param([0.3, 0.1, 0.2, 0.4, 0.5], 2 / 32, id="five of one sign: the smallest p of five"),
        pytest.param([1.0, -1.0], 1.0, id="they cancel"),
        pytest.param([0.0, 0.0, 0.0], 1.0, id="no difference at all"),
        # A zero has no sign to flip: both flips of it count.
        pytest.param([0.2, 0.2, 0.0], 2 / 4, id="a zero among them"),
    ],
)
def test_p_values_worked_out_by_hand(differences, p_value):
    assert sign_flip_p_value(np.array(differences)) == p_value


@settings(deadline=None)
@given(st.lists(st.integers(-20, 20).map(lambda number: number / 10), min_size=1, max_size=9))
def test_the_p_value_is_the_share_of_all_flips_whatever_their_rounding(differences):
    assert sign_flip_p_value(np.array(differences)) == enumerated_p_value(differences)


def test_neither_order_nor_sign_nor_scale_matters_to_the_p_value():
    differences = np.array([0.03, -0.01, 0.04, 0.015, 0.02, 0.01])
    p_value = sign_flip_p_value(differences)
    assert {sign_flip_p_value(other) for other in (differences[::-1], -differences, 100 * differences)} == {
        p_value
    }


def test_thirty_pairs_are_no_burden():
    assert sign_flip_p_value(np.ones(30)) == 2 / 2**30


def test_the_test_holds_its_level_where_there_is_no_difference():
    draws = generator().standard_normal((2000, 8))
    rejected = np.mean([sign_flip_p_value(row) <= 0.05 for row in draws])
    # 12 of 256 flips are the largest number within 5 %; two standard deviations of 2000 draws are 0.01.
    assert rejected == pytest.approx(12 / 256, abs=0.01)


def test_an_interval_lies_around_the_mean_and_within_the_values():
    values_N = np.array([0.2, 0.3, 0.4, 0.7])
    low, high = bootstrap_interval(values_N, generator())
    assert values_N.min() <= low < values_N.mean() < high <= values_N.max()


def test_three_repetitions_span_nearly_all_they_can():
    # Of the 27 resamples of 0, 1, 2 one has the mean 0: 3.7 %, more than the 2.5 % left out at either end.
    low, high = bootstrap_interval(np.array([0.0, 1.0, 2.0]), generator())
    assert (low, high) == (0.0, 2.0)


def test_equal_values_have_an_interval_without_width():
    low, high = bootstrap_interval(np.full(7, 0.1), generator())
    assert low == high == 0.1


def test_a_higher_level_is_a_wider_interval():
    values_N = generator().standard_normal(10)
    (low_50, high_50), (low_95, high_95) = (
        bootstrap_interval(values_N, generator(), level=level) for level in (0.5, 0.95)
    )
    assert low_95 < low_50 < high_50 < high_95


def test_several_values_of_a_repetition_are_drawn_together():
    values_N = generator().standard_normal(5)
    low_K, high_K = bootstrap_interval(np.stack([values_N, 2 * values_N], axis=1), generator())
    low, high = bootstrap_interval(values_N, generator())
    np.testing.assert_allclose(low_K, [low, 2 * low])
    np.testing.assert_allclose(high_K, [high, 2 * high])


def test_the_same_generator_gives_the_same_interval():
    values_N = generator().standard_normal(6)
    assert bootstrap_interval(values_N, generator(3)) == bootstrap_interval(values_N, generator(3))
    assert bootstrap_interval(values_N, generator(3), resamples=99) != bootstrap_interval(
        values_N, generator(4), resamples=99
    )


@pytest.mark.parametrize(("num_seeds", "coverage"), [(3, 0.75), (5, 0.84), (10, 0.91)])
def test_the_interval_covers_as_often_as_the_documentation_says(num_seeds, coverage):
    draws = generator()
    ends = [bootstrap_interval(draws.standard_normal(num_seeds), draws, resamples=500) for _ in range(2000)]
    # Two standard deviations of 2000 draws are 0.02.
    assert np.mean([low <= 0.0 <= high for low, high in ends]) == pytest.approx(coverage, abs=0.025)


def test_students_interval_worked_out_by_hand():
    # Standard deviation 1 and t(2, 0.975) = 4.3027: half a width of 4.3027 / sqrt(3).
    assert t_interval(np.array([1.0, 2.0, 3.0])) == pytest.approx((-0.4841, 4.4841), abs=1e-4)
    assert t_interval(np.array([0.0, 2.0]), level=0.5) == pytest.approx((0.0, 2.0))
    assert t_interval(np.full(4, 0.25)) == (0.25, 0.25)


@pytest.mark.parametrize("num_seeds", [3, 5])
def test_students_interval_covers_as_often_as_it_says(num_seeds):
    ends = [t_interval(values) for values in generator().standard_normal((4000, num_seeds))]
    assert np.mean([low <= 0.0 <= high for low, high in ends]) == pytest.approx(0.95, abs=0.01)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8))
def test_no_interval_leaves_the_values(values):
    low, high = bootstrap_interval(np.array(values), generator(), resamples=50)
    assert min(values) <= low <= high <= max(values)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_test_of_what_is_not_finite_is_refused(value):
    with pytest.raises(ValueError, match="differences must be finite, got"):
        sign_flip_p_value(np.array([0.1, value, 0.3]))


def test_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one repetition"):
        bootstrap_interval(np.array([]), generator())
    with pytest.raises(ValueError, match="at least one pair"):
        sign_flip_p_value(np.array([]))
    with pytest.raises(ValueError, match="at least two repetitions, got 1"):
        t_interval(np.array([0.5]))
