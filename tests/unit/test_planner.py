"""Which groups an update learns from: the planner of a step, LZE, the pool of successes."""

import dataclasses
import json
import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seele.config import (
    AdvantageConfig,
    CreditConfig,
    CurriculumConfig,
    HintConfig,
    OffPolicyConfig,
    ReplayConfig,
    SeeleConfig,
    SelectionConfig,
)
from seele.curriculum.lze import energy
from seele.curriculum.planner import StepPlanner
from seele.curriculum.replay import LastSuccesses, SuccessPool
from seele.curriculum.selection import SELECTIONS, build_selection
from seele.data.own_solutions import OwnSolutions
from seele.errors import CheckpointError, DataError
from seele.methods.sources import build_source
from seele.records import Completion, Finish, Grade, GradeReason, HintShare, Instance, Origin, Rollout, Visit

# --- One step's problems, with all parts at once: what is carried, pruned, replayed, selected and saved


NUM_PROBLEMS, BATCH = 20, 4


def build_planner(instance_ids=tuple(f"p{problem}" for problem in range(NUM_PROBLEMS)), **sections):
    rows = [{"level": problem % 2} for problem in range(NUM_PROBLEMS)]
    settings = SeeleConfig(method="x", **sections)
    return StepPlanner(
        settings,
        rows,
        instance_ids=instance_ids,
        batch_size=BATCH,
        replays=build_source(settings.off_policy).replays,
    )


def everything():
    return build_planner(
        hints=HintConfig(controller="none", rounds=1, rollouts_per_prompt=4),
        curriculum=CurriculumConfig(name="sec"),
        selection=SelectionConfig(name="lze", warmup_epochs=0.0, prune_after=1),
        off_policy=OffPolicyConfig(source="replay"),
        replay=ReplayConfig(start_accuracy=0.0),
    )


def visit(problem, rewards, *, hint_steps=(0, 0, 0, 0), rounds=(0, 0, 0, 0)):
    rollouts = tuple(
        Rollout(
            round_index=round_index,
            rollout_index=index,
            share=HintShare(steps / 2, len(rewards)),
            hint_steps=steps,
            completion=Completion(
                text=f"{problem}.{index}", token_ids=(index,), log_probs=(-0.1 * index,), finish=Finish.STOP
            ),
            grade=Grade(bool(reward), GradeReason.CORRECT if reward else GradeReason.WRONG),
        )
        for index, (reward, steps, round_index) in enumerate(zip(rewards, hint_steps, rounds, strict=False))
    )
    instance = Instance(
        instance_id=f"p{problem}", data_source="x", question="?", steps=("a", "b"), answer="b"
    )
    return Visit(instance=instance, step=1, prompt_tokens=1, step_tokens=(1, 1), rollouts=rollouts)


def run(planner, steps):
    """What the planner decides in these steps, of outcomes that depend on step and problem alone."""
    decisions = []
    for step in steps:
        problems, replayed = planner.begin(step)
        visits = {
            problem: visit(problem, [random.Random(f"{step}-{problem}-{i}").random() < 0.6 for i in range(4)])
            for problem in problems
        }
        selected = planner.select(list(visits.values()))
        planner.learn(visits, {problem: dict.fromkeys(range(4), problem / 100) for problem in problems})
        decisions.append(
            (problems, {p: success.completion.text for p, success in replayed.items()}, selected)
        )
    return decisions


def test_a_restored_planner_goes_on_as_the_one_that_was_never_interrupted():
    planner = everything()
    run(planner, range(1, 8))
    state = json.loads(json.dumps(planner.state_dict()))
    other = everything()
    other.load_state_dict(state)
    assert other.state_dict() == state
    assert run(other, range(8, 15)) == run(planner, range(8, 15))
    assert other.state_dict() == planner.state_dict()


def test_every_part_is_at_work_in_that_test():
    planner = everything()
    decisions = run(planner, range(1, 15))
    assert any(replayed for _, replayed, _ in decisions)
    assert any(len(selected) < BATCH for _, _, selected in decisions)
    metrics = planner.metrics()
    assert metrics["pruning/pruned_problems"] > 0 and metrics["replay/problems"] > 0
    assert len({metrics["curriculum/q/level=0"], metrics["curriculum/q/level=1"]}) == 2


def test_a_step_begins_distinct_problems_the_carried_ones_first():
    planner = build_planner(curriculum=CurriculumConfig(spare_problems=2))
    first, _ = planner.begin(1)
    assert len(set(first)) == BATCH + 2
    second, _ = planner.begin(2, carried=first[-2:])
    assert second[:2] == first[-2:] and len(set(second)) == BATCH + 2
    assert not set(second[2:]) & set(first)


def test_without_spare_problems_an_epoch_trains_on_each_once():
    planner = build_planner()
    begun = [problem for step in range(1, 6) for problem in planner.begin(step)[0]]
    assert sorted(begun) == list(range(NUM_PROBLEMS))


def test_a_carried_problem_is_not_replayed_and_a_replayed_success_counts_in_the_pool():
    planner = build_planner(
        hints=HintConfig(controller="none", rounds=1, rollouts_per_prompt=4),
        off_policy=OffPolicyConfig(source="replay"),
        replay=ReplayConfig(start_accuracy=0.0, problem_share=1.0),
    )
    first, _ = planner.begin(1)
    planner.learn({problem: visit(problem, [1, 1, 0, 0]) for problem in first}, {})
    second, replayed = planner.begin(2, carried=first[:2])
    assert second[:2] == first[:2] and {*replayed} == {*first[2:]} and len({*second}) == BATCH
    # The given success is the only one.
    again = visit(first[3], [0, 0, 0, 1])
    given = dataclasses.replace(again.rollouts[3], origin=Origin.REPLAY)
    planner.learn({first[3]: dataclasses.replace(again, rollouts=(*again.rollouts[:3], given))}, {})
    counts = {entry["problem"]: entry["num_correct"] for entry in planner.state_dict()["replay"]["problems"]}
    assert counts == {problem: 1 if problem == first[3] else 2 for problem in first}


