"""One step's problems, with all parts at once: what is carried, pruned, replayed, selected and saved."""

import dataclasses
import json
import random

import pytest

from seele.config import (
    CurriculumConfig,
    HintConfig,
    OffPolicyConfig,
    ReplayConfig,
    SeeleConfig,
    SelectionConfig,
)
from seele.curriculum.planner import StepPlanner
from seele.errors import CheckpointError, DataError
from seele.methods.sources import build_source
from seele.records import Completion, Finish, Grade, GradeReason, HintShare, Instance, Origin, Rollout, Visit

NUM_PROBLEMS, BATCH = 20, 4


def build(instance_ids=tuple(f"p{problem}" for problem in range(NUM_PROBLEMS)), **sections):
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
    return build(
        hints=HintConfig(controller="none", rounds=1, rollouts_per_prompt=4),
        curriculum=CurriculumConfig(name="sec"),
        selection=SelectionConfig(name="lze", warmup_epochs=0.0, prune_after=1),
        off_policy=OffPolicyConfig(source="replay"),
        replay=ReplayConfig(start_accuracy=0.0),
    )


def visit(problem, rewards, *, hint_steps=(0, 0, 0, 0)):
    rollouts = tuple(
        Rollout(
            round_index=0,
            rollout_index=index,
            share=HintShare(steps / 2, len(rewards)),
            hint_steps=steps,
            completion=Completion(
                text=f"{problem}.{index}", token_ids=(index,), log_probs=(-0.1 * index,), finish=Finish.STOP
            ),
            grade=Grade(bool(reward), GradeReason.CORRECT if reward else GradeReason.WRONG),
        )
        for index, (reward, steps) in enumerate(zip(rewards, hint_steps, strict=False))
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
        decisions.append((problems, {p: success.text for p, success in replayed.items()}, selected))
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
    planner = build(curriculum=CurriculumConfig(spare_problems=2))
    first, _ = planner.begin(1)
    assert len(set(first)) == BATCH + 2
    second, _ = planner.begin(2, carried=first[-2:])
    assert second[:2] == first[-2:] and len(set(second)) == BATCH + 2
    assert not set(second[2:]) & set(first)


def test_without_spare_problems_an_epoch_trains_on_each_once():
    planner = build()
    begun = [problem for step in range(1, 6) for problem in planner.begin(step)[0]]
    assert sorted(begun) == list(range(NUM_PROBLEMS))


def test_replacements_are_new_until_there_are_none_and_never_in_flight():
    planner = build()
    first, _ = planner.begin(1)
    more = planner.begin_more(NUM_PROBLEMS - BATCH, in_flight=first)
    assert sorted([*first, *more]) == list(range(NUM_PROBLEMS))
    assert not set(planner.begin_more(3, in_flight=first)) & set(first)


def test_a_step_that_never_finds_enough_groups_gives_up_with_advice():
    planner = build()
    planner.begin(1)
    with pytest.raises(DataError, match=r"10 times through all 20 problems .*filter_groups.enable off"):
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
    planner = build(selection=SelectionConfig(prune_after=2))
    planner.learn({3: visit(3, [1, 1, 1, 1])}, {})
    planner.learn({3: visit(3, rewards, hint_steps=hints)}, {})
    assert dict(planner.state_dict()["pruning"]["streaks"]).get(3, 0) == streak


def test_pruning_samples_anew_in_each_epoch_of_the_curriculum_which_it_makes_shorter():
    # Half of the problems are solved, and 1 of them is tried again: an epoch has 11 problems instead of 20.
    planner = build(selection=SelectionConfig(prune_after=1))
    for step in range(1, 60):
        begun = int(planner.metrics()["curriculum/epoch"])
        problems, _ = planner.begin(step)
        planner.learn({problem: visit(problem, [1, problem < 10]) for problem in problems}, {})
        assert planner.state_dict()["pruning"]["epoch"] == begun
    assert begun == pytest.approx(59 * BATCH / 11, abs=2)


@pytest.mark.parametrize(("loss", "signal"), [("nll", 0.0), ("shaped", 0.125)])
def test_sec_hears_of_rollouts_whose_loss_has_an_advantage(loss, signal):
    # All rollouts failed; the solution beside them is right, 1/2 above the mean or without a surrogate.
    planner = build(
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


def test_where_the_curriculum_has_no_epochs_one_is_as_many_problems_as_there_are():
    planner = build(curriculum=CurriculumConfig(name="sec"), selection=SelectionConfig(prune_after=1))
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
    planner = build(selection=SelectionConfig(name="lze", warmup_epochs=0.0))
    planner.begin(1)
    assert planner.select([mixed]) == set()


def test_a_state_is_of_the_problems_that_it_was_saved_with_in_their_order():
    planner = build(selection=SelectionConfig(prune_after=1))
    run(planner, range(1, 9))
    state = planner.state_dict()
    other = build([f"p{problem}" for problem in reversed(range(NUM_PROBLEMS))])
    before = other.state_dict()
    with pytest.raises(CheckpointError, match=r"data\.train_files hold other problems .*, or start a new"):
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
