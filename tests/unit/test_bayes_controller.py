"""The Bayesian controller, from requests and outcomes alone; its curves are in ``test_curve_grid``."""

import dataclasses
import json
import random
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.controllers import end_visit, next_hint, next_hints, observe
from seele.config import HintConfig
from seele.errors import CheckpointError, ConfigError
from seele.hints import build_controller, configured_controller
from seele.hints.bayes import BayesController
from seele.hints.beliefs import MEMORY, Beliefs
from seele.hints.withdrawal import PROBE_MEMORY
from seele.maths import curve_grid
from seele.records import HintShare, RoundOutcome, RoundRequest
from seele.simulate.visits import Schedule, simulate
from seele.simulate.worlds import draw_problems

FOUR_STEPS = (0.0, 0.25, 0.5, 0.75)
SEEDS = st.integers(0, 2**32 - 1)

ROLLOUTS = 8
"""Number of rollouts of a round."""

VARIANTS = [
    pytest.param({}, id="plain"),
    pytest.param({"probes": 2, "withdraw_at": 0.9}, id="probes"),
    pytest.param({"withdraw_from": 20, "withdraw_by": 200, "target_accuracy": 0.7}, id="withdrawn"),
    pytest.param(
        {"uses_memory": False, "learns_population": False, "learns_drift": False}, id="nothing learnt"
    ),
]


def build(**settings):
    return build_controller("bayes", rounds=4, rollouts_per_round=ROLLOUTS, **settings)


def legal_ratios(num_steps):
    return tuple(step / num_steps for step in range(num_steps))


def through_json(state):
    return json.loads(json.dumps(state, sort_keys=True))


def as_json(controller):
    return json.dumps(controller.state_dict())


LEGAL = {
    "a": (0.0,),
    "b": legal_ratios(2),
    "c": legal_ratios(5),
    "d": legal_ratios(12),
    "e": legal_ratios(400),
}


def history(seed, *, num_moves):
    """Moves (problem, round of its visit, seed of the outcome, whether the visit ends) of interleaved visits.

    Some visits are cut off: the problem's next move is round 0 without an end. (None, number) begins a step.
    """
    generator, round_of, moves = random.Random(seed), dict.fromkeys(LEGAL, 0), []
    for step in range(num_moves):
        if generator.random() < 0.1:
            moves.append((None, step))
        name, is_over = generator.choice(sorted(LEGAL)), generator.random() < 0.25
        is_cut_off = not is_over and generator.random() < 0.1
        moves.append((name, round_of[name], generator.getrandbits(32), is_over))
        round_of[name] = 0 if is_over or is_cut_off else round_of[name] + 1
    return moves


def play(controller, moves):
    """Make the moves with random outcomes; the plans of all rounds, each of them legal."""
    plans = []
    for name, *move in moves:
        if name is None:
            controller.begin_step(*move)
            continue
        round_index, seed, is_over = move
        (plan,) = controller.plan_rounds(
            [RoundRequest(name, round_index, LEGAL[name])], num_rollouts=ROLLOUTS
        )
        assert {share.hint_ratio for share in plan} <= set(LEGAL[name])
        assert [share.num_rollouts > 0 for share in plan] == [True] * len(plan)
        assert sum(share.num_rollouts for share in plan) == ROLLOUTS
        plans.append(plan)
        generator = random.Random(seed)
        for share in plan:
            num_correct = generator.choice((0, generator.randint(0, share.num_rollouts), share.num_rollouts))
            observe(
                controller,
                name,
                hint_ratio=share.hint_ratio,
                num_correct=num_correct,
                num_rollouts=share.num_rollouts,
            )
        if is_over:
            end_visit(controller, name)
    return plans


def hidden_accuracy(ratio, crossing, slope=12.0):
    return 1.0 / (1.0 + np.exp(-slope * (ratio - crossing)))


def visit(controller, instance_id, crossing, *, rounds=4, legal=FOUR_STEPS):
    """One visit of a problem whose rollouts are as accurate as they should be; the ratio of every round."""
    ratios = []
    for round_index in range(rounds):
        ratios.append(next_hint(controller, instance_id, round_index=round_index, legal_ratios=legal))
        num_correct = round(16 * hidden_accuracy(ratios[-1], crossing))
        observe(controller, instance_id, hint_ratio=ratios[-1], num_correct=num_correct, num_rollouts=16)
    end_visit(controller, instance_id)
    return ratios


def visit_all_with(controller, num_correct, *, instance_id="p", visits=1, legal=FOUR_STEPS):
    """Visits in which every round has the same outcome; the ratio of every round."""
    ratios = []
    for _ in range(visits):
        for round_index in range(4):
            ratios.append(next_hint(controller, instance_id, round_index=round_index, legal_ratios=legal))
            observe(
                controller, instance_id, hint_ratio=ratios[-1], num_correct=num_correct, num_rollouts=ROLLOUTS
            )
        end_visit(controller, instance_id)
    return ratios