def test_replacements_are_new_until_there_are_none_and_never_in_flight():
    planner = build_planner(curriculum=CurriculumConfig(name="sec", with_replacement=True))
    first, _ = planner.begin(1)
    more, _ = planner.begin_more(NUM_PROBLEMS - BATCH, in_flight=first[:1])
    assert sorted([*first, *more]) == list(range(NUM_PROBLEMS))
    assert not set(planner.begin_more(3, in_flight=first)[0]) & set(first)


def test_a_step_that_never_finds_enough_groups_gives_up_with_advice():
    planner = build_planner()
    planner.begin(1)
    with pytest.raises(DataError, match=r"10 times through all 20 problems .*filter_groups.enable=false"):
        for _ in range(1000):
            planner.begin_more(BATCH, in_flight=[])


@pytest.mark.parametrize(
    ("rewards", "hints", "streak"),
    [
        pytest.param([1, 1, 1, 1], [0, 0, 0, 0], 2, id="solved without hints"),
        pytest.param([1, 1, 1, 1], [1, 1, 1, 1], 1, id="solved under hints, which says nothing"),
        pytest.param([1, 1, 1, 1], [0, 1, 1, 1], 1, id="a probe among hints says too little"),
        pytest.param([1, 1, 1, 1], [0, 0, 0, 1], 2, id="one prefix among rollouts without"),
        pytest.param([1, 0, 0, 0], [0, 1, 1, 1], 0, id="a lucky probe where hints fail"),
        pytest.param([0, 1, 1, 1], [0, 1, 1, 1], 0, id="a probe fails"),
        pytest.param([1, 1, 1, 0], [1, 1, 1, 1], 0, id="not even hints solve it"),
    ],
)
def test_a_problem_counts_as_solved_where_all_rollouts_are_right_and_most_had_no_hint(rewards, hints, streak):
    planner = build_planner(selection=SelectionConfig(prune_after=2))
    planner.learn({3: visit(3, [1, 1, 1, 1])}, {})
    planner.learn({3: visit(3, rewards, hint_steps=hints)}, {})
    assert dict(planner.state_dict()["pruning"]["streaks"]).get(3, 0) == streak


def test_pruning_samples_anew_in_each_epoch_of_the_curriculum_which_it_makes_shorter():
    # Half of the problems are solved, and 1 of them is tried again: an epoch has 11 problems instead of 20.
    planner = build_planner(selection=SelectionConfig(prune_after=1))
    for step in range(1, 60):
        begun = int(planner.metrics()["curriculum/epoch"])
        problems, _ = planner.begin(step)
        planner.learn({problem: visit(problem, [1, problem < 10]) for problem in problems}, {})
        assert planner.state_dict()["pruning"]["epoch"] == begun
    assert begun == pytest.approx(59 * BATCH / 11, abs=2)


@pytest.mark.parametrize(("loss", "signal"), [("nll", 0.0), ("shaped", 0.125)])
def test_sec_hears_of_rollouts_whose_loss_has_an_advantage(loss, signal):
    # All rollouts failed; the solution beside them is right, 1/2 above the mean or without a surrogate.
    planner = build_planner(
        hints=HintConfig(controller="none", rounds=1, rollouts_per_prompt=4),
        curriculum=CurriculumConfig(name="sec", learning_rate=1.0),
        off_policy=OffPolicyConfig(source="trace", loss=loss, statistics="on_policy"),
    )
    planner.begin(1)
    failed = visit(0, [0, 0, 0, 1])
    solution = dataclasses.replace(failed.rollouts[3], origin=Origin.TRACE)
    failed = dataclasses.replace(failed, rollouts=(*failed.rollouts[:3], solution))
    planner.learn({0: failed}, {0: {0: 0.0, 1: 0.0, 2: 0.0, 3: 0.5}})
    curriculum = planner.state_dict()["curriculum"]
    assert (curriculum["arms"][0], curriculum["values"][0]) == ("level=0", signal)


@pytest.mark.parametrize(
    ("rewards", "penalties", "sections", "value"),
    [
        pytest.param([1, 1, 1, 1], (), {}, 0.4, id="solved"),
        pytest.param([0, 0, 0, 0], (-0.5,) * 4, {}, 0.4, id="failed, with equal penalties"),
        pytest.param(
            [1, 1, 1, 1], (), {"advantage": AdvantageConfig(baseline="per_round")}, 0.4, id="rounds"
        ),
        pytest.param([1, 1, 1, 0], (), {}, 0.8, id="not selected although rollouts disagree"),
        pytest.param([1, 1, 1, 1], (0.0, 0.0, 0.0, -0.5), {}, 0.8, id="penalties differ"),
        pytest.param([1] * 4, (), {"advantage": AdvantageConfig(shift=0.1)}, 0.8, id="shifted"),
        pytest.param([1] * 4, (), {"credit": CreditConfig(name="milestones")}, 0.8, id="credit"),
        pytest.param(
            [1] * 4, (), {"off_policy": OffPolicyConfig(source="trace")}, 0.8, id="a solution beside"
        ),
    ],
)
def test_sec_hears_of_groups_left_out_because_they_have_no_advantage(rewards, penalties, sections, value):
    one_round = HintConfig(controller="none", rounds=1, rollouts_per_prompt=4)
    sec = CurriculumConfig(name="sec", learning_rate=0.5)
    planner = build_planner(**{"hints": one_round, "curriculum": sec, **sections})
    planner.begin(1)
    planner.learn({0: visit(0, [1, 0, 0, 0])}, {0: dict.fromkeys(range(4), 1.6)})
    planner.learn({0: dataclasses.replace(visit(0, rewards), penalties=penalties)}, {})
    assert planner.metrics()["curriculum/q/level=0"] == pytest.approx(value)


