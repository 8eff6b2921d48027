"""``seele data`` and ``seele grade``: arguments, prepared folders, inspection."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import pytest

from helpers.commands import exit_status as run
from helpers.real_data import SHARED, needs_shared
from seele.child import run_module
from seele.cli.data_prepare import parse_settings
from seele.data.prepare import Split, prepare
from seele.data.statistics import describe_problems
from seele.data.storage import parquet
from seele.data.storage.files import PartialFile, file_sha256, write_atomically
from seele.data.storage.parquet import copy_rows, set_column
from seele.data.storage.schema import content_id, read_problems, write_problems
from seele.errors import DataError
from seele.records import Instance, Milestone

# --- ``seele data`` and ``seele grade``, from the command line's arguments to the files


SMALL_CHAINS = ["--set", "num_train=6", "--set", "num_heldout=4", "--set", "num_harder=2"]


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
        ("seed=1 seed=2", "--set seed=2: seed is '1' already; give it once"),
        ("count=3", "chains: unknown key 'count'"),
        ("num_train=many", "chains.num_train: expected a whole number, got 'many'"),
        ("train_levels=[8]", "harder_levels must not be training levels"),
        ("train_levels=[6.0]", "chains.train_levels[0]: expected a whole number, got 6.0"),
    ],
)
def test_a_bad_setting_ends_with_one_line(tmp_path, capsys, setting, complaint):
    settings = [word for each in setting.split() for word in ("--set", each)]
    assert run("data", "prepare", "chains", "--out", tmp_path / "out", *settings) == 2
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


def test_gsm8k_keeps_parts_of_its_training_split_for_a_warm_start_and_for_tuning(tmp_path, capsys):
    lines = [
        {"question": f"How many is {number}?", "answer": "So many.\n" * (number % 5 + 1) + f"#### {number}"}
        for number in range(200)
    ]
    write_cases(tmp_path / "train.jsonl", *lines)
    write_cases(tmp_path / "test.jsonl", *lines[:10])
    arguments = ("gsm8k", "--source", tmp_path, "--out", tmp_path / "out", "--steps", "2-4")
    assert run("data", "prepare", *arguments, "--warm-start", "0.4", "--tuning", "0.1") == 0
    parts = {file.stem: [*read_problems(file)] for file in (tmp_path / "out").glob("*.parquet")}
    assert set(parts) == {"train", "heldout", "warm_start", "tuning"}
    ids = [each.instance_id for name in ("train", "warm_start", "tuning") for each in parts[name]]
    assert len(ids) == len(set(ids))
    assert 30 <= len(parts["warm_start"]) <= 70
    assert 3 <= len(parts["tuning"]) <= 25
    splits = json.loads((tmp_path / "out" / "manifest.json").read_text())["splits"]
    assert sum(splits[name]["rows_read"] for name in ("train", "warm_start", "tuning")) == len(lines)
    for name, part in parts.items():
        assert {len(each.steps) for each in part} == {2, 3, 4}
        left_out = splits[name]["rows_read"] - len(part)
        assert splits[name]["left_out"] == {"number_of_steps": left_out} and left_out
    # A larger share of the one keeps what it had.
    assert run("data", "prepare", *arguments[:4], tmp_path / "more", "--warm-start", "0.6") == 0
    more = {each.instance_id for each in read_problems(tmp_path / "more" / "warm_start.parquet")}
    assert more > {each.instance_id for each in parts["warm_start"]}
    capsys.readouterr()
    refused = (*arguments[:4], tmp_path / "no")
    assert run("data", "prepare", *refused, "--steps", "4-2") == 2
    assert "--steps 4-2: expected a number or a range, such as 2-4" in capsys.readouterr().err
    assert run("data", "prepare", *refused, "--warm-start", "0.8", "--tuning", "0.2") == 2
    assert "leave nothing to train on" in capsys.readouterr().err


def test_long_problems_can_be_left_out_and_the_manifest_says_so(tmp_path):
    rows = [{"question": "x" * length, "answer": "12\n#### 12"} for length in (5, 50)]
    for split in ("train", "test"):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{split}.jsonl").write_text(lines)
    arguments = ("--out", tmp_path / "out", "--source", tmp_path, "--max-chars", 40)
    assert run("data", "prepare", "gsm8k", *arguments) == 0
    assert [problem.question for problem in read_problems(tmp_path / "out" / "train.parquet")] == ["xxxxx"]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["max_chars"] == 40 and manifest["splits"]["train"]["left_out"] == {"too_long": 1}


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
    assert capsys.readouterr().err.startswith("error: absent.parquet: no such file")


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
        (
            {"question": "?", "pred": "12"},
            "line 2: no key 'gold', the reference answer; it has ['question', ",
        ),
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


def test_parquet_is_named_where_cases_are_json_lines(tmp_path, capsys):
    (cases := tmp_path / "in.parquet").write_bytes(b"PAR1...PAR1")
    assert run("grade", cases, "--out", tmp_path / "out.jsonl") == 2
    assert "in.parquet: parquet, but cases are JSON lines such as {" in capsys.readouterr().err


def test_csv_is_named_where_cases_are_json_lines(tmp_path, capsys):
    (cases := tmp_path / "in.csv").write_text("gold,pred\n")
    assert run("grade", cases, "--out", tmp_path / "out.jsonl") == 2
    assert "in.csv: CSV, but cases are JSON lines such as {" in (said := capsys.readouterr().err)
    assert "read_csv(FILE, dtype=str).to_json(CASES, orient='records', lines=True)" in said


def test_a_file_without_cases_is_refused(tmp_path, capsys):
    assert run("grade", write_cases(tmp_path / "in.jsonl"), "--out", tmp_path / "out.jsonl") == 2
    assert 'in.jsonl: no rows; expected one {"gold": text, "pred": text} per line' in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()


def test_grade_says_why_answers_are_not_correct(tmp_path, capsys):
    graded(tmp_path, *({"gold": "1", "pred": pred} for pred in ("1", None, "2", None)))
    assert capsys.readouterr().out == f"{tmp_path}/out.jsonl: 1 of 4 correct (2 no_answer, 1 wrong)\n"
    graded(tmp_path, {"gold": "1", "pred": "1"})
    assert capsys.readouterr().out == f"{tmp_path}/out.jsonl: 1 of 1 correct\n"


# Each command, with an output below a file; the inputs do not exist, because the output is checked first.
WRITERS = {
    "grade": ("grade", "in", "--out"),
    "cross-check": ("grade", "in", "--out", "out", "--cross-check"),
    "inspect": ("data", "inspect", "in", "--html"),
    "milestones": ("data", "milestones", "in", "--out"),
    "prepare": ("data", "prepare", "deepmath", "--out"),
    "gsm8k": ("data", "prepare", "gsm8k", "--out"),
    "chains": ("data", "prepare", "chains", "--out"),
    "zebra": ("data", "prepare", "zebra", "--out"),
    "filter": ("data", "filter", "in", "--out"),
    "limr": ("data", "limr", "in", "--run", "run", "--out"),
    "own": ("data", "own", "in", "--model", "model", "--out"),
    "guide": ("data", "guide", "in", "--model", "model", "--out"),
    "annotate": ("data", "annotate", "in", "--endpoint", "http://x", "--model", "m", "--out"),
    "calls": ("data", "hints", "in", "--endpoint", "http://x", "--model", "m", "--out", "out", "--calls"),
    "hints": ("data", "hints", "in", "--endpoint", "http://x", "--model", "m", "--out"),
    "export": ("export", "in", "--out"),
}


@pytest.mark.parametrize("command", WRITERS.values(), ids=WRITERS)
def test_every_command_checks_its_output_before_its_input(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    assert run(*command, "file/x") == 2
    said = f"error: {command[-1]} file/x: file is a file; give a path below a folder\n"
    assert capsys.readouterr().err == said


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


@pytest.mark.parametrize("outputs", [("in", "x"), ("x", "in"), ("x", "x")])
def test_grades_replace_neither_the_cases_nor_each_other(tmp_path, monkeypatch, capsys, outputs):
    monkeypatch.chdir(tmp_path)
    before = write_cases(Path("in"), {"gold": "1", "pred": "1"}).read_text()
    assert run("grade", "in", "--out", outputs[0], "--cross-check", outputs[1]) == 2
    assert "is a folder or " in capsys.readouterr().err
    assert [path.name for path in Path().iterdir()] == ["in"] and Path("in").read_text() == before


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


@needs_shared
def test_mathruler_agrees_with_the_collected_cases_as_measured(tmp_path):
    cases = SHARED / "grader_cases.jsonl"
    assert run("grade", cases, "--out", tmp_path / "out.jsonl") == 0
    rows = [json.loads(line) for line in cases.read_text().splitlines()]
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


# --- ``seele data inspect``: hints on the terminal or as a page, and statistics


def problem(number, **changes):
    fields = {
        "instance_id": f"toy/{number}",
        "data_source": "toy",
        "question": "3 * 4?",
        "steps": ("Take 3 & 4.\n", "3 * 4 = 12.\n", "So \\boxed{12}."),
        "answer": "12",
        "level": 1,
    }
    return Instance(**fields | changes)


HOSTILE = problem(
    2,
    question="[/red] [bold]x[/] <script>alert(1)</script> \x1b[31m",
    steps=("[link=file:///etc] </pre><b>&amp;\n", "[/]"),
    answer="[/] <i>",
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "train.parquet"
    write_problems(path, [problem(1), HOSTILE, problem(3, steps=(), level=2)], split="train")
    return path


def test_hints_that_state_the_answer_are_marked_on_the_terminal(file, capsys):
    assert run("data", "inspect", file, "--num", 1) == 0
    lines = capsys.readouterr().out.splitlines()
    [stating] = [line for line in lines if "3 * 4 = 12." in line]
    [before] = [line for line in lines if "Take 3 & 4." in line]
    [last] = [line for line in lines if "boxed{12}" in line]
    assert "0.667" in stating and "yes" in stating
    assert "0.333" in before and "yes" not in before
    assert "never" in last


def test_markup_and_control_characters_in_texts_are_shown_and_not_obeyed(file, capsys):
    assert run("data", "inspect", file, "--num", 3) == 0
    shown = capsys.readouterr().out
    assert "[/red] [bold]x[/]" in shown and "\\x1b[31m" in shown and "\x1b[31m" not in shown


def test_a_page_does_not_replace_the_problems(file, capsys):
    before = file.read_bytes()
    assert run("data", "inspect", file, "--html", file) == 2
    assert f"--html {file}: is a folder or {file}; name another file" in capsys.readouterr().err
    assert file.read_bytes() == before


def test_the_page_escapes_texts_and_marks_hints(file, tmp_path):
    assert run("data", "inspect", file, "--html", tmp_path / "page.html") == 0
    page = (tmp_path / "page.html").read_text()
    parser = Elements()
    parser.feed(page)
    assert "script" not in parser.tags and "i" not in parser.tags
    assert parser.addresses == ["data:,"], "nothing is loaded from elsewhere"
    assert "<mark>3 * 4 = 12.\n</mark>" in page and "<mark>Take" not in page
    assert "&lt;script&gt;" in page and "</pre>&lt;" not in page


class Elements(HTMLParser):
    """Names of the page's elements, and what it points to."""

    def __init__(self):
        super().__init__()
        self.tags, self.addresses = set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]


