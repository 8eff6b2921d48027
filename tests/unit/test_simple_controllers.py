import json
from itertools import pairwise

import numpy as np
import pytest

from helpers.controllers import end_visit, next_hint, observe
from seele.errors import CheckpointError, ConfigError
from seele.hints import build_controller
from seele.hints.bisect import Interval
from seele.hints.schedules import cosine_decay
from seele.records import HintShare, RoundRequest

BLIND = ("prefix_rft", "prefix_rl", "uft", "uniform")
SEEING = ("bisect", "robbins_monro")
FOUR_STEPS = (0.0, 0.25, 0.5, 0.75)


def build(name, **settings):
    return build_controller(name, rounds=4, rollouts_per_round=8, **settings)


def legal_ratios(num_steps):
    return tuple(step / num_steps for step in range(num_steps))


def through_json(state):
    return json.loads(json.dumps(state, sort_keys=True))


def hidden_accuracy(ratio, crossing, slope=12.0):
    return 1.0 / (1.0 + np.exp(-slope * (ratio - crossing)))


def visited(name):
    """The controller in the middle of a problem's second visit."""
    controller = build(name)
    controller.begin_step(1)
    for round_index in (0, 1, 2, 3, 0, 1):
        ratio = next_hint(controller, "p", round_index=round_index, legal_ratios=FOUR_STEPS)
        observe(controller, "p", hint_ratio=ratio, num_correct=2 * round_index, num_rollouts=8)
        if round_index == 3:
            end_visit(controller, "p")
    return controller


def plan(controller, num_rollouts=8, *, round_index=0, legal=FOUR_STEPS):
    """How the round of one problem is divided."""
    (shares,) = controller.plan_rounds([RoundRequest("p", round_index, legal)], num_rollouts=num_rollouts)
    return shares


def draws(controller, num_problems, legal, *, step=0):
    """The first ratio of as many new problems."""
    controller.begin_step(step)
    return [
        next_hint(controller, f"{step}/{number}", round_index=0, legal_ratios=legal)
        for number in range(num_problems)
    ]


def steer(controller, crossings, *, seed=0, rounds=4, legal=FOUR_STEPS):
    """A visit for each of the crossings of one problem; the true accuracy of every round, (V, R)."""
    generator = np.random.default_rng(seed)
    accuracy_VR = np.zeros((len(crossings), rounds))
    for visit, crossing in enumerate(crossings):
        for round_index in range(rounds):
            ratio = next_hint(controller, "p", round_index=round_index, legal_ratios=legal)
            accuracy_VR[visit, round_index] = hidden_accuracy(ratio, crossing)
            num_correct = generator.binomial(16, accuracy_VR[visit, round_index])
            observe(controller, "p", hint_ratio=ratio, num_correct=num_correct, num_rollouts=16)
        end_visit(controller, "p")
    return accuracy_VR


