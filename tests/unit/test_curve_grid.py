"""Many item curves at once: the Bayesian controller's grid, and the paper's fit."""

import itertools
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
from seele.maths.irt import ItemCurve, invert, predict_accuracy
from seele.maths.irt_fit import (
    FLOOR_BOUNDS,
    SHIFT_BOUNDS,
    SLOPE_BOUNDS,
    average_equal_ratios,
    fit_one_by_one,
    with_margins,
)
from seele.maths.irt_grid_fit import fit_curves, fit_on_grid

# --- The posterior on the grid


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


@settings(max_examples=10)
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


@settings(max_examples=10)
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


@settings(max_examples=20)
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


@settings(max_examples=20)
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


@settings(max_examples=20)
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


@settings(max_examples=20)
@given(SEEDS)
def test_being_split_keeps_the_marginals_of_every_belief(seed):
    belief_NG = some_beliefs(np.random.default_rng(seed), 3)
    crossing_NSM, bounds_NSF = curve_grid.split_belief(belief_NG)
    joined_NG = curve_grid.join_belief(crossing_NSM, bounds_NSF)
    np.testing.assert_allclose(joined_NG.sum(axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(bounds_NSF.sum(axis=(1, 2)), 1.0, atol=1e-5)
    joined_NM, belief_NM = (each.reshape(-1, *GRID).sum(axis=(1, 2)) for each in (joined_NG, belief_NG))
    np.testing.assert_allclose(joined_NM, belief_NM, atol=1e-5)


@pytest.mark.filterwarnings("error")
def test_a_slope_that_is_ruled_out_has_no_crossings():
    belief_NG = np.zeros((1, *GRID), dtype=np.float32)
    belief_NG[0, 1, 2, 3] = 1.0
    crossing_NSM, bounds_NSF = curve_grid.split_belief(belief_NG.reshape(1, -1))
    assert crossing_NSM.sum() == bounds_NSF.sum() == crossing_NSM[0, 1, 3] == bounds_NSF[0, 1, 2] == 1.0


# --- The fit of many curves at once


POINTS = st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)), min_size=1, max_size=8)


def visits_by_steps(generator, num_problems):
    """Points of one visit each: solutions of 3 to 12 equal steps, 1 to 4 rounds of 4 or 16 rollouts."""
    problems = []
    for _ in range(num_problems):
        num_steps, num_rounds = generator.integers(3, 13), generator.integers(1, 5)
        num_rollouts = generator.choice([4, 16])
        ratios = generator.integers(0, num_steps, num_rounds) / num_steps
        accuracies = generator.integers(0, num_rollouts + 1, num_rounds) / num_rollouts
        problems.append(with_margins(list(zip(ratios.tolist(), accuracies.tolist(), strict=True))))
    return problems


def visits_anywhere(generator, num_problems):
    """Points of one visit each, at any hint ratio and of any accuracy."""
    return [
        with_margins([tuple(point) for point in generator.random((generator.integers(1, 5), 2)).tolist()])
        for _ in range(num_problems)
    ]


def excess(problems):
    """By how much each problem's squared error exceeds that of the paper's solver."""
    return np.array(
        [
            grid.sse - solver.sse
            for grid, solver in zip(fit_on_grid(problems), fit_one_by_one(problems), strict=True)
        ]
    )


def curve_points(curve, num_points=21):
    ratios = np.linspace(0.0, 1.0, num_points)
    return list(zip(ratios.tolist(), predict_accuracy(curve, ratios).tolist(), strict=True))


# --- against the paper's solver --------------------------------------------------------------------------


def test_the_squared_error_is_that_of_the_papers_solver_or_less():
    problems = visits_by_steps(np.random.default_rng(1), 400)
    assert {len(points) for points in problems} == {2, 3, 4, 5, 6}
    more = excess(problems)
    assert more.max() < 1e-3
    # One solver sees one valley of the error, the other sees them all.
    assert (more < -1e-3).mean() > 0.05


def test_with_any_ratio_and_accuracy_the_squared_error_rarely_exceeds_it():
    more = excess(visits_anywhere(np.random.default_rng(1), 400))
    assert (more > 1e-3).mean() <= 0.01
    assert more.max() < 0.02


def test_no_curve_of_a_finer_grid_fits_much_better():
    points = with_margins([(0.8, 1.0), (0.4, 0.0), (0.6, 0.5)])
    ratio_J, accuracy_J = np.array(average_equal_ratios(points)).T
    slope_C, shift_C, floor_C = (
        axis.ravel()
        for axis in np.meshgrid(
            np.geomspace(*SLOPE_BOUNDS, 60), np.linspace(*SHIFT_BOUNDS, 101), (0.0, 0.02, 0.05, 0.1)
        )
    )
    rise_CJ = 1.0 / (1.0 + np.exp(-slope_C[:, None] * (ratio_J + shift_C[:, None])))
    error_C = ((floor_C[:, None] + (1.0 - floor_C[:, None]) * rise_CJ - accuracy_J) ** 2).sum(axis=1)
    (fit,) = fit_on_grid([points])
    assert fit.sse <= error_C.min() + 1e-5
    # Failure at 0.4, half at 0.6, success at 0.8: the crossing is where half was seen.
    assert invert(fit.curve, 0.5) == pytest.approx(0.6, abs=0.005)


# --- curves that are known -------------------------------------------------------------------------------