def test_statistics_by_source_and_level(file, capsys):
    assert run("data", "inspect", file, "--num", 0, "--stats") == 0
    shown = " ".join(capsys.readouterr().out.split())
    for name in ("toy", "no hint possible", "hints stating it", "33.3%"):
        assert name in shown


def test_tiers_are_shown_after_the_steps_with_ratios_of_their_own(tmp_path, capsys):
    path = tmp_path / "tiers.parquet"
    one_step = problem(2, steps=("12",), tiers=("Two \x1b[31m<b>factors</b>",))
    write_problems(path, [problem(1, tiers=("Multiply.",)), one_step], split="train")
    assert run("data", "inspect", path, "--num", 2) == 0
    shown = capsys.readouterr().out
    assert " 0 without a possible hint" in " ".join(shown.split())
    assert re.findall(r"[01]\.\d{3}", shown) == ["0.000", "0.333", "0.667", "0.500", "0.000", "0.500"]
    assert run("data", "inspect", path, "--html", tmp_path / "page.html") == 0
    page = (tmp_path / "page.html").read_text()
    assert '0.500</td><td class="text"><pre>Multiply.</pre>' in page and "&lt;b&gt;factors" in page
    assert [group.unhintable_share for group in describe_problems(read_problems(path))] == [0.0]