# --- settings and damaged states ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("robbins_monro", {"start": 1.5}, r"start: expected a number in \[0, 1\], got 1.5"),
        ("robbins_monro", {"gain": -0.1}, r"gain: expected a number of at least 0, got -0.1"),
        ("robbins_monro", {"gain": float("inf")}, r"gain: expected a number of at least 0, got inf"),
        ("robbins_monro", {"gain": 10**400}, r"gain: expected a number of at least 0, got 10000"),
        ("fixed", {"ratio": 10**400}, r"ratio: expected a number in \[0, 1\], got 10000"),
        ("robbins_monro", {"decay": True}, r"decay: expected a number in \[0, 1\], got True"),
        ("robbins_monro", {"smallest_gain": "x"}, r"smallest_gain: expected a number of at least 0, got 'x'"),
        ("bisect", {"widen": 0}, r"widen: expected a number in \[0.01, 1\], got 0"),
        ("uft", {"p_low": 0.99}, r"p_low: expected at most p_high \(0.95\), got 0.99"),
        ("uft", {"p_high": 1.01}, r"p_high: expected a number in \[0, 1\], got 1.01"),
        ("uft", {"mode": "rft"}, r"mode: unknown mode 'rft'; allowed are \['uft', 'stage', 'r3'\]"),
        ("uft", {"max_chunks": 0}, r"max_chunks: expected a whole number of at least 1, got 0"),
        ("uft", {"hint_training_steps": 2.5}, r"hint_training_steps: expected a whole number .* got 2.5"),
        ("prefix_rft", {"prefixed_share": 2}, r"prefixed_share: expected a number in \[0, 1\], got 2"),
        ("prefix_rft", {"prefixed_share": 0.0}, r"prefixed_share: expected more than 0, .* method=grpo"),
        ("prefix_rft", {"decay_training_steps": True}, r"decay_training_steps: expected a whole .* got True"),
        ("uniform", {"start": 0.5}, r"unknown setting 'start' of controller 'uniform'; allowed are \[\]"),
    ],
)
def test_a_setting_that_is_not_allowed_is_named_with_what_is(name, settings, message):
    with pytest.raises(ConfigError, match=rf"seele\.hints(\.settings\.|: ){message}"):
        build(name, **settings)


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        *((name, "step", -1, "step: cannot read -1") for name in BLIND),
        *((name, "beginnings", {"p": [0, 1]}, "counted from 1") for name in BLIND),
        ("uft", "beginnings", {"p": [1, 2, 3]}, r"beginnings\['p'\]: cannot read \[1, 2, 3\]"),
        ("uft", "beginnings", {"p": [True, 2]}, "whole number"),
        ("uniform", "beginnings", [], "expected a mapping, got list"),
        ("robbins_monro", "tracks", {"p": [1.5, 3]}, r"a ratio is a number in \[0, 1\]"),
        ("robbins_monro", "tracks", {"p": [0.5, 2.5]}, "a count is a whole number"),
        ("robbins_monro", "tracks", {"p": 0.5}, r"tracks\['p'\]: cannot read 0.5"),
        ("bisect", "intervals", {"p": [0.6, 0.5]}, "0 <= low <= high <= 1"),
        ("bisect", "intervals", {"p": [0.1, float("nan")]}, "a ratio is a number"),
        ("next_milestone", "rates", {"x": 0.5}, r"rates: cannot read \{'x': 0.5\}.*damaged"),
        ("next_milestone", "rates", {"1": 1.5}, r"rates.*a ratio is a number in \[0, 1\]"),
        ("next_milestone", "ended", [], r"ended: cannot read \[\].*damaged"),
        ("next_milestone", "problems", {"p": {"x": [1, 2]}}, r"problems\['p'\]: cannot read"),
        ("next_milestone", "visits", {"p": {}}, r"visits\['p'\]: cannot read"),
        ("bisect", "version", 2, r"expected .*'version': 1.*got .*'version': 2"),
        ("bisect", "controller", "uft", r"expected .*'bisect'.*got .*'uft'"),
        ("bisect", "step", 1, r"expected keys .*got .*'step'.*damaged"),
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(name, key, value, message):
    controller = visited(name)
    before = through_json(controller.state_dict())
    with pytest.raises(CheckpointError, match=message):
        controller.load_state_dict({**before, key: value})
    assert controller.state_dict() == before


# --- schedules -------------------------------------------------------------------------------------------


def test_the_cosine_falls_from_high_to_low_and_stays():
    values = [cosine_decay(t, high=0.95, low=0.05, decay_steps=300) for t in (0, 75, 150, 225, 300, 301)]
    np.testing.assert_allclose(values, [0.95, 0.818198, 0.5, 0.181802, 0.05, 0.05], atol=1e-6)


@pytest.mark.parametrize("name", BLIND)
def test_draws_depend_on_the_seed_and_outcomes_change_nothing(name):
    same, other = (draws(build(name, seed=seed), 40, FOUR_STEPS, step=250) for seed in (1, 2))
    assert draws(build(name, seed=1), 40, FOUR_STEPS, step=250) == same != other
    solved, failed = build(name), build(name)
    for num_correct, controller in ((8, solved), (0, failed)):
        observe(controller, "p", hint_ratio=0.5, num_correct=num_correct, num_rollouts=8)
    assert draws(solved, 40, FOUR_STEPS) == draws(failed, 40, FOUR_STEPS)


@pytest.mark.parametrize("name", ["uft", "prefix_rft"])
def test_rounds_of_a_visit_share_one_draw_and_visits_do_not(name):
    controller, visits = build(name), []
    for step in range(200, 240):
        ratios = set()
        for round_index in range(4):
            controller.begin_step(step + 50 * round_index)
            ratios.add(next_hint(controller, "p", round_index=round_index, legal_ratios=FOUR_STEPS))
        assert len(ratios) == 1
        visits += ratios
    assert any(before != after for before, after in pairwise(visits))


def test_uniform_draws_every_legal_ratio_equally_often_and_anew_each_round():
    counts = np.unique_counts(draws(build("uniform"), 4000, FOUR_STEPS)).counts
    np.testing.assert_allclose(counts / 4000, 0.25, atol=0.03)
    controller = build("uniform")
    rounds = [
        next_hint(controller, "p", round_index=index, legal_ratios=legal_ratios(300)) for index in range(8)
    ]
    assert len(set(rounds)) > 4


