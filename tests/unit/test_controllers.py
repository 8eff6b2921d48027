import json
import random
import subprocess
import sys
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.controllers import end_visit, next_hint, observe
from seele.errors import CheckpointError, ConfigError
from seele.hints import CONTROLLERS, build_controller
from seele.hints.contract import nearest_legal
from seele.maths.irt import ItemCurve, predict_accuracy
from seele.maths.irt_fit import CurveFit
from seele.records import Instance, RoundRequest

FOUR_STEPS = (0.0, 0.25, 0.5, 0.75)


def build(name="paper", **settings):
    return build_controller(name, rounds=4, rollouts_per_round=8, **settings)


def legal_ratios(num_steps):
    return tuple(step / num_steps for step in range(num_steps)) or (0.0,)


def test_parts_are_there_after_import_seele():
    code = """
import seele
print(seele.hints.build_controller("bayes", rounds=4, rollouts_per_round=8, seed=0).plan_rounds)
seele.hint
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "plan_rounds of <seele.hints.bayes.BayesController" in done.stdout
    assert "AttributeError: module 'seele' has no attribute 'hint'" in done.stderr


def visit(controller, outcomes, *, instance_id="p", legal=FOUR_STEPS):
    """One whole visit; returns the hint ratio of every round."""
    ratios = []
    for round_index, num_correct in enumerate(outcomes):
        ratios.append(next_hint(controller, instance_id, round_index=round_index, legal_ratios=legal))
        observe(controller, instance_id, hint_ratio=ratios[-1], num_correct=num_correct, num_rollouts=8)
    end_visit(controller, instance_id)
    return ratios


def through_json(state):
    return json.loads(json.dumps(state, sort_keys=True))


# --- every controller ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(CONTROLLERS))
@settings(max_examples=12)
@given(num_steps=st.integers(0, 7), outcomes=st.lists(st.integers(0, 8), min_size=1, max_size=8))
def test_the_chosen_ratio_is_always_legal(name, num_steps, outcomes):
    instance = Instance(
        instance_id="p", data_source="s", question="?", steps=("step\n",) * num_steps, answer="1"
    )
    controller = build(name)
    for half in (outcomes, outcomes[::-1]):
        assert set(visit(controller, half, legal=instance.legal_hint_ratios)) <= set(
            instance.legal_hint_ratios
        )


@pytest.mark.parametrize("name", sorted(CONTROLLERS))
@settings(max_examples=12)
@given(data=st.data())
def test_restart_is_no_restart(name, data):
    """Saved and restored anywhere, also within visits, a controller goes on as if nothing had happened."""
    legal = {f"p{steps}": legal_ratios(steps) for steps in (1, 3, 5)}
    instance_ids = st.sampled_from(sorted(legal))
    running, round_of, steps = build(name), dict.fromkeys(legal, 0), count(1)

    def advance(controllers, instance_id, num_correct):
        step, ratios = next(steps), []
        for controller in controllers:
            controller.begin_step(step)
            round_index, of_problem = round_of[instance_id], legal[instance_id]
            ratios.append(
                next_hint(controller, instance_id, round_index=round_index, legal_ratios=of_problem)
            )
        for controller, ratio in zip(controllers, ratios, strict=True):
            observe(controller, instance_id, hint_ratio=ratio, num_correct=num_correct, num_rollouts=8)
            if round_of[instance_id] == 2:
                end_visit(controller, instance_id)
        round_of[instance_id] = (round_of[instance_id] + 1) % 3
        return ratios

    moves = st.lists(st.tuples(instance_ids, st.integers(0, 8)), max_size=12)
    for move in data.draw(moves, label="before"):
        advance([running], *move)
    restored = build(name)
    restored.load_state_dict(through_json(running.state_dict()))
    assert restored.metrics() == running.metrics()
    for move in data.draw(moves, label="after"):
        assert len(set(advance([running, restored], *move))) == 1
    assert json.dumps(running.state_dict()) == json.dumps(restored.state_dict())
    assert running.metrics() == restored.metrics()


# The Bayesian controller learns about the population from every visit, on purpose.
@pytest.mark.parametrize("name", sorted(CONTROLLERS.keys() - {"bayes"}))
@settings(max_examples=6)
@given(outcomes=st.lists(st.lists(st.integers(0, 8), min_size=3, max_size=3), min_size=3, max_size=3))
def test_how_visits_interleave_does_not_matter(name, outcomes):
    ids = ["a", "b", "c"]
    one_by_one, interleaved = build(name), build(name)
    for controller in (one_by_one, interleaved):
        controller.begin_step(3)
    expected = {i: visit(one_by_one, outcomes[n], instance_id=i) for n, i in enumerate(ids)}
    seen = {i: [] for i in ids}
    for round_index in range(3):
        for n, i in reversed(list(enumerate(ids))):
            ratio = next_hint(interleaved, i, round_index=round_index, legal_ratios=FOUR_STEPS)
            observe(interleaved, i, hint_ratio=ratio, num_correct=outcomes[n][round_index], num_rollouts=8)
            seen[i].append(ratio)
    for i in reversed(ids):
        end_visit(interleaved, i)
    assert seen == expected
    assert json.dumps(interleaved.state_dict()) == json.dumps(one_by_one.state_dict())


@pytest.mark.parametrize("name", sorted(CONTROLLERS))
def test_no_controller_takes_an_outcome_that_cannot_be(name):
    controller = build(name)
    ratio = next_hint(controller, "p", round_index=0, legal_ratios=FOUR_STEPS)
    before = json.dumps(controller.state_dict())
    for outcome in ((ratio, 9, 8), (ratio, -1, 8), (ratio, 0, 0), (float("nan"), 1, 8), (1.5, 1, 8)):
        with pytest.raises(ValueError, match="an outcome needs hint_ratio in"):
            observe(
                controller,
                "p",
                **dict(zip(("hint_ratio", "num_correct", "num_rollouts"), outcome, strict=True)),
            )
    with pytest.raises(CheckpointError, match="expected a mapping, got NoneType"):
        controller.load_state_dict(None)
    assert json.dumps(controller.state_dict()) == before


@pytest.mark.parametrize("name", sorted(CONTROLLERS))
def test_where_nothing_can_be_chosen_nothing_is(name):
    controller = build(name)
    for round_index in range(8):
        (shares,) = controller.plan_rounds([RoundRequest("p", round_index % 4, (0.0,))], num_rollouts=8)
        assert {share.hint_ratio for share in shares} == {0.0}
        assert sum(share.num_rollouts for share in shares) == 8
        observe(controller, "p", hint_ratio=0.0, num_correct=round_index, num_rollouts=8)


@pytest.mark.parametrize("name", sorted(CONTROLLERS))
def test_numpy_numbers_are_saved_as_plain_ones(name):
    controller = build(name)
    controller.begin_step(np.int64(3))
    ratio = next_hint(controller, "p", round_index=0, legal_ratios=np.array(FOUR_STEPS))
    observe(controller, "p", hint_ratio=np.float64(ratio), num_correct=np.int64(3), num_rollouts=np.int64(8))
    end_visit(controller, "p")
    assert through_json(controller.state_dict()) == controller.state_dict()


@pytest.mark.parametrize("name", sorted(CONTROLLERS))
def test_reading_metrics_and_state_changes_nothing(name):
    controller = build(name)
    visit(controller, [8, 4, 0, 2])
    before = json.dumps(controller.state_dict())
    assert controller.metrics() == controller.metrics()
    assert all(isinstance(value, float) for value in controller.metrics().values())
    assert json.dumps(controller.state_dict()) == before


def test_a_saved_state_does_not_change_with_the_controller():
    controller = build()
    visit(controller, [8, 4, 0, 2])
    saved = controller.state_dict()
    before = json.dumps(saved)
    visit(controller, [0, 0, 0, 0])
    visit(controller, [8], instance_id="q")
    assert json.dumps(saved) == before


# --- building --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        (
            "papper",
            {},
            r"unknown name 'papper' .*; allowed are \['adaback', .*'none', 'paper', .*path/to/file.py:Name",
        ),
        (
            "paper",
            {"store": "refit"},
            r"unknown setting 'store' of controller 'paper'; allowed are \['solver', 'store_rate'\]",
        ),
        ("none", {"ratio": 0.5}, r"unknown setting 'ratio' of controller 'none'; allowed are \[\]"),
        (
            "paper",
            {"store_rate": "best"},
            r"seele.hints.settings.store_rate: expected one of .*'refit'.*got 'best'",
        ),
        ("fixed", {"ratio": 1.5}, r"seele.hints.settings.ratio: expected a number in \[0, 1\], got 1.5"),
        (
            "fixed",
            {"ratio": "half"},
            r"seele.hints.settings.ratio: expected a number in \[0, 1\], got 'half'",
        ),
        (
            "paper",
            {"target_accuracy": 1.0},
            r"seele.hints.target_accuracy: expected a number in \(0, 1\), got 1.0",
        ),
        ("paper", {"rounds": 0}, r"seele.hints.rounds: expected a whole number of at least 1, got 0"),
        ("paper", {"rounds": 1.5}, r"seele.hints.rounds: expected a whole number of at least 1, got 1.5"),
        ("bayes", {"rounds": None}, r"seele.hints.rounds: expected a whole number of at least 1, got None"),
        ("bayes", {"target_accuracy": "half"}, r"seele.hints.target_accuracy: expected a number in \(0, 1\)"),
        (
            "paper",
            {"rollouts_per_round": -1},
            r"seele.hints.rollouts_per_round: expected a whole number of at least 1, got -1",
        ),
    ],
)
def test_a_setting_that_is_not_allowed_is_named_with_what_is(name, settings, message):
    with pytest.raises(ConfigError, match=message):
        build_controller(name, **{"rounds": 4, "rollouts_per_round": 8, **settings})


def test_a_legal_ratio_is_the_nearest_and_of_two_the_smaller():
    assert nearest_legal(0.6, FOUR_STEPS) == 0.5
    assert nearest_legal(0.63, FOUR_STEPS) == 0.75
    assert nearest_legal(1.0, FOUR_STEPS) == 0.75
    assert nearest_legal(0.625, FOUR_STEPS) == 0.5
    assert nearest_legal(3999 / 4000, legal_ratios(4000)) == 3999 / 4000
    # Midway but for the last digits of a solver.
    assert nearest_legal(0.625004, FOUR_STEPS) == 0.5


# --- none and fixed --------------------------------------------------------------------------------------


def test_none_reveals_nothing():
    assert visit(build("none"), [0, 8, 0, 8]) == [0.0] * 4


def test_fixed_reveals_the_nearest_share_whatever_happens():
    assert visit(build("fixed", ratio=0.7), [0, 8, 0, 8]) == [0.75] * 4
    assert visit(build("fixed", ratio=1), [0, 8], legal=legal_ratios(3)) == [2 / 3] * 2
    assert visit(build("fixed", ratio=0.7), [0, 8], legal=(0.0,)) == [0.0] * 2


# --- the paper's -----------------------------------------------------------------------------------------


def test_hand_worked_visit():
    # S = 4. Cold start: all but the last step. 8 of 8 at 3/4, and (0, 0) below: the crossing lies about
    # midway, 0.44, nearest 1/2. 8 of 8 there as well: about midway between 0 and 1/2, so 1/4. 0 of 8 there:
    # 3/8, as near to 1/4 as to 1/2, and the smaller is taken. After 4 of 8 the mean at 1/4 is 2 of 8, so the
    # crossing lies a little above it, at 0.275, and the next visit begins at 1/4.
    controller = build()
    assert visit(controller, [8, 8, 0, 4]) == [0.75, 0.5, 0.25, 0.25]
    assert controller.state_dict()["stored_rates"]["p"] == pytest.approx(0.275, abs=0.005)
    assert next_hint(controller, "p", round_index=0, legal_ratios=FOUR_STEPS) == 0.25


def test_a_problem_never_solved_keeps_the_largest_hint():
    controller = build()
    for _ in range(2):
        assert visit(controller, [0, 0, 0, 0]) == [0.75] * 4


@pytest.mark.parametrize("num_steps", range(3, 11))
def test_a_problem_always_solved_loses_its_hint_within_two_visits(num_steps):
    controller = build()
    visit(controller, [8] * 4, legal=legal_ratios(num_steps))
    assert visit(controller, [8] * 4, legal=legal_ratios(num_steps))[-1] == 0.0


def test_two_steps_always_solved_keep_the_first_because_of_the_margin_point():
    controller = build()
    for _ in range(3):
        assert visit(controller, [8] * 4, legal=(0.0, 0.5)) == [0.5] * 4


def test_the_accuracy_comes_to_the_target_on_curves_with_many_steps():
    generator = np.random.default_rng(0)
    legal, controller, last_rounds = legal_ratios(40), build(), []
    for number in range(20):
        midpoint, instance_id = generator.uniform(0.15, 0.9), str(number)
        for _ in range(2):
            for round_index in range(4):
                ratio = next_hint(controller, instance_id, round_index=round_index, legal_ratios=legal)
                accuracy = 1.0 / (1.0 + np.exp(-15.0 * (ratio - midpoint)))
                num_correct = generator.binomial(8, accuracy)
                observe(controller, instance_id, hint_ratio=ratio, num_correct=num_correct, num_rollouts=8)
            last_rounds.append(accuracy)
            end_visit(controller, instance_id)
    assert np.mean(last_rounds) == pytest.approx(0.5, abs=0.07)


def test_a_higher_target_reveals_more():
    ratios = [
        visit(build(target_accuracy=target), [8, 4, 2], legal=legal_ratios(50))[-1] for target in (0.2, 0.8)
    ]
    assert ratios[0] < ratios[1]


def test_only_the_rounds_of_this_visit_count():
    fresh, seasoned = build(), build()
    visit(seasoned, [0, 8, 0, 8])
    visit(seasoned, [8, 0, 8, 0])
    for controller in (fresh, seasoned):
        observe(controller, "p", hint_ratio=0.5, num_correct=8, num_rollouts=8)
    assert next_hint(fresh, "p", round_index=1, legal_ratios=FOUR_STEPS) == next_hint(
        seasoned, "p", round_index=1, legal_ratios=FOUR_STEPS
    )


def test_a_visit_that_was_cut_off_is_forgotten_when_the_next_begins():
    controller, undisturbed = build(), build()
    next_hint(controller, "p", round_index=0, legal_ratios=FOUR_STEPS)
    observe(controller, "p", hint_ratio=0.75, num_correct=0, num_rollouts=8)
    assert visit(controller, [8, 8, 0, 4]) == visit(undisturbed, [8, 8, 0, 4])


def test_the_stored_rate_is_refitted_or_the_one_last_used():
    refit, last_used = build(store_rate="refit"), build(store_rate="last_used")
    for controller in (refit, last_used):
        assert visit(controller, [8, 8, 8])[-1] == 0.25
    assert last_used.state_dict()["stored_rates"] == {"p": 0.25}
    assert refit.state_dict()["stored_rates"]["p"] < 0.2
    assert refit.metrics()["fits"] == 3
    assert last_used.metrics()["fits"] == 2


@pytest.mark.parametrize("num_steps", [0, 1])
def test_a_problem_without_a_choice_is_never_fitted(num_steps):
    controller = build()
    assert visit(controller, [8, 0, 4, 8], legal=legal_ratios(num_steps)) == [0.0] * 4
    assert controller.metrics() == {"fits": 0, "failed_fits": 0, "stored_rates": 0, "open_visits": 0}
    assert controller.curves() == []


def test_a_visit_without_observations_leaves_what_was_stored():
    controller = build()
    visit(controller, [8, 4, 4, 4])
    before = controller.state_dict()
    next_hint(controller, "p", round_index=0, legal_ratios=FOUR_STEPS)
    assert next_hint(controller, "p", round_index=1, legal_ratios=FOUR_STEPS) == 0.5
    end_visit(controller, "p")
    end_visit(controller, "never begun")
    assert controller.state_dict() == before


def test_a_failed_fit_is_counted_and_repeats_the_last_ratio(monkeypatch):
    controller = build()
    visit(controller, [8, 8, 0, 4])
    kept = controller.state_dict()["last_fits"]
    failed = CurveFit(ItemCurve(*kept["p"]["curve"]), sse=1.0, converged=False)
    monkeypatch.setattr(controller, "_fit_all", lambda problems: [failed for _ in problems])
    assert visit(controller, [8, 8]) == [0.25, 0.25]
    assert controller.metrics()["failed_fits"] == 2
    assert controller.state_dict()["stored_rates"] == {"p": 0.25}
    assert controller.state_dict()["last_fits"] == kept
    # The ratio of the round before, not of the visit's first round.
    controller = build()
    fit_all, converge = controller._fit_all, iter([True, False, False])
    monkeypatch.setattr(
        controller,
        "_fit_all",
        lambda problems: fit_all(problems) if not problems or next(converge) else [failed],
    )
    assert visit(controller, [8, 8, 8]) == [0.75, 0.5, 0.5]
    assert controller.state_dict()["stored_rates"] == {"p": 0.5}


def test_a_round_is_planned_with_the_accuracy_that_the_visits_earlier_rounds_predict():
    controller, predicted = build(), []
    for _ in range(2):
        for round_index in range(2):
            ((share,),) = controller.plan_rounds([RoundRequest("p", round_index, FOUR_STEPS)], num_rollouts=8)
            predicted.append(share.predicted_accuracy)
            if round_index:
                curve = ItemCurve(*controller.state_dict()["last_fits"]["p"]["curve"])
                assert predicted[-1] == pytest.approx(float(predict_accuracy(curve, share.hint_ratio)))
            observe(controller, "p", hint_ratio=share.hint_ratio, num_correct=4, num_rollouts=8)
        end_visit(controller, "p")
    assert [each is None for each in predicted] == [True, False, True, False]


def test_the_last_fit_holds_the_curve_and_the_rounds_it_was_fitted_to():
    controller = build()
    ratios = visit(controller, [8, 8, 0, 4])
    (curve,) = controller.curves()
    assert curve.rounds == tuple(zip(ratios, [1.0, 1.0, 0.0, 0.5], strict=True))
    accuracies = np.interp([0.25, 0.5, 0.75], curve.hint_ratios, curve.accuracies)
    np.testing.assert_allclose(accuracies, [0.25, 1.0, 1.0], atol=0.01)


# --- damaged and foreign states --------------------------------------------------------------------------


def test_the_state_of_another_controller_or_version_is_refused():
    with pytest.raises(CheckpointError, match=r"expected .*'paper'.*got .*'none'"):
        build("paper").load_state_dict(build("none").state_dict())
    with pytest.raises(CheckpointError, match=r"expected .*'version': 1.*got .*'version': 2"):
        build("none").load_state_dict({"controller": "none", "version": 2})
    with pytest.raises(CheckpointError, match=r"got \{\}"):
        build("none").load_state_dict({})


@pytest.mark.parametrize(
    ("section", "value", "message"),
    [
        ("stored_rates", [], "stored_rates: expected a mapping, got list"),
        ("stored_rates", {"p": 1.5}, r"stored_rates\['p'\]: cannot read 1.5"),
        ("stored_rates", {"p": "x"}, r"stored_rates\['p'\]: cannot read 'x'"),
        ("visits", {"p": {"observations": []}}, r"visits\['p'\]"),
        ("visits", {"p": {"is_hintable": True, "observations": [[0.5, 9, 8]]}}, "num_correct"),
        ("last_fits", {"p": {"curve": [0.0, -0.5, 0.0], "observations": []}}, "slope > 0"),
        ("counters", {"fits": -1, "failed_fits": 0}, r"counters\['fits'\]"),
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(section, value, message):
    controller = build()
    visit(controller, [8, 8, 0, 4])
    before = controller.state_dict()
    with pytest.raises(CheckpointError, match=message):
        controller.load_state_dict({**before, section: value})
    assert controller.state_dict() == before


def test_a_state_with_a_missing_section_is_refused():
    state = {key: value for key, value in build().state_dict().items() if key != "visits"}
    with pytest.raises(CheckpointError, match=r"expected keys .*'visits'.*damaged"):
        build().load_state_dict(state)


def test_equal_states_are_equal_json_whatever_the_order_of_problems():
    ids = [f"p{number}" for number in range(20)]
    states = []
    for seed in range(3):
        random.Random(seed).shuffle(ids)
        controller = build()
        for instance_id in ids:
            visit(controller, [8, len(instance_id), 4, 0], instance_id=instance_id)
        states.append(json.dumps(controller.state_dict()))
    assert len(set(states)) == 1
