"""Which problems are no longer rolled out."""

import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seele.config.settings import SelectionConfig
from seele.curriculum import SELECTIONS
from seele.curriculum.pruning import ForwardPruning
from seele.errors import CheckpointError


def build(seed=0, **settings):
    return ForwardPruning(SelectionConfig(**{"prune_after": 2, **settings}), seed=seed)


def with_pool(num_problems, seed=0, **settings):
    """Pruning that has seen problems 0, 1, ... solved twice, which is enough."""
    pruning = build(seed, **settings)
    for _ in range(2):
        pruning.observe(dict.fromkeys(range(num_problems), 1.0))
    return pruning


def through_json(state):
    return json.loads(json.dumps(state, sort_keys=True))


def replayed(pruning, num_problems, epoch):
    return set(range(num_problems)) - pruning.pruned(epoch=epoch)


# --- What is pruned


@pytest.mark.parametrize("name", SELECTIONS)
def test_pruning_learns_by_itself_whatever_the_selection(name):
    pruning = build(name=name)
    for epoch in range(2):
        assert pruning.pruned(epoch=epoch) == frozenset()
        pruning.observe({7: 1.0, 8: 1.0, 9: 0.9})
    assert len(pruning.pruned(epoch=2)) == 1 and pruning.pruned(epoch=2) < {7, 8}


@pytest.mark.parametrize(
    ("accuracies", "streak"),
    [([1.0], 1), ([1.0, 1.0], 2), ([1.0, 0.0, 1.0], 1), ([1.0, 0.96875], 0), ([0.0, 1.0, 1.0, 1.0], 3)],
)
def test_only_visits_in_a_row_with_nothing_but_correct_rollouts_count(accuracies, streak):
    for prune_after in (1, 2, 3):
        pruning = build(prune_after=prune_after)
        pruning.observe({0: 1.0})  # Takes the replay of a pool of two.
        for accuracy in accuracies:
            pruning.observe({5: accuracy})
        pruning.pruned(epoch=1)
        pool = pruning.metrics()["pruned_problems"] + pruning.metrics()["replayed_problems"]
        assert pool == (prune_after == 1) + (streak >= prune_after)


def test_a_problem_that_was_not_observed_keeps_its_streak():
    # As hinted methods leave it: solved with help, so nothing is known of it.
    pruning = with_pool(2, replay_share=0.5)
    pruning.observe({})
    assert len(pruning.pruned(epoch=1)) == 1


def test_what_an_epoch_leaves_out_stays_until_the_next_one():
    pruning = with_pool(20)
    before = pruning.pruned(epoch=3)
    pruning.observe({**dict.fromkeys(replayed(pruning, 20, 3), 0.0), **dict.fromkeys(range(20, 30), 1.0)})
    pruning.observe(dict.fromkeys(range(20, 30), 1.0))
    assert pruning.pruned(epoch=3) == before
    # The pool is 18 of the old problems and 10 new ones; 3 of the 28 are replayed.
    assert len(pruning.pruned(epoch=4)) == 25 and len(pruning.pruned(epoch=4) & set(range(20, 30))) >= 7


def test_with_zero_nothing_is_pruned_or_remembered():
    pruning = build(prune_after=0)
    empty = through_json(pruning.state_dict())
    for _ in range(5):
        pruning.observe(dict.fromkeys(range(9), 1.0))
    assert pruning.pruned(epoch=5) == frozenset()
    assert through_json(pruning.state_dict()) == empty
    assert pruning.metrics() == {}


def test_switched_off_on_resumption_it_lets_every_problem_in_again():
    off = build(prune_after=0)
    trained = with_pool(20)
    assert trained.pruned(epoch=2)
    off.load_state_dict(through_json(trained.state_dict()))
    assert off.pruned(epoch=2) == off.pruned(epoch=3) == frozenset()


# --- Replay


@settings(deadline=None)
@given(num_problems=st.integers(0, 60), share=st.floats(0.0, 1.0), epoch=st.integers(0, 50))
def test_the_share_of_the_pool_is_replayed_and_at_least_one(num_problems, share, epoch):
    pruning = with_pool(num_problems, replay_share=share)
    left_out = pruning.pruned(epoch=epoch)
    num_replayed = num_problems - len(left_out)
    assert left_out <= set(range(num_problems))
    assert num_replayed == min(num_problems, max(1, round(share * num_problems)))
    assert pruning.metrics() == {"pruned_problems": len(left_out), "replayed_problems": num_replayed}


def test_over_the_epochs_every_pruned_problem_is_replayed():
    pruning = with_pool(20)
    seen = [replayed(pruning, 20, epoch) for epoch in range(100)]
    assert set.union(*seen) == set(range(20))
    assert all(len(sample) == 2 for sample in seen)


