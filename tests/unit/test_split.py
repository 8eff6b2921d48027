"""Two parts of the problems that never overlap."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seele.data.split import divide_file, is_in_first_part
from seele.data.storage.schema import read_columns, read_problems, write_problems
from seele.records import Instance


def first_part(count: int, *, share: float, seed: int) -> set[int]:
    return {i for i in range(count) if is_in_first_part(f"p-{i}", share=share, seed=seed)}


@given(share=st.floats(0.0, 1.0), larger=st.floats(0.0, 1.0), seed=st.integers(0, 100))
def test_a_part_grows_with_its_share(share, larger, seed):
    share, larger = sorted((share, larger))
    assert first_part(60, share=share, seed=seed) <= first_part(60, share=larger, seed=seed)


def test_everything_or_nothing_is_possible():
    assert first_part(50, share=1.0, seed=0) == set(range(50))
    assert first_part(50, share=0.0, seed=0) == set()


def test_the_share_is_met_on_average_and_seeds_divide_differently():
    parts = [first_part(2000, share=0.25, seed=seed) for seed in (0, 1)]
    # Binomial: standard deviation 19.4.
    assert all(abs(len(part) - 500) < 80 for part in parts)
    # Independent divisions share a quarter of a quarter: 125, standard deviation 10.8.
    assert abs(len(parts[0] & parts[1]) - 125) < 45


@pytest.fixture
def file(tmp_path):
    """Forty problems with a column of somebody else's."""
    problems = [
        Instance(instance_id=f"p-{i}", data_source="d", question="q", steps=("s",), answer="a", level=i)
        for i in range(40)
    ]
    write_problems(tmp_path / "train.parquet", problems, split="train")
    table = pq.read_table(tmp_path / "train.parquet")
    topics = pa.array([f"topic {i % 3}" for i in range(40)])
    pq.write_table(table.append_column("topic", topics), tmp_path / "train.parquet")
    return tmp_path / "train.parquet"


def test_files_are_disjoint_complete_in_order_and_keep_all_columns(file, tmp_path):
    first, rest = tmp_path / "sft" / "a.parquet", tmp_path / "rl" / "a.parquet"
    divide_file(file, first, rest, share=0.4, seed=3)
    levels = {part: [problem.level for problem in read_problems(part)] for part in (first, rest)}
    assert levels[first] == sorted(first_part(40, share=0.4, seed=3))
    assert sorted(levels[first] + levels[rest]) == list(range(40))
    assert levels[rest] == sorted(levels[rest])
    assert [row["topic"] for row in read_columns(rest, ["topic"])] == [f"topic {i % 3}" for i in levels[rest]]


def test_a_part_without_problems_gets_no_file(file, tmp_path):
    divide_file(file, tmp_path / "none.parquet", tmp_path / "all.parquet", share=0.0, seed=0)
    assert not (tmp_path / "none.parquet").exists()
    assert read_problems(tmp_path / "all.parquet") == read_problems(file)


def test_only_the_beginning_of_a_file_is_divided_where_that_is_asked_for(file, tmp_path):
    first, rest = tmp_path / "first.parquet", tmp_path / "rest.parquet"
    assert divide_file(file, first, rest, share=0.4, seed=3, max_samples=25) == 25
    levels = [problem.level for part in (first, rest) for problem in read_problems(part)]
    assert sorted(levels) == list(range(25))
    assert divide_file(file, first, rest, share=0.4, seed=3, max_samples=99) == 40
    assert divide_file(file, tmp_path / "a", tmp_path / "b", share=0.4, seed=3, max_samples=0) == 0
    assert not (tmp_path / "a").exists() and not (tmp_path / "b").exists()
