"""Accuracy against revealed steps: which problems are asked, and how verdicts become points."""

import pytest

from seele.data.storage.schema import write_problems
from seele.errors import DataError
from seele.records import Instance
from seele_eval.hint_curve import choose_problems, curve, main, markdown


def problem(index, num_steps):
    return Instance(
        instance_id=f"p{index}",
        data_source="d",
        question="q",
        steps=tuple(f"s{step}\n" for step in range(num_steps)),
        answer="1",
    )


def test_only_problems_of_the_same_length_are_compared(tmp_path):
    path = tmp_path / "p.parquet"
    write_problems(path, [problem(i, 2 + i % 2) for i in range(8)], split="p")
    assert [p.instance_id for p in choose_problems(path, steps=3, limit=2)] == ["p1", "p3"]
    with pytest.raises(DataError, match=r"no problem has 5 steps; their numbers of steps are \[2, 3\]"):
        choose_problems(path, steps=5, limit=2)


def test_hand_worked_curve():
    # Two problems, two samples: without hint 1 of 4 correct, after one step 3 of 4.
    points = curve([[[True, False], [False, False]], [[True, True], [True, False]]], steps=2)
    assert [(p.revealed_steps, p.hint_ratio, p.accuracy) for p in points] == [(0, 0.0, 0.25), (1, 0.5, 0.75)]
    assert all(low < p.accuracy < high for p in points for low, high in [p.interval_95])
    assert "| 1 | 0.50 | 75.0% |" in markdown(points)


@pytest.mark.parametrize("option", ["--samples", "--limit", "--steps", "--max-tokens"])
def test_numbers_are_positive(option, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--model", "m", "--problems", "p.parquet", "--out", "o", option, "0"])
    assert ended.value.code == 2 and f"{option}: must be at least 1" in capsys.readouterr().err


def test_an_output_that_is_a_file_is_refused_before_the_work(tmp_path, capsys):
    (tmp_path / "out").write_text("")
    assert main(["--model", "m", "--problems", "p.parquet", "--out", str(tmp_path / "out")]) == 2
    assert "is a file; expected a folder" in capsys.readouterr().err


def test_a_missing_file_is_one_clear_line_and_nothing_written(tmp_path, capsys):
    out = tmp_path / "out"
    status = main(["--model", str(tmp_path), "--problems", str(tmp_path / "none.parquet"), "--out", str(out)])
    assert status == 2 and not out.exists()
    assert "none.parquet" in capsys.readouterr().err