@pytest.mark.parametrize(
    ("step", "probability"), [(0, 0.95), (75, 0.818198), (150, 0.5), (225, 0.181802), (300, 0.05)]
)
def test_uft_reveals_as_many_chunks_as_the_schedule_says(step, probability):
    # Of 300 steps five chunks are cut: l/5 with l ~ Binomial(5, p), where 5/5 becomes 299/300.
    controller = build("uft")
    ratios = np.array(draws(controller, 3000, legal_ratios(300), step=step))
    assert controller.metrics()["chunk_probability"] == pytest.approx(probability, abs=1e-6)
    assert set(ratios) <= {0.0, 0.2, 0.4, 0.6, 0.8, 299 / 300}
    assert ratios.mean() == pytest.approx(probability, abs=0.015)
    assert ratios.var() == pytest.approx(probability * (1.0 - probability) / 5, abs=0.006)


def test_uft_has_no_more_chunks_than_steps_and_no_hints_after_the_schedule():
    # Two steps, p = 0.95: both with probability 0.9025, which is taken to 1/2 like one of them.
    early = draws(build("uft"), 1000, (0.0, 0.5))
    assert np.mean(np.array(early) == 0.5) == pytest.approx(1.0 - 0.05**2, abs=0.005)
    # Five steps of which the last three are never revealed have five chunks as before.
    cut = np.array(draws(build("uft"), 3000, (0.0, 0.2, 0.4), step=225))
    assert np.mean(cut == 0.2) == pytest.approx(5 * 0.181802 * 0.818198**4, abs=0.03)
    controller = build("uft", hint_training_steps=20)
    assert set(draws(controller, 50, FOUR_STEPS, step=21)) == {0.0}
    assert controller.metrics()["chunk_probability"] == 0.0


def test_the_stage_mode_is_a_staircase_from_the_whole_solution_down():
    # 300 steps, five chunks: floor(300 / 6) = 50 steps a stage; the whole solution becomes all but a step.
    controller = build("uft", mode="stage")
    ratios = [
        draws(controller, 1, legal_ratios(300), step=step)[0]
        for step in (1, 49, 50, 99, 100, 150, 200, 249, 250, 300, 301)
    ]
    expected = [299 / 300, 299 / 300, 0.8, 0.8, 0.6, 0.4, 0.2, 0.2, 0, 0, 0]
    assert ratios == pytest.approx(expected)
    assert "chunk_probability" not in controller.metrics()


def test_the_r3_mode_draws_every_number_of_chunks_equally_often_in_every_step():
    for step in (1, 450):
        ratios = draws(build("uft", mode="r3"), 6000, legal_ratios(300), step=step)
        values, counts = np.unique(ratios, return_counts=True)
        np.testing.assert_allclose(values, [0, 0.2, 0.4, 0.6, 0.8, 299 / 300])
        np.testing.assert_allclose(counts / 6000, 1 / 6, atol=0.02)


def test_uft_has_as_many_chunks_as_there_are_steps_of_unequal_length():
    # Three chunks, although the first is a fiftieth: a third of the solution is nearer to 1/2 than to 1/50.
    assert set(draws(build("uft"), 200, (0.0, 0.02, 0.5), step=225)) == {0.0, 0.5}


@pytest.mark.parametrize(
    ("step", "low"), [(0, 0.95), (125, 0.818198), (250, 0.5), (375, 0.181802), (500, 0.05), (900, 0.05)]
)
def test_prefix_rft_draws_between_the_schedule_and_all_but_a_twentieth(step, low):
    controller = build("prefix_rft")
    ratios = np.array(draws(controller, 2000, legal_ratios(1000), step=step))
    assert controller.metrics()["smallest_prefix"] == pytest.approx(low, abs=1e-6)
    # Cut down to a thousandth.
    assert low - 1e-3 <= ratios.min() <= ratios.max() <= 0.95
    assert ratios.mean() == pytest.approx((low + 0.95) / 2, abs=0.015)


def test_prefix_rft_reveals_at_least_one_step_and_never_cuts_up():
    late = draws(build("prefix_rft"), 400, FOUR_STEPS, step=600)
    assert set(late) == {0.25, 0.5, 0.75}
    # U[0.05, 0.95] cut down to quarters: less than 1/2 with probability 0.45 / 0.9.
    assert np.mean(np.array(late) == 0.25) == pytest.approx(0.5, abs=0.07)
    assert set(draws(build("prefix_rft"), 20, legal_ratios(20))) == {0.95}


@pytest.mark.parametrize(
    ("share", "num_rollouts", "prefixed"),
    [(1 / 8, 8, 1), (1 / 8, 32, 4), (1 / 8, 4, 1), (0.01, 8, 1), (0.5, 8, 4)],
)
def test_prefix_rft_gives_the_prefix_to_some_and_nothing_to_the_others(share, num_rollouts, prefixed):
    planned, asked = build("prefix_rft", prefixed_share=share), build("prefix_rft", prefixed_share=share)
    ratio = next_hint(asked, "p", round_index=0, legal_ratios=FOUR_STEPS)
    assert plan(planned, num_rollouts) == (
        HintShare(ratio, prefixed),
        HintShare(0.0, num_rollouts - prefixed),
    )


