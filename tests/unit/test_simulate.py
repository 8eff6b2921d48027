"""Made-up problems, visits of them, the figures of both, and ``seele simulate`` around it all."""

import asyncio
import json
from dataclasses import fields
from functools import partial
from statistics import fmean
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.commands import exit_status
from seele.config import HintConfig
from seele.errors import ConfigError
from seele.hints import CONTROLLERS, build_controller
from seele.hints.conditions import with_conditions
from seele.records import Grade, GradeReason, HintShare, RoundOutcome
from seele.rollout.rounds import ProblemVisit, run_until_success, run_with_rescue
from seele.simulate.summary import Summary, mean_summary, paired_difference, summarise
from seele.simulate.visits import Schedule, Trace, simulate
from seele.simulate.worlds import TOKENS, UNITS, WORLDS, draw_problems

RISING = ("3pl", "hard", "easy")
"""Worlds in which a hint and ability always help."""


def scheduled(*, visits=1, rollouts_per_prompt=16, **hints):
    return Schedule(visits=visits, hints=HintConfig(rollouts_per_prompt=rollouts_per_prompt, **hints))


def build(name, *, rounds=4, rollouts=16, **settings):
    if name == "paper":
        # The other solver takes many times as long.
        settings = {"solver": "grid", **settings}
    return build_controller(name, rounds=rounds, rollouts_per_round=rollouts // rounds, **settings)


def legal_of(problems, number):
    return problems.cuts.ratio_NJ[number][problems.cuts.is_legal_NJ[number]]


def same_trace(trace, other):
    """True if all is equal bit for bit."""
    arrays = [field.name for field in fields(trace)]
    return all(getattr(trace, name).tobytes() == getattr(other, name).tobytes() for name in arrays)


class Planned:
    """Divides every round alike, and keeps what it observes."""

    def __init__(self, *shares):
        self.shares, self.steps, self.outcomes, self.ended = shares, [], [], []

    def begin_step(self, step):
        self.steps.append(step)

    def plan_rounds(self, requests, *, num_rollouts):
        return [self.shares for _ in requests]

    def observe_rounds(self, outcomes):
        self.outcomes.append(list(outcomes))

    def end_visits(self, instance_ids):
        self.ended += instance_ids


class Knowing:
    """Knows the curves, and that ability grows by as much for all problems from step to step."""

    def __init__(self, problems, *, drift=0.0):
        self.problems, self.drift = problems, drift

    def begin_step(self, step):
        num_problems = len(self.problems.cuts.ratio_NJ)
        accuracy_NJ = self.problems.accuracy(np.full(num_problems, self.drift * (step - 1)))
        best_N = np.argmax(accuracy_NJ * (1.0 - accuracy_NJ), axis=1)
        ratios = self.problems.cuts.ratio_NJ[np.arange(num_problems), best_N].tolist()
        self.best = dict(zip(self.problems.instance_ids, ratios, strict=True))

    def plan_rounds(self, requests, *, num_rollouts):
        return [(HintShare(self.best[request.instance_id], num_rollouts),) for request in requests]

    def observe_rounds(self, outcomes):
        pass

    def end_visits(self, instance_ids):
        pass


# --- worlds ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("world", sorted(WORLDS))
def test_a_world_is_the_same_for_the_same_seed_and_another_for_another(world, unit):
    ability_N = np.linspace(-0.1, 0.3, 40)
    accuracies = []
    for seed in (1, 1, 2):
        problems = draw_problems(world, num_problems=40, seed=seed, unit=unit)
        accuracies.append(problems.accuracy(ability_N).tobytes())
    assert accuracies[0] == accuracies[1] != accuracies[2]


def test_worlds_of_one_seed_do_not_share_their_draws():
    cuts = {draw_problems(world, num_problems=40, seed=1).cuts.ratio_NJ.tobytes() for world in WORLDS}
    assert len(cuts) == len(WORLDS)


@pytest.mark.parametrize("world", sorted(WORLDS))
def test_solutions_are_cut_at_steps_of_unequal_length(world):
    problems = draw_problems(world, num_problems=60, seed=0)
    lengths = set()
    for number in range(60):
        legal = legal_of(problems, number)
        assert 3 <= len(legal) <= 12
        assert legal[0] == 0.0
        assert legal[-1] < 1.0
        steps = np.diff([*legal, 1.0])
        assert steps.min() > 0.0
        assert steps.max() > 1.05 * steps.min()
        lengths.add(len(legal))
    assert lengths == set(range(3, 13))


def test_tokens_cut_solutions_at_every_hundredth():
    problems = draw_problems("3pl", num_problems=2, seed=0, unit=TOKENS)
    np.testing.assert_allclose(legal_of(problems, 1), np.arange(100) / 100)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("world", sorted(WORLDS))
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32 - 1), ability=st.floats(-2.0, 2.0))
def test_an_accuracy_is_a_probability_and_0_where_there_is_no_cut(world, unit, seed, ability):
    problems = draw_problems(world, num_problems=20, seed=seed, unit=unit)
    accuracy_NJ = problems.accuracy(np.full(20, ability))
    assert ((accuracy_NJ >= 0.0) & (accuracy_NJ <= 1.0)).all()
    assert (accuracy_NJ[~problems.cuts.is_legal_NJ] == 0.0).all()