def test_hand_worked_statistics():
    # Of the two hints of each toy problem the longer states the answer; the other's only hint mentions it.
    problems = [problem(1), problem(2), problem(3, data_source="other", steps=("12 of it\n", "= 7"))]
    other, toy, everything = describe_problems(problems)
    assert (other.data_source, toy.data_source, everything.data_source) == ("other", "toy", "all")
    assert (toy.revealing_share, toy.mentioning_share, toy.stated_early_share) == (0.5, 0.5, 1.0)
    assert (other.revealing_share, other.mentioning_share, other.stated_early_share) == (0.0, 1.0, 0.0)
    assert (everything.revealing_share, everything.mentioning_share) == (2 / 5, 3 / 5)
    assert (toy.steps_median, toy.solution_chars_max, toy.step_chars_median) == (3, 38, 12)


def test_levels_are_rows_of_their_own():
    groups = describe_problems([problem(1), problem(2, level=3), problem(3, level=3)])
    assert [(group.level, group.problems) for group in groups] == [("all", 3), ("1", 1), ("3", 2)]


# --- Prepared folders: manifests, files that are complete or absent, the same bytes after a kill


def problem_in_steps(number: int, **changes) -> Instance:
    return Instance(
        **{
            "instance_id": f"toy-{number}",
            "data_source": "toy",
            "question": f"What is {number}+1?",
            "steps": (f"Add one to {number}.\n", f"So \\boxed{{{number + 1}}}."),
            "answer": str(number + 1),
        }
        | changes
    )