def first_hint(controller, instance_id="unseen", legal=FOUR_STEPS):
    return next_hint(controller, instance_id, round_index=0, legal_ratios=legal)


# --- any history -----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=10, deadline=None)
@given(SEEDS)
def test_whatever_happens_hints_are_legal_and_predictions_are_numbers(variant, seed):
    controller = build(**variant)
    plans = play(controller, history(seed, num_moves=150))
    predicted = [share.predicted_accuracy for plan in plans for share in plan]
    assert all(0.0 < accuracy < 1.0 for accuracy in predicted)
    assert np.isfinite(list(controller.metrics().values())).all()
    for name in (*LEGAL, "unseen"):
        accuracy_T = controller.predicted_accuracy(name, np.linspace(0.0, 1.0, 333))
        assert ((accuracy_T > 0.0) & (accuracy_T < 1.0)).all()
        assert (np.diff(accuracy_T) >= 0.0).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("num_correct", [0, ROLLOUTS])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_visit_of_hundreds_of_equal_rounds_is_no_harm(variant, num_correct):
    controller = build(**variant)
    for round_index in range(300):
        (plan,) = controller.plan_rounds([RoundRequest("p", round_index, FOUR_STEPS)], num_rollouts=64)
        for share in plan:
            outcome = num_correct * share.num_rollouts // ROLLOUTS
            observe(
                controller,
                "p",
                hint_ratio=share.hint_ratio,
                num_correct=outcome,
                num_rollouts=share.num_rollouts,
            )
    end_visit(controller, "p")
    assert np.isfinite(controller.predicted_accuracy("p", FOUR_STEPS)).all()
    assert np.isfinite(list(controller.metrics().values())).all()


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=4, deadline=None)
@given(SEEDS, st.integers(0, 60))
def test_restart_is_no_restart(variant, seed, cut):
    """Saved and restored anywhere, also within visits, a controller goes on as if nothing had happened."""
    moves = history(seed, num_moves=60)
    uninterrupted, first, second = build(**variant), build(**variant), build(**variant)
    expected = play(uninterrupted, moves)
    before = play(first, moves[:cut])
    second.load_state_dict(through_json(first.state_dict()))
    assert as_json(second) == as_json(first)
    assert second.metrics() == first.metrics()
    assert before + play(second, moves[cut:]) == expected
    assert as_json(second) == as_json(uninterrupted)
    assert second.metrics() == uninterrupted.metrics()


@settings(max_examples=10, deadline=None)
@given(SEEDS, st.data())
def test_the_order_in_which_a_rounds_outcomes_come_leaves_no_trace(seed, data):
    moves, generator = history(seed, num_moves=20), random.Random(seed)
    requests = [RoundRequest(name, 0, LEGAL[name]) for name in LEGAL]
    outcomes = [
        RoundOutcome(name, ratio, generator.randint(0, 4), 4)
        for name in LEGAL
        for ratio in generator.choices(LEGAL[name], k=3)
    ]
    shuffled = data.draw(st.permutations(outcomes))
    together, one_by_one, otherwise = build(), build(), build()
    for controller in (together, one_by_one, otherwise):
        play(controller, moves)
        next_hints(controller, requests)
    together.observe_rounds(outcomes)
    otherwise.observe_rounds(shuffled)
    for seen in shuffled[::-1]:
        observe(
            one_by_one,
            seen.instance_id,
            hint_ratio=seen.hint_ratio,
            num_correct=seen.num_correct,
            num_rollouts=seen.num_rollouts,
        )
    assert as_json(together) == as_json(one_by_one) == as_json(otherwise)
    following = [RoundRequest(name, 1, LEGAL[name]) for name in LEGAL]
    ratios = [next_hints(each, following) for each in (together, one_by_one, otherwise)]
    assert ratios[0] == ratios[1] == ratios[2]


def test_the_order_in_which_probes_come_changes_no_hint():
    ids, legal = ("p", "q", "r"), FOUR_STEPS
    chosen, means = [], []
    for order in permutations(range(3)):
        controller = build(probes=2)
        controller.plan_rounds([RoundRequest(name, 0, legal) for name in ids], num_rollouts=ROLLOUTS)
        for index in order:
            observe(controller, ids[index], hint_ratio=0.0, num_correct=index, num_rollouts=2)
            observe(controller, ids[index], hint_ratio=0.5, num_correct=3, num_rollouts=6)
        chosen.append(next_hints(controller, [RoundRequest(name, 1, legal) for name in ids]))
        controller.end_visits(ids)
        means.append(controller.metrics()["probe_accuracy"])
    assert all(ratios == chosen[0] for ratios in chosen)
    # (0/2 + 1/2 + 2/2) / 3
    assert means == pytest.approx([0.5] * 6)


