"""Which problems a step rolls out: curricula, SEC's bandit, pruning."""

import json
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seele.config import CurriculumConfig
from seele.config.settings import SelectionConfig
from seele.curriculum import (
    SELECTIONS,
    EpochCurriculum,
    OrderedCurriculum,
    SecCurriculum,
    UniformCurriculum,
    build_curriculum,
    columns_needed,
)
from seele.curriculum.pruning import ForwardPruning
from seele.curriculum.sec import softmax
from seele.errors import CheckpointError, DataError
from seele.maths.advantages import pooled_advantages

# --- Which problems a step rolls out: what all curricula promise, and the two that go in epochs


CURRICULA = [
    pytest.param(CurriculumConfig(name="uniform"), id="uniform"),
    pytest.param(CurriculumConfig(name="ordered"), id="ordered"),
    pytest.param(CurriculumConfig(name="sec"), id="sec"),
    pytest.param(CurriculumConfig(name="sec", with_replacement=True, temperature=0.2), id="sec-replacing"),
]
every_curriculum = pytest.mark.parametrize("config", CURRICULA)


def build(config, num_problems, *, seed=0):
    """Problems of levels 1, 2 and 3 in turn."""
    return build_curriculum(config, [{"level": 1 + index % 3} for index in range(num_problems)], seed=seed)


def train(curriculum, size, *, step, postponed=(), pruned=()):
    """One step with made-up advantages."""
    drawn = curriculum.draw(size, postponed=postponed, pruned=pruned)
    curriculum.observe({problem: (problem % 7 + step % 5) / 10 for problem in drawn})
    return drawn


# ------------------------------------------------------------------------ every curriculum


@every_curriculum
@given(num_problems=st.integers(1, 30), data=st.data())
def test_a_draw_is_full_distinct_and_avoids_what_it_must(config, num_problems, data):
    curriculum = build(config, num_problems)
    problems = st.sets(st.integers(0, num_problems - 1))
    for step in range(6):
        postponed, pruned = data.draw(problems), data.draw(problems)
        size = data.draw(st.integers(0, num_problems - len(postponed)))
        drawn = train(curriculum, size, step=step, postponed=postponed, pruned=pruned)
        assert len(drawn) == len(set(drawn)) == size
        assert set(drawn) <= set(range(num_problems)) - postponed
        # Pruned ones are a last resort: as many as the others fall short, and after them.
        num_others = min(size, num_problems - len(postponed | pruned))
        assert not set(drawn[:num_others]) & pruned
        assert set(drawn[num_others:]) <= pruned


@every_curriculum
@given(num_problems=st.integers(2, 30), steps=st.integers(0, 6), data=st.data())
def test_a_restart_is_no_restart(config, num_problems, steps, data):
    whole = build(config, num_problems)
    size = data.draw(st.integers(1, num_problems - 1))
    for step in range(steps):
        train(whole, size, step=step, postponed={step % num_problems})
    saved = json.dumps(whole.state_dict())
    resumed = build(config, num_problems)
    resumed.load_state_dict(json.loads(saved))
    assert json.dumps(resumed.state_dict()) == saved
    assert resumed.metrics() == whole.metrics()
    for step in range(steps, steps + 6):
        assert train(resumed, size, step=step, pruned={0}) == train(whole, size, step=step, pruned={0})
    assert json.dumps(resumed.state_dict()) == json.dumps(whole.state_dict())


@every_curriculum
def test_the_seed_decides_the_draws(config):
    draws = [build(config, 30, seed=seed).draw(30) for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]


@every_curriculum
def test_a_problem_that_is_postponed_for_ever_does_not_pile_up(config):
    curriculum = build(config, 9)
    for step in range(50):
        train(curriculum, 5, step=step, postponed={0, 3})
    state = curriculum.state_dict()
    queues = state.get("queues") or [state["queue"]]
    assert sum(len(queue["pending"]) for queue in queues) <= 9


@every_curriculum
def test_too_few_problems_are_an_error_that_changes_nothing(config):
    curriculum = build(config, 8)
    before = curriculum.state_dict()
    with pytest.raises(
        DataError, match=r"the step needs 7 problems, .* has 6 of its 8 left, .* lower data\."
    ):
        curriculum.draw(7, postponed={1, 2})
    assert curriculum.state_dict() == before


def staged(epoch):
    """First problems 0 to 3, then 4 to 7, then all."""
    return np.arange(8) if epoch > 1 else 4 * epoch + np.arange(4)


