import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seele.maths import curve_grid
from seele.maths.curve_grid import (
    CROSSING_GAP,
    CROSSINGS,
    DRIFT_PRIOR,
    DRIFTS,
    NUM_BOUNDS,
    NUM_CROSSINGS,
    NUM_CURVES,
    NUM_SLOPES,
    PRIOR,
    RATIOS,
)

GRID = (NUM_SLOPES, NUM_BOUNDS, NUM_CROSSINGS)
SEEDS = st.integers(0, 2**32 - 1)

# (N, T) accuracy of every curve alone.
ACCURACY_GT = curve_grid.expected_accuracy(np.eye(NUM_CURVES, dtype=np.float32))


def some_beliefs(generator, num_problems):
    """Some spread over the whole grid, some that leave most of it out."""
    shares_NG = generator.gamma(generator.choice([0.01, 0.1, 1.0]), size=(num_problems, NUM_CURVES)) + 1e-12
    return (shares_NG / shares_NG.sum(axis=1, keepdims=True)).astype(np.float32)


def some_observations(generator, num_problems, num_ratios):
    """(N, K) ratios, correct and wrong rollouts; some rows have fewer than K."""
    shape = (num_problems, num_ratios)
    return generator.random(shape), generator.integers(0, 9, shape), generator.integers(0, 9, shape)


def mean_crossing(crossing_NSM):
    return crossing_NSM.astype(np.float64) @ CROSSINGS


# --- curves and observations -----------------------------------------------------------------------------


def test_what_is_assumed_is_a_probability():
    assert PRIOR.shape == (NUM_CURVES,)
    for probability in (PRIOR, DRIFT_PRIOR):
        assert probability.min() > 0.0
        assert probability.sum() == pytest.approx(1.0)


def test_a_curve_passes_one_half_at_its_crossing():
    accuracy_SFMT = ACCURACY_GT.reshape(*GRID, len(RATIOS))
    for position, crossing in enumerate(CROSSINGS):
        if 0.0 <= crossing <= 1.0:
            (column,) = curve_grid.nearest_columns([crossing])
            np.testing.assert_allclose(accuracy_SFMT[:, :, position, column], 0.5, atol=1e-5)


def test_the_log_likelihood_is_that_of_a_binomial_without_its_constant():
    # Slope 9, floor 0.08, ceiling 0.6, crossing 0.4: (0.5 - 0.08) / (0.6 - 0.08) = 0.807692 of the rise.
    slope, bounds, crossing = 1, 3, 24
    assert (curve_grid.SLOPES[slope], CROSSINGS[crossing]) == (9.0, pytest.approx(0.4))
    shift = math.log(0.807692 / 0.192308)

    def accuracy(ratio):
        return 0.08 + 0.52 / (1.0 + math.exp(-(9.0 * (ratio - 0.4) + shift)))

    # 3 of 8 at a quarter, 1 of 1 at 0.6.
    expected = 3 * math.log(accuracy(0.25)) + 5 * math.log(1.0 - accuracy(0.25)) + math.log(accuracy(0.6))
    total_NG = curve_grid.log_likelihood(np.array([[0.25, 0.6]]), np.array([[3, 1]]), np.array([[5, 0]]))
    assert total_NG.reshape(GRID)[slope, bounds, crossing] == pytest.approx(expected, abs=1e-5)


def test_one_slip_rules_no_curve_out():
    for correct, wrong in ((1, 0), (0, 1)):
        total_NG = curve_grid.log_likelihood(
            np.array([[0.0, 1.0]]), np.array([[correct, 0]]), np.array([[wrong, 0]])
        )
        assert math.log(0.002) - 1e-5 <= total_NG.min() < math.log(0.02)


@settings(max_examples=10, deadline=None)
@given(SEEDS, st.integers(1, 6), st.integers(1, 5))
def test_the_bits_of_a_row_do_not_depend_on_the_other_rows(seed, num_problems, num_ratios):
    seen = some_observations(np.random.default_rng(seed), num_problems, num_ratios)
    together_NG = curve_grid.log_likelihood(*seen)
    beliefs_NG = some_beliefs(np.random.default_rng(seed), num_problems)
    updated_NG = curve_grid.update(beliefs_NG, together_NG)
    for row in range(num_problems):
        alone_G = curve_grid.log_likelihood(*(part[row : row + 1] for part in seen))
        assert alone_G.tobytes() == together_NG[row].tobytes()
        assert curve_grid.update(beliefs_NG[row : row + 1], alone_G).tobytes() == updated_NG[row].tobytes()


def test_padding_without_rollouts_changes_nothing():
    ratio_NK, correct_NK, wrong_NK = some_observations(np.random.default_rng(0), 3, 2)
    padding_NK = np.zeros((3, 4))
    padded = (np.hstack([part, padding_NK]) for part in (ratio_NK, correct_NK, wrong_NK))
    expected_NG = curve_grid.log_likelihood(ratio_NK, correct_NK, wrong_NK)
    assert curve_grid.log_likelihood(*padded).tobytes() == expected_NG.tobytes()


