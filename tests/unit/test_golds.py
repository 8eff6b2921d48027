r"""Reference answers are graded against themselves before a folder is prepared."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from seele.cli.main import main
from seele.data import prepare as prepare_module
from seele.data.storage.sample import Sample
from seele.errors import ConfigError, DataError
from seele.records import GradeReason, Instance
from seele.reward.golds import GoldCheck, grade_golds

SHARED = Path(__file__).parents[2].parent / "shared" / "data"

LINES = "Ben has 4 boxes of 6 eggs.\nThat makes 4*6=<<4*6=24>>24 eggs.\n"
PROSE = "Ben counts the eggs in every box, writes the numbers down and adds them one by one. " * 4


def problem(answer: str, number: int = 0, data_source: str = "toy") -> Instance:
    return Instance(
        instance_id=f"toy-{number}", data_source=data_source, question="?", steps=(), answer=answer
    )


def reasons(golds: Sequence[str], grader: str, data_source: str = "toy") -> list[GradeReason]:
    grades = grade_golds([problem(gold, data_source=data_source) for gold in golds], grader=grader)
    return [grade.reason for grade in grades]


def run(*arguments: object) -> int:
    """Exit status of ``seele data prepare ARGUMENTS``."""
    with pytest.raises(SystemExit) as ended:
        main(["data", "prepare", *map(str, arguments)])
    return int(ended.value.code or 0)


def write_rows(path: Path, answers: Sequence[str]) -> Path:
    rows = ({"question": f"q{n}?", "answer": answer} for n, answer in enumerate(answers))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("grader", ["mathruler", "math_verify", "strict+"])
def test_answers_of_many_kinds_can_be_met(grader):
    if grader != "mathruler":
        pytest.importorskip("math_verify")
    golds = ["24", "-5", "1,000", "\\frac{1}{2}", "(3, \\frac{\\pi}{2})", "x^2+1", "So \\boxed{7}.", "4.5e33"]
    assert set(reasons(golds, grader)) == {GradeReason.CORRECT}


@pytest.mark.parametrize("grader", ["mathruler", "math_verify", "strict+"])
def test_a_worked_solution_and_an_open_brace_cannot(grader):
    if grader != "mathruler":
        pytest.importorskip("math_verify")
    [prose, brace, long] = reasons([PROSE, "\\frac{1}{2", "1" * 1001], grader)
    assert GradeReason.CORRECT not in (prose, long)
    assert brace is GradeReason.NO_ANSWER


def test_a_solution_with_its_final_line_is_no_answer_although_it_equals_itself():
    assert reasons([f"{LINES}#### 24"], "mathruler") == [GradeReason.WRONG]
    assert reasons(["24"], "mathruler") == [GradeReason.CORRECT]


def test_the_grader_is_asked_and_not_only_whether_the_texts_are_equal():
    pytest.importorskip("math_verify")
    statements = "(1) Riley is a knave\n(2) Grace is a knight"
    assert reasons([statements], "mathruler") == [GradeReason.CORRECT]
    assert reasons([statements], "math_verify") == [GradeReason.WRONG]
    assert reasons(["B", "24"], "multiple_choice") == [GradeReason.CORRECT, GradeReason.ERROR]


def test_reasoning_tasks_go_to_their_checkers():
    assert reasons(["(1+2)*3", "nine"], "mathruler", "countdown") == [GradeReason.CORRECT, GradeReason.ERROR]
    assert reasons(["0 1 2", "none"], "math_verify", "arc_1d") == [GradeReason.CORRECT, GradeReason.ERROR]
    assert reasons(["Evelyn"], "math_verify", "zebra") == [GradeReason.CORRECT]


def test_one_in_a_hundred_may_fail_and_two_are_named_with_row_and_value():
    good = [problem("7", number) for number in range(98)]
    sample = [*enumerate([*good, problem("\\frac{3", 98), problem("8", 99)])]
    assert GoldCheck()("train", sample) == {"grader": "mathruler", "checked": 100, "failing": 1}
    sample[99] = (99, problem("{9", 99))
    with pytest.raises(DataError, match=r"train: 2 of 100 .*row 98 .*'\\\\frac\{3'.*row 99 .*'\{9' \(no_ans"):
        GoldCheck()("train", sample)
    assert GoldCheck(max_failing=0.02)("train", sample)["failing"] == 2


def test_bad_settings_are_refused_before_anything_is_read():
    with pytest.raises(ConfigError, match="unknown grader 'mathrule'"):
        GoldCheck(grader="mathrule")
    with pytest.raises(ConfigError, match="expected a share from 0 to 1, got 2"):
        GoldCheck(max_failing=2.0)


def test_the_whole_of_a_small_split_is_sampled_and_of_a_large_one_the_same_problems_in_any_order():
    problems = [problem("1", number) for number in range(50)]
    samples = {}
    for name, order in {"up": problems, "down": problems[::-1]}.items():
        few, all_of_them = Sample(10), Sample(50)
        for row, instance in enumerate(order):
            few.add(row, instance)
            all_of_them.add(row, instance)
        assert all_of_them.problems == [*enumerate(order)]
        samples[name] = {instance.instance_id for _, instance in few.problems}
        assert [row for row, _ in few.problems] == sorted(row for row, _ in few.problems)
    assert samples["up"] == samples["down"] and len(samples["up"]) == 10


# The command


def test_raw_gsm8k_mapped_as_it_stands_is_refused_and_leaves_what_was_there(tmp_path, capsys):
    out = tmp_path / "out"
    assert run(write_rows(tmp_path / "a.jsonl", ["24", "7"]), "--out", out) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    source = write_rows(tmp_path / "a.jsonl", [f"{LINES}#### 24", f"{LINES}#### 7"])
    assert run(source, "--out", out, "--map", "question=question answer=answer") == 2
    error = capsys.readouterr().err
    assert "train: 2 of 2 reference answers" in error and "row 0" in error and "#### 24" in error
    assert "--map answer=COLUMN" in error and error.count("\n") == 1
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert run(source, "--out", tmp_path / "new", "--map", "question=question answer=answer") == 2
    assert not [*(tmp_path / "new").iterdir()]


def test_more_failures_are_accepted_on_purpose_and_recorded(tmp_path, capsys):
    source = write_rows(tmp_path / "a.jsonl", ["24", "{7"])
    assert run(source, "--out", tmp_path / "out") == 2
    assert run(source, "--out", tmp_path / "out", "--max-failing-golds", "0.5") == 0
    assert "1 of 2 reference answers fail the grader mathruler" in capsys.readouterr().out
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["splits"]["train"]["golds"] == {"grader": "mathruler", "checked": 2, "failing": 1}


def test_another_grader_may_be_named(tmp_path, capsys):
    source = write_rows(tmp_path / "a.jsonl", ["24", "7"])
    assert run(source, "--out", tmp_path / "out", "--grader", "multiple_choice") == 2
    assert "(grader multiple_choice)" in capsys.readouterr().err
    assert run(source, "--out", tmp_path / "out", "--grader", "mathrule") == 2
    assert "unknown grader 'mathrule'" in capsys.readouterr().err


def test_a_large_split_is_sampled(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare_module, "NUM_GOLDS_CHECKED", 5)
    source = write_rows(tmp_path / "a.jsonl", ["24"] * 9)
    assert run(source, "--out", tmp_path / "out") == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["splits"]["train"]["golds"]["checked"] == 5


@pytest.mark.skipif(not SHARED.is_dir(), reason="the real data sets are not beside this checkout")
def test_the_golds_of_real_sets_can_be_met_and_gsm8ks_solutions_cannot():
    def rows(name: str, count: int) -> list[dict]:
        return [json.loads(line) for line in (SHARED / name).read_text().splitlines()[:count]]

    golds = {
        "math500": [row["answer"] for row in rows("math500/test.jsonl", 500)],
        "olympiadbench": [row["final_answer"][0] for row in rows("olympiadbench/test.jsonl", 700)],
        "traces": [str(row["answer"]) for row in rows("traces.jsonl", 5000)],
    }
    for name, of_set in golds.items():
        check = GoldCheck()(name, [*enumerate(problem(gold, n) for n, gold in enumerate(of_set))])
        assert check["failing"] == 0
    whole = [row["answer"] for row in rows("gsm8k/train.jsonl", 20)]
    assert GradeReason.CORRECT not in reasons(whole, "mathruler")