run_prepare = partial(run, "data", "prepare")


def write_source(path: Path, count: int) -> Path:
    rows = (
        {
            "problem": f"What is {n}+1?",
            "proof": f"Add one to {n}.\nSo it is \\boxed{{{n + 1}}}.",
            "hard": n % 5,
        }
        for n in range(count)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


MAPPED = ("--map", "question=problem answer= solution=proof", "--map", "level=hard")


def test_longer_problems_are_left_out_and_counted(tmp_path, capsys):
    source = write_source(tmp_path / os.fsdecode(b"m\xefne.jsonl"), 4)
    source.write_text(source.read_text() + json.dumps({"problem": "?" * 99, "proof": "\\boxed{1}"}) + "\n")
    assert run_prepare(source, "--out", tmp_path / "out", *MAPPED, "--max-chars", 90) == 0
    assert "4 problems of 5 rows, 0 without a possible hint; left out: 1 too_long" in capsys.readouterr().out
    assert (tmp_path / "out" / "manifest.json").is_file(), "the file's name is not UTF-8"


def test_a_separator_is_what_a_shell_passes():
    for text in (r"separator=\n\n", r'separator="\n\n"'):
        assert parse_settings([text]) == {"separator": "\n\n"}


def test_a_file_is_prepared_with_a_manifest_that_says_all(tmp_path, capsys):
    source = write_source(tmp_path / "mine.jsonl", 4)
    source.write_text(source.read_text() + '{"problem": "?", "proof": "no box"}\n')
    arguments = (source, "--out", tmp_path / "out", *MAPPED, "--set", "leave_out=[no_answer]")
    assert run_prepare(*arguments, "--set", "licence=mine", "--set", "data_source=sums") == 0
    assert "4 problems of 5 rows, 0 without a possible hint; left out: 1 no_answer" in capsys.readouterr().out
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert {key: manifest[key] for key in ("source", "licence", "reference", "schema")} == {
        "source": "sums",
        "licence": "mine",
        "reference": "mine.jsonl",
        "schema": 1,
    }
    entry = manifest["splits"]["train"]
    assert entry["origin"] == {"files": {"mine.jsonl": file_sha256(source)}}
    assert (entry["rows_read"], entry["problems"], entry["left_out"]) == (5, 4, {"no_answer": 1})
    assert entry["sha256"] == file_sha256(tmp_path / "out" / "train.parquet")
    problems = read_problems(tmp_path / "out" / "train.parquet")
    assert [(each.answer, each.level) for each in problems] == [("1", 0), ("2", 1), ("3", 2), ("4", 3)]
    assert all(each.instance_id.startswith("sums-") and each.revealed_at is not None for each in problems)


def test_splits_are_named_by_the_user(tmp_path):
    (tmp_path / "in").mkdir()
    for num_rows, name in enumerate(("train", "test"), start=2):
        write_source(tmp_path / "in" / f"{name}.jsonl", num_rows)
    splits = ("--split", "train=train", "--split", "heldout=test")
    assert run_prepare(tmp_path / "in", "--out", tmp_path / "out", *MAPPED, *splits) == 0
    assert list(json.loads((tmp_path / "out" / "manifest.json").read_text())["splits"]) == [
        "train",
        "heldout",
    ]


def test_names_of_splits_and_columns_are_texts(tmp_path):
    rows = [{"true": f"{n}?", "the answer": n, "2022": "worked"} for n in range(2)]
    (tmp_path / "2022.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    mapped = ("--map", "question=true answer=the answer", "--map", " solution=2022 ")
    assert run_prepare(tmp_path, "--out", tmp_path / "out", "--split", "train=2022", *mapped) == 0
    [first, _] = read_problems(tmp_path / "out" / "train.parquet")
    assert (first.question, first.answer, first.steps) == ("0?", "0", ("worked",))


def test_splits_of_the_same_rows_are_refused(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    write_source(tmp_path / "in" / "train.jsonl", 2)
    splits = ("--split", "train=train", "--split", "heldout=test")
    assert run_prepare(tmp_path / "in", "--out", tmp_path / "out", *MAPPED, *splits) == 2
    assert "'train' and 'heldout' would be the same rows" in capsys.readouterr().err
    shutil.copy(tmp_path / "in" / "train.jsonl", tmp_path / "in" / "test.jsonl")
    assert run_prepare(tmp_path / "in", "--out", tmp_path / "out", *MAPPED, *splits) == 2
    assert "would be the same rows, ['test.jsonl']" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["train.parquet", "heldout.parquet", "manifest.json"])
def test_the_source_is_not_overwritten(tmp_path, capsys, name):
    source = write_source(tmp_path / "mine.jsonl", 30)
    share = ("--set", "heldout_share=0.3")
    assert run_prepare(source, "--out", tmp_path / "out", *MAPPED, *share) == 0
    source = tmp_path / "out" / name
    before = source.read_bytes()
    assert run_prepare(source, "--out", tmp_path / "out" / ".." / "out") == 2
    assert f"{name}, which is an input; choose another folder" in capsys.readouterr().err
    assert source.read_bytes() == before


def test_a_file_of_problems_is_prepared_again_only_with_mapped_columns(tmp_path, capsys):
    source = write_source(tmp_path / "mine.jsonl", 3)
    assert run_prepare(source, "--out", tmp_path / "out", *MAPPED) == 0
    made = tmp_path / "out" / "train.parquet"
    assert run_prepare(made, "--out", tmp_path / "again") == 2
    said = capsys.readouterr().err
    assert f"{made}: is a file of problems already; use it as it is" in said and "cannot be read" not in said
    mapped = ("--map", "question=question answer=answer steps=steps")
    assert run_prepare(made, "--out", tmp_path / "again", *mapped) == 0
    first, again = (read_problems(tmp_path / name / "train.parquet") for name in ("out", "again"))
    assert [each.steps for each in again] == [each.steps for each in first]


def test_a_folder_that_cannot_be_made_ends_with_one_line(tmp_path, capsys):
    source = write_source(tmp_path / "mine.jsonl", 3)
    assert run_prepare(source, "--out", source / "below", *MAPPED) == 2
    error = capsys.readouterr().err
    assert str(source) in error and error.count("\n") == 1


def test_a_part_of_the_training_problems_is_held_out_whatever_their_order(tmp_path, capsys):
    source = write_source(tmp_path / "in.jsonl", 400)
    share = ("--set", "heldout_share=0.1")
    assert run_prepare(source, "--out", tmp_path / "out", *MAPPED, *share) == 0
    parts = {name: read_problems(tmp_path / "out" / f"{name}.parquet") for name in ("train", "heldout")}
    ids = {name: [each.instance_id for each in problems] for name, problems in parts.items()}
    assert len({*ids["train"], *ids["heldout"]}) == 400 and 25 < len(ids["heldout"]) < 60
    source.write_text("".join(f"{line}\n" for line in reversed(source.read_text().splitlines())))
    assert run_prepare(source, "--out", tmp_path / "again", *MAPPED, *share) == 0
    again = read_problems(tmp_path / "again" / "heldout.parquet")
    assert [each.instance_id for each in again] == ids["heldout"][::-1]
    assert run_prepare(source, "--out", tmp_path / "out", *MAPPED, *share, "--split", "heldout=train") == 2
    assert "heldout_share takes 'heldout' out of 'train'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0.0001, "heldout: heldout_share=0.0001 gives it none of 3 problems; raise the share"),
        (0.9999, "train: heldout_share=0.9999 gives it none of 3 problems; lower the share"),
    ],
)
def test_a_share_that_leaves_a_part_empty_is_named(tmp_path, capsys, share, said):
    source = write_source(tmp_path / "in.jsonl", 3)
    assert run_prepare(source, "--out", tmp_path / "out", *MAPPED, "--set", f"heldout_share={share}") == 2
    assert said in capsys.readouterr().err