@settings(max_examples=8, deadline=None)
@given(SEEDS)
def test_many_problems_at_once_get_the_hints_that_each_would_get_alone(seed):
    generator = random.Random(seed)
    names = [f"{kind}{number}" for kind in LEGAL for number in range(4)]
    batched, single, apart = build(), build(), []
    for _ in range(3):
        for round_index in range(3):
            requests = [RoundRequest(name, round_index, LEGAL[name[0]]) for name in names]
            ratios = next_hints(batched, requests)
            for request, ratio in zip(requests, ratios, strict=True):
                legal = request.legal_ratios
                alone = next_hint(single, request.instance_id, round_index=round_index, legal_ratios=legal)
                apart.append(abs(legal.index(alone) - legal.index(ratio)))
            assert as_json(single) == as_json(batched)
            outcomes = [
                RoundOutcome(name, ratio, generator.randint(0, ROLLOUTS), ROLLOUTS)
                for name, ratio in zip(names, ratios, strict=True)
            ]
            batched.observe_rounds(outcomes)
            for seen in outcomes:
                single.observe_rounds([seen])
        # Together in both: a visit that ends tells those that end after it about the population.
        batched.end_visits(names)
        single.end_visits(names)
    # The last bits of a matrix product depend on its height. Of 400 hints two neighbours may be as good.
    assert max(apart) <= 1
    assert np.mean(apart) <= 0.02


def test_a_hint_does_not_depend_on_the_size_of_the_round_and_comes_with_the_accuracy_expected_of_it():
    planning, asked = build(), build()
    for controller in (planning, asked):
        visit(controller, "p", 0.4)
    ratio = first_hint(asked, "p")
    (expected,) = asked.predicted_accuracy("p", [ratio])
    (plan,) = planning.plan_rounds([RoundRequest("p", 0, FOUR_STEPS)], num_rollouts=ROLLOUTS)
    assert plan == (HintShare(ratio, ROLLOUTS, predicted_accuracy=pytest.approx(expected)),)


def test_a_visit_that_was_cut_off_is_forgotten_when_the_next_begins():
    controller, undisturbed = build(), build()
    for num_correct in (0, 0, 0):
        observe(controller, "p", hint_ratio=0.75, num_correct=num_correct, num_rollouts=8)
    assert visit(controller, "p", 0.3) == visit(undisturbed, "p", 0.3)
    assert as_json(controller) == as_json(undisturbed)


def test_a_visit_without_observations_leaves_nothing():
    controller = build()
    visit(controller, "p", 0.3)
    before = as_json(controller)
    first_hint(controller, "p")
    controller.end_visits(["p", "never begun"])
    assert as_json(controller) == before


def test_an_impossible_outcome_is_refused_before_anything_is_counted():
    controller = build()
    before = as_json(controller)
    with pytest.raises(ValueError, match=r"num_correct in 0\.\.num_rollouts"):
        controller.observe_rounds([RoundOutcome("p", 0.5, 4, 8), RoundOutcome("q", 0.5, 9, 8)])
    assert as_json(controller) == before


def test_a_visit_under_way_says_nothing_of_other_problems_until_it_ends():
    controller, legal = build(), legal_ratios(20)
    before = controller.predicted_accuracy("q", legal)
    next_hint(controller, "p", round_index=0, legal_ratios=legal)
    observe(controller, "p", hint_ratio=0.5, num_correct=0, num_rollouts=8)
    np.testing.assert_array_equal(controller.predicted_accuracy("q", legal), before)
    end_visit(controller, "p")
    assert controller.predicted_accuracy("q", [0.5]) < before[legal.index(0.5)] - 1e-3


# --- what is learnt --------------------------------------------------------------------------------------


def test_a_problem_that_is_always_solved_loses_its_hint_and_counts_as_solved():
    controller = build()
    ratios = visit_all_with(controller, ROLLOUTS, visits=5)
    assert ratios == sorted(ratios, reverse=True)
    assert set(ratios[4:]) == {0.0}
    assert first_hint(controller, "p") == 0.0
    assert controller.metrics()["solved_share"] == 1.0


def test_a_problem_that_no_hint_solves_counts_as_unlearnable_and_keeps_its_largest_hint():
    controller = build()
    ratios = visit_all_with(controller, 0, visits=5)
    assert set(ratios[4:]) == {0.75}
    assert first_hint(controller, "p") == 0.75
    assert controller.metrics()["unlearnable_share"] == 1.0


def test_a_problem_that_is_solved_with_a_hint_alone_is_neither():
    controller = build()
    for _ in range(5):
        visit(controller, "p", 0.7)
    assert controller.predicted_accuracy("p", [0.0]) < 0.1 < 0.4 < controller.predicted_accuracy("p", [0.75])
    assert solved_and_unlearnable(controller) == (0.0, 0.0)