@pytest.mark.parametrize("world", [*RISING, "gains"])
def test_a_hint_and_ability_help(world):
    problems = draw_problems(world, num_problems=100, seed=0)
    weak_NJ, able_NJ = (problems.accuracy(np.full(100, ability)) for ability in (0.0, 0.1))
    for number in range(100):
        is_legal_J = problems.cuts.is_legal_NJ[number]
        assert (np.diff(weak_NJ[number][is_legal_J]) >= 0.0).all()
        assert (able_NJ[number][is_legal_J] >= weak_NJ[number][is_legal_J]).all()
    # Strictly so on the whole, or there would be nothing to choose.
    assert (able_NJ[:, 0] > weak_NJ[:, 0]).mean() > 0.5
    assert weak_NJ.max(axis=1).mean() > weak_NJ[:, 0].mean() + 0.05


@pytest.mark.parametrize("world", RISING)
def test_ability_is_in_units_of_hint_ratio(world):
    # What one of ability 0.2 solves with 0.3, one of ability 0 solves with 0.5.
    problems = draw_problems(world, num_problems=50, seed=0, unit=TOKENS)
    able_NJ, unable_NJ = (problems.accuracy(np.full(50, ability)) for ability in (0.2, 0.0))
    np.testing.assert_allclose(able_NJ[:, 30], unable_NJ[:, 50])


def test_hard_is_harder_than_easy():
    means = [
        draw_problems(world, num_problems=300, seed=0).accuracy(np.zeros(300))[:, 0].mean()
        for world in ("hard", "3pl", "easy")
    ]
    assert means == sorted(means)
    assert means[2] - means[0] > 0.2


def test_in_the_odd_world_some_hints_hurt_and_some_problems_are_out_of_reach():
    problems = draw_problems("odd", num_problems=300, seed=0)
    accuracy_NJ = problems.accuracy(np.zeros(300))
    curves = [accuracy_NJ[number][problems.cuts.is_legal_NJ[number]] for number in range(300)]
    shares = [
        np.mean([np.diff(accuracies).min() < -0.01 for accuracies in curves]),
        np.mean([accuracies.max() == 0.0 for accuracies in curves]),
        np.mean([accuracies.min() == accuracies.max() == 0.99 for accuracies in curves]),
    ]
    assert all(share > 0.04 for share in shares)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"world": "moon"}, r"unknown world 'moon'; allowed are \['3pl', 'easy', 'gains', 'hard', 'odd'\]"),
        ({"world": "3pl", "unit": "words"}, r"unknown unit 'words'; allowed are \['step', 'token'\]"),
    ],
)
def test_an_unknown_world_or_unit_is_named_with_those_that_exist(settings, message):
    with pytest.raises(ConfigError, match=message):
        draw_problems(num_problems=2, seed=0, **settings)


# --- visits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"visits": 0}, "visits must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Schedule(**settings)


@pytest.mark.parametrize("name", sorted(CONTROLLERS))
def test_a_controller_has_the_same_fate_twice(name):
    problems = draw_problems("3pl", num_problems=20, seed=3)
    schedule = Schedule(visits=2, batch_size=8)
    trace, again = (simulate(build(name, seed=5), problems, schedule, seed=7) for _ in range(2))
    assert same_trace(trace, again)
    assert paired_difference([trace], [again]) == (0.0, 0.0)
    assert not same_trace(trace, simulate(build(name, seed=5), problems, schedule, seed=8))