def test_a_split_that_is_no_longer_held_out_leaves_the_folder_and_is_named(tmp_path, capsys):
    source, out = write_source(tmp_path / "in.jsonl", 30), tmp_path / "out"
    assert run_prepare(source, "--out", out, *MAPPED, "--set", "heldout_share=0.3") == 0
    (out / "mine.parquet").touch()
    assert run_prepare(source, "--out", out, *MAPPED) == 0
    assert sorted(file.name for file in out.iterdir()) == ["manifest.json", "mine.parquet", "train.parquet"]
    assert f"{out}/heldout.parquet: removed; only an earlier preparation has" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["train.parquet", "heldout.parquet", "manifest.json"])
def test_a_file_that_no_preparation_wrote_is_neither_replaced_nor_removed(tmp_path, capsys, name):
    source, out = write_source(tmp_path / "in.jsonl", 30), tmp_path / "out"
    if name == "heldout.parquet":
        assert run_prepare(source, "--out", out, *MAPPED, "--set", "heldout_share=0.3") == 0
    write_atomically(out / name, "my own")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert run_prepare(source, "--out", out, *MAPPED) == 2
    assert f"would replace or remove {out / name}, which no preparation wrote" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_problems_of_another_source_are_not_replaced(tmp_path, capsys):
    out = tmp_path / "out"
    assert run_prepare(write_source(tmp_path / "a.jsonl", 3), "--out", out, *MAPPED) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert run_prepare(write_source(tmp_path / "b.jsonl", 3), "--out", out, *MAPPED) == 2
    assert f"--out {out}: has the problems of 'a' (manifest.json)" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_a_bad_row_leaves_what_was_there(tmp_path, capsys):
    out = tmp_path / "out"
    assert run_prepare(write_source(tmp_path / "a.jsonl", 3), "--out", out, *MAPPED) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    source = write_source(tmp_path / "a.jsonl", 3)
    source.write_text(source.read_text() + '{"problem": " ", "proof": "\\\\boxed{1}", "hard": 1}\n')
    assert run_prepare(source, "--out", out, *MAPPED) == 2
    assert "a.jsonl: line 4: no question" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_a_source_without_problems_is_refused(tmp_path):
    with pytest.raises(DataError, match="train: no problems"):
        prepare(tmp_path / "out", {"train": Split(instances=[])}, about={})
    assert list(tmp_path.iterdir()) == []


