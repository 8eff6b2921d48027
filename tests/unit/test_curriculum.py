"""Which problems a step rolls out: what all curricula promise, and the two that go in epochs."""

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seele.config import CurriculumConfig
from seele.curriculum import OrderedCurriculum, UniformCurriculum, build_curriculum, columns_needed
from seele.errors import CheckpointError, DataError

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
@settings(deadline=None)
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
@settings(deadline=None)
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
@settings(deadline=None)
@given(num_problems=st.integers(1, 40), seed=st.integers(0, 5), data=st.data())
def test_each_problem_has_one_turn_an_epoch_whatever_the_draws(name, num_problems, seed, data):
    curriculum = build(CurriculumConfig(name=name), num_problems, seed=seed)
    turns = Counter(dict.fromkeys(range(num_problems), 0))
    for size in data.draw(st.lists(st.integers(0, num_problems), max_size=12)):
        turns.update(curriculum.draw(size))
        assert max(turns.values()) - min(turns.values()) <= 1
        assert curriculum.metrics()["epoch"] == pytest.approx(turns.total() / num_problems)


@settings(deadline=None)
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
