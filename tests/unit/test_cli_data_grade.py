"""``seele data`` and ``seele grade``, from the command line's arguments to the files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from seele.cli.main import main
from seele.data.storage.files import file_sha256
from seele.data.storage.schema import read_problems

CASES = Path(__file__).parents[2].parent / "shared" / "data" / "grader_cases.jsonl"

SMALL_CHAINS = ["--set", "num_train=6", "--set", "num_heldout=4", "--set", "num_harder=2"]


def run(*arguments: object) -> int:
    """Exit status of ``seele ARGUMENTS``."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def write_cases(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_chains_are_prepared_with_a_manifest_that_tells_their_checksums(tmp_path):
    assert run("data", "prepare", "chains", "--out", tmp_path, "--seed", 1, *SMALL_CHAINS) == 0
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["settings"]["seed"] == 1
    assert {split: entry["problems"] for split, entry in manifest["splits"].items()} == {
        "train": 6,
        "heldout": 4,
        "harder": 2,
    }
    for entry in manifest["splits"].values():
        assert entry["sha256"] == file_sha256(tmp_path / entry["file"])
        assert len(read_problems(tmp_path / entry["file"])) == entry["problems"]


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path):
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert (
            run("data", "prepare", "chains", "--out", tmp_path / folder, "--seed", seed, *SMALL_CHAINS) == 0
        )
    a, b, c = ((tmp_path / folder / "manifest.json").read_bytes() for folder in "abc")
    assert a == b != c


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("num_train", "--set num_train: expected KEY=VALUE"),
        ("count=3", "chains: unknown key 'count'"),
        ("num_train=many", "chains.num_train: expected int, got 'many'"),
        ("train_levels=[8]", "harder_levels must not be training levels"),
        ("train_levels=[6.0]", "chains.train_levels[0]: expected int, got 6.0"),
    ],
)
def test_a_bad_setting_ends_with_one_line(tmp_path, capsys, setting, complaint):
    assert run("data", "prepare", "chains", "--out", tmp_path / "out", "--set", setting) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_gsm8k_is_prepared_from_a_folder_and_its_test_split_is_held_out(tmp_path):
    row = {"question": "Two boxes of 6?", "answer": "2*6=<<2*6=12>>12\n#### 12"}
    for split, question in (("train", "Two boxes of 6?"), ("test", "And at half past?")):
        write_cases(tmp_path / f"{split}.jsonl", row | {"question": question})
    assert run("data", "prepare", "gsm8k", "--out", tmp_path / "out", "--source", tmp_path) == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["origin"] == "local folder"
    assert [problem.question for problem in read_problems(tmp_path / "out" / "heldout.parquet")] == [
        "And at half past?"
    ]


def test_long_problems_can_be_left_out_and_the_manifest_says_so(tmp_path):
    rows = [{"question": "x" * length, "answer": "12\n#### 12"} for length in (5, 50)]
    for split in ("train", "test"):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{split}.jsonl").write_text(lines)
    arguments = ("--out", tmp_path / "out", "--source", tmp_path, "--max-chars", 40)
    assert run("data", "prepare", "gsm8k", *arguments) == 0
    assert [problem.question for problem in read_problems(tmp_path / "out" / "train.parquet")] == ["xxxxx"]
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["max_chars"] == 40


def test_inspect_shows_every_legal_hint(tmp_path, capsys):
    run("data", "prepare", "chains", "--out", tmp_path, *SMALL_CHAINS)
    [first, *_] = read_problems(tmp_path / "train.parquet")
    capsys.readouterr()
    assert run("data", "inspect", tmp_path / "train.parquet", "--num", 1) == 0
    shown = capsys.readouterr().out
    assert first.question in shown and first.instance_id in shown and "no hint" in shown
    for revealed in range(len(first.steps)):
        assert f"{revealed / len(first.steps):.3f}" in shown


def test_a_missing_file_ends_with_one_line(capsys):
    assert run("data", "inspect", "absent.parquet") == 2
    assert capsys.readouterr().err.startswith("DataError: absent.parquet: no such file")


def test_grade_keeps_rows_and_order_and_takes_a_bare_prediction_as_the_answer(tmp_path):
    rows = [
        {"gold": "12", "pred": "12.0", "id": "bare"},
        {"gold": "12", "pred": r"\boxed{13}, no: \boxed{12}", "id": "boxed"},
        {"gold": r"so \boxed{12}", "pred": "11", "id": "boxed gold"},
        {"gold": "12", "pred": r"\boxed{12", "id": "cut off"},
        {"gold": "12", "pred": "", "id": "empty"},
        {"gold": "", "pred": "12", "id": "no gold"},
    ]
    assert (
        run(
            "grade",
            write_cases(tmp_path / "in.jsonl", *rows),
            "--out",
            tmp_path / "out.jsonl",
            "--workers",
            1,
        )
        == 0
    )
    graded = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    reasons = ["correct", "correct", "wrong", "no_answer", "no_answer", "error"]
    assert graded == [
        row | {"correct": reason == "correct", "reason": reason}
        for row, reason in zip(rows, reasons, strict=True)
    ]


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"gold": None, "pred": "12"}, "line 2, key 'gold': expected a text, got None"),
        ({"gold": ["12"], "pred": "12"}, "line 2, key 'gold': expected a text, got ['12']"),
        ({"gold": "12"}, "line 2: no key 'pred'"),
        (["12", "12"], "line 2: expected an object"),
    ],
)
def test_a_bad_case_is_named_and_nothing_is_written(tmp_path, capsys, row, complaint):
    cases = write_cases(tmp_path / "in.jsonl", {"gold": "1", "pred": "1"}, row)
    assert run("grade", cases, "--out", tmp_path / "out.jsonl") == 2
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()