def test_equal_choices_have_equal_luck():
    problems, schedule = draw_problems("gains", num_problems=30, seed=0), Schedule(visits=3)
    none, fixed = (
        simulate(controller, problems, schedule, seed=0)
        for controller in (build("none"), build("fixed", ratio=0.0))
    )
    assert same_trace(none, fixed)
    assert (none.hint_ratio_NVR == 0.0).all()


def test_another_seed_is_other_luck_and_another_drift():
    problems, schedule = draw_problems("3pl", num_problems=30, seed=0), Schedule(visits=2)
    trace, other = (simulate(build("none"), problems, schedule, seed=seed) for seed in (1, 2))
    assert (trace.unhinted_NV[:, 0] == other.unhinted_NV[:, 0]).all()
    assert (trace.correct_NVR[:, 0] != other.correct_NVR[:, 0]).any()
    assert (trace.unhinted_NV[:, 1] != other.unhinted_NV[:, 1]).any()


def test_more_hint_never_turns_a_correct_rollout_wrong_where_it_helps():
    problems, schedule = draw_problems("3pl", num_problems=30, seed=0), Schedule(visits=2)
    less, more = (
        simulate(build("fixed", ratio=ratio), problems, schedule, seed=0).correct_NVR for ratio in (0.1, 0.6)
    )
    assert (more >= less).all()
    assert more.sum() > less.sum()


def test_rounds_of_other_lengths_have_the_same_luck():
    problems = draw_problems("3pl", num_problems=30, seed=0)
    few, many = (
        simulate(build("none", rounds=rounds), problems, scheduled(rounds=rounds), seed=0).correct_NVR
        for rounds in (2, 8)
    )
    np.testing.assert_array_equal(few[:, 0, 0], many[:, 0, :4].sum(axis=1))


def test_every_batch_is_a_step_and_every_visit_ends():
    problems = draw_problems("3pl", num_problems=5, seed=0)
    controller = Planned(HintShare(0.0, 4))
    simulate(controller, problems, Schedule(visits=2, batch_size=2), seed=0)
    assert controller.steps == [1, 2, 3, 4, 5, 6]
    assert [len(outcomes) for outcomes in controller.outcomes] == [2] * 8 + [1] * 4 + [2] * 8 + [1] * 4
    assert controller.ended == 2 * problems.instance_ids


@pytest.mark.parametrize("world", sorted(WORLDS))
def test_no_controller_is_better_than_the_best_legal_hint(world):
    problems, schedule = draw_problems(world, num_problems=20, seed=0), Schedule(visits=2)
    for name in CONTROLLERS:
        trace = simulate(build(name), problems, schedule, seed=0)
        assert (trace.worth_NVR <= trace.oracle_NV[:, :, None] + 1e-12).all()
        summary = summarise(trace)
        assert summary.mean_a_1_minus_a <= summary.oracle_a_1_minus_a + 1e-12
        assert summary.share_of_oracle <= 1.0 + 1e-12


@pytest.mark.parametrize("world", sorted(WORLDS))
def test_who_knows_the_curves_reaches_the_best_legal_hint(world):
    problems = draw_problems(world, num_problems=40, seed=0)
    schedule = Schedule(visits=3, batch_size=40, drift_mean=0.1, drift_sd=0.0)
    trace = simulate(Knowing(problems, drift=0.1), problems, schedule, seed=0)
    np.testing.assert_allclose(trace.worth_NVR, np.repeat(trace.oracle_NV[:, :, None], 4, axis=2), atol=1e-12)
    assert summarise(trace).share_of_oracle == pytest.approx(1.0)


@pytest.mark.parametrize("world", sorted(WORLDS))
def test_no_hint_has_no_share_of_the_best(world):
    problems = draw_problems(world, num_problems=40, seed=0)
    summary = summarise(simulate(build("none"), problems, Schedule(visits=2), seed=0))
    assert summary.share_of_oracle == pytest.approx(0.0, abs=1e-12)
    assert summary.mean_a_1_minus_a == pytest.approx(summary.unhinted_a_1_minus_a, abs=1e-12)
    assert summary.mean_hint_ratio == 0.0