def test_a_problem_is_not_unlearnable_any_more_when_it_turns_out_otherwise():
    controller = build()
    visit_all_with(controller, 0, visits=5)
    visit_all_with(controller, 4, visits=3)
    assert solved_and_unlearnable(controller) == (0.0, 0.0)


def solved_and_unlearnable(controller):
    metrics = controller.metrics()
    return metrics["solved_share"], metrics["unlearnable_share"]


def test_an_unseen_problem_begins_where_the_others_were_found():
    hints = []
    for crossing in (0.1, 0.9):
        controller, legal = build(), legal_ratios(20)
        for number in range(200):
            ratio = next_hint(controller, str(number), round_index=0, legal_ratios=legal)
            num_correct = round(16 * hidden_accuracy(ratio, crossing))
            observe(controller, str(number), hint_ratio=ratio, num_correct=num_correct, num_rollouts=16)
            end_visit(controller, str(number))
        hints.append(first_hint(controller, legal=legal))
    assert hints[0] < first_hint(build(), legal=legal) < hints[1]
    assert hints == pytest.approx([0.1, 0.9], abs=0.1)


def test_without_learning_the_population_an_unseen_problem_begins_as_at_first():
    controller, legal = build(learns_population=False), legal_ratios(20)
    expected = first_hint(controller, legal=legal)
    for number in range(50):
        visit(controller, str(number), 0.9, rounds=1, legal=legal)
    assert first_hint(controller, legal=legal) == expected


@pytest.mark.parametrize("crossing", [0.15, 0.4, 0.65, 0.9])
def test_the_second_visit_begins_near_where_the_first_found_the_crossing(crossing):
    remembers, forgets, legal = build(), build(uses_memory=False), legal_ratios(20)
    # Others, so that the population does not tell where this problem is.
    for controller in (remembers, forgets):
        for number in range(60):
            visit(controller, str(number), number / 60, rounds=2, legal=legal)
        visit(controller, "p", crossing, legal=legal)
    assert first_hint(remembers, "p", legal) == pytest.approx(crossing, abs=0.1)
    assert first_hint(forgets, "p", legal) == first_hint(forgets, "unseen", legal)


def drift_seen_under(drift_mean, **variant):
    controller = build(**variant)
    schedule = Schedule(
        visits=6, batch_size=50, drift_mean=drift_mean, drift_sd=0.02, drift_range=(-0.3, 0.3)
    )
    simulate(controller, draw_problems("hard", num_problems=100, seed=0), schedule, seed=0)
    return controller.metrics()["drift_mean"]


def test_the_drift_between_visits_is_learnt():
    assumed = build().metrics()["drift_mean"]
    worse, same, better = (drift_seen_under(drift_mean) for drift_mean in (-0.1, 0.0, 0.1))
    assert worse < 0.0 < same < assumed < better
    assert better > same + 0.02
    assert drift_seen_under(0.1, learns_drift=False) == assumed


def test_old_visits_lose_their_weight_whether_or_not_visits_end_together():
    together, apart = Beliefs(), Beliefs()
    seen_2G, largest = np.zeros((2, curve_grid.NUM_CURVES), dtype=np.float32), np.array([0.75, 0.75])
    together.learn(["p", "q"], seen_2G, largest)
    for name in "pq":
        apart.learn([name], seen_2G[:1], largest[:1])
    keep = 1.0 - 1.0 / MEMORY
    for beliefs in (together, apart):
        # Only second visits tell of the drift.
        beliefs.learn(["p", "q"], seen_2G, largest)
        visits = [sum(beliefs.state()[part]) for part in ("population", "drift")]
        assert visits == pytest.approx([1.0 + keep + keep**2 + keep**3, 1.0 + keep], abs=5e-5)


# --- rollouts without hint -------------------------------------------------------------------------------


def planned(controller, round_index, *, num_rollouts=ROLLOUTS, legal=FOUR_STEPS, instance_id="p"):
    (plan,) = controller.plan_rounds(
        [RoundRequest(instance_id, round_index, legal)], num_rollouts=num_rollouts
    )
    return [(share.hint_ratio, share.num_rollouts, share.is_probe) for share in plan]


def test_the_first_round_begins_with_the_probes_and_later_rounds_have_none():
    controller, hint = build(probes=2), first_hint(build())
    assert hint > 0.0
    assert planned(controller, 0) == [(0.0, 2, True), (hint, 6, False)]
    for round_index in (1, 2, 3):
        ((_, num_rollouts, is_probe),) = planned(controller, round_index)
        assert (num_rollouts, is_probe) == (ROLLOUTS, False)


@pytest.mark.parametrize("num_rollouts", [1, 8])
def test_as_many_probes_as_rollouts_are_all_rollouts(num_rollouts):
    assert planned(build(probes=ROLLOUTS), 0, num_rollouts=num_rollouts) == [(0.0, num_rollouts, True)]