def test_early_answers_are_marked_and_counted_where_nobody_has(tmp_path):
    early = problem_in_steps(1, steps=("It is \\boxed{2}, I know.\n", "Add one.\n", "So \\boxed{2}."))
    told = problem_in_steps(2, revealed_at=1)
    manifest = prepare(
        tmp_path, {"train": Split(instances=[early, told, problem_in_steps(3, steps=())])}, about={}
    )
    assert [each.revealed_at for each in read_problems(tmp_path / "train.parquet")] == [1, 1, None]
    entry = manifest["splits"]["train"]
    assert (entry["revealed_early"], entry["unhintable"]) == (2, 1)


def test_a_bad_instance_is_named_with_its_row_and_nothing_is_written(tmp_path):
    for bad, complaint in (
        (problem_in_steps(1, answer=" "), "column 'answer'"),
        (problem_in_steps(0), "already occurs in row 0"),
        (problem_in_steps(1, revealed_at=3), "'revealed_at': expected an integer from 0 to 2"),
        (problem_in_steps(1, question="a \ud800"), "column 'question': expected text in valid Unicode"),
    ):
        with pytest.raises(DataError, match=rf"train: row 1 \(counted from 0\).*{complaint}"):
            write_problems(tmp_path / "f", [problem_in_steps(0), bad], split="train")
    assert list(tmp_path.iterdir()) == []