def test_ability_grows_between_visits_and_not_within():
    problems = draw_problems("easy", num_problems=50, seed=0)
    trace = simulate(build("none"), problems, Schedule(visits=4, drift_mean=0.1), seed=0)
    assert (np.diff(trace.unhinted_NV.mean(axis=0)) > 0.0).all()
    np.testing.assert_allclose(trace.accuracy_NVR, np.repeat(trace.unhinted_NV[:, :, None], 4, axis=2))
    unchanged = simulate(
        build("none"), problems, Schedule(visits=2, drift_mean=0.0, drift_sd=0.0), seed=0
    ).unhinted_NV
    np.testing.assert_array_equal(unchanged[:, 0], unchanged[:, 1])


# --- figures ---------------------------------------------------------------------------------------------


def test_probes_are_observed_but_left_out_of_the_figures():
    problems = draw_problems("3pl", num_problems=30, seed=0, unit=TOKENS)
    probing = Planned(HintShare(0.0, 1, is_probe=True), HintShare(0.4, 3))
    probed = simulate(probing, problems, Schedule(), seed=0)
    hinted = simulate(Planned(HintShare(0.4, 4)), problems, Schedule(), seed=0)
    for name in ("hint_ratio_NVR", "accuracy_NVR", "worth_NVR"):
        np.testing.assert_array_equal(getattr(probed, name), getattr(hinted, name))
    first, second, *_ = probing.outcomes[0]
    assert (first.hint_ratio, first.num_rollouts) == (0.0, 1)
    assert (second.hint_ratio, second.num_rollouts) == (0.4, 3)


def test_with_a_quorum_the_last_rollouts_are_observed_one_round_later():
    problems = draw_problems("3pl", num_problems=1, seed=0, unit=TOKENS)
    shares = HintShare(0.0, 2, is_probe=True), HintShare(0.4, 3)
    whole, cut = Planned(*shares), Planned(*shares)
    hints = {"rounds": 2, "rollouts_per_prompt": 10}
    expected = simulate(whole, problems, scheduled(**hints), seed=0)
    trace = simulate(cut, problems, scheduled(round_quorum=0.5, **hints), seed=0)
    assert same_trace(trace, expected)
    assert [[(seen.hint_ratio, seen.num_rollouts) for seen in each] for each in cut.outcomes] == [
        [(0.0, 2), (0.4, 2)], [(0.4, 1), (0.0, 2), (0.4, 2)], [(0.4, 1)]
    ]  # fmt: skip
    for outcomes in (cut.outcomes, whole.outcomes):
        assert sum(seen.num_correct for each in outcomes for seen in each) == expected.correct_NVR.sum()


def test_two_hints_of_one_round_count_by_their_rollouts():
    problems = draw_problems("3pl", num_problems=2, seed=0, unit=TOKENS)
    trace = simulate(Planned(HintShare(0.2, 3), HintShare(0.6, 1)), problems, Schedule(), seed=0)
    accuracy_N2 = problems.accuracy(np.zeros(2))[:, [20, 60]]
    expected_N2 = accuracy_N2 * (1.0 - accuracy_N2)
    np.testing.assert_allclose(trace.hint_ratio_NVR, 0.3)
    np.testing.assert_allclose(trace.accuracy_NVR[:, 0, 0], accuracy_N2 @ [0.75, 0.25])
    np.testing.assert_allclose(trace.worth_NVR[:, 0, 0], expected_N2 @ [0.75, 0.25])


def test_rounds_of_nothing_but_probes_are_what_they_were():
    problems = draw_problems("3pl", num_problems=10, seed=0)
    trace = simulate(Planned(HintShare(0.0, 4, is_probe=True)), problems, Schedule(), seed=0)
    assert same_trace(trace, simulate(build("none"), problems, Schedule(), seed=0))


def test_of_several_visits_the_first_is_not_scored():
    problems = draw_problems("easy", num_problems=30, seed=0)
    trace = simulate(build("none"), problems, Schedule(visits=3), seed=0)
    variance_NV = trace.unhinted_NV * (1.0 - trace.unhinted_NV)
    assert summarise(trace).mean_a_1_minus_a == pytest.approx(variance_NV[:, 1:].mean())
    once = simulate(build("none"), problems, Schedule(visits=1), seed=0)
    assert summarise(once).mean_a_1_minus_a == pytest.approx(variance_NV[:, 0].mean())


