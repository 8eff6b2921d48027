import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


@settings(max_examples=30, deadline=None)
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


@settings(max_examples=30, deadline=None)
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
