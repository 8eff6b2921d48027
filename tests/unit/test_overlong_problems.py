"""Problems over the limits on tokens: left out or cut, by a record that all readers follow."""

import dataclasses

import pytest

from seele.config import DataConfig
from seele.data.overlong import (
    Fit,
    Fits,
    Limits,
    Tokens,
    fit,
    read_fitting_problems,
    read_record,
    write_record,
)
from seele.data.storage.schema import write_problems
from seele.errors import DataError
from seele.records import Instance

LIMITS = Limits(prompt=20, response=10)


@pytest.mark.parametrize(
    ("tokens", "dropped", "truncated"),
    [
        pytest.param(Tokens(prompt=20), None, Fit(), id="a prompt that just fits"),
        pytest.param(
            Tokens(prompt=21),
            "has 21 prompt tokens, more than data.max_prompt_length (20)",
            Fit("has 21 prompt tokens, more than data.max_prompt_length (20)"),
            id="a prompt that does not, whatever is cut",
        ),
        pytest.param(Tokens(prompt=9, response=10), None, Fit(), id="a solution that just fits"),
        pytest.param(
            Tokens(prompt=9, response=11),
            "has a solution of 11 tokens, more than data.max_response_length (10)",
            Fit(is_cut=True),
            id="a solution that is cut",
        ),
        pytest.param(Tokens(prompt=9, hint_steps=(5, 6)), None, Fit(), id="a hint that just fits"),
        pytest.param(
            Tokens(prompt=9, hint_steps=(5, 6, 1)),
            "has 9 prompt tokens and 12 in its longest hint, more than data.max_prompt_length (20)",
            Fit(hint_steps=2),
            id="a hint of one step too many",
        ),
        pytest.param(
            Tokens(prompt=9, hint_steps=(12, 1)),
            "has 9 prompt tokens and 13 in its longest hint, more than data.max_prompt_length (20)",
            Fit(hint_steps=0),
            id="hints of which none fits",
        ),
        pytest.param(
            Tokens(prompt=5, hint_steps=(4, 5), hints_in_response=True), None, Fit(), id="a prefix that fits"
        ),
        pytest.param(
            Tokens(prompt=5, hint_steps=(4, 6), hints_in_response=True),
            "has 10 tokens in its longest prefix, which with another one are more than "
            "data.max_response_length (10)",
            Fit(hint_steps=1),
            id="a prefix that leaves no room for a token",
        ),
    ],
)
def test_what_becomes_of_a_problem(tokens, dropped, truncated):
    assert fit(tokens, LIMITS, "drop") == fit(tokens, LIMITS, "refuse") == Fit(dropped)
    assert fit(tokens, LIMITS, "truncate") == truncated


def test_only_three_ways_are_known():
    with pytest.raises(ValueError, match="overlong must be one of"):
        DataConfig(overlong="cut")


def problem(name: str) -> Instance:
    return Instance(instance_id=name, data_source="toy", question=f"{name}?", steps=("a\n", "b"), answer="1")


@pytest.fixture
def files(tmp_path):
    """Two files, with the problems a0 to a3 and b0 to b3."""
    for name in "ab":
        write_problems(tmp_path / f"{name}.parquet", [problem(f"{name}{n}") for n in range(4)], split="train")
    return [str(tmp_path / f"{name}.parquet") for name in "ab"]


def names(problems):
    return [(problem.instance.instance_id, problem.row, problem.hint_steps) for problem in problems]


def test_all_readers_of_a_record_have_the_same_problems_in_their_order(files, tmp_path):
    training = Fits(files=tuple(files), left_out={"a1": "why", "b0": "why"}, hint_steps={"b2": 0})
    write_record(tmp_path / "record", [training, Fits()])
    assert read_record(tmp_path / "record") == [training, Fits()]
    assert names(read_fitting_problems(files, -1, tmp_path / "record")) == [
        *(("a0", 0, None), ("a2", 2, None), ("a3", 3, None)),
        *(("b1", 1, None), ("b2", 2, 0), ("b3", 3, None)),
    ]
    # So many problems are looked at, those that are left out among them.
    first = read_fitting_problems(files, 5, tmp_path / "record")
    assert [problem.instance.instance_id for problem in first] == ["a0", "a2", "a3"]
    assert [problem.instance.instance_id for problem in read_fitting_problems(files[0])] == [
        f"a{n}" for n in range(4)
    ]


def test_what_does_not_fit_one_file_stays_in_another(files, tmp_path):
    write_problems(tmp_path / "held.parquet", [problem("a1")], split="heldout")
    training = Fits(files=tuple(files), left_out={"a1": "why"})
    validation = Fits(files=(str(tmp_path / "held.parquet"), files[1]), left_out={"b3": "why"})
    write_record(tmp_path / "record", [training, validation])
    held = read_fitting_problems(str(tmp_path / "held.parquet"), -1, tmp_path / "record")
    assert names(held) == [("a1", 0, None)]
    # Trained and validated on: it lacks the same problems in both.
    shared = read_fitting_problems(files[1], -1, tmp_path / "record")
    assert [problem.instance.instance_id for problem in shared] == ["b0", "b1", "b2"]


def test_hints_may_be_shortened_to_none(files, tmp_path):
    write_record(tmp_path / "record", [Fits(files=tuple(files), hint_steps={"a0": 0})])
    [none, some, *_] = read_fitting_problems(files, -1, tmp_path / "record")
    assert (none.may_be_hinted, some.may_be_hinted) == (False, True)
    alone = some._replace(instance=dataclasses.replace(some.instance, steps=("a",)))
    assert not alone.may_be_hinted


@pytest.mark.parametrize("content", [None, "{", '[{"left": {}}]', "[3]"])
def test_a_record_that_is_missing_or_broken_is_refused(files, tmp_path, content):
    if content is not None:
        (tmp_path / "record").write_text(content)
    with pytest.raises(DataError, match="expected the run's record of problems that are too long"):
        read_fitting_problems(files, -1, tmp_path / "record")