@pytest.mark.parametrize(
    ("baseline", "rewards", "rounds", "hints", "has_advantage"),
    [
        pytest.param("per_round", [0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 1, 1], False, id="rounds"),
        pytest.param("per_round", [0, 0, 1, 0], [0, 0, 1, 1], [0, 0, 1, 1], True, id="one round disagrees"),
        pytest.param(
            "per_round", [0, 1, 1, 1], [0, 1, 1, 1], [0, 1, 1, 1], False, id="a round of one failed"
        ),
        pytest.param(
            "per_round", [1, 0, 0, 0], [0, 1, 1, 1], [0, 1, 1, 1], True, id="which keeps its reward"
        ),
        pytest.param("hinted_apart", [0, 0, 1, 1], [0, 0, 0, 0], [0, 0, 1, 2], False, id="hinted apart"),
        pytest.param("hinted_apart", [0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 1, 2], True, id="one part disagrees"),
        pytest.param("pooled", [0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 1, 1], True, id="pooled"),
    ],
)
def test_only_rollouts_that_the_baseline_compares_give_energy(
    baseline, rewards, rounds, hints, has_advantage
):
    planner = build_planner(
        hints=HintConfig(controller="none", rounds=2, rollouts_per_prompt=4),
        curriculum=CurriculumConfig(name="sec", learning_rate=0.5),
        selection=SelectionConfig(**AT_ONCE),
        advantage=AdvantageConfig(baseline=baseline),
    )
    planner.begin(1)
    planner.learn({0: visit(0, [1, 0, 0, 0])}, {0: dict.fromkeys(range(4), 1.6)})
    seen = visit(0, rewards, rounds=rounds, hint_steps=hints)
    assert bool(planner.select([seen])) == has_advantage
    planner.learn({0: seen}, {})
    assert planner.metrics()["curriculum/q/level=0"] == pytest.approx(0.8 if has_advantage else 0.4)


def test_a_round_of_one_success_has_an_advantage_although_all_rewards_agree():
    planner = build_planner(
        curriculum=CurriculumConfig(name="sec", learning_rate=0.5),
        advantage=AdvantageConfig(baseline="per_round"),
    )
    planner.begin(1)
    planner.learn({0: visit(0, [1, 0, 0, 0])}, {0: dict.fromkeys(range(4), 1.6)})
    planner.learn({0: visit(0, [1, 1, 1, 1], rounds=[0, 0, 0, 1])}, {})
    assert planner.metrics()["curriculum/q/level=0"] == pytest.approx(0.8)


def test_where_the_curriculum_has_no_epochs_one_is_as_many_problems_as_there_are():
    planner = build_planner(curriculum=CurriculumConfig(name="sec"), selection=SelectionConfig(prune_after=1))
    for step in range(1, 20):
        planner.begin(step)
        assert planner.state_dict()["pruning"]["epoch"] == (step - 1) * BATCH // NUM_PROBLEMS


def test_given_rollouts_do_not_count_as_solved():
    given = visit(0, [1, 1])
    trace = Rollout(
        **{name: getattr(given.rollouts[0], name) for name in Rollout.__slots__} | {"origin": Origin.TRACE}
    )
    mixed = Visit(
        instance=given.instance,
        step=1,
        prompt_tokens=1,
        step_tokens=(1, 1),
        rollouts=(*visit(0, [0, 0]).rollouts, trace),
    )
    assert mixed.accuracy == 0.0
    planner = build_planner(selection=SelectionConfig(name="lze", warmup_epochs=0.0))
    planner.begin(1)
    assert planner.select([mixed]) == set()


@pytest.mark.parametrize(
    ("scores", "is_selected"),
    [((0.25, 0.5, 0.5, 0.75), True), ((0.1, 0.1, 0.1, 0.1), False), ((0.0, 0.0, 0.1, 0.1), True)],
)
def test_graded_rewards_that_differ_have_energy_although_no_rollout_is_correct(scores, is_selected):
    graded = visit(0, [0, 0, 0, 0])
    rollouts = [
        dataclasses.replace(each, grade=dataclasses.replace(each.grade, score=score))
        for each, score in zip(graded.rollouts, scores, strict=True)
    ]
    planner = build_planner(selection=SelectionConfig(**AT_ONCE))
    planner.begin(1)
    assert bool(planner.select([dataclasses.replace(graded, rollouts=tuple(rollouts))])) == is_selected


def test_a_state_is_of_the_problems_that_it_was_saved_with_in_their_order():
    planner = build_planner(selection=SelectionConfig(prune_after=1))
    run(planner, range(1, 9))
    state = planner.state_dict()
    other = build_planner([f"p{problem}" for problem in reversed(range(NUM_PROBLEMS))])
    before = other.state_dict()
    with pytest.raises(CheckpointError, match=r"data\.train_files have different .*, or start a new"):
        other.load_state_dict(state)
    assert other.state_dict() == before


def test_an_older_state_that_does_not_name_its_problems_is_taken():
    planner = everything()
    run(planner, range(1, 8))
    state = dict(planner.state_dict())
    del state["problems_sha256"]
    other = everything()
    other.load_state_dict(state)
    assert run(other, range(8, 15)) == run(planner, range(8, 15))