def test_given_rollouts_take_the_place_of_probes_where_a_visit_has_one_round():
    once = build_controller("bayes", rounds=1, rollouts_per_round=ROLLOUTS, probes=ROLLOUTS - 1)
    (probes, hinted) = planned(once, 0, num_rollouts=ROLLOUTS - 2)
    assert (probes, hinted[1:]) == ((0.0, ROLLOUTS - 3, True), (1, False))


def test_there_are_no_probes_where_something_must_be_revealed():
    ((ratio, num_rollouts, is_probe),) = planned(build(probes=2), 0, legal=(0.25, 0.5))
    assert (ratio in (0.25, 0.5), num_rollouts, is_probe) == (True, ROLLOUTS, False)


def test_probes_that_are_under_way_survive_a_restart():
    controller, restored = build(probes=2), build(probes=2)
    controller.plan_rounds([RoundRequest("p", 0, FOUR_STEPS)], num_rollouts=ROLLOUTS)
    restored.load_state_dict(through_json(controller.state_dict()))
    observe(restored, "p", hint_ratio=0.0, num_correct=1, num_rollouts=2)
    end_visit(restored, "p")
    assert restored.metrics()["probe_accuracy"] == 0.5


@pytest.mark.parametrize("parts", [[(3, 3), (0, 2), (0, 3)], [(0, 2), (3, 6)], [(0, 2), (0, 3), (3, 3)]])
def test_where_the_best_hint_is_none_all_of_the_first_rounds_rollouts_count_with_the_probes(parts):
    controller = build(probes=2)
    assert [share[:2] for share in planned(controller, 0, legal=(0.0,))] == [(0.0, 2), (0.0, 6)]
    for num_correct, num_rollouts in parts:
        observe(controller, "p", hint_ratio=0.0, num_correct=num_correct, num_rollouts=num_rollouts)
    planned(controller, 1, legal=(0.0,))
    observe(controller, "p", hint_ratio=0.0, num_correct=8, num_rollouts=8)
    end_visit(controller, "p")
    assert controller.metrics()["probe_accuracy"] == 3 / 8


def test_rollouts_that_dropout_left_without_help_count_with_the_probes_in_any_order():
    means = []
    for parts in permutations([(0.0, 2, 2), (0.5, 1, 3), (0.0, 0, 3)]):
        controller = build(probes=2)
        assert [share[1] for share in planned(controller, 0)] == [2, 6]
        for ratio, num_correct, num_rollouts in parts:
            observe(controller, "p", hint_ratio=ratio, num_correct=num_correct, num_rollouts=num_rollouts)
        end_visit(controller, "p")
        means.append(controller.metrics()["probe_accuracy"])
    assert means == [2 / 5] * 6


def test_probes_tell_about_the_curve():
    measured, unmeasured = build(probes=4), build()
    for controller in (measured, unmeasured):
        controller.plan_rounds([RoundRequest("p", 0, FOUR_STEPS)], num_rollouts=ROLLOUTS)
    observe(measured, "p", hint_ratio=0.0, num_correct=4, num_rollouts=4)
    assert measured.predicted_accuracy("p", [0.0]) > unmeasured.predicted_accuracy("p", [0.0]) + 0.1
    for controller in (measured, unmeasured):
        end_visit(controller, "p")
    assert measured.metrics()["probe_accuracy"] == 1.0
    assert "probe_accuracy" not in unmeasured.metrics()


# --- the end of hints ------------------------------------------------------------------------------------


def test_the_cap_falls_in_a_straight_line_and_then_there_are_no_hints():
    controller, legal = build(withdraw_from=100, withdraw_by=300), legal_ratios(40)
    for _ in range(3):
        visit_all_with(controller, 0, legal=legal)
    for step, cap in {
        0: 1.0,
        100: 1.0,
        150: 0.75,
        200: 0.5,
        250: 0.25,
        299: 0.005,
        300: 0.0,
        9000: 0.0,
    }.items():
        controller.begin_step(step)
        assert controller.metrics()["hint_cap"] == pytest.approx(cap)
        # Never solved, so the hint is the largest that is allowed.
        assert first_hint(controller, "p", legal) == max(ratio for ratio in legal if ratio <= cap + 1e-9)
        assert first_hint(controller, "unseen", legal) <= cap


def test_where_something_must_be_revealed_the_cap_leaves_the_smallest():
    controller = build(withdraw_by=10)
    controller.begin_step(10)
    assert first_hint(controller, legal=(0.5, 0.25)) == 0.25


def probe(controller, num_visits, *, num_correct):
    """Visits of as many problems, each with 4 probes of which ``num_correct`` are correct."""
    for number in range(num_visits):
        name = f"{num_correct}/{number}"
        controller.plan_rounds([RoundRequest(name, 0, FOUR_STEPS)], num_rollouts=4)
        observe(controller, name, hint_ratio=0.0, num_correct=num_correct, num_rollouts=4)
        end_visit(controller, name)