def test_an_unknown_grader_lists_the_known_ones(tmp_path, capsys):
    cases = write_cases(tmp_path / "in.jsonl", {"gold": "1", "pred": "2"})
    assert run("grade", cases, "--out", tmp_path / "out.jsonl", "--grader", "guess") == 2
    assert "['math_verify', 'mathruler', 'multiple_choice', 'strict+']" in capsys.readouterr().err


def graded(tmp_path: Path, *rows: dict, **options: str) -> list[dict]:
    """The rows as ``seele grade`` writes them."""
    cases, out = write_cases(tmp_path / "in.jsonl", *rows), tmp_path / "out.jsonl"
    flags = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", value)]
    assert run("grade", cases, "--out", out, *flags) == 0
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_numbers_count_as_text_and_other_predictions_are_no_answer(tmp_path):
    rows = [
        {"gold": 27.0, "pred": "27"},  # as the golds of AMC23 are written
        {"gold": "27", "pred": 27.0},
        {"gold": 27, "pred": 28},
        *({"gold": "27", "pred": pred} for pred in (None, True, ["27"], {"a": 27})),
    ]
    reasons = ["correct", "correct", "wrong"] + ["no_answer"] * 4
    assert graded(tmp_path, *rows) == [
        row | {"correct": reason == "correct", "reason": reason}
        for row, reason in zip(rows, reasons, strict=True)
    ]


def test_strict_plus_accepts_what_either_accepts(tmp_path):
    pytest.importorskip("math_verify")
    rows = [
        {"gold": r"\{1,2\}", "pred": r"\{2,1\}"},  # Math-Verify alone
        {"gold": "13", "pred": r"\boxed{12} no, \boxed{13}"},  # MathRuler alone
        {"gold": "12", "pred": "13"},
    ]
    verdicts = {
        name: [row["correct"] for row in graded(tmp_path, *rows, grader=name)]
        for name in ("mathruler", "math_verify", "strict+")
    }
    assert verdicts == {
        "mathruler": [False, True, False],
        "math_verify": [True, False, False],
        "strict+": [True, True, False],
    }


def test_multiple_choice_reads_the_options_of_a_row(tmp_path):
    options = ["Paris", "Rome"]
    rows = [
        {"gold": "B", "pred": "Rome", "options": options},
        {"gold": "B", "pred": r"\boxed{A}", "options": options},
        {"gold": "B", "pred": "(B) whatever"},
        {"gold": 2, "pred": "B"},
    ]
    said = [row["correct"] for row in graded(tmp_path, *rows, grader="multiple_choice")]
    assert said == [True, False, True, True]


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"gold": "C", "pred": "A", "options": ["x", "y"]}, "line 1: the reference answer 'C' names none"),
        ({"gold": "C", "pred": "A", "options": "xyz"}, "line 1, key 'options': expected a list of texts"),
        ({"gold": "C", "pred": "A", "options": [1, 2, 3]}, "line 1, key 'options': expected a list of texts"),
    ],
)
def test_options_that_make_no_sense_are_named(tmp_path, capsys, row, complaint):
    cases = write_cases(tmp_path / "in.jsonl", row)
    assert run("grade", cases, "--out", tmp_path / "out.jsonl", "--grader", "multiple_choice") == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("grader", ["mathruler", "math_verify", "strict+"])
def test_cross_check_lists_what_the_two_graders_disagree_on(tmp_path, capsys, grader):
    pytest.importorskip("math_verify")
    rows = [
        {"gold": "12", "pred": "12.0", "id": "agreed"},
        {"gold": r"\{1,2\}", "pred": r"\{2,1\}", "id": "a set"},
        {"gold": "13", "pred": r"\boxed{12} no, \boxed{13}", "id": "two boxes"},
    ]
    page = tmp_path / "deep" / "page.md"
    graded(tmp_path, *rows, grader=grader, cross_check=str(page))
    assert "2 of 3 disagree" in capsys.readouterr().out
    first, second = page.read_text().split("## math_verify accepts, mathruler does not")
    assert "line 3 two boxes: wrong" in first and r"gold   13" in first
    assert "line 2 a set: wrong" in second
    assert "agreed" not in first + second


@pytest.mark.skipif(not CASES.is_file(), reason="the collected grader cases are not beside this checkout")
def test_mathruler_agrees_with_the_collected_cases_as_measured(tmp_path):
    assert run("grade", CASES, "--out", tmp_path / "out.jsonl") == 0
    rows = [json.loads(line) for line in CASES.read_text().splitlines()]
    graded = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["id"] for row in graded] == [row["id"] for row in rows]
    # MathRuler 0.1.0 alone agrees with 122 of the 211 (it does not read sets, equations or lists of boxes).
    assert sum(row["correct"] == row["expected"] for row in graded) == 122
    # It errs on the safe side: of 43 wrong answers it accepts one.
    assert sum(row["correct"] and not row["expected"] for row in graded) == 1


def test_the_command_line_imports_a_stage_only_to_run_it():
    probe = "import sys, seele.cli.main; print([m for m in sys.argv[1:] if m in sys.modules])"
    stages = ["pyarrow", "sympy", "numpy", "matplotlib", "seele.reward.grader", "seele.data.tasks.chains"]
    ended = subprocess.run([sys.executable, "-c", probe, *stages], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