@pytest.mark.parametrize("part", ["curriculum", "selection", "pruning", "replay"])
def test_a_state_without_one_of_the_parts_is_refused(part):
    state = dict(everything().state_dict())
    del state[part]
    with pytest.raises(CheckpointError):
        everything().load_state_dict(state)


# --- Which groups an update learns from


AT_ONCE = {"name": "lze", "warmup_epochs": 0.0}
SILENT = {**AT_ONCE, "noise": 0.0}


def build(seed=0, **settings):
    return build_selection(SelectionConfig(**{"name": "lze", **settings}), seed)


def through_json(state):
    return json.loads(json.dumps(state, sort_keys=True))


def named(pass_rates):
    return {f"problem/{position:03d}": rate for position, rate in enumerate(pass_rates)}


def random_steps(num_steps, *, seed=0, num_problems=30, batch_size=12):
    generator = random.Random(seed)
    names = [f"problem/{index}" for index in range(num_problems)]
    return [
        {name: generator.randint(0, 8) / 8 for name in generator.sample(names, batch_size)}
        for _ in range(num_steps)
    ]


# Energies

VECTORS = [
    pytest.param(0.5, 0.5, 0.5, 0.5, id="half solved, at rest"),
    # .875 * 4 * .25 * .75 * (1 + .3 * .25)
    pytest.param(0.125, 0.25, 0.125, 0.705469, id="hard, on the move"),
    pytest.param(1.0, 0.5, 0.95, 0.0635, id="solved at first, the anchor's floor"),
    pytest.param(0.5, 0.75, 0.5, 0.43125, id="half solved, on the move"),
    # .5 * 1 * (1 + .3 * 1): a move of .5 and one of .7 count the same.
    pytest.param(0.5, 0.5, 0.0, 0.65, id="the largest movement"),
]


@pytest.mark.parametrize(("first", "now", "average", "expected"), VECTORS)
def test_energy_is_that_of_the_papers_formula(first, now, average, expected):
    got = energy(np.array([now]), np.array([first]), np.array([average]), momentum=0.3)
    np.testing.assert_allclose(got, [expected], atol=1e-6)


def test_energies_of_many_groups_are_those_of_each():
    first, now, average, expected = np.array([vector.values for vector in VECTORS]).T
    np.testing.assert_allclose(energy(now, first, average, momentum=0.3), expected, atol=1e-6)


in_eighths = st.integers(0, 8).map(lambda correct: correct / 8)
shares = st.floats(0.0, 1.0)


@given(now=in_eighths, first=shares, average=shares, momentum=st.floats(0.0, 3.0))
def test_energy_is_zero_exactly_where_all_rollouts_agree(now, first, average, momentum):
    (got,) = energy(np.array([now]), np.array([first]), np.array([average]), momentum=momentum)
    assert (got == 0.0) == (now in (0.0, 1.0))
    assert 0.0 <= got <= 1.0 + momentum


@given(now=in_eighths, easier=shares, harder=shares, average=shares)
def test_of_two_problems_alike_today_the_one_that_began_harder_has_no_less_energy(
    now, easier, harder, average
):
    first = np.array([max(easier, harder), min(easier, harder)])
    low, high = energy(np.full(2, now), first, np.full(2, average), momentum=0.3)
    assert low <= high


def test_energy_is_measured_against_the_average_before_it_moves():
    selection = build(**SILENT)
    selection.select({"a": 0.125}, epoch=0.0)
    assert selection.metrics()["energy_mean"] == pytest.approx(0.875 * 4 * 0.125 * 0.875)
    selection.select({"a": 0.25}, epoch=0.0)
    assert selection.metrics()["energy_mean"] == pytest.approx(0.705469, abs=1e-6)
    # Now the average is .9 * .125 + .1 * .25 = .1375, the anchor still that of .125.
    selection.select({"a": 0.5}, epoch=0.0)
    assert selection.metrics()["energy_mean"] == pytest.approx(0.875 * (1 + 0.3 * 2 * (0.5 - 0.1375)))


# Which groups


def test_groups_of_highest_energy_are_kept_in_the_steps_order():
    # First seen: energies are (1 - p) 4p(1 - p), for eighths highest at p = 3/8, then 2/8, 4/8.
    selection = build(**SILENT, ratio=0.5)
    rates = named([0.875, 0.5, 0.0, 0.25, 1.0, 0.375, 0.75])
    assert selection.select(rates, epoch=0.0) == ["problem/001", "problem/003", "problem/005"]


def test_of_equal_energies_the_groups_of_earlier_id_are_kept():
    step = named([0.5, 0.75] * 50)
    first_of_them = [name for name, rate in step.items() if rate == 0.5][:40]
    assert build(**SILENT).select(step, epoch=0.0) == first_of_them


@given(rates=st.lists(in_eighths, max_size=30), data=st.data())
def test_the_order_in_which_groups_come_decides_nothing(rates, data):
    steps = [named(rates), named(reversed(rates))]
    shuffled = [dict(data.draw(st.permutations(list(step.items())))) for step in steps]
    first, second = build(**AT_ONCE), build(**AT_ONCE)
    for step, again in zip(steps, shuffled, strict=True):
        kept = first.select(step, epoch=0.0)
        assert second.select(again, epoch=0.0) == [name for name in again if name in kept]
    assert second.metrics() == first.metrics()


@given(
    rates=st.lists(in_eighths, max_size=30),
    ratio=st.floats(0.01, 1.0),
    epoch=st.floats(0.0, 4.0),
    seed=st.integers(0, 5),
)
def test_as_many_groups_as_wanted_are_kept_and_none_without_signal(rates, ratio, epoch, seed):
    selection = build(seed, ratio=ratio, warmup_epochs=1.0, transition_epochs=2.0)
    pass_rates = named(rates)
    kept = selection.select(pass_rates, epoch=epoch)
    alive = [name for name, rate in pass_rates.items() if 0.0 < rate < 1.0]
    assert kept == [name for name in alive if name in set(kept)], "in order, each once, none without signal"
    progress = min(max((epoch - 1.0) / 2.0, 0.0), 1.0)
    wanted = math.floor(len(rates) * (1.0 - progress * (1.0 - ratio)) + 1e-9)
    assert len(kept) == min(max(1, wanted), len(alive))