@pytest.mark.parametrize("steps", range(5))
def test_epochs_may_differ_in_their_problems(steps):
    whole, resumed = EpochCurriculum(8, staged), EpochCurriculum(8, staged)
    drawn = [whole.draw(3) for _ in range(steps)]
    assert drawn == [[0, 1, 2], [3, 4, 5], [6, 7, 0], [1, 2, 3], [4, 5, 6]][:steps]
    resumed.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    assert [resumed.draw(3) for _ in range(3)] == [whole.draw(3) for _ in range(3)]
    # The fourth problem comes from the next stage.
    assert EpochCurriculum(8, staged).draw(4, postponed={1}) == [0, 2, 3, 4]


def test_an_epoch_that_names_a_problem_twice_is_an_error():
    twice = EpochCurriculum(8, lambda epoch: np.arange(8 + epoch) % 8)
    twice.draw(8)
    with pytest.raises(DataError, match="epoch 1 has 9 places for 8 problems; an epoch must name each"):
        twice.draw(1)


def test_epochs_that_are_too_small_for_a_step_are_an_error():
    with pytest.raises(DataError, match=r"epochs 1 to 100 have too few problems .* 3 are already .* give"):
        EpochCurriculum(8, lambda epoch: np.arange(3)).draw(4)


@every_curriculum
@pytest.mark.parametrize(
    "change",
    [
        {"curriculum": "another"},
        {"version": 2},
        {"num_problems": 9},
        {"queue": {"epochs_begun": 1, "pending": [8]}, "queues": []},
        {
            "queue": {"epochs_begun": 1, "pending": [1, 1]},
            "queues": [{"epochs_begun": 1, "pending": [1, 1]}] * 3,
        },
        {"queue": {"epochs_begun": -1, "pending": []}, "num_draws": -1},
        {"queue": {"pending": []}, "queues": [{}, {}, {}]},
        {"queue": None, "values": [0.0, 0.0, float("nan")]},
    ],
)
def test_a_foreign_or_damaged_state_is_refused_and_changes_nothing(config, change):
    curriculum = build(config, 8)
    curriculum.draw(3)
    before = curriculum.state_dict()
    with pytest.raises(CheckpointError, match="resume"):
        curriculum.load_state_dict(before | change)
    assert curriculum.state_dict() == before


@every_curriculum
def test_a_state_without_one_of_its_parts_is_refused(config):
    curriculum = build(config, 8)
    for key in curriculum.state_dict():
        with pytest.raises(CheckpointError):
            curriculum.load_state_dict({k: v for k, v in curriculum.state_dict().items() if k != key})


def test_a_curriculum_says_which_columns_it_needs():
    columns = ("data_source", "level")
    assert columns_needed(CurriculumConfig(name="uniform", columns=columns)) == ()
    assert columns_needed(CurriculumConfig(name="ordered", columns=columns)) == columns
    assert columns_needed(CurriculumConfig(name="sec", columns=columns)) == columns
    assert build_curriculum(CurriculumConfig(name="uniform"), [{}, {}], seed=0).draw(2)


@pytest.mark.parametrize("name", ["ordered", "sec"])
@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([{"level": 1}, {}], r"column 'level': problem 1 \(counted from 0\) has None; allowed are"),
        ([{"level": 1.5}, {"level": float("nan")}], "problem 1 .* has nan"),
        ([{"level": [1]}], r"problem 0 .* has \[1\]"),
        (
            [{"level": 1}, {"level": 2.5}, {"level": "2"}],
            "numbers and texts: problem 0 has 1, problem 2 has '2'",
        ),
        ([{"level": 1}, {"level": True}], "mixes numbers and booleans"),
    ],
)
def test_values_that_cannot_be_sorted_are_named(name, rows, complaint):
    with pytest.raises(DataError, match=complaint):
        build_curriculum(CurriculumConfig(name=name), rows, seed=0)


# ------------------------------------------------------------------------------- epochs


@pytest.mark.parametrize("name", ["uniform", "ordered"])
@given(num_problems=st.integers(1, 40), seed=st.integers(0, 5), data=st.data())
def test_each_problem_has_one_turn_an_epoch_whatever_the_draws(name, num_problems, seed, data):
    curriculum = build(CurriculumConfig(name=name), num_problems, seed=seed)
    turns = Counter(dict.fromkeys(range(num_problems), 0))
    for size in data.draw(st.lists(st.integers(0, num_problems), max_size=12)):
        turns.update(curriculum.draw(size))
        assert max(turns.values()) - min(turns.values()) <= 1
        assert curriculum.metrics()["epoch"] == pytest.approx(turns.total() / num_problems)


