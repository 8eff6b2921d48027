"""Which problems a step sees."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seele.curriculum import UniformCurriculum
from seele.errors import DataError


@given(num_problems=st.integers(1, 60), batch_size=st.integers(1, 20), seed=st.integers(0, 5))
def test_an_epoch_visits_problems_at_most_once_and_leaves_less_than_a_batch(num_problems, batch_size, seed):
    if num_problems < batch_size:
        return
    curriculum = UniformCurriculum(num_problems, batch_size=batch_size, seed=seed)
    steps = num_problems // batch_size
    for epoch in range(3):
        visited = [p for step in range(steps) for p in curriculum.problems_of_step(1 + epoch * steps + step)]
        assert len(set(visited)) == len(visited) == steps * batch_size
        assert set(visited) <= set(range(num_problems))


def test_a_step_sees_the_same_problems_in_a_run_that_starts_there():
    whole = UniformCurriculum(50, batch_size=8, seed=3)
    first_steps = [whole.problems_of_step(step) for step in range(1, 20)]
    resumed = UniformCurriculum(50, batch_size=8, seed=3)
    assert [resumed.problems_of_step(step) for step in range(15, 20)] == first_steps[14:]


def test_epochs_and_seeds_differ_in_their_order():
    curriculum = UniformCurriculum(64, batch_size=64, seed=0)
    assert curriculum.problems_of_step(1) != curriculum.problems_of_step(2)
    assert curriculum.problems_of_step(1) != UniformCurriculum(64, batch_size=64, seed=1).problems_of_step(1)


def test_fewer_problems_than_a_step_needs_is_an_error():
    with pytest.raises(DataError, match="holds 7 problems, fewer than the 8 of one step"):
        UniformCurriculum(7, batch_size=8, seed=0)


@given(
    num_problems=st.integers(1, 60),
    batch_size=st.integers(1, 20),
    spare=st.integers(0, 25),
    seed=st.integers(0, 5),
    data=st.data(),
)
def test_whatever_is_left_behind_each_problem_is_trained_on_once_an_epoch(
    num_problems, batch_size, spare, seed, data
):
    if num_problems < batch_size:
        return
    curriculum = UniformCurriculum(num_problems, batch_size=batch_size, seed=seed, spare_problems=spare)
    without = UniformCurriculum(num_problems, batch_size=batch_size, seed=seed)
    steps = num_problems // batch_size
    for epoch in range(2):
        carried: list[int] = []
        trained: list[int] = []
        for step in range(1 + epoch * steps, 1 + (epoch + 1) * steps):
            begun = curriculum.problems_of_step(step)
            assert len(carried + begun) == len(set(carried + begun)) <= batch_size + spare
            # Any of the new problems may be among the last; those carried over are waited for.
            late = data.draw(st.permutations(begun))
            done = (carried + late)[:batch_size]
            carried = [problem for problem in carried + begun if problem not in done]
            trained += done
        assert carried == []
        epoch_steps = range(1 + epoch * steps, 1 + (epoch + 1) * steps)
        assert sorted(trained) == sorted(p for step in epoch_steps for p in without.problems_of_step(step))