def test_noiseless_curves_are_found_again():
    generator = np.random.default_rng(2)
    curves = [
        ItemCurve(*numbers)
        for numbers in zip(
            np.exp(generator.uniform(*np.log(SLOPE_BOUNDS), 200)).tolist(),
            generator.uniform(*SHIFT_BOUNDS, 200).tolist(),
            generator.uniform(0.0, 0.9, 200).tolist(),
            strict=True,
        )
    ]
    fits = fit_on_grid([curve_points(curve) for curve in curves])
    for curve, fit in zip(curves, fits, strict=True):
        ratios = np.linspace(0.0, 1.0, 101)
        np.testing.assert_allclose(
            predict_accuracy(fit.curve, ratios), predict_accuracy(curve, ratios), rtol=0.0, atol=1e-2
        )


# (slope, shift, floor) of the curves in Fig. 3 of the paper, and the hint ratios where they cross.
@pytest.mark.parametrize(
    ("curve", "at_half", "at_quarter"),
    [
        pytest.param(ItemCurve(4.46, -0.50, 0.00), 0.500000, 0.253674, id="gentle"),
        pytest.param(ItemCurve(43.15, -0.84, 0.02), 0.839054, 0.812607, id="steep, late"),
        pytest.param(ItemCurve(19.03, -0.64, 0.45), 0.519002, 0.0, id="floor above a target of 1/4"),
        pytest.param(ItemCurve(50.00, -0.59, 0.00), 0.590000, 0.568028, id="steepest"),
    ],
)
def test_the_fitted_curves_of_the_paper_are_crossed_where_they_should_be(curve, at_half, at_quarter):
    (fit,) = fit_on_grid([curve_points(curve)])
    assert fit.sse < 1e-6
    assert invert(fit.curve, 0.5) == pytest.approx(at_half, abs=1e-4)
    assert invert(fit.curve, 0.25) == pytest.approx(at_quarter, abs=1e-4)


def test_unaided_success_raises_the_floor():
    (fit,) = fit_on_grid([with_margins([(0.0, 0.5), (0.25, 0.5), (0.5, 0.5)])])
    assert fit.curve.floor == pytest.approx(0.5, abs=0.01)
    assert invert(fit.curve, 0.4) == 0.0


# --- properties ------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.lists(POINTS, min_size=1, max_size=5))
def test_every_curve_lies_within_the_bounds_and_the_error_is_its_own(problems):
    fits = fit_on_grid(problems)
    assert len(fits) == len(problems)
    for points, fit in zip(problems, fits, strict=True):
        assert fit.converged
        for value, (lower, upper) in zip(
            (fit.curve.slope, fit.curve.shift, fit.curve.floor),
            (SLOPE_BOUNDS, SHIFT_BOUNDS, FLOOR_BOUNDS),
            strict=True,
        ):
            assert lower <= value <= upper
        ratio_J, accuracy_J = np.array(average_equal_ratios(points)).T
        misfit_J = predict_accuracy(fit.curve, ratio_J) - accuracy_J
        assert fit.sse == pytest.approx(float(misfit_J @ misfit_J), abs=1e-9)


def test_no_problems_have_no_fits():
    assert fit_on_grid([]) == []


def test_a_ratio_that_two_rounds_used_weighs_twice():
    # Equal ratios are averaged and both stay: 1 and 1/2 at 0.4 are 3/4 with weight 2.
    (repeated,) = fit_on_grid([[(0.4, 1.0), (0.4, 0.5), (0.0, 0.5), (1.0, 0.6)]])
    (curve,), (sse,) = fit_curves([[0.4, 0.0, 1.0]], [[0.75, 0.5, 0.6]], [[2.0, 1.0, 1.0]])
    assert (repeated.curve, repeated.sse) == (ItemCurve(*curve.tolist()), pytest.approx(sse, abs=1e-9))
    # Accuracy falls from 0.4 to 1, a curve cannot: the heavier point is missed by less.
    (once,) = fit_on_grid([[(0.4, 0.75), (0.0, 0.5), (1.0, 0.6)]])
    misfits = [0.75 - predict_accuracy(fit.curve, 0.4) for fit in (repeated, once)]
    assert 0.0 < misfits[0] < misfits[1] - 1e-3


def test_points_of_weight_zero_change_nothing():
    points_NJ2 = np.random.default_rng(3).random((40, 3, 2))
    ratio_NJ, accuracy_NJ = points_NJ2[..., 0], points_NJ2[..., 1]
    weight_NJ, padding_NJ = np.ones((40, 3)), np.zeros((40, 5))
    curve_N3, sse_N = fit_curves(ratio_NJ, accuracy_NJ, weight_NJ)
    padded_N3, padded_sse_N = fit_curves(
        *(np.hstack([values, padding_NJ]) for values in (ratio_NJ, accuracy_NJ, weight_NJ))
    )
    np.testing.assert_allclose(padded_N3, curve_N3, rtol=1e-9)
    np.testing.assert_allclose(padded_sse_N, sse_N, atol=1e-12)


def test_a_problem_is_fitted_as_if_it_were_alone():
    problems = visits_by_steps(np.random.default_rng(4), 60)
    for points, together in zip(problems, fit_on_grid(problems), strict=True):
        (alone,) = fit_on_grid([points])
        assert alone.sse == pytest.approx(together.sse, abs=1e-6)


@settings(max_examples=30)
@given(POINTS, st.randoms(use_true_random=False))
def test_the_order_of_the_points_does_not_matter(points, random):
    shuffled = points[:]
    random.shuffle(shuffled)
    (expected,), (fit,) = fit_on_grid([points]), fit_on_grid([shuffled])
    assert fit == expected


def test_of_two_valleys_that_are_equally_deep_the_order_chooses_none():
    points = [
        (0.8125, 0.8073183009158802),
        (0.8073183009158802, 0.0),
        (0.8073183009158802, 0.8073183009158802),
    ]
    first, *others = [fit_on_grid([order])[0] for order in itertools.permutations(points)]
    assert others == [first] * 5