def test_row_groups_end_by_rows_and_by_size_and_any_way_of_giving_rows_gives_the_same_bytes(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(parquet, "MAX_GROUP_ROWS", 3)
    monkeypatch.setattr(parquet, "MAX_GROUP_CHARS", 200)
    instances = [problem_in_steps(n) for n in range(7)] + [problem_in_steps(7, question="long " * 100)]
    write_problems(tmp_path / "list", instances, split="train")
    write_problems(tmp_path / "generator", (each for each in instances), split="train")
    assert file_sha256(tmp_path / "list") == file_sha256(tmp_path / "generator")
    metadata = parquet.pq.ParquetFile(tmp_path / "list").metadata
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [3, 3, 2]
    assert read_problems(tmp_path / "list") == instances


def test_rows_are_copied_with_all_their_columns(tmp_path):
    instances = [problem_in_steps(n) for n in range(5)]
    write_problems(tmp_path / "all", instances, split="train")
    copy_rows(tmp_path / "all", tmp_path / "some", [True, False, True, False, False])
    assert read_problems(tmp_path / "some") == [instances[0], instances[2]]
    copied = parquet.pq.read_table(tmp_path / "some")
    assert copied.schema == parquet.pq.read_schema(tmp_path / "all")
    assert [row["index"] for row in copied["extra_info"].to_pylist()] == [0, 2]


def test_columns_are_copied_that_python_cannot_hold(tmp_path, monkeypatch):
    """Arrow has dates after the year 9999."""
    monkeypatch.setattr(parquet, "MAX_GROUP_ROWS", 3)
    monkeypatch.setattr(parquet, "_BATCH_ROWS", 2)
    days = parquet.pa.array([0, 5_000_000, None, -5_000_000, 7], parquet.pa.int32())
    dates = parquet.pa.table({"n": range(5), "day": days.cast(parquet.pa.date32())})
    parquet.pq.write_table(dates, tmp_path / "all")
    copy_rows(tmp_path / "all", tmp_path / "some", [True, True, False, True, True])
    set_column(tmp_path / "some", tmp_path / "new", parquet.pa.field("n", parquet.pa.int64()), [9, 8, 7, 6])
    expected = dates.filter([True, True, False, True, True])
    assert parquet.pq.read_table(tmp_path / "some") == expected
    assert parquet.pq.read_table(tmp_path / "new")["day"] == expected["day"]
    assert parquet.pq.read_table(tmp_path / "new")["n"].to_pylist() == [9, 8, 7, 6]
    metadata = parquet.pq.ParquetFile(tmp_path / "new").metadata
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [4]


def test_ids_are_made_of_the_content_and_parts_do_not_run_into_each_other():
    made = content_id("toy", "q", ("a", "b"), "1")
    assert made == content_id("toy", "q", ["a", "b"], "1") and made.startswith("toy-") and len(made) == 20
    others = [
        ("toy", "q", ("ab",), "1"),
        ("toy", "q", ("a", "b"), "2"),
        ("toy", "qa", ("b",), "1"),
        ("x", "q", ("a", "b"), "1"),
    ]
    assert len({made, *(content_id(*other) for other in others)}) == 5


# Tokens


def test_problems_of_too_many_tokens_are_left_out_and_counted(tmp_path, bytes_model):
    # A byte is a token: "What is 9+1?" and a line end, "Add one to 9.\nSo it is \\boxed{10}.", and the end.
    source = write_source(tmp_path / "mine.jsonl", 11)
    limit = ("--tokenizer", bytes_model, "--template", "plain", "--max-tokens")
    assert run_prepare(source, "--out", tmp_path / "out", *MAPPED, *limit, 13 + 34 + 1) == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    entry = manifest["splits"]["train"]
    assert (entry["rows_read"], entry["problems"], entry["left_out"]) == (11, 10, {"too_many_tokens": 1})
    assert manifest["token_limit"] == {"max_tokens": 48, "tokenizer": bytes_model.name, "template": "plain"}
    problems = read_problems(tmp_path / "out" / "train.parquet")
    assert [each.answer for each in problems] == [str(n + 1) for n in range(10)]
    assert run_prepare(source, "--out", tmp_path / "out", *MAPPED, *limit, 47) == 0
    assert len(read_problems(tmp_path / "out" / "train.parquet")) == 9


def test_gsm8k_takes_a_limit_of_tokens_too(tmp_path, bytes_model, capsys):
    for split in ("train", "test"):
        rows = [{"question": f"{n} boxes?", "answer": f"{n}\n#### {n}"} for n in (7, 70)]
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ("gsm8k", "--source", tmp_path, "--out", tmp_path / "out", "--template", "plain")
    assert run_prepare(*arguments, "--tokenizer", bytes_model, "--max-tokens", 9 + 2 + 24 + 1) == 0
    assert "1 problems of 2 rows" in capsys.readouterr().out
    assert [each.answer for each in read_problems(tmp_path / "out" / "heldout.parquet")] == ["7"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--max-tokens", 9), "give both, or neither"),
        (("--tokenizer", "x"), "give both, or neither"),
        (
            ("--max-tokens", 9, "--tokenizer", "MODEL", "--template", "plane"),
            "template 'plane'",
        ),
        (("--max-tokens", 9, "--tokenizer", "MODEL", "--template", "chat"), "has no chat template"),
        (("--max-tokens", 9, "--tokenizer", "/no/such/model"), "no tokenizer found"),
    ],
)
def test_a_limit_of_tokens_needs_a_tokenizer(tmp_path, bytes_model, capsys, options, complaint):
    source = write_source(tmp_path / "mine.jsonl", 3)
    given = (bytes_model if option == "MODEL" else option for option in options)
    assert run_prepare(source, "--out", tmp_path / "out", *MAPPED, *given) == 2
    error = capsys.readouterr().err
    assert complaint in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


# Killed


def test_what_a_killed_writer_left_is_removed_and_a_living_ones_is_not(tmp_path):
    (tmp_path / ".file.dead.partial").write_text("half")
    living = PartialFile(tmp_path / "file")
    write_atomically(tmp_path / "file", "whole")
    living.stream.write(b"later")
    living.commit()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "later"