def test_the_replayed_sample_has_nothing_to_do_with_a_shuffle_by_the_same_seed_and_epoch():
    shuffles = [np.random.default_rng([0, epoch]).permutation(400).tolist() for epoch in range(1, 4)]
    pruning = with_pool(400)
    for epoch, shuffle in enumerate(shuffles, start=1):
        # 40 of 400, of which about 4 are among any other 40.
        assert len(replayed(pruning, 400, epoch) & set(shuffle[:40])) < 16


def test_seeds_replay_different_problems():
    assert with_pool(200, seed=0).pruned(epoch=1) != with_pool(200, seed=1).pruned(epoch=1)


def test_a_replayed_problem_that_fails_comes_back_and_one_that_is_solved_does_not():
    pruning = with_pool(2, replay_share=0.5)
    (checked,) = replayed(pruning, 2, 4)
    pruning.observe({checked: 1.0})
    pruning.pruned(epoch=5)
    assert pruning.metrics() == {"pruned_problems": 1.0, "replayed_problems": 1.0}
    (checked,) = replayed(pruning, 2, 5)
    other = 1 - checked
    pruning.observe({checked: 0.5})
    # Alone in the pool, the other one is replayed; the failed one is not pruned.
    assert replayed(pruning, 2, 6) == {0, 1}
    assert pruning.metrics() == {"pruned_problems": 0.0, "replayed_problems": 1.0}
    pruning.observe({checked: 1.0, other: 1.0})
    assert pruning.pruned(epoch=7) == frozenset(), "solved once"
    pruning.observe({checked: 1.0, other: 1.0})
    assert len(pruning.pruned(epoch=8)) == 1, "solved twice in a row"


# --- State


def train(pruning, epochs, *, generator, resume=lambda pruning: pruning):
    """Epochs of five steps over 40 problems, most of them solved; what each step left out."""
    left_out = []
    for epoch in epochs:
        for step in range(5):
            pruning = resume(pruning)
            left_out.append(pruning.pruned(epoch=epoch))
            visited = set(range(step * 8, step * 8 + 8)) - left_out[-1]
            pruning.observe({problem: float(generator.random() < 0.9) for problem in sorted(visited)})
    return pruning, left_out


@settings(deadline=None)
@given(seed=st.integers(0, 20))
def test_a_run_resumed_before_every_step_is_one_that_was_never_interrupted(seed):
    def resume(pruning):
        again = build(seed, replay_share=0.3)
        again.load_state_dict(through_json(pruning.state_dict()))
        return again

    fresh = {"seed": seed, "replay_share": 0.3}
    whole, expected = train(build(**fresh), range(8), generator=random.Random(seed))
    resumed, got = train(build(**fresh), range(8), generator=random.Random(seed), resume=resume)
    assert got == expected
    assert through_json(resumed.state_dict()) == through_json(whole.state_dict())
    assert resumed.metrics() == whole.metrics()
    assert any(expected), "something was pruned"


def test_a_problem_that_is_left_out_was_solved_as_often_as_asked_for():
    generator, solved = random.Random(0), dict.fromkeys(range(30), 0)
    pruning = build(prune_after=3)
    for epoch in range(20):
        left_out = pruning.pruned(epoch=epoch)
        assert all(solved[problem] >= 3 for problem in left_out)
        for problem in set(range(30)) - left_out:
            is_solved = generator.random() < 0.8
            solved[problem] = solved[problem] + 1 if is_solved else 0
            pruning.observe({problem: float(is_solved)})


def damaged(**changes):
    pruning = with_pool(12)
    pruning.pruned(epoch=2)
    return {**through_json(pruning.state_dict()), **changes}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        pytest.param({}, "expected {'pruning': 'forward', 'version': 1}, got {}", id="empty"),
        pytest.param({"selection": "lze", "version": 1}, "got {'version': 1}", id="a selection's"),
        pytest.param(damaged(version=0), "'version': 0", id="another version"),
        pytest.param({"pruning": "forward", "version": 1}, "KeyError: 'streaks'", id="without streaks"),
        pytest.param(damaged(streaks=[[1, 2, 3]]), "too many values", id="not a pair"),
        pytest.param(damaged(streaks=[["1", 2]]), "whole number, 0 or more, got '1'", id="not a problem"),
        pytest.param(damaged(epoch=0.5), "got 0.5", id="not an epoch"),
        pytest.param(damaged(left_out=None), "TypeError", id="nothing left out"),
        pytest.param(damaged(replayed=[-3]), "got -3", id="impossible problem"),
    ],
)
def test_a_state_that_is_not_ours_is_refused_and_changes_nothing(state, message):
    pruning = with_pool(5)
    before, left_out = through_json(pruning.state_dict()), pruning.pruned(epoch=0)
    after = through_json(pruning.state_dict())
    assert after != before, "what the epoch leaves out is part of the state"
    with pytest.raises(CheckpointError, match=message):
        pruning.load_state_dict(state)
    assert through_json(pruning.state_dict()) == after
    assert pruning.pruned(epoch=0) == left_out