@given(num_groups=st.integers(1, 200), data=st.data())
def test_a_share_that_is_a_whole_number_of_groups_is_that_number(num_groups, data):
    wanted = data.draw(st.integers(1, num_groups))
    selection = build(**SILENT, ratio=wanted / num_groups)
    assert len(selection.select(named([0.5] * num_groups), epoch=0.0)) == wanted


@pytest.mark.parametrize("epoch", [0.0, 5.0])
def test_where_all_groups_agree_there_is_nothing_to_learn_from(epoch):
    assert build().select(named([0.0, 1.0, 1.0]), epoch=epoch) == []


def test_an_empty_step_leaves_no_trace():
    selection = build()
    before = through_json(selection.state_dict())
    assert selection.select({}, epoch=3.0) == []
    assert through_json(selection.state_dict()) == before


def test_by_default_selection_begins_with_the_second_epoch():
    rates = named([0.25, 0.5, 0.75, 0.5, 0.25, 0.0, 1.0, 0.5, 0.5, 0.5])
    assert [len(build().select(rates, epoch=epoch)) for epoch in (0.0, 0.99, 1.0, 7.5)] == [8, 8, 4, 4]


def test_without_warm_up_the_very_first_step_is_selected_from():
    assert len(build(**AT_ONCE).select(named([0.5] * 10), epoch=0.0)) == 4


def test_after_warm_up_the_share_falls_in_a_straight_line():
    selection = build(warmup_epochs=1.0, transition_epochs=2.0, ratio=0.4)
    targets = []
    for epoch in (0.0, 1.0, 1.5, 2.0, 3.0, 9.0):
        selection.select(named([0.5] * 20), epoch=epoch)
        targets.append(selection.metrics()["target_ratio"])
    assert targets == pytest.approx([1.0, 1.0, 0.85, 0.7, 0.4, 0.4])


def test_a_group_that_is_not_kept_is_observed_all_the_same():
    selection = build(**SILENT, ratio=0.5)
    assert selection.select({"a": 0.5, "b": 0.875}, epoch=0.0) == ["a"]
    assert selection.select({"a": 0.5, "b": 0.375}, epoch=0.0) == ["a"]
    # .9 * .875 + .1 * .375
    assert selection.state_dict()["problems"]["b"] == pytest.approx([0.875, 0.825])


# Noise


@pytest.mark.parametrize(
    ("rates", "spread"),
    [
        # Energies 4p(1 - p)^2 of .5, .35 and .1875: the noise is as wide as they are apart.
        pytest.param((0.75, 0.5, 0.625), 0.5 - 0.25 * 0.75, id="spread of the energies"),
        # Energies of nearly .5, .499 and .498: the spread counts as .01.
        pytest.param((0.502, 0.5, 0.501), 0.01, id="smallest spread"),
    ],
)
def test_the_one_group_that_is_kept_is_the_softmax_draw_that_gumbel_noise_makes(rates, spread):
    weights = np.exp([4 * p * (1 - p) ** 2 / spread for p in rates])
    selection = build(**AT_ONCE, ratio=0.2, noise=1.0)
    # Two more groups, whose rollouts agree, neither widen the spread nor win.
    step = {"a": rates[0], "failed": 0.0, "b": rates[1], "solved": 1.0, "c": rates[2]}
    kept = [selection.select(step, epoch=0.0) for _ in range(4000)]
    shares = [kept.count([name]) / 4000 for name in "abc"]
    np.testing.assert_allclose(shares, weights / weights.sum(), atol=0.02)


def test_noise_differs_from_step_to_step_and_from_seed_to_seed():
    step = named([0.5] * 40)
    first = build(0, **AT_ONCE)
    choices = [tuple(first.select(step, epoch=0.0)) for _ in range(3)]
    choices.append(tuple(build(1, **AT_ONCE).select(step, epoch=0.0)))
    assert len(set(choices)) == 4


# State


@given(seed=st.integers(0, 5), cut=st.integers(0, 12))
def test_a_resumed_run_selects_as_one_that_was_never_interrupted(seed, cut):
    steps = random_steps(12, seed=seed)
    whole, before = build(seed), build(seed)
    expected = [whole.select(step, epoch=index / 4) for index, step in enumerate(steps)]
    got = [before.select(step, epoch=index / 4) for index, step in enumerate(steps[:cut])]
    resumed = build(seed)
    resumed.load_state_dict(through_json(before.state_dict()))
    got += [resumed.select(step, epoch=(cut + index) / 4) for index, step in enumerate(steps[cut:])]
    assert got == expected
    assert through_json(resumed.state_dict()) == through_json(whole.state_dict())


def test_what_was_learnt_of_a_problem_outlives_a_resumption():
    # Solved at first sight, half solved now: only who remembers the first sight prefers the other problem.
    step = {"was_easy": 0.5, "was_hard": 0.375}
    trained = build(**SILENT, ratio=0.5, momentum=0.0)
    trained.select({"was_easy": 1.0, "was_hard": 0.0}, epoch=0.0)
    resumed = build(**SILENT, ratio=0.5, momentum=0.0)
    resumed.load_state_dict(through_json(trained.state_dict()))
    assert resumed.select(step, epoch=0.0) == ["was_hard"]