def test_hints_end_for_good_once_enough_probes_are_accurate_enough():
    controller = build(probes=4, withdraw_at=0.7)
    probe(controller, PROBE_MEMORY - 1, num_correct=3)
    assert controller.metrics()["probe_accuracy"] == pytest.approx(0.75)
    assert controller.metrics()["hint_cap"] == 1.0
    probe(controller, 1, num_correct=3)
    assert controller.metrics()["hint_cap"] == 0.0
    # They do not come back when the policy gets worse, nor after a restart.
    probe(controller, 300, num_correct=0)
    restored = build(probes=4, withdraw_at=0.7)
    restored.load_state_dict(through_json(controller.state_dict()))
    for each in (controller, restored):
        assert each.metrics()["probe_accuracy"] < 0.7
        assert each.metrics()["hint_cap"] == 0.0
        assert first_hint(each, "0/0") == 0.0


def test_old_probes_lose_their_weight():
    # 300 visits at 0, then 4 of 4: after n more the mean is 1 - (255/256)^n, above 0.7 from n = 308 on.
    controller = build(probes=4, withdraw_at=0.7)
    probe(controller, 300, num_correct=0)
    probe(controller, 307, num_correct=4)
    assert controller.metrics()["probe_accuracy"] == pytest.approx(1.0 - (255 / 256) ** 307)
    assert controller.metrics()["hint_cap"] == 1.0
    controller.plan_rounds([RoundRequest("last", 0, FOUR_STEPS)], num_rollouts=4)
    observe(controller, "last", hint_ratio=0.0, num_correct=4, num_rollouts=4)
    assert controller.metrics()["hint_cap"] == 1.0, "not before the visit ends: others may be in progress"
    restored = build(probes=4, withdraw_at=0.7)
    restored.load_state_dict(through_json(controller.state_dict()))
    for each in (controller, restored):
        end_visit(each, "last")
        assert each.metrics()["hint_cap"] == 0.0


def test_rollouts_without_hint_that_are_no_probes_do_not_count_as_such():
    controller = build(probes=2, withdraw_at=0.5)
    controller.plan_rounds([RoundRequest("p", 0, FOUR_STEPS)], num_rollouts=ROLLOUTS)
    observe(controller, "p", hint_ratio=0.0, num_correct=1, num_rollouts=2)
    planned(controller, 1)
    for _ in range(PROBE_MEMORY):
        observe(controller, "p", hint_ratio=0.0, num_correct=8, num_rollouts=8)
    end_visit(controller, "p")
    assert controller.metrics()["probe_accuracy"] == 0.5
    assert controller.metrics()["hint_cap"] == 1.0


# --- settings and states ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"settle_below": -1}, "settle_below: expected a number of at least 0, got -1"),
        ({"probes": -1}, "probes: expected a whole number of at least 0, got -1"),
        ({"probes": 1.0}, "probes: expected a whole number of at least 0, got 1.0"),
        ({"probes": True}, "probes: expected a whole number of at least 0, got True"),
        ({"uses_memory": 1}, "uses_memory: expected true or false, got 1"),
        ({"learns_population": None}, "learns_population: expected true or false, got None"),
        ({"learns_drift": 0}, "learns_drift: expected true or false, got 0"),
        ({"withdraw_from": -5}, "withdraw_from: expected a whole number of at least 0, got -5"),
        (
            {"withdraw_from": None, "withdraw_by": 9},
            "withdraw_from: expected a whole number of at least 0, got None",
        ),
        ({"withdraw_from": 7}, "withdraw_from: got 7 without withdraw_by, .*; add withdraw_by, or"),
        ({"withdraw_from": 7, "withdraw_at": 0.5, "probes": 1}, "withdraw_from: got 7 without withdraw_by"),
        ({"withdraw_by": 2.5}, "withdraw_by: expected a whole number of at least 0, got 2.5"),
        ({"withdraw_by": 0}, r"withdraw_by: expected a step after withdraw_from \(0\), got 0"),
        (
            {"withdraw_from": 7, "withdraw_by": 7},
            r"withdraw_by: expected a step after withdraw_from \(7\), got 7",
        ),
        ({"withdraw_at": 0.5}, "withdraw_at: needs un-hinted rollouts; set probes to at least 1"),
        ({"withdraw_at": 0.0, "probes": 1}, r"withdraw_at: expected an accuracy in \(0, 1\], got 0.0"),
        ({"withdraw_at": 70, "probes": 1}, r"withdraw_at: expected an accuracy in \(0, 1\], got 70"),
        ({"withdraw_at": "x", "probes": 1}, r"withdraw_at: expected an accuracy in \(0, 1\], got 'x'"),
    ],
)
def test_a_setting_that_is_not_allowed_is_named_with_what_is(settings, message):
    with pytest.raises(ConfigError, match=rf"seele\.hints\.settings\.{message}"):
        build(**settings)