@given(batch_size=st.integers(1, 8), spare=st.integers(0, 8), more=st.integers(1, 30), data=st.data())
def test_whatever_is_left_behind_each_problem_is_trained_on_once_an_epoch(batch_size, spare, more, data):
    num_problems = 2 * (batch_size + spare) + more
    curriculum = UniformCurriculum(num_problems, seed=0)
    begun, trained = Counter(), Counter()
    carried: list[int] = []
    for _ in range(3 * num_problems // batch_size):
        drawn = curriculum.draw(batch_size + spare - len(carried), postponed=carried)
        begun.update(drawn)
        # Any of the new problems may be among the last; those carried over are waited for.
        done = (carried + data.draw(st.permutations(drawn)))[:batch_size]
        carried = [problem for problem in carried + drawn if problem not in done]
        trained.update(done)
        assert begun - trained == Counter(carried)
        assert max(begun.values()) - min(begun[problem] for problem in range(num_problems)) <= 1


def test_a_postponed_problem_keeps_its_place_and_a_pruned_one_loses_it():
    first, second, third, *rest = UniformCurriculum(8, seed=0).draw(8)
    curriculum = UniformCurriculum(8, seed=0)
    assert curriculum.draw(2, postponed={first}, pruned={second}) == [third, rest[0]]
    assert curriculum.draw(2) == [first, rest[1]]
    assert set(curriculum.draw(3)) == set(rest[2:])
    assert second in curriculum.draw(8), "in the next epoch it has a turn again"


def test_a_pruned_problem_keeps_its_place_in_an_epoch_that_begins_during_the_draw():
    """The new epoch may replay it."""
    curriculum = UniformCurriculum(8, seed=1)
    (*earlier, last), (first, second, third, *rest) = curriculum.draw(8), curriculum.draw(8)
    curriculum = UniformCurriculum(8, seed=1)
    assert curriculum.draw(7) == earlier
    assert curriculum.draw(3, pruned={first}) == [last, second, third]
    assert curriculum.draw(3, pruned={rest[0]}) == [first, *rest[1:3]]
    assert curriculum.draw(2) == rest[3:]


def test_pruned_problems_fill_a_draw_where_epochs_leave_all_others_out():
    curriculum = EpochCurriculum(100, lambda epoch: np.arange(50))
    drawn = curriculum.draw(16, pruned=set(range(10, 50)))
    assert drawn[:10] == [*range(10)] and len({*drawn}) == 16 and {*drawn} <= {*range(50)}
    assert curriculum.epochs < 2


def test_postponed_problems_keep_their_order():
    order = UniformCurriculum(8, seed=0).draw(8)
    curriculum = UniformCurriculum(8, seed=0)
    assert curriculum.draw(2, postponed=order[:3]) == order[3:5]
    assert curriculum.draw(6) == order[:3] + order[5:]


def test_where_an_epoch_ends_in_a_draw_the_next_one_goes_on():
    epochs = UniformCurriculum(5, seed=2)
    first, second = epochs.draw(5), epochs.draw(5)
    curriculum = UniformCurriculum(5, seed=2)
    assert curriculum.draw(3) == first[:3]
    repeated = [problem for problem in second if problem in first[3:]]
    others = [problem for problem in second if problem not in first[3:]]
    assert curriculum.draw(5) == first[3:] + others
    assert curriculum.draw(2) == repeated, "passed over in that draw, they come first in the next"


def test_epochs_differ_in_their_order():
    curriculum = UniformCurriculum(64, seed=0)
    assert curriculum.draw(64) != curriculum.draw(64)


# ------------------------------------------------------------------------------- ordered


def test_every_epoch_goes_from_the_smallest_values_to_the_largest():
    rows = [{"source": source, "level": level} for source in "ba" for level in (10, 9, 9.5, 9)]
    curriculum = OrderedCurriculum(rows, columns=("level", "source"), seed=0)
    for _ in range(2):
        values = [(rows[problem]["level"], rows[problem]["source"]) for problem in curriculum.draw(8)]
        assert values == [
            *[(9, "a"), (9, "a"), (9, "b"), (9, "b")],
            *[(9.5, "a"), (9.5, "b"), (10, "a"), (10, "b")],
        ]


def test_texts_are_sorted_as_texts_and_truths_as_truths():
    rows = [{"name": "9", "easy": True}, {"name": "10", "easy": True}, {"name": "9", "easy": False}]
    assert OrderedCurriculum(rows, columns=("name", "easy"), seed=0).draw(3) == [1, 2, 0]


def test_problems_of_equal_values_are_shuffled_anew_in_each_epoch():
    rows = [{"level": index // 32} for index in range(64)]
    curriculum = OrderedCurriculum(rows, columns=("level",), seed=0)
    epochs = [curriculum.draw(64) for _ in range(2)]
    for epoch in epochs:
        assert sorted(epoch[:32]) == list(range(32)) != epoch[:32]
    assert epochs[0] != epochs[1]


def test_a_state_of_other_columns_is_refused():
    rows = [{"level": 1, "length": 5}, {"level": 2, "length": 3}]
    state = OrderedCurriculum(rows, columns=("level",), seed=0).state_dict()
    with pytest.raises(CheckpointError, match=r"'columns': \['length'\].*got .*'columns': \['level'\]"):
        OrderedCurriculum(rows, columns=("length",), seed=0).load_state_dict(state)


# --- SEC's bandit: its softmax, its rewards, and where its problems come from


def build_sec(
    rows, *, columns=("level",), learning_rate=0.5, temperature=1.0, with_replacement=False, seed=0
) -> SecCurriculum:
    return SecCurriculum(
        rows,
        columns=columns,
        learning_rate=learning_rate,
        temperature=temperature,
        with_replacement=with_replacement,
        seed=seed,
    )


def levels(*sizes):
    """One level after the other, with so many problems in each."""
    return [{"level": level} for level, size in enumerate(sizes) for _ in range(size)]


def metric(curriculum, name):
    values = curriculum.metrics()
    return [value for key, value in values.items() if key.startswith(f"{name}/")]


@pytest.mark.parametrize(
    ("temperature", "probabilities"),
    [(1.0, [0.186324, 0.307196, 0.506480]), (0.2, [0.006188, 0.075389, 0.918423])],
)
def test_softmax_of_known_values(temperature, probabilities):
    values = softmax(np.array([0.0, 0.5, 1.0]), temperature=temperature)
    np.testing.assert_allclose(values, probabilities, atol=5e-7)


def test_softmax_of_large_values_does_not_overflow():
    np.testing.assert_allclose(
        softmax(np.array([1000.0, 1001.0]), temperature=0.5), [0.119203, 0.880797], rtol=1e-5
    )


@pytest.mark.parametrize("num_correct", range(9))
def test_what_an_arm_is_rewarded_with_is_largest_at_even_odds(num_correct):
    # n = 8 rollouts, p = k/8. Unbiased standard deviation: 2 sqrt(p (1 - p)) sqrt(7/8), at 4 of 8 .9354.
    rewards_G = np.repeat([1.0, 0.0], [num_correct, 8 - num_correct])
    p = num_correct / 8
    divided, undivided = (
        float(np.abs(pooled_advantages(rewards_G, divide_by_std=divide)).mean()) for divide in (True, False)
    )
    assert divided == pytest.approx(2 * np.sqrt(p * (1 - p)) * np.sqrt(7 / 8), abs=1e-5)
    assert undivided == pytest.approx(2 * p * (1 - p))
    if num_correct == 4:
        assert (divided, undivided) == pytest.approx((0.9354, 0.5), abs=1e-4)


def test_values_are_moving_averages_and_arms_without_problems_keep_theirs():
    curriculum = build_sec(levels(2, 2, 2), learning_rate=0.25)
    assert metric(curriculum, "q") == [0.0, 0.0, 0.0]
    curriculum.observe({0: 0.2, 1: 0.6, 4: 1.0})
    assert metric(curriculum, "q") == pytest.approx([0.1, 0.0, 0.25])
    curriculum.observe({4: 1.0, 5: 0.0, 2: 0.8})
    assert metric(curriculum, "q") == pytest.approx([0.1, 0.2, 0.3125])
    curriculum.observe({})
    assert metric(curriculum, "q") == pytest.approx([0.1, 0.2, 0.3125])


def test_the_order_in_which_problems_are_observed_does_not_matter():
    signals = {problem: 0.1 * problem for problem in range(9)}
    states = []
    for problems in (range(9), reversed(range(9))):
        curriculum = build_sec(levels(9))
        curriculum.observe({problem: signals[problem] for problem in problems})
        states.append(json.dumps(curriculum.state_dict()))
    assert states[0] == states[1]


@pytest.mark.parametrize("signal", [float("nan"), float("inf"), -0.1])
def test_a_signal_that_is_no_mean_of_magnitudes_is_refused_and_changes_nothing(signal):
    curriculum = build_sec(levels(2, 2))
    with pytest.raises(ValueError, match=r"problem 2 must be finite and at least 0"):
        curriculum.observe({0: 1.0, 2: signal})
    assert metric(curriculum, "q") == [0.0, 0.0]


def test_arms_are_groups_of_equal_values_in_sorted_order():
    rows = [{"data_source": source, "level": level} for source in ("gsm8k", "chains") for level in (10, 9)]
    curriculum = build_sec(rows * 2, columns=("data_source", "level"))
    curriculum.draw(8)
    assert curriculum.metrics() == {
        f"{name}/data_source={source},level={level}": value
        for name, value in {"q": 0.0, "probability": 0.25, "drawn": 2.0}.items()
        for source in ("chains", "gsm8k")
        for level in (9, 10)
    }


@pytest.mark.parametrize("with_replacement", [False, True])
def test_arms_are_drawn_with_the_probabilities_of_the_softmax(with_replacement):
    curriculum = build_sec(levels(900, 300, 600), learning_rate=1.0, with_replacement=with_replacement)
    curriculum.observe({0: 0.0, 900: 0.5, 1200: 1.0})
    assert metric(curriculum, "probability") == pytest.approx([0.186324, 0.307196, 0.506480], abs=1e-6)
    drawn = np.zeros(3)
    for _ in range(250):
        curriculum.draw(40)
        drawn += metric(curriculum, "drawn")
    # 10,000 draws: a share's standard deviation is at most .005.
    np.testing.assert_allclose(drawn / drawn.sum(), [0.186324, 0.307196, 0.506480], atol=0.02)


def test_a_column_that_tells_all_problems_apart_makes_no_arms():
    with pytest.raises(DataError, match=r"columns: \['level'\] give 1001 arms, .* allowed are at most 1000"):
        build_sec([{"level": problem} for problem in range(1001)])


def test_an_arm_without_eligible_problems_is_passed_over_however_much_it_is_worth():
    curriculum = build_sec(levels(3, 50, 50), learning_rate=1.0, temperature=0.001)
    curriculum.observe({0: 1.0, 3: 0.5, 53: 0.0})
    curriculum.draw(20, postponed={0}, pruned={1})
    assert metric(curriculum, "drawn") == [1.0, 19.0, 0.0]
    curriculum.draw(60)
    assert metric(curriculum, "drawn") == [3.0, 50.0, 7.0]


def test_without_replacement_all_problems_of_an_arm_have_their_turn_before_any_repeats():
    curriculum = build_sec(levels(10, 25))
    turns = Counter(dict.fromkeys(range(35), 0))
    for _ in range(40):
        turns.update(curriculum.draw(7))
        for arm in (range(10), range(10, 35)):
            assert max(turns[problem] for problem in arm) - min(turns[problem] for problem in arm) <= 1


def test_with_replacement_a_problem_may_come_again_but_not_in_the_same_draw():
    curriculum = build_sec(levels(50), with_replacement=True)
    draws = [curriculum.draw(10) for _ in range(5)]
    assert all(len(set(drawn)) == 10 for drawn in draws)
    assert len({problem for drawn in draws for problem in drawn}) < 50


def test_with_replacement_the_problems_of_an_arm_are_equally_likely():
    curriculum = build_sec(levels(5), with_replacement=True)
    turns = Counter(problem for _ in range(2000) for problem in curriculum.draw(1))
    # 2,000 draws of probability 1/5: 400, standard deviation 18.
    assert all(abs(turns[problem] - 400) < 90 for problem in range(5))


def test_a_pruned_problem_loses_its_turn_and_a_postponed_one_keeps_it():
    order = build_sec(levels(6)).draw(6)
    curriculum = build_sec(levels(6))
    assert curriculum.draw(2, postponed={order[0]}, pruned={order[1]}) == order[2:4]
    assert curriculum.draw(3) == [order[0], *order[4:]]


def test_a_state_of_other_arms_is_refused():
    state = build_sec(levels(2, 4)).state_dict()
    with pytest.raises(CheckpointError, match=r"'level=2'.*got .*'level=1'"):
        build_sec(levels(2, 2, 2)).load_state_dict(state)


def test_settings_may_change_where_a_run_is_resumed():
    curriculum = build_sec(levels(4, 4), learning_rate=1.0)
    curriculum.draw(4)
    curriculum.observe({0: 0.5})
    resumed = build_sec(levels(4, 4), temperature=0.1, with_replacement=True)
    resumed.load_state_dict(curriculum.state_dict())
    assert metric(resumed, "q") == [0.5, 0.0]
    assert metric(resumed, "probability") == pytest.approx([0.993307, 0.006693], abs=1e-6)


# --- Which problems are no longer rolled out


def build_pruning(seed=0, **settings):
    return ForwardPruning(SelectionConfig(**{"prune_after": 2, **settings}), seed=seed)


def with_pool(num_problems, seed=0, **settings):
    """Pruning that has seen problems 0, 1, ... solved twice, which is enough."""
    pruning = build_pruning(seed, **settings)
    for _ in range(2):
        pruning.observe(dict.fromkeys(range(num_problems), 1.0))
    return pruning


def through_json(state):
    return json.loads(json.dumps(state, sort_keys=True))


def replayed(pruning, num_problems, epoch):
    return set(range(num_problems)) - pruning.pruned(epoch=epoch)


# What is pruned


@pytest.mark.parametrize("name", SELECTIONS)
def test_pruning_learns_by_itself_whatever_the_selection(name):
    pruning = build_pruning(name=name)
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
        pruning = build_pruning(prune_after=prune_after)
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
    pruning = build_pruning(prune_after=0)
    empty = through_json(pruning.state_dict())
    for _ in range(5):
        pruning.observe(dict.fromkeys(range(9), 1.0))
    assert pruning.pruned(epoch=5) == frozenset()
    assert through_json(pruning.state_dict()) == empty
    assert pruning.metrics() == {}


def test_switched_off_on_resumption_it_lets_every_problem_in_again():
    off = build_pruning(prune_after=0)
    trained = with_pool(20)
    assert trained.pruned(epoch=2)
    off.load_state_dict(through_json(trained.state_dict()))
    assert off.pruned(epoch=2) == off.pruned(epoch=3) == frozenset()


# Replay


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


# State


def train_pruned(pruning, epochs, *, generator, resume=lambda pruning: pruning):
    """Epochs of five steps over 40 problems, most of them solved; what each step left out."""
    left_out = []
    for epoch in epochs:
        for step in range(5):
            pruning = resume(pruning)
            left_out.append(pruning.pruned(epoch=epoch))
            visited = set(range(step * 8, step * 8 + 8)) - left_out[-1]
            pruning.observe({problem: float(generator.random() < 0.9) for problem in sorted(visited)})
    return pruning, left_out


@given(seed=st.integers(0, 20))
def test_a_run_resumed_before_every_step_is_one_that_was_never_interrupted(seed):
    def resume(pruning):
        again = build_pruning(seed, replay_share=0.3)
        again.load_state_dict(through_json(pruning.state_dict()))
        return again

    fresh = {"seed": seed, "replay_share": 0.3}
    whole, expected = train_pruned(build_pruning(**fresh), range(8), generator=random.Random(seed))
    resumed, got = train_pruned(
        build_pruning(**fresh), range(8), generator=random.Random(seed), resume=resume
    )
    assert got == expected
    assert through_json(resumed.state_dict()) == through_json(whole.state_dict())
    assert resumed.metrics() == whole.metrics()
    assert any(expected), "something was pruned"


def test_a_problem_that_is_left_out_was_solved_as_often_as_asked_for():
    generator, solved = random.Random(0), dict.fromkeys(range(30), 0)
    pruning, ever_left_out = build_pruning(prune_after=3), set()
    for epoch in range(20):
        left_out = pruning.pruned(epoch=epoch)
        ever_left_out |= left_out
        assert all(solved[problem] >= 3 for problem in left_out)
        for problem in set(range(30)) - left_out:
            is_solved = generator.random() < 0.8
            solved[problem] = solved[problem] + 1 if is_solved else 0
            pruning.observe({problem: float(is_solved)})
    assert ever_left_out


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