def damaged(**changes):
    selection = build()
    selection.select({"a": 0.5}, epoch=0.0)
    return {**through_json(selection.state_dict()), **changes}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        pytest.param({}, "expected {'selection': 'lze', 'version': 1}, got {}", id="empty"),
        pytest.param(damaged(selection="none"), "got {'selection': 'none'", id="another selection"),
        pytest.param(damaged(version=2), "'version': 2", id="another version"),
        pytest.param({"selection": "lze", "version": 1}, "KeyError: 'problems'", id="without problems"),
        pytest.param(damaged(problems=[1]), "AttributeError", id="not a mapping"),
        pytest.param(damaged(problems={"a": [0.5]}), "not enough values", id="half a problem"),
        pytest.param(damaged(problems={"a": [0.5, 1.5]}), "number in .0, 1., got 1.5", id="impossible rate"),
        pytest.param(damaged(num_selections=-1), "whole number, 0 or more, got -1", id="impossible count"),
        pytest.param(damaged(num_selections=None), "got None", id="no count"),
    ],
)
def test_a_state_that_is_not_ours_is_refused_and_changes_nothing(state, message):
    selection = build()
    selection.select({"b": 0.25}, epoch=0.0)
    before = through_json(selection.state_dict())
    with pytest.raises(CheckpointError, match=message):
        selection.load_state_dict(state)
    assert through_json(selection.state_dict()) == before


# Metrics


def test_metrics_describe_the_last_selection():
    selection = build(**SILENT, ratio=0.5)
    assert selection.metrics() == {}
    selection.select(named([0.5, 0.5]), epoch=0.0)
    selection.select({"a": 0.5, "b": 0.75, "c": 0.25, "d": 1.0, "e": 0.0}, epoch=0.0)
    # Energies of a, b, c: .5, .25 * .75, .75 * .75.
    assert selection.metrics() == pytest.approx(
        {
            "energy_mean": 1.25 / 3,
            "energy_max": 0.5625,
            "energy_min": 0.1875,
            "pass_rate_mean": 0.5,
            "selected_ratio": 0.4,
            "selected_groups": 2.0,
            "target_ratio": 0.5,
            "dead_group_share": 0.4,
        }
    )
    selection.metrics().clear()
    assert selection.metrics()["selected_groups"] == 2.0


def test_where_no_group_has_energy_there_is_none_to_report():
    selection = build()
    selection.select(named([0.0, 1.0]), epoch=0.0)
    metrics = selection.metrics()
    assert (metrics["dead_group_share"], metrics["selected_groups"]) == (1.0, 0.0)
    assert not [name for name in metrics if name.startswith("energy")]
    assert json.dumps(metrics)


# The contract


@pytest.mark.parametrize("name", SELECTIONS)
def test_every_selection_of_the_configuration_is_built_and_keeps_its_state(name):
    selection = build(name=name)
    assert selection.name == name
    steps = random_steps(4)
    for step in steps:
        assert set(selection.select(step, epoch=2.0)) <= set(step)
    assert all(isinstance(value, float) for value in selection.metrics().values())
    restored = build(name=name)
    restored.load_state_dict(through_json(selection.state_dict()))
    assert through_json(restored.state_dict()) == through_json(selection.state_dict())
    (other,) = {"none", "lze"} - {name}
    with pytest.raises(CheckpointError):
        restored.load_state_dict(build(name=other).state_dict())


def test_without_selection_every_group_is_kept_whatever_it_shows():
    rates = named([1.0, 0.0, 0.5])
    assert build(name="none").select(rates, epoch=9.0) == list(rates)


# --- The pool of the policy's own successes


def rollouts(*outcomes, log_prob=-1.0, finish=Finish.STOP):
    """One rollout an outcome; the i-th has its log-probability i + 1 times."""
    return [
        Rollout(
            round_index=0,
            rollout_index=index,
            share=HintShare(0.0, len(outcomes)),
            hint_steps=0,
            completion=Completion(
                text=f"{index}",
                token_ids=tuple(range(index + 1)),
                log_probs=(log_prob * (index + 1),) * (index + 1),
                finish=finish,
            ),
            grade=Grade(bool(right), GradeReason.CORRECT if right else GradeReason.WRONG),
        )
        for index, right in enumerate(outcomes)
    ]


def pool(**settings):
    return SuccessPool(ReplayConfig(**{"start_accuracy": 0.0, "problem_share": 1.0} | settings), seed=0)


def test_the_surest_success_of_the_latest_visit_is_replayed():
    successes = pool()
    successes.observe({7: rollouts(0, 1, 1, 0)})
    assert successes.draw(4, step=1)[7].text == "1"
    successes.observe({7: rollouts(0, 0, 0, 1)})
    assert successes.draw(4, step=2)[7].text == "3"


def test_a_success_that_ended_by_itself_comes_before_a_surer_one_that_was_cut_off():
    cut, ended = rollouts(1, 1, finish=Finish.LENGTH, log_prob=-0.01), rollouts(0, 0, 1)
    assert cut[0].completion.uncertainty < ended[2].completion.uncertainty
    successes = pool()
    successes.observe({7: [*cut, *ended]})
    assert successes.draw(4, step=1)[7].text == "2"


def test_a_visit_without_success_leaves_the_problem_in_the_pool():
    successes = pool()
    successes.observe({1: rollouts(0, 1), 2: rollouts(0, 0)})
    assert set(successes.draw(9, step=1)) == {1}
    successes.observe({1: rollouts(0, 0)})
    assert successes.draw(9, step=2)[1].text == "1"


