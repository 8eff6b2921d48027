"""Item curves and the fit of one."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seele.maths import irt_fit
from seele.maths.irt import (
    ItemCurve,
    accuracy_gradient,
    invert,
    predict_accuracy,
)
from seele.maths.irt_fit import average_equal_ratios, fit_curve, with_margins

# --- The item curve


CURVES = st.builds(
    ItemCurve,
    slope=st.floats(0.5, 50.0),
    shift=st.floats(-1.5, 0.5),
    floor=st.floats(0.0, 0.95),
)

# (slope, shift, floor) of the curves in Fig. 3 of the paper; the other numbers follow from Eq. 12 by hand.
PAPER_CURVES = [
    pytest.param(ItemCurve(4.46, -0.50, 0.00), 0.500000, 0.253674, 0.097089, id="gentle"),
    pytest.param(ItemCurve(43.15, -0.84, 0.02), 0.839054, 0.812607, 0.020000, id="steep, late"),
    pytest.param(ItemCurve(19.03, -0.64, 0.45), 0.519002, 0.0, 0.450003, id="floor above a target of 1/4"),
    pytest.param(ItemCurve(50.00, -0.59, 0.00), 0.590000, 0.568028, 0.0, id="steepest"),
]


@pytest.mark.parametrize(("curve", "at_half", "at_quarter", "unaided"), PAPER_CURVES)
def test_curves_of_the_paper(curve, at_half, at_quarter, unaided):
    assert invert(curve, 0.5) == pytest.approx(at_half, abs=5e-7)
    assert invert(curve, 0.25) == pytest.approx(at_quarter, abs=5e-7)
    assert predict_accuracy(curve, [0.0])[0] == pytest.approx(unaided, abs=5e-7)


def test_halfway_between_floor_and_one_at_minus_shift():
    assert predict_accuracy(ItemCurve(7.0, -0.3, 0.2), np.array([0.3]))[0] == pytest.approx(0.6)


@given(CURVES)
def test_more_hint_never_lowers_predicted_accuracy(curve):
    accuracy = predict_accuracy(curve, np.linspace(0.0, 1.0, 101))
    assert np.all(np.diff(accuracy) >= 0.0)
    assert np.all((curve.floor <= accuracy) & (accuracy <= 1.0))


@given(CURVES, st.floats(0.01, 0.99))
def test_invert_undoes_predict_accuracy_where_it_is_not_clamped(curve, target):
    ratio = invert(curve, target)
    assert 0.0 <= ratio <= 1.0
    reached = predict_accuracy(curve, ratio)
    if 0.0 < ratio < 1.0:
        assert reached == pytest.approx(target, abs=1e-9)
    elif ratio == 0.0:
        assert reached >= target - 1e-9
    else:
        assert reached <= target + 1e-9


@given(CURVES, st.floats(0.01, 0.98))
def test_a_higher_target_never_needs_less_hint(curve, target):
    assert invert(curve, target) <= invert(curve, target + 0.01)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("shift", [-1e6, 1e6])
def test_steep_curves_far_from_their_midpoint_do_not_overflow(shift):
    curve = ItemCurve(1e4, shift, 0.25)
    assert predict_accuracy(curve, [0.0, 1.0]).tolist() == [0.25 if shift < 0 else 1.0] * 2
    assert np.all(np.isfinite(accuracy_gradient(curve, [0.0, 1.0])))


@pytest.mark.parametrize("curve", [ItemCurve(8.0, -0.4, 0.1), ItemCurve(40.0, -0.8, 0.0)])
def test_gradient_is_the_slope_of_a_small_step(curve):
    ratio_N = np.linspace(0.0, 1.0, 7)
    parameters, step = np.array([curve.slope, curve.shift, curve.floor]), 1e-6
    for column in range(3):
        ahead = parameters + step * np.eye(3)[column]
        difference_N = (
            predict_accuracy(ItemCurve(*ahead), ratio_N) - predict_accuracy(curve, ratio_N)
        ) / step
        np.testing.assert_allclose(accuracy_gradient(curve, ratio_N)[:, column], difference_N, atol=1e-3)


@pytest.mark.parametrize("target", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_a_target_that_no_curve_crosses_is_refused(target):
    with pytest.raises(ValueError, match=r"target_accuracy must lie in \(0, 1\)"):
        invert(ItemCurve(10.0, -0.5), target)


@pytest.mark.parametrize(
    "parameters",
    [
        (0.0, -0.5, 0.0),
        (float("inf"), -0.5, 0.0),
        (1.0, float("nan"), 0.0),
        (1.0, -0.5, 1.0),
        (1.0, -0.5, -0.1),
    ],
)
def test_parameters_without_a_curve_are_refused(parameters):
    with pytest.raises(ValueError, match="a curve needs slope > 0"):
        ItemCurve(*parameters)


# --- The fit of one item curve


POINTS = st.lists(
    st.tuples(
        st.integers(0, 4).map(lambda step: step / 5), st.integers(0, 8).map(lambda correct: correct / 8)
    ),
    min_size=1,
    max_size=4,
)


def squared_error(curve, points):
    ratio_N, accuracy_N = np.array(average_equal_ratios(points)).T
    return float(np.sum((predict_accuracy(curve, ratio_N) - accuracy_N) ** 2))


def test_margins_are_added_for_the_ends_not_evaluated():
    assert with_margins([(0.5, 0.25)]) == [(0.5, 0.25), (0.0, 0.0), (1.0, 1.0)]
    assert with_margins([(0.0, 0.75)]) == [(0.0, 0.75), (1.0, 1.0)]
    assert with_margins([(1.0, 0.5), (0.0, 0.5)]) == [(1.0, 0.5), (0.0, 0.5)]


def test_equal_hint_ratios_are_averaged_and_every_round_stays():
    assert average_equal_ratios([(0.5, 1.0), (0.75, 1.0), (0.5, 0.5)]) == [
        (0.5, 0.75),
        (0.75, 1.0),
        (0.5, 0.75),
    ]


@pytest.mark.parametrize(
    "curve", [ItemCurve(12.0, -0.6, 0.1), ItemCurve(25.0, -0.35, 0.0), ItemCurve(6.0, -0.5, 0.3)]
)
def test_a_curve_is_found_again_from_its_own_points(curve):
    ratios = np.linspace(0.0, 1.0, 9)
    fit = fit_curve(list(zip(ratios, predict_accuracy(curve, ratios), strict=True)))
    assert fit.converged
    assert fit.sse < 1e-5
    assert fit.curve.slope == pytest.approx(curve.slope, rel=0.05)
    assert fit.curve.shift == pytest.approx(curve.shift, abs=0.01)
    assert fit.curve.floor == pytest.approx(curve.floor, abs=0.01)


@settings(max_examples=30)
@given(POINTS)
def test_every_visit_can_be_fitted_within_the_bounds(points):
    fit = fit_curve(with_margins(points))
    assert fit.converged
    assert fit.sse == pytest.approx(squared_error(fit.curve, with_margins(points)), abs=1e-12)
    for value, (lower, upper) in zip(
        (fit.curve.slope, fit.curve.shift, fit.curve.floor),
        (irt_fit.SLOPE_BOUNDS, irt_fit.SHIFT_BOUNDS, irt_fit.FLOOR_BOUNDS),
        strict=True,
    ):
        assert lower <= value <= upper


@settings(max_examples=25)
@given(POINTS)
def test_the_order_of_the_points_does_not_matter_and_a_repeat_is_the_same_bit_for_bit(points):
    points = with_margins(points)
    expected = fit_curve(points)
    irt_fit._fit_sorted.cache_clear()
    assert fit_curve(points[::-1]) == expected


def test_no_curve_of_a_grid_fits_much_better():
    points = with_margins([(0.8, 1.0), (0.4, 0.0), (0.6, 0.5)])
    grid = [
        ItemCurve(*parameters)
        for parameters in itertools.product(
            np.geomspace(1, 50, 25), np.linspace(-1, 0, 41), (0.0, 0.05, 0.2, 0.5)
        )
    ]
    fit = fit_curve(points)
    assert fit.sse <= min(squared_error(curve, points) for curve in grid) + 1e-5
    # Failure at 0.4, half at 0.6, success at 0.8: the crossing is where half was seen.
    assert invert(fit.curve, 0.5) == pytest.approx(0.6, abs=0.005)


def test_unaided_success_raises_the_floor():
    # Half right at every ratio: no hint is needed for a target of one half or less.
    fit = fit_curve(with_margins([(0.0, 0.5), (0.25, 0.5), (0.5, 0.5)]))
    assert fit.curve.floor == pytest.approx(0.5, abs=0.01)
    assert invert(fit.curve, 0.4) == 0.0


def test_a_fit_that_runs_out_of_evaluations_says_so(monkeypatch):
    monkeypatch.setattr(irt_fit, "MAX_EVALUATIONS", 2)
    irt_fit._fit_sorted.cache_clear()
    assert not fit_curve(with_margins([(0.8, 1.0), (0.4, 0.25)])).converged
    irt_fit._fit_sorted.cache_clear()
