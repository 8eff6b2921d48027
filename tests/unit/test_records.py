"""Records: the legal hints of an instance, and how many rollouts under one a round waits for."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seele.errors import ConfigError, DataError, DependencyError, SeeleError
from seele.records import HintShare, Instance


def instance(num_steps):
    return Instance(
        instance_id="i", data_source="d", question="q", steps=("s",) * num_steps, answer="a", level=num_steps
    )


@pytest.mark.parametrize("num_steps", [0, 1])
def test_below_two_steps_no_hint_is_possible(num_steps):
    assert instance(num_steps).legal_hint_ratios == (0.0,)


def test_every_prefix_but_the_whole_solution_is_legal():
    assert instance(4).legal_hint_ratios == (0.0, 0.25, 0.5, 0.75)


@given(st.integers(2, 300))
def test_ratio_and_number_of_steps_are_inverse(num_steps):
    ratios = instance(num_steps).legal_hint_ratios
    assert [instance(num_steps).num_hint_steps(ratio) for ratio in ratios] == list(range(num_steps))


@given(percent=st.integers(1, 100), num_rollouts=st.integers(1, 64))
@example(percent=56, num_rollouts=25)
def test_a_quorum_is_rounded_up_to_whole_rollouts_and_no_further(percent, num_rollouts):
    share = HintShare(0.0, num_rollouts)
    assert share.num_awaited(percent / 100) == -(-percent * num_rollouts // 100)
    assert HintShare(0.0, num_rollouts, is_probe=True).num_awaited(percent / 100) == num_rollouts


@pytest.mark.parametrize("error", [ConfigError, DataError, DependencyError])
def test_errors_survive_the_way_between_processes(error):
    import pickle

    restored = pickle.loads(pickle.dumps(error("file.parquet: row 3")))
    assert isinstance(restored, SeeleError) and str(restored) == "file.parquet: row 3"