def test_a_visit_that_solves_the_problem_throughout_takes_it_out_for_good():
    successes = pool()
    successes.observe({1: rollouts(0, 1), 2: rollouts(1, 1)})
    successes.observe({1: rollouts(1, 1)})
    successes.observe({1: rollouts(1, 0), 2: rollouts(0, 1)})
    assert successes.draw(9, step=1) == {}
    assert successes.metrics()["retired"] == 2


def test_the_pool_opens_for_good_with_the_first_step_that_is_good_enough():
    successes = pool(start_accuracy=0.5)
    successes.observe({1: rollouts(0, 0, 0, 1)})
    assert successes.draw(9, step=1) == {}
    successes.observe({2: rollouts(0, 1)})
    assert set(successes.draw(9, step=2)) == {1, 2}
    successes.observe({3: rollouts(0, 0, 0, 1)})
    assert set(successes.draw(9, step=3)) == {1, 2, 3}


def test_the_share_bounds_a_draw_and_carried_problems_are_left_out():
    successes = pool(problem_share=0.5)
    successes.observe({problem: rollouts(0, 1) for problem in range(10)})
    drawn = successes.draw(8, step=1, avoid=[0, 1, 2, 3, 4, 5, 6])
    assert set(drawn) == {7, 8, 9}
    assert len(successes.draw(8, step=1)) == 4


@pytest.mark.parametrize("percent", [29, 30, 57, 58])
def test_a_share_is_rounded_down_to_whole_problems_and_no_further(percent):
    successes = pool(problem_share=percent / 100)
    successes.observe({problem: rollouts(0, 1) for problem in range(100)})
    assert len(successes.draw(100, step=1)) == percent
    assert len(successes.draw(50, step=1)) == percent // 2