def test_prefix_rft_with_a_whole_share_prefixes_all():
    assert plan(build("prefix_rft", prefixed_share=1)) == (HintShare(0.75, 8),)


# --- those that look -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SEEING)
@pytest.mark.parametrize("crossing", [0.2, 0.45, 0.8])
def test_the_accuracy_settles_near_the_target_and_follows_the_crossing(name, crossing):
    controller, legal = build(name), legal_ratios(100)
    settled = steer(controller, [crossing] * 40, legal=legal)
    assert settled[10:].mean() == pytest.approx(0.5, abs=0.07)
    moved = steer(controller, [1.0 - crossing] * 40, seed=1, legal=legal)
    assert moved[10:].mean() == pytest.approx(0.5, abs=0.07)


@pytest.mark.parametrize("name", SEEING)
def test_a_policy_that_improves_is_followed_to_no_hint(name):
    controller = build(name)
    assert steer(controller, np.linspace(0.9, -0.5, 40)).shape == (40, 4)
    assert next_hint(controller, "p", round_index=0, legal_ratios=FOUR_STEPS) == 0.0


@pytest.mark.parametrize("name", SEEING)
def test_a_higher_target_reveals_more(name):
    rates = []
    for target in (0.2, 0.8):
        controller = build(name, target_accuracy=target)
        steer(controller, [0.5] * 20, legal=legal_ratios(100))
        rates.append(controller.metrics()["mean_rate"])
    assert rates[0] < rates[1]


def test_robbins_monro_by_hand():
    # Gains 1/2, 1/4, 1/6, then the floor 0.15; errors +1/2, -1/2, 0, +1/2.
    controller, rates = build("robbins_monro", smallest_gain=0.15), []
    for num_correct in (8, 0, 4, 8):
        observe(controller, "p", hint_ratio=0.5, num_correct=num_correct, num_rollouts=8)
        rates.append(controller.metrics()["mean_rate"])
    np.testing.assert_allclose(rates, [0.25, 0.375, 0.375, 0.3])
    for _ in range(9):
        observe(controller, "p", hint_ratio=0.5, num_correct=8, num_rollouts=8)
    assert controller.metrics() == {"problems": 1.0, "mean_rate": 0.0}


def test_bisect_by_hand():
    # Middle 1/2: all correct, [0, 1/2]; middle 1/4: none, [1/4, 1/2]; 3/8 is as near to both and the smaller
    # is taken: half, so it is there. The visit over, a tenth is added on either side.
    controller, ratios = build("bisect"), []
    for round_index, num_correct in enumerate((8, 0, 4)):
        ratios.append(next_hint(controller, "p", round_index=round_index, legal_ratios=FOUR_STEPS))
        observe(controller, "p", hint_ratio=ratios[-1], num_correct=num_correct, num_rollouts=8)
    assert ratios == [0.5, 0.25, 0.25]
    assert controller.state_dict()["intervals"] == {"p": [0.25, 0.25]}
    end_visit(controller, "p")
    end_visit(controller, "never seen")
    assert controller.metrics() == pytest.approx({"problems": 1.0, "mean_rate": 0.25, "mean_width": 0.2})


def test_an_interval_is_cut_from_either_side():
    assert Interval(0.2, 0.8).below(0.5, margin=0.1) == Interval(0.2, 0.5)
    assert Interval(0.2, 0.8).above(0.5, margin=0.1) == Interval(0.5, 0.8)


@pytest.mark.parametrize("interval", [Interval(0.5, 0.5), Interval(0.5, 0.75), Interval(0.6, 0.7)])
def test_a_round_that_cuts_nothing_or_contradicts_widens_the_interval(interval):
    for ratio in (0.4, 0.5, 0.75, 0.8):
        below, above = interval.below(ratio, margin=0.1), interval.above(ratio, margin=0.1)
        assert below.high == min(ratio, interval.high)
        assert above.low == max(ratio, interval.low)
        assert below.width == pytest.approx(min(interval.width + 0.1, below.high))
        assert above.width == pytest.approx(min(interval.width + 0.1, 1.0 - above.low))


def test_bisect_leaves_a_ratio_that_keeps_failing():
    controller = build("bisect")
    observe(controller, "p", hint_ratio=0.25, num_correct=4, num_rollouts=8)
    ratios = []
    for round_index in range(12):
        ratios.append(next_hint(controller, "p", round_index=round_index, legal_ratios=FOUR_STEPS))
        observe(controller, "p", hint_ratio=ratios[-1], num_correct=0, num_rollouts=8)
    assert ratios == sorted(ratios)
    assert (ratios[0], ratios[-1]) == (0.25, 0.75)