def trace_of(worth_NVR, **known):
    """A trace of 8 rollouts a visit, in which only what is given matters."""
    worth_NVR = np.array(worth_NVR)
    others = {
        **dict.fromkeys(("hint_ratio_NVR", "accuracy_NVR"), np.zeros(worth_NVR.shape)),
        **dict.fromkeys(("unhinted_NV", "oracle_NV"), np.zeros(worth_NVR.shape[:2])),
        "correct_NVR": np.zeros(worth_NVR.shape, dtype=np.int64),
        "size_R": np.full(worth_NVR.shape[2], 8 // worth_NVR.shape[2]),
        "num_rounds_NV": np.full(worth_NVR.shape[:2], worth_NVR.shape[2]),
        "num_generated_NV": np.full(worth_NVR.shape[:2], 8),
    }
    given = {name: np.array(values) for name, values in known.items()}
    return Trace(worth_NVR=worth_NVR, **{**others, **given})


def test_means_are_over_rollouts_where_rounds_differ():
    trace = trace_of([[[0.25, 0.0]]], accuracy_NVR=[[[0.5, 1.0]]], size_R=[15, 1])
    summary = summarise(trace)
    assert summary.mean_a_1_minus_a == pytest.approx(0.25 * 15 / 16)
    pooled = (0.5 * 15 + 1) / 16
    assert summary.variance_between_hints == pytest.approx(1 - 0.25 * 15 / 16 / (pooled * (1 - pooled)))


def test_figures_by_hand():
    # One problem at 1/2 in both rounds, never solved; one at 1/4 and 3/4, solved by half of its rollouts.
    trace = trace_of(
        [[[0.25, 0.25]], [[0.1875, 0.1875]]],
        accuracy_NVR=[[[0.5, 0.5]], [[0.25, 0.75]]],
        hint_ratio_NVR=[[[0.1, 0.2]], [[0.3, 0.4]]],
        correct_NVR=[[[0, 0]], [[1, 3]]],
        unhinted_NV=[[0.0], [0.5]],
        oracle_NV=[[0.25], [0.25]],
    )
    summary = summarise(trace)
    assert summary.mean_a_1_minus_a == 0.21875
    assert (summary.unhinted_a_1_minus_a, summary.oracle_a_1_minus_a) == (0.125, 0.25)
    assert summary.share_of_oracle == 0.75
    assert summary.mean_distance == 0.125
    assert summary.mean_hint_ratio == pytest.approx(0.25)
    assert summary.nonzero_variance_share == 0.5
    # Both problems have a mean accuracy of 1/2, so 1/4 each; of it 1/16 is between the rounds of the second.
    assert summary.variance_between_hints == pytest.approx(0.125)
    assert (summary.mean_num_rounds, summary.mean_num_generated) == (2.0, 8.0)


def test_a_visit_that_ends_early_counts_by_its_rollouts_and_takes_the_same_luck():
    class Impatient:
        """Un-hinted; every second problem has all its rollouts in its second round."""

        def __init__(self):
            self.outcomes = []

        def plan_rounds(self, requests, *, num_rollouts):
            last = [each.round_index == 1 and int(each.instance_id[-1]) % 2 == 1 for each in requests]
            return [
                (HintShare(0.0, each.rollouts_left if is_last else num_rollouts),)
                for each, is_last in zip(requests, last, strict=True)
            ]

        def observe_rounds(self, outcomes):
            self.outcomes += [(seen.instance_id, seen.num_rollouts) for seen in outcomes]

        def begin_step(self, step): ...

        def end_visits(self, instance_ids): ...

    problems = draw_problems("easy", num_problems=10, seed=0)
    controller, patient = Impatient(), simulate(build("none"), problems, Schedule(), seed=0)
    trace = simulate(controller, problems, Schedule(), seed=0)
    ends_early_N = np.array([int(name[-1]) % 2 == 1 for name in problems.instance_ids])
    assert trace.num_rounds_NV[:, 0].tolist() == np.where(ends_early_N, 2, 4).tolist()
    for name, ends_early in zip(problems.instance_ids, ends_early_N, strict=True):
        sizes = [size for other, size in controller.outcomes if other == name]
        assert sizes == ([4, 12] if ends_early else [4, 4, 4, 4])
    assert np.array_equal(trace.correct_NVR.sum(2), patient.correct_NVR.sum(2))
    assert np.array_equal(trace.worth_NVR, patient.worth_NVR)


class Local:
    """A controller as the rounds of training see it."""

    def __init__(self, controller):
        self.controller = controller
        controller.begin_step(1)

    async def plan_round(self, request, *, num_rollouts):
        return self.controller.plan_rounds([request], num_rollouts=num_rollouts)[0]

    async def observe(self, instance_id, **outcome):
        self.controller.observe_rounds([RoundOutcome(instance_id, *outcome.values())])

    async def end_visit(self, instance_id):
        self.controller.end_visits([instance_id])


@pytest.mark.parametrize(
    ("when", "name", "roll_out", "more"),
    [
        ("until_success", "ladder", run_until_success, {}),
        ("until_success", "bisect", run_until_success, {}),
        ("until_success", "bread", run_until_success, {"passing_accuracy": 0.75}),
        ("rescue", "each", run_with_rescue, {}),
    ],
)
def test_failed_rounds_are_replaced_as_in_training(when, name, roll_out, more):
    rounds, size, failing = (2 if when == "rescue" else 4), 4, 0.25
    problems = draw_problems("odd", num_problems=60, seed=0)
    schedule = scheduled(rounds=rounds, rollouts_per_prompt=size, when=when, failing_accuracy=failing, **more)
    conditions = {"when": when, "failing_accuracy": failing}
    trace = simulate(with_conditions(build(name), **conditions), problems, schedule, seed=0)
    assert trace.worth_NVR.shape == (60, 1, 1) and trace.size_R.tolist() == [size]
    num_draws = size + problems.cuts.ratio_NJ.shape[1] if when == "rescue" else rounds * size
    luck_NG = np.random.default_rng([0, 0, 1]).random((60, num_draws))
    accuracy_NJ = problems.accuracy(np.zeros(60))
    replaced = 0
    for n, instance_id in enumerate(problems.instance_ids):
        legal, generated = tuple(legal_of(problems, n).tolist()), 0
        instance = SimpleNamespace(
            instance_id=instance_id, legal_hint_ratios=legal, num_hint_steps=legal.index
        )

        async def sample(*, hint_steps, round_index, first_rollout, num_rollouts, quorum, n=n):
            nonlocal generated
            generated += num_rollouts
            luck_G = luck_NG[n, round_index * size + first_rollout :][:num_rollouts]
            yield dict(enumerate((luck_G < accuracy_NJ[n, hint_steps]).tolist()))

        async def grade(is_correct, instance, *, hint_steps):
            return Grade(is_correct, GradeReason.CORRECT if is_correct else GradeReason.WRONG)

        controller = Local(with_conditions(build(name), **conditions))
        visit = ProblemVisit(instance=instance, controller=controller, sample=sample, grade=grade)
        kept = asyncio.run(
            roll_out(visit, schedule.hints.rollouts_of_rounds, failing_accuracy=failing, **more)
        )
        accuracies = np.array([accuracy_NJ[n, each.hint_steps] for each in kept])
        replaced += any(each.hint_steps for each in kept)
        assert trace.correct_NVR[n, 0, 0] == sum(each.grade.correct for each in kept)
        assert trace.num_generated_NV[n, 0] == generated
        assert trace.hint_ratio_NVR[n, 0, 0] == pytest.approx(fmean(each.share.hint_ratio for each in kept))
        assert trace.worth_NVR[n, 0, 0] == pytest.approx((accuracies * (1.0 - accuracies)).mean())
    assert 10 < replaced < 60


def test_a_paired_difference_by_hand():
    # 0.1 and 0.2 better: mean 0.15, sample standard deviation 0.1 / sqrt(2), of the mean 0.05.
    trace, other = trace_of([[[0.2, 0.2]], [[0.2, 0.3]]]), trace_of([[[0.1, 0.1]], [[0.05, 0.05]]])
    assert paired_difference([trace], [other]) == pytest.approx((0.15, 1.959964 * 0.05))


def test_a_mean_over_worlds_counts_every_world_alike():
    names = [field.name for field in fields(Summary)]
    low, high = (Summary(**dict.fromkeys(names, value)) for value in (0.1, 0.3))
    assert mean_summary([low, high]) == Summary(**dict.fromkeys(names, pytest.approx(0.2)))


def test_where_no_hint_could_help_there_is_no_share_of_it():
    same = Summary(**dict.fromkeys([field.name for field in fields(Summary)], 0.1))
    assert same.share_of_oracle is None


def test_bayes_beats_the_paper_with_half_its_rounds():
    problems = draw_problems("3pl", num_problems=150, seed=0)
    ours = simulate(build("bayes", rounds=2), problems, scheduled(visits=4, rounds=2), seed=0)
    papers = simulate(build("paper"), problems, Schedule(visits=4), seed=0)
    difference, half_width = paired_difference([ours], [papers])
    assert difference - half_width > 0.0


# --- the command line ------------------------------------------------------------------------------------

SMALL = ("--problems", 12, "--world", "3pl", "--world", "odd", "--visits", 2)


run = partial(exit_status, "simulate")


@pytest.mark.parametrize(("rollouts", "sizes"), [((), [4, 2, 1, 1]), (("--rollouts", 16), [8, 4, 2, 2])])
def test_rollouts_of_rounds_are_shares_of_the_rollouts_as_in_training(rollouts, sizes, capsys):
    assert run("--controller", "none", *SMALL, "--json", "--round-sizes", "4,2,1,1", *rollouts) == 0
    schedule = json.loads(capsys.readouterr().out)["schedule"]
    assert schedule["rollouts_of_rounds"] == sizes
    assert (schedule["hints"]["rollouts_per_prompt"], schedule["hints"]["rounds"]) == (sum(sizes), 4)


def test_json_holds_every_controller_in_every_world(capsys):
    specs = ["none", "fixed:ratio=0.4", "bayes:probes=2"]
    options = [option for spec in specs for option in ("--controller", spec)]
    assert run(*options, *SMALL, "--json") == 0
    figures = json.loads(capsys.readouterr().out)
    assert sorted(figures) == ["controllers", "problems", "schedule", "seed", "unit"]
    assert (figures["problems"], figures["seed"], figures["unit"]) == (12, 0, "step")
    assert figures["schedule"]["visits"] == 2
    assert figures["schedule"]["batch_size"] == 12
    assert list(figures["controllers"]) == specs
    names = {field.name for field in fields(Summary)} | {"share_of_oracle"}
    for spec, entry in figures["controllers"].items():
        assert set(entry) == {"mean", "worlds"} | ({"minus_none"} if spec != "none" else set())
        assert list(entry["worlds"]) == ["3pl", "odd"]
        assert all(set(row) == names for row in (entry["mean"], *entry["worlds"].values()))
        worlds = [row["mean_a_1_minus_a"] for row in entry["worlds"].values()]
        assert entry["mean"]["mean_a_1_minus_a"] == pytest.approx(sum(worlds) / 2)
    none, fixed = (figures["controllers"][spec] for spec in specs[:2])
    assert sorted(fixed["minus_none"]) == ["half_width_95", "mean"]
    assert fixed["minus_none"]["mean"] == pytest.approx(
        fixed["mean"]["mean_a_1_minus_a"] - none["mean"]["mean_a_1_minus_a"]
    )


@pytest.mark.parametrize(
    ("name", "by_hand"),
    [("uft", "uft:hint_training_steps=12"), ("prefix_rft", "prefix_rft:decay_training_steps=20")],
)
def test_schedules_last_as_long_as_the_simulated_training(capsys, name, by_hand):
    # 10 visits of 11 problems, 6 at a time, are 20 steps; UFT's hints end after 60 % of them.
    sizes = ("--problems", 11, "--batch-size", 6, "--visits", 10, "--world", "3pl")
    assert run("--controller", name, "--controller", by_hand, *sizes, "--json") == 0
    controllers = json.loads(capsys.readouterr().out)["controllers"]
    assert controllers[name]["worlds"] == controllers[by_hand]["worlds"]


def test_a_number_may_be_written_without_a_point(capsys):
    assert (
        run(
            "--controller",
            "bayes:settle_below=5e-3",
            "--controller",
            "bayes:settle_below=0.005",
            *SMALL,
            "--json",
        )
        == 0
    )
    first, second = json.loads(capsys.readouterr().out)["controllers"].values()
    assert first["mean"]["mean_num_rounds"] == second["mean"]["mean_num_rounds"] < 4


def test_without_json_two_tables_are_printed(capsys):
    assert run("--controller", "none", "--controller", "bisect", *SMALL) == 0
    lines = capsys.readouterr().out.splitlines()
    tables = [[line for line in part.split("\n") if line] for part in "\n".join(lines).split("\n\n")]
    assert [len(table) for table in tables] == [4, 6]
    for table in tables:
        assert len({line.count("|") for line in table}) == 1
        assert set(table[1]) <= set("|-:")
    assert [line.split(" ")[1] for line in tables[0][2:]] == ["none", "bisect"]
    assert "| mean distance from 1/2 |" in tables[0][0]
    assert "| 3pl | odd |" in tables[1][0]


def test_out_holds_what_was_printed_and_a_figure(tmp_path, capsys):
    assert run("--controller", "none", "--controller", "bayes", *SMALL, "--out", tmp_path / "new") == 0
    printed = capsys.readouterr().out
    files = {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()}
    assert sorted(files) == ["simulation.json", "simulation.md", "simulation.png"]
    assert files["simulation.md"].decode() == printed
    assert "bayes" in json.loads(files["simulation.json"])["controllers"]
    assert files["simulation.png"].startswith(b"\x89PNG\r\n")


def test_the_same_command_gives_the_same_figures(capsys):
    printed = []
    for _ in range(2):
        assert run("--controller", "uniform", "--seed", 3, *SMALL, "--json") == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["--controller", "papper"],
            "unknown name 'papper' (did you mean 'paper'?); allowed are ['adaback', ",
        ),
        (["--controller", "none", "--controller", "fixed:ratoi=1"], "unknown setting 'ratoi' of controller"),
        (["--controller", "fixed:ratio=2"], "seele.hints.settings.ratio: expected a number in [0, 1], got 2"),
        (["--controller", "fixed:ratio"], "expected NAME or NAME:key=value,key=value, got 'ratio'"),
        (["--controller", "fixed:ratio=["], "cannot read the value '[' of 'ratio'"),
        (["--controller", "bayes:rounds=2"], "'rounds' is common to all controllers"),
        (["--controller", "fixed:name=none"], "'name' is common to all controllers"),
        (["--controller", "none", "--world", "moon"], "unknown world 'moon'; allowed are ['3pl', "),
        (["--controller", "none", "--unit", "words"], "unknown unit 'words'; allowed are ['step', "),
        (["--controller", "none", "--problems", 1], "--problems: expected at least 2, got 1"),
        (["--controller", "none", "--seed", -1], "--seed: expected 0 or more, got -1"),
        (
            ["--controller", "none", "--rounds", 3],
            "--rollouts (16) must be a positive multiple of rounds (3)",
        ),
        (["--controller", "none", "--rounds", 0], "rounds must be at least 1, got 0"),
        (
            ["--controller", "paper", "--quorum", 0.5],
            "round_quorum: got 0.5, but a value below 1 needs a controller that counts rollouts",
        ),
        (
            ["--controller", "bayes", "--rounds", 2, "--when", "rescue"],
            "rescue tries every hint once, but controller 'bayes' gives one",
        ),
        (["--controller", "ladder:shares=[0.5,2]"], "settings.shares: expected a number in [0, 1], got 2"),
        (["--controller", "none", "--when", "later"], "when must be one of"),
        (["--controller", "none", "--failing-accuracy", 0.5], "has no effect with --when always"),
        (
            ["--controller", "none", "--when", "after_failure", "--passing-accuracy", 0.5],
            "has no effect with --when after_failure",
        ),
        (
            ["--controller", "none", "--rounds", 2, "--round-sizes", "4,2,1,1"],
            "--round-sizes has 4; leave one",
        ),
        (["--controller", "none", "--controller", "none"], "--controller: 'none' is named twice"),
        (["--controller", "none", "--batch-size", 0], "batch_size must be at least 1, got 0"),
        (["--controller", "none", "--target-accuracy", 1], "target_accuracy must lie in (0, 1), got 1.0"),
    ],
)
def test_what_is_not_allowed_ends_with_one_line_and_no_files(tmp_path, capsys, arguments, complaint):
    assert run(*arguments, "--out", tmp_path / "out") == 2
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert not (tmp_path / "out").exists()


def test_a_simulation_needs_a_controller(capsys):
    assert run("--problems", 2) == 2
    assert "--controller" in capsys.readouterr().err