@pytest.mark.parametrize(("rounds", "most"), [(1, 7), (2, 8)])
def test_more_probes_than_the_first_round_can_have_are_refused(rounds, most):
    with pytest.raises(
        ConfigError, match=f"probes: expected at most {most} of the 8 rollouts .* got {most + 1}"
    ):
        build_controller("bayes", rounds=rounds, rollouts_per_round=8, probes=most + 1)
    build_controller("bayes", rounds=rounds, rollouts_per_round=8, probes=most)


def test_probes_must_fit_the_first_round_even_if_later_ones_are_smaller():
    hints = HintConfig(
        controller="bayes",
        rounds=4,
        rollouts_per_prompt=8,
        round_sizes=(4, 2, 1, 1),
        settings={"probes": 2},
    )
    configured_controller(hints)
    with pytest.raises(ConfigError, match="expected at most 4 of the 4 rollouts of the first of 4 rounds"):
        configured_controller(dataclasses.replace(hints, settings={"probes": 5}))


def damaged(state, place, value):
    """The state with another value at a place such as ``beliefs.problems.rows``."""
    state = through_json(state)
    *outer, last = place.split(".")
    part = state
    for key in outer:
        part = part[key]
    part[last] = value
    return state


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("version", 2, r"expected .*'version': 1.*got .*'version': 2"),
        ("controller", "paper", r"expected .*'bayes'.*got .*'paper'"),
        ("clock", 1, r"expected keys .*got .*'clock'.*damaged"),
        ("beliefs", [], "beliefs: cannot read .*damaged"),
        ("beliefs.population", [1.0], r"expected 864 numbers, 0 or more, got shape \(1,\)"),
        ("beliefs.population", [float("nan")] * 864, "expected 864 numbers, 0 or more"),
        ("beliefs.drift", [-1.0] * 13, "expected 13 numbers, 0 or more"),
        ("beliefs.drift", "x", "beliefs: cannot read .*damaged"),
        ("beliefs.problems", {}, "beliefs: cannot read .*damaged"),
        ("beliefs.problems.rows", "not base64", "beliefs: cannot read .*damaged"),
        ("beliefs.problems.rows", "AAAA", "beliefs: cannot read .*damaged"),
        ("beliefs.problems.rows", "/" * 436 + "/w==", "probabilities, in"),
        ("beliefs.problems.instance_ids", ["p", "q"], "2 distinct ids among 2 for 1 rows"),
        ("beliefs.problems.instance_ids", [["p"]], "beliefs: cannot read .*damaged"),
        ("visits", [], "visits: expected a mapping, got list"),
        ("visits.q", None, r"visits\['q'\]: cannot read None"),
        ("visits.q.outcomes", [[0.5, 1]], r"visits\['q'\]"),
        ("visits.q.outcomes", [[1.5, 1, 1]], r"a ratio is a number in \[0, 1\]"),
        ("visits.q.outcomes", [[0.5, -1, 1]], "a count is a whole number"),
        ("visits.q.outcomes", [[0.5, 0.5, 1]], "a count is a whole number"),
        ("visits.q.largest_ratio", 7.0, r"a ratio is a number in \[0, 1\]"),
        ("withdrawal", None, "withdrawal: cannot read None"),
        ("withdrawal.step", "x", "a count is a whole number"),
        ("withdrawal.mean", float("nan"), r"a ratio is a number in \[0, 1\]"),
        ("withdrawal.num_probed", -1, "a count is a whole number"),
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(place, value, message):
    controller = build(probes=2)
    visit(controller, "p", 0.4)
    controller.begin_step(3)
    controller.plan_rounds([RoundRequest("q", 0, FOUR_STEPS)], num_rollouts=8)
    observe(controller, "q", hint_ratio=0.5, num_correct=2, num_rollouts=6)
    before = as_json(controller)
    with pytest.raises(CheckpointError, match=message):
        controller.load_state_dict(damaged(controller.state_dict(), place, value))
    assert as_json(controller) == before
    assert next_hint(controller, "q", round_index=1, legal_ratios=FOUR_STEPS) in FOUR_STEPS


def test_equal_states_are_equal_json_whatever_the_order_of_problems():
    states = []
    for names in (["p", "q"], ["q", "p"]):
        controller = build()
        for name in names:
            observe(controller, name, hint_ratio=0.5, num_correct=3, num_rollouts=8)
        controller.end_visits(names)
        states.append(as_json(controller))
    assert states[0] == states[1]


def test_a_state_without_one_of_its_sections_is_refused():
    state = {key: value for key, value in build().state_dict().items() if key != "withdrawal"}
    with pytest.raises(CheckpointError, match=r"expected keys .*'withdrawal'.*damaged"):
        build().load_state_dict(state)


def test_numpy_numbers_are_saved_as_plain_ones():
    controller = build()
    controller.begin_step(np.int64(3))
    ratio = next_hint(controller, "p", round_index=0, legal_ratios=np.array(FOUR_STEPS))
    observe(controller, "p", hint_ratio=ratio, num_correct=np.int64(3), num_rollouts=np.int64(8))
    assert through_json(controller.state_dict()) == controller.state_dict()


