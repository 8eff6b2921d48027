"""LIMR: which problems a run learns on as it does on average."""

import json

import pytest

from helpers.commands import exit_status
from seele.data.alignment import alignment_scores, first_visits
from seele.data.storage.schema import read_problems, write_problems
from seele.errors import DataError
from seele.records import Instance


def test_scores_worked_by_hand():
    # The mean curve is (0, 1/2): (1 - 0)^2 + (1 - 1/2)^2 = 5/4; each is 1/4 away from it.
    scores = alignment_scores({"learnt": [0.0, 1.0], "not": [0.0, 0.0]})
    assert scores == pytest.approx({"learnt": 0.8, "not": 0.8})
    # (1/3, 2/3): 4/9 + 1/9; the solved one is as far away, the constant ones less.
    scores = alignment_scores({"solved": [1.0, 1.0], "learnt": [0.0, 1.0], "not": [0.0, 0.0]})
    assert scores == pytest.approx({"solved": 0.0, "learnt": 1 - (1 / 9 + 1 / 9) / (5 / 9), "not": 0.0})
    with pytest.raises(DataError, match="solved in every visit"):
        alignment_scores({"solved": [1.0, 1.0]})


def test_a_problem_without_enough_visits_has_no_curve():
    visits = [("a", 0.5), ("b", 0.0), ("a", 1.0), ("a", 0.25)]
    assert first_visits(visits, 2) == {"a": [0.5, 1.0]}


REASONS = ("wrong", "correct")


@pytest.fixture
def run(tmp_path):
    """Four problems in two epochs of two steps; one is never solved, and one only visited once."""
    rewards = {"a": (0, 1), "b": (0, 1), "c": (0, 0), "d": (1,)}
    (tmp_path / "run" / "rollouts").mkdir(parents=True)
    for epoch in range(2):
        rows = [
            {"instance_id": name, "reason": REASONS[each[epoch]], "hint_steps": 0, "origin": "policy"}
            for name, each in rewards.items()
            if epoch < len(each)
            for _ in range(2)
        ]
        rows.append({"instance_id": "c", "reason": "correct", "hint_steps": 0, "origin": "trace"})
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "run" / "rollouts" / f"step_{epoch + 1}.jsonl").write_text(lines)
    problems = [
        Instance(instance_id=name, data_source="x", question="?", steps=("s",), answer="s", level=1)
        for name in (*rewards, "never")
    ]
    write_problems(tmp_path / "problems.parquet", problems, split="train")
    return tmp_path / "run"


def limr(run, *arguments):
    out = run.parent / "kept.parquet"
    command = ("data", "limr", run.parent / "problems.parquet", "--run", run, "--out", out)
    return exit_status(*command, *arguments), out


def test_the_problems_that_follow_the_mean_curve_are_kept(run, capsys):
    # The mean of a, b and c is (0, 2/3): a and b score 1 - 1/9 / (10/9) = 0.9, c 1 - 4/9 / (10/9) = 0.6.
    status, out = limr(run, "--visits", "2", "--threshold", "0.7")
    assert status == 0 and [each.instance_id for each in read_problems(out)] == ["a", "b"]
    assert "2 of 5 problems have a score of 0.7 or more; 3 had 2 visits, the best score is 0.90" in (
        capsys.readouterr().out
    )
    limr(run, "--visits", "2")
    assert [each.instance_id for each in read_problems(out)] == ["a", "b", "c"]


def test_what_tells_nothing_is_refused(run, capsys):
    assert limr(run)[0] == 2 and "none of its problems has enough visits" in capsys.readouterr().err
    assert limr(run.parent)[0] == 2 and "no rollouts found" in capsys.readouterr().err
    file = run / "rollouts" / "step_1.jsonl"
    file.write_text(file.read_text().replace('"hint_steps": 0', '"hint_steps": 1'))
    assert limr(run, "--visits", "2")[0] == 2 and "hinted rollouts" in capsys.readouterr().err
    file.write_text('{"reason": "correct"}\n')
    assert limr(run)[0] == 2
    assert "step_1.jsonl: a row lacks ['instance_id']; give the folder" in capsys.readouterr().err


def test_damaged_lines_are_named(run, capsys):
    with (run / "rollouts" / "step_1.jsonl").open("a") as file:
        file.write('{"instance_id": "a", "rea')
    assert limr(run, "--visits", "2")[0] == 0
    assert "note: step_1.jsonl, line 10, is cut off" in capsys.readouterr().out
