import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seele.maths import irt_fit
from seele.maths.irt import ItemCurve, invert, predict_accuracy
from seele.maths.irt_fit import average_equal_ratios, fit_curve, with_margins

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


@settings(max_examples=30, deadline=None)
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


@settings(max_examples=25, deadline=None)
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