def test_a_hundred_thousand_problems_fit_into_sixty_megabytes():
    controller, generator = build(), np.random.default_rng(0)
    ids = [f"gsm8k/train/{number:05d}" for number in range(2000)]
    for first in range(0, len(ids), 500):
        batch = ids[first : first + 500]
        ratios = next_hints(controller, [RoundRequest(name, 0, FOUR_STEPS) for name in batch])
        correct = generator.integers(0, 9, len(batch)).tolist()
        controller.observe_rounds(
            [RoundOutcome(*seen, 8) for seen in zip(batch, ratios, correct, strict=True)]
        )
        controller.end_visits(batch)
    saved = as_json(controller)
    # A fiftieth of the problems, a fiftieth of the budget.
    assert len(saved) <= 1_200_000
    restored = build()
    restored.load_state_dict(json.loads(saved))
    assert as_json(restored) == saved
    assert restored.metrics() == controller.metrics()


def test_no_problems_at_all_are_no_error():
    controller = build()
    next_hint(controller, "p", round_index=0, legal_ratios=(0.0, 0.5))
    observe(controller, "p", hint_ratio=0.5, num_correct=1, num_rollouts=ROLLOUTS)
    before = as_json(controller)
    controller.observe_rounds([])
    controller.end_visits([])
    assert next_hints(controller, []) == []
    assert as_json(controller) == before


# --- rounds that end early -------------------------------------------------------------------------------


def settling(controller, *, round_index=1, rollouts_left=24):
    (plan,) = controller.plan_rounds(
        [RoundRequest("p", round_index, FOUR_STEPS, rollouts_left)], num_rollouts=ROLLOUTS
    )
    return sum(share.num_rollouts for share in plan)


def test_rounds_end_early_once_the_curve_is_known_well_enough():
    patient, settled = build(), build(settle_below=0.005)
    for controller in (patient, settled):
        assert settling(controller, round_index=0) == ROLLOUTS
        for _ in range(40):
            for ratio, correct in zip(FOUR_STEPS, (0, 1, 4, 8), strict=True):
                observe(controller, "p", hint_ratio=ratio, num_correct=correct, num_rollouts=8)
    assert settling(patient) == ROLLOUTS
    assert settling(settled) == 24
    # Whoever cannot lengthen a round does not ask for it.
    assert settling(settled, rollouts_left=0) == ROLLOUTS


def test_by_default_rounds_do_not_end_early_even_where_rounding_makes_the_worth_negative(monkeypatch):
    monkeypatch.setattr(BayesController, "_worth_of_knowing", lambda *_: -1e-8)
    request = RoundRequest("x", 0, (0.0, 0.5), 24)
    (plan,) = build().plan_rounds([request], num_rollouts=ROLLOUTS)
    assert sum(share.num_rollouts for share in plan) == ROLLOUTS


def test_a_problem_that_can_have_a_single_hint_is_rolled_out_in_one_round():
    controller = build()
    requests = [RoundRequest("no solution", 0, (0.0,), 32), RoundRequest("p", 0, FOUR_STEPS, 32)]
    single, several = controller.plan_rounds(requests, num_rollouts=ROLLOUTS)
    assert [share.num_rollouts for share in single] == [32]
    assert [share.num_rollouts for share in several] == [ROLLOUTS]


def test_what_knowing_the_curve_is_worth():
    controller = build()
    allowed = np.array([0.0, 0.5])
    worth_GJ = controller._worth_GT[:, curve_grid.nearest_columns(allowed)]
    first, last = (
        int(np.argmax(worth_GJ[:, 0] - worth_GJ[:, 1])),
        int(np.argmin(worth_GJ[:, 0] - worth_GJ[:, 1])),
    )
    belief_G = np.zeros(curve_grid.NUM_CURVES, dtype=np.float32)
    belief_G[first] = 1.0
    assert controller._worth_of_knowing(belief_G, allowed) == 0.0
    # Two curves, alike probable, of which one wants the first hint and one the second.
    belief_G[[first, last]] = 0.5
    informed = (worth_GJ[first].max() + worth_GJ[last].max()) / 2
    uninformed = ((worth_GJ[first] + worth_GJ[last]) / 2).max()
    assert controller._worth_of_knowing(belief_G, allowed) == pytest.approx(informed - uninformed, rel=1e-5)


def test_probes_of_a_visit_of_one_round_come_out_of_all_its_rollouts():
    controller = build(settle_below=1.0, probes=2)
    (plan,) = controller.plan_rounds([RoundRequest("p", 0, FOUR_STEPS, 32)], num_rollouts=ROLLOUTS)
    assert [(share.num_rollouts, share.is_probe) for share in plan] == [(2, True), (30, False)]