def test_a_preparation_killed_anywhere_and_run_again_gives_the_same_bytes(tmp_path):
    source = write_source(tmp_path / "mine.jsonl", 3000)
    command = [sys.executable, "-m", "seele.cli.main", "data", "prepare", str(source), *MAPPED, "--out"]
    assert run_prepare(source, *MAPPED, "--out", tmp_path / "whole") == 0
    expected = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    out, killed = tmp_path / "out", 0
    # A file is being written, the first of them has its name, all but one have.
    for moment, needed in ((".*.partial", 1), ("[!.]*", 1), ("[!.]*", len(expected) - 1)):
        shutil.rmtree(out, ignore_errors=True)
        process = subprocess.Popen([*command, str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and len([*out.glob(moment)]) < needed:
            time.sleep(0.001)
        process.kill()
        killed += process.wait() == -signal.SIGKILL
        for path in out.glob("[!.]*"):
            # Whatever has its name is complete.
            assert path.read_bytes() == expected[path.name]
        assert run_prepare(source, *MAPPED, "--out", out) == 0
        assert {path.name: path.read_bytes() for path in out.iterdir()} == expected
    assert killed


NAPPER = """
import os, subprocess, sys, time
inner = subprocess.Popen(["sleep", "60"])
print(os.getpid(), inner.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_that_is_told_to_end_leaves_no_process_behind_and_says_nothing(tmp_path, number, status):
    (tmp_path / "napper.py").write_text(NAPPER)
    program = "from seele.cli.sampling import run_sampler; run_sampler('napper', [])"
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-c", program]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}

    def hear_interrupts():
        # A suite in a shell's background ignores them, and what it starts does too.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(
        command, env=environment, cwd=tmp_path, preexec_fn=hear_interrupts, **pipes
    ) as process:
        inner = [*map(int, process.stdout.readline().split())]
        process.send_signal(number)
        assert (process.communicate(timeout=30)[1], process.returncode) == ("", status)
    for pid in inner:
        while Path(f"/proc/{pid}").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text():
            time.sleep(0.01)


@pytest.mark.parametrize(("code", "status"), [("", 0), ("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", 137)])
def test_the_status_of_a_module_is_that_of_a_shell(tmp_path, monkeypatch, capfd, code, status):
    (tmp_path / "module.py").write_text(f"import os, sys\nprint(sys.argv[1:], __name__)\n{code}")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    assert run_module("module", ["a", "b"]) == status
    assert status != 0 or capfd.readouterr().out == "['a', 'b'] __main__\n"


def test_the_ten_rows_that_are_shipped_are_the_quickstarts_first(tmp_path):
    sample = Path(__file__).parents[2] / "data" / "samples" / "chains.jsonl"
    mapped = ("--map", "steps=steps level=level")
    assert run_prepare(sample, "--out", tmp_path / "sample", *mapped) == 0
    assert run_prepare("chains", "--out", tmp_path / "chains") == 0
    ours, first = (
        [
            (problem.question, problem.steps, problem.answer, problem.level)
            for problem in read_problems(tmp_path / name / "train.parquet")[:10]
        ]
        for name in ("sample", "chains")
    )
    assert len(ours) == 10 and ours == first


# --- ``seele data milestones``: added to a file, and counted


def test_milestones_are_added_to_a_file_and_counted(file, tmp_path, capsys):
    out = tmp_path / "out.parquet"
    assert run("data", "milestones", file, "--out", out) == 0
    said = capsys.readouterr().out
    assert "3 problems, 3 milestones" in said and "33.3% of 3: state a value" in said
    assert " 0.0% of 3: steps before the last have a milestone" in said
    assert [instance.milestones for instance in read_problems(file)] == [None] * 3
    found = [instance.milestones for instance in read_problems(out)]
    # The step's value is the answer, for which the last milestone stands.
    assert found[0] == (Milestone("12", len("".join(problem(1).steps)), ("3*4=12",)),)
    assert found[1:] == [(Milestone(HOSTILE.answer, len("".join(HOSTILE.steps))),), (Milestone("12", 0),)]
    entries = {"train": {"file": file.name, "sha256": file_sha256(file)}, "other": {"sha256": "0"}}
    (tmp_path / "manifest.json").write_text(json.dumps({"splits": entries, "title": "mine"}))
    assert run("data", "milestones", file) == 0
    assert file.read_bytes() == out.read_bytes()
    entries["train"]["sha256"] = file_sha256(out)
    assert json.loads((tmp_path / "manifest.json").read_text()) == {"splits": entries, "title": "mine"}
    # A file's own manifest, as `seele data annotate` writes it.
    own = file.with_suffix(".manifest.json")
    write_problems(file, [problem(1)], split="train")
    own.write_text(json.dumps({"file": file.name, "sha256": file_sha256(file)}))
    assert run("data", "milestones", file) == 0
    assert json.loads(own.read_text()) == {"file": file.name, "sha256": file_sha256(file)}


def test_milestones_of_ones_own_are_kept(tmp_path, capsys):
    own, file = (Milestone("mine", 1), Milestone("12", 2)), tmp_path / "mine.parquet"
    write_problems(file, [problem(1, milestones=own), problem(2)], split="train")
    assert run("data", "milestones", file) == 0
    said = capsys.readouterr().out
    assert "2 problems, 3 milestones; 1 problems had theirs, which are kept" in said
    assert "25.0% of 4: steps before the last have a milestone" in said
    assert read_problems(file)[0].milestones == own


@pytest.mark.parametrize(
    ("milestones", "said"),
    [
        ([], "'milestones': expected"),
        ([Milestone(" ", 3)], "number 0"),
        ([Milestone("3", 10**6)], "number 0"),
    ],
)
def test_milestones_that_do_not_fit_the_solution_are_refused(milestones, said, tmp_path):
    with pytest.raises(DataError, match=said):
        write_problems(tmp_path / "x.parquet", [problem(1, milestones=tuple(milestones))], split="train")