def test_problems_solved_half_the_time_come_first():
    # Weights of the buckets at 1, 4 and 7 of 8 with sd 1: exp(-4.5), 1, exp(-4.5).
    successes = pool(problem_share=0.1)
    for problem, correct in enumerate([1] * 10 + [4] * 10 + [7] * 10):
        successes.observe({problem: rollouts(*[1] * correct, *[0] * (8 - correct))})
    drawn = Counter(problem // 10 for step in range(2000) for problem in successes.draw(10, step=step))
    assert drawn.total() == 2000
    assert drawn[1] / 2000 == pytest.approx(1 / (1 + 2 * 2.718281828**-4.5), abs=0.01)


def test_a_replayed_visit_counts_its_given_success_and_is_in_the_bucket_of_its_share():
    # Three of four rows are right, one of them given; with the others, 3/4 and 6/8 are one bucket.
    given = dataclasses.replace(rollouts(1)[0], origin=Origin.REPLAY)
    successes = pool(problem_share=0.1, bucket_sd=0.5)
    for problem in range(10):
        successes.observe({problem: [*rollouts(1, 1, 0), given]})
    for problem in range(10, 20):
        successes.observe({problem: rollouts(*[1] * 6, 0, 0)})
    for problem in range(20, 30):
        successes.observe({problem: rollouts(*[1] * 5, *[0] * 3)})
    drawn = Counter(problem // 10 for step in range(2000) for problem in successes.draw(10, step=step))
    # 2 and 1 of 8 from one half, with sd 1/2: exp(-8) and exp(-2).
    assert (drawn[0] + drawn[1]) / 2000 == pytest.approx(1 / (1 + 2.718281828**6), abs=0.002)
    assert {entry["num_rollouts"] for entry in successes.state_dict()["problems"]} == {4, 8}


def test_the_given_success_alone_neither_stores_nor_retires_a_problem():
    given = dataclasses.replace(rollouts(1)[0], origin=Origin.REPLAY)
    successes = pool()
    successes.observe({1: [*rollouts(0, 0, 0), given]})
    assert successes.metrics()["problems"] == 0
    successes.observe({1: [*rollouts(1, 1, 1), given]})
    assert successes.metrics()["retired"] == 1


def test_a_problem_whose_only_success_is_the_replayed_one_moves_to_that_bucket():
    stored = rollouts(0, 1, 0, 1)
    given = dataclasses.replace(stored[1], origin=Origin.REPLAY)
    successes = pool()
    successes.observe({1: stored})
    [before] = successes.state_dict()["problems"]
    successes.observe({1: rollouts(0, 0, 0, 0)})
    assert successes.state_dict()["problems"] == [before]
    successes.observe({1: [*rollouts(0, 0, 0, 0, 0, 0, 0), given]})
    assert successes.state_dict()["problems"] == [before | {"num_correct": 1, "num_rollouts": 8}]


def test_a_restored_pool_goes_on_alike_and_has_the_same_state():
    first, second = pool(), pool()
    first.observe({problem: rollouts(0, 1, 1, 0, log_prob=-0.1 * (problem + 1)) for problem in range(5)})
    first.observe({4: rollouts(1, 1), 9: rollouts(1, 1)})
    state = json.loads(json.dumps(first.state_dict()))
    second.load_state_dict(state)
    assert second.state_dict() == state == first.state_dict()
    assert second.draw(3, step=9) == first.draw(3, step=9)


def test_a_success_takes_few_bytes_a_token_and_comes_back_to_the_last_digit():
    made = Completion(
        text="", token_ids=(151_935, 0) * 500, log_probs=(-1 / 3, -0.1) * 500, finish=Finish.STOP
    )
    right, wrong = rollouts(1, 0)
    first, second = pool(), pool()
    first.observe({1: [dataclasses.replace(right, completion=made), wrong]})
    saved = json.dumps(first.state_dict())
    assert len(saved) < 17 * len(made.token_ids)
    second.load_state_dict(json.loads(saved))
    assert second.draw(1, step=1) == {1: made}


def test_a_restored_success_that_was_cut_off_stays_one():
    first, second = pool(), pool()
    first.observe({1: rollouts(0, 1), 2: rollouts(0, 1, finish=Finish.LENGTH)})
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.draw(2, step=1) == first.draw(2, step=1)
    assert second.draw(2, step=1)[2].finish is Finish.LENGTH


@pytest.mark.parametrize("damage", [{"pool": "others"}, {"problems": [{"problem": -1}]}, {"problems": 3}])
def test_a_foreign_or_damaged_state_changes_nothing(damage):
    successes = pool()
    successes.observe({1: rollouts(0, 1)})
    before = successes.state_dict()
    with pytest.raises(CheckpointError):
        successes.load_state_dict(before | damage)
    assert successes.state_dict() == before


def hinted(hint_steps, *outcomes):
    return [dataclasses.replace(each, hint_steps=hint_steps) for each in rollouts(*outcomes)]


def test_a_success_behind_a_shorter_hint_takes_the_place_of_one_behind_a_longer():
    successes = LastSuccesses()
    successes.observe({1: [*hinted(3, 1, 1), *hinted(2, 0, 1, 1)], 2: rollouts(0, 0)})
    (kept,) = successes.of([1, 2]).values()
    assert (kept.hint_steps, kept.completion.text) == (2, "1"), "the surer one of the two"
    successes.observe({1: hinted(3, 1, 1)})
    assert successes.of([1]) == {1: kept}
    successes.observe({1: hinted(2, 0, 0, 1)})
    assert successes.of([1])[1].completion.text == "2", "the last one of as long a hint"
    successes.observe({1: rollouts(0, 1)})
    assert successes.of([1])[1].hint_steps == 0
    assert successes.metrics() == {"problems": 1.0, "hinted": 0.0}
    successes.observe({1: rollouts(1, finish=Finish.LENGTH), 2: rollouts(1, finish=Finish.LENGTH)})
    assert successes.of([1, 2])[1].completion.text == "1" and len(successes.of([1, 2])) == 1, "truncated"


def test_restored_successes_are_the_same():
    first, second = LastSuccesses(), LastSuccesses()
    first.observe({1: hinted(2, 0, 1), 5: rollouts(1, 1)})
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.of([1, 5]) == first.of([1, 5]) and second.state_dict() == first.state_dict()
    with pytest.raises(CheckpointError):
        second.load_state_dict(first.state_dict() | {"problems": [{"problem": 1}]})
    assert second.state_dict() == first.state_dict()


def test_each_problem_of_a_step_replays_its_own_success():
    settings = SeeleConfig(method="x", hints=HintConfig(controller="none", rounds=1, rollouts_per_prompt=4))
    planner = StepPlanner(
        settings,
        [{}] * NUM_PROBLEMS,
        instance_ids=[f"p{problem}" for problem in range(NUM_PROBLEMS)],
        batch_size=NUM_PROBLEMS,
        replays=False,
        replays_visited=True,
    )
    begun, replayed = planner.begin(1)
    assert replayed == {}
    visits = {
        problem: dataclasses.replace(visit(problem, [0, 0, 0, 0]), rollouts=tuple(hinted(1, 0, problem % 2)))
        for problem in begun
    }
    planner.learn(visits, {problem: {0: 0.0} for problem in begun})
    begun, replayed = planner.begin(2)
    assert sorted(replayed) == [problem for problem in range(NUM_PROBLEMS) if problem % 2]
    assert {success.hint_steps for success in replayed.values()} == {1}
    assert planner.metrics()["successes/problems"] == NUM_PROBLEMS / 2
    more, of_more = planner.begin_more(NUM_PROBLEMS, in_flight=[])
    assert sorted(more) == sorted(begun) and of_more == replayed
    # A new success takes the place of the given one, although the policy was surer of that.
    given = dataclasses.replace(hinted(1, 1)[0], origin=Origin.REPLAY)
    made = dataclasses.replace(visit(1, [0]), rollouts=(*hinted(1, 0, 0, 1), given))
    planner.learn({1: made}, {1: {0: 0.0}})
    assert planner.begin(3)[1][1].completion.text == "2"


def test_the_policys_right_response_becomes_the_solution_of_the_next_visits():
    problem = dataclasses.replace(visit(1, [0]).instance, steps=("a\n", "b\n", "c"), revealed_at=2)

    def visited(*made, steps=problem.steps):
        instance = dataclasses.replace(problem, steps=steps)
        return dataclasses.replace(visit(1, [0]), instance=instance, rollouts=tuple(made))

    own = OwnSolutions()
    own.learn({1: visited(*hinted(2, 0, 1, 1), *hinted(3, 1)), 5: visited(*rollouts(0, 0))})
    assert len(own) == 1 and own.applied(5, problem) is problem
    now = own.applied(1, problem)
    assert now.steps == ("a\n", "b\n", "1") and now.revealed_at is None, "the surer one behind two steps"
    # The hint of the next visit is part of that solution; a visit without success changes nothing.
    own.learn({1: visited(*hinted(1, 1), steps=("x\n", "y\n", "1"))})
    own.learn({1: visited(*rollouts(0, 0))})
    # Nor does one whose only right response was truncated.
    own.learn({1: visited(*rollouts(1, finish=Finish.LENGTH))})
    assert own.applied(1, problem).steps == ("x\n", "0")
    whole = OwnSolutions(goes_on_from_hint=False)
    whole.learn({1: visited(*hinted(2, 0, 1, 1))})
    assert whole.applied(1, problem).steps == ("1",)
    restored = OwnSolutions()
    restored.load_state_dict(through_json(own.state_dict()))
    assert restored.applied(1, problem) == own.applied(1, problem)
    with pytest.raises(CheckpointError):
        restored.load_state_dict(own.state_dict() | {"steps": {"one": []}})
    assert restored.state_dict() == own.state_dict()