@settings(max_examples=10, deadline=None)
@given(SEEDS)
def test_an_update_is_bayes_rule(seed):
    generator = np.random.default_rng(seed)
    belief_NG = some_beliefs(generator, 3)
    log_likelihood_NG = curve_grid.log_likelihood(*some_observations(generator, 3, 4))
    joint_NG = belief_NG.astype(np.float64) * np.exp(log_likelihood_NG.astype(np.float64))
    expected_NG = joint_NG / joint_NG.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(curve_grid.update(belief_NG, log_likelihood_NG), expected_NG, atol=1e-6)


@pytest.mark.filterwarnings("error")
def test_thousands_of_rollouts_neither_overflow_nor_vanish():
    counts = np.array([[40_000.0, 0.0]]), np.array([[0.0, 40_000.0]])
    log_likelihood_NG = curve_grid.log_likelihood(np.array([[0.0, 1.0]]), *counts)
    posterior_NG = curve_grid.update(PRIOR[None].astype(np.float32), log_likelihood_NG)
    assert np.isfinite(posterior_NG).all()
    assert posterior_NG.sum() == pytest.approx(1.0, abs=1e-5)


# --- drift -----------------------------------------------------------------------------------------------


def test_drift_moves_the_mean_crossing_down_by_the_mean_gain_in_ability():
    generator = np.random.default_rng(0)
    crossing_NSM = np.zeros((2, NUM_SLOPES, NUM_CROSSINGS), dtype=np.float32)
    # So far from the ends of the grid that no drift gets there.
    crossing_NSM[..., 10:40] = generator.dirichlet(np.ones(30), (2, NUM_SLOPES))
    drift_D = generator.dirichlet(np.ones(len(DRIFTS)))
    mean_gain = float(drift_D @ DRIFTS) * CROSSING_GAP
    moved_NSM = curve_grid.drift(crossing_NSM, drift_D)
    np.testing.assert_allclose(
        mean_crossing(moved_NSM), mean_crossing(crossing_NSM) - mean_gain, rtol=0.0, atol=1e-6
    )


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_drift_loses_nothing(seed):
    generator = np.random.default_rng(seed)
    crossing_NSM = generator.dirichlet(np.full(NUM_CROSSINGS, 0.1), (4, NUM_SLOPES)).astype(np.float32)
    moved_NSM = curve_grid.drift(crossing_NSM, generator.dirichlet(np.full(len(DRIFTS), 0.3)))
    assert moved_NSM.min() >= 0.0
    np.testing.assert_allclose(moved_NSM.sum(axis=2), crossing_NSM.sum(axis=2), atol=1e-5)


@pytest.mark.parametrize(("end", "cells"), [(0, int(DRIFTS.max())), (-1, int(DRIFTS.min()))])
def test_what_would_leave_the_grid_stays_at_its_end(end, cells):
    crossing_NSM = np.zeros((1, NUM_SLOPES, NUM_CROSSINGS), dtype=np.float32)
    crossing_NSM[..., end] = 1.0
    moved_NSM = curve_grid.drift(crossing_NSM, (cells == DRIFTS).astype(np.float64))
    np.testing.assert_array_equal(moved_NSM, crossing_NSM)


@pytest.mark.parametrize("cells", DRIFTS.tolist())
def test_the_drift_that_happened_is_found(cells):
    # The crossing was known to be 0.45, cell 25; 400 rollouts after the drift, at four hint ratios.
    slope, bounds, before = 2, 0, 25
    crossing_NSM = np.zeros((1, NUM_SLOPES, NUM_CROSSINGS), dtype=np.float32)
    crossing_NSM[..., before] = 1.0
    bounds_NSF = np.full((1, NUM_SLOPES, NUM_BOUNDS), 1.0 / (NUM_SLOPES * NUM_BOUNDS), dtype=np.float32)
    ratio_NK = np.array([[0.0, 0.25, 0.5, 0.75]])
    accuracy_T = ACCURACY_GT.reshape(*GRID, -1)[slope, bounds, before - cells]
    correct_NK = np.rint(100.0 * accuracy_T[curve_grid.nearest_columns(ratio_NK)])
    posterior_ND = curve_grid.drift_posterior(
        crossing_NSM,
        bounds_NSF,
        curve_grid.log_likelihood(ratio_NK, correct_NK, 100.0 - correct_NK),
        DRIFT_PRIOR,
    )
    assert posterior_ND.sum() == pytest.approx(1.0)
    assert DRIFTS[posterior_ND[0].argmax()] == cells


def test_without_observations_every_drift_is_as_probable_as_before():
    crossing_NSM, bounds_NSF = curve_grid.split_belief(PRIOR[None].astype(np.float32))
    posterior_ND = curve_grid.drift_posterior(
        crossing_NSM, bounds_NSF, np.zeros((1, NUM_CURVES), dtype=np.float32), DRIFT_PRIOR
    )
    np.testing.assert_allclose(posterior_ND, DRIFT_PRIOR[None], atol=1e-6)


# --- what a hint is worth --------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_more_hint_never_lowers_the_expected_accuracy(seed):
    expected_NT = curve_grid.expected_accuracy(some_beliefs(np.random.default_rng(seed), 3))
    assert (np.diff(expected_NT, axis=1) >= 0.0).all()
    assert ((expected_NT > 0.0) & (expected_NT < 1.0)).all()


def test_at_a_target_of_one_half_the_worth_is_the_variance_of_the_reward():
    np.testing.assert_allclose(
        curve_grid.utility_table(0.5), ACCURACY_GT * (1.0 - ACCURACY_GT), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("target", [0.25, 0.5, 0.75])
def test_the_worth_rises_up_to_the_target_and_falls_from_there_on(target):
    accuracy_X, worth_X = ACCURACY_GT.ravel(), curve_grid.utility_table(target).ravel()
    order_X = np.argsort(accuracy_X)
    accuracy_X, worth_X = accuracy_X[order_X], worth_X[order_X]
    assert accuracy_X[worth_X.argmax()] == pytest.approx(target, abs=1e-3)
    assert (np.diff(worth_X[accuracy_X <= target]) >= -1e-7).all()
    assert (np.diff(worth_X[accuracy_X >= target]) <= 1e-7).all()


# --- taking beliefs apart --------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_a_belief_in_which_crossing_and_bounds_are_independent_survives_being_split(seed):
    generator = np.random.default_rng(seed)
    bounds_SF = generator.dirichlet(np.ones(NUM_SLOPES * NUM_BOUNDS)).reshape(NUM_SLOPES, NUM_BOUNDS)
    crossing_SM = generator.dirichlet(np.ones(NUM_CROSSINGS), NUM_SLOPES)
    belief_NG = (bounds_SF[:, :, None] * crossing_SM[:, None, :]).reshape(1, -1).astype(np.float32)
    crossing_NSM, bounds_NSF = curve_grid.split_belief(belief_NG)
    np.testing.assert_allclose(crossing_NSM[0], crossing_SM, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(bounds_NSF[0], bounds_SF, rtol=1e-4, atol=1e-7)
    joined_NG = curve_grid.join_belief(crossing_NSM, bounds_NSF)
    np.testing.assert_allclose(joined_NG, belief_NG, rtol=1e-4, atol=1e-8)


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_being_split_keeps_the_marginals_of_every_belief(seed):
    belief_NG = some_beliefs(np.random.default_rng(seed), 3)
    crossing_NSM, bounds_NSF = curve_grid.split_belief(belief_NG)
    joined_NG = curve_grid.join_belief(crossing_NSM, bounds_NSF)
    np.testing.assert_allclose(joined_NG.sum(axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(bounds_NSF.sum(axis=(1, 2)), 1.0, atol=1e-5)
    np.testing.assert_allclose(
        curve_grid.crossing_marginal(joined_NG), curve_grid.crossing_marginal(belief_NG), atol=1e-5
    )


@pytest.mark.filterwarnings("error")
def test_a_slope_that_is_ruled_out_has_no_crossings():
    belief_NG = np.zeros((1, *GRID), dtype=np.float32)
    belief_NG[0, 1, 2, 3] = 1.0
    crossing_NSM, bounds_NSF = curve_grid.split_belief(belief_NG.reshape(1, -1))
    assert crossing_NSM.sum() == bounds_NSF.sum() == crossing_NSM[0, 1, 3] == bounds_NSF[0, 1, 2] == 1.0


def test_the_crossing_marginal_adds_up_over_shapes():
    assert curve_grid.crossing_marginal(PRIOR) == pytest.approx(PRIOR.reshape(GRID).sum(axis=(0, 1))[None])


def test_factors_of_one_reweigh_nothing():
    belief_NG = curve_grid.reweigh_crossings(PRIOR, np.ones((2, NUM_CROSSINGS)))
    np.testing.assert_allclose(belief_NG, np.tile(PRIOR, (2, 1)), rtol=1e-6)


def test_a_factor_multiplies_the_odds_of_its_crossing():
    factor_NM = np.ones((1, NUM_CROSSINGS))
    factor_NM[0, 5] = 3.0
    (before_M,), (after_M,) = (
        curve_grid.crossing_marginal(belief)
        for belief in (PRIOR, curve_grid.reweigh_crossings(PRIOR, factor_NM))
    )
    odds_before, odds_after = before_M[5] / before_M[6], after_M[5] / after_M[6]
    assert odds_after == pytest.approx(3.0 * odds_before, rel=1e-5)
    assert after_M.sum() == pytest.approx(1.0, abs=1e-5)
