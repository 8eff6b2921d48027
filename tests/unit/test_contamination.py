"""Overlap of training problems with benchmarks: what counts, and the command's report and copy."""

import csv
import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from seele.data.contamination import Overlap, Questions, find_contaminated, tokens
from seele.data.storage.schema import read_problems, write_problems
from seele.records import Instance
from seele_eval.contamination import main

FIXTURES = Path(os.environ["SEELE_FIXTURES"], "benchmarks")

LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Find $x$ if $x+1 = 5$.", "find x, if \\(x + 1=5\\)"),
        ("It costs $1,234,567$ dollars", "It costs \\$1234567 dollars."),
        ("$1{,}234{,}567$ and $10,\\!000$ and $10\\,000$", "1,234,567 and 10,000 and 10000"),
        ("$x \N{MINUS SIGN} 3$", "x-3"),
        ("\\left( \\dfrac{1}{2} \\right)", "(\\frac 12)".replace("12", "{1}{2}")),
        ("\\text{Alice} runs", "Alice \\quad runs"),
    ],
)
def test_the_same_question_in_other_clothes_has_the_same_tokens(one, other):
    assert tokens(one) == tokens(other)


@pytest.mark.parametrize(
    ("one", "other"), [("2+3", "2-3"), ("1.5", "15"), ("$\\{1,2\\}$", "$\\{12\\}$"), ("n!", "n")]
)
def test_another_question_has_other_tokens(one, other):
    assert tokens(one) != tokens(other)


def test_an_exact_overlap_needs_no_length():
    questions = Questions({"b": ["What is $2+3$?"], "c": ["what is 2 + 3"]})
    assert questions.find("What is 2+3?") == [
        Overlap("b", 0, is_exact=True, shared=1.0),
        Overlap("c", 0, is_exact=True, shared=1.0),
    ]
    assert questions.find("What is 2-3?") == questions.find("So what is 2+3?") == []


def test_a_run_of_thirteen_words_is_an_overlap_and_twelve_are_none():
    # 15 words have 3 runs of 13; the first 14 of them share 2.
    questions = Questions({"b": ["other words", LONG]})
    [overlap] = questions.find(" ".join(["before", *LONG.split()[:14], "after"]))
    assert overlap == Overlap("b", 1, is_exact=False, shared=2 / 3)
    assert questions.find(" ".join(["before", *LONG.split()[:12], "after"])) == []


def test_wording_that_many_different_questions_share_is_none():
    texts = [f"{LONG} {ending}" for ending in ("a", "b", "c")]
    assert Questions({"b": texts}, common=3).find(f"{LONG} d") == []
    assert len(Questions({"b": texts}, common=4).find(f"{LONG} d")) == 3
    # The same question in three benchmarks is one question.
    assert len(Questions({name: [LONG] for name in "abc"}, common=2).find(f"{LONG} d")) == 3


def test_a_question_without_words_overlaps_with_nothing():
    assert Questions({"b": ["??", ""]}).find("??") == []


SHORT = "What is the remainder of $2+3$?"


@pytest.mark.parametrize(
    ("problem", "is_found"),
    [
        (f"Solve the following. {SHORT}", True),
        (f"{SHORT} Put your answer in \\boxed{{}}.", True),
        ("What is the remainder of $2+3+x$?", False),
        ("What is the remainder of $2+3y$?", False),
        ("What is the remainder of $2$ and $3$?", False),
    ],
)
def test_a_short_question_is_found_among_other_words_but_not_within_a_formula(problem, is_found):
    found = Questions({"b": [SHORT]}).find(problem)
    assert found == ([Overlap("b", 0, is_exact=False, shared=1.0)] if is_found else [])


def test_a_choice_is_found_with_its_options_and_without():
    choice = "Soil gets better by\n\nA) rain\nB) sun"
    questions = Questions({"b": ["Soil gets better by"]}, with_options={"b": [choice]})
    exact = [Overlap("b", 0, is_exact=True, shared=1.0)]
    assert questions.find(choice) == questions.find("Soil gets better by") == exact
    assert questions.find("Soil gets better by: (A) rain (B) sun") == exact
    # A question without options comes twice and counts once.
    [overlap] = Questions({"b": [LONG]}, with_options={"b": [LONG]}).find(f"{LONG} after")
    assert overlap.shared == 1.0


@pytest.mark.parametrize("bad", [{"n": 1}, {"common": 1}])
def test_runs_of_one_word_are_refused(bad):
    with pytest.raises(ValueError, match="at least 2"):
        Questions({}, **bad)


def test_the_smallest_share_is_the_callers():
    questions = Questions({"b": [LONG]})
    problems = [("p0", "nothing"), ("p1", LONG), ("p2", " ".join(LONG.split()[:13]))]
    assert [(each.row, each.instance_id) for each in find_contaminated(problems, questions)] == [
        (1, "p1"),
        (2, "p2"),
    ]
    assert [each.row for each in find_contaminated(problems, questions, min_shared=0.5)] == [1]


# The command


@pytest.fixture
def problems(tmp_path):
    """A file with a question of GSM8K, one of GPQA without its options, and one of nobody."""
    gsm8k = json.loads((FIXTURES / "gsm8k" / "test.jsonl").read_text().splitlines()[0])["question"]
    with (FIXTURES / "gpqa_diamond" / "gpqa_diamond.csv").open(newline="") as file:
        gpqa = next(csv.DictReader(file))["Question"]
    questions = ("A question of nobody?", f"  {gsm8k.upper()} ", gpqa)
    instances = [
        Instance(instance_id=f"p{n}", data_source="toy", question=question, steps=("a\n", "b"), answer="1")
        for n, question in enumerate(questions)
    ]
    write_problems(tmp_path / "train.parquet", instances, split="train")
    return tmp_path / "train.parquet", gpqa


def run(*arguments: object) -> int:
    return main([str(argument) for argument in ("--data-dir", FIXTURES, "--any-row-count", *arguments)])


def test_overlaps_are_reported_by_benchmark_and_removed(problems, tmp_path, capsys):
    file, gpqa = problems
    assert run(file, "--benchmarks", "gsm8k,gpqa_diamond", "--remove", tmp_path / "clean") == 0
    said = capsys.readouterr().out
    assert "2 of 3 problems (66.67%)" in said
    assert "row 1, p1: gsm8k 0, exact: " in said and "row 2, p2: gpqa_diamond 0, exact: (not shown)" in said
    assert gpqa[:20] not in said
    copy = tmp_path / "clean" / "train.parquet"
    assert [problem.instance_id for problem in read_problems(copy)] == ["p0"]
    assert pq.read_schema(copy) == pq.read_schema(file)
    report = json.loads((tmp_path / "clean" / "train.contamination.json").read_text())
    assert [(each["row"], each["overlaps"][0]["benchmark"]) for each in report["contaminated"]] == [
        (1, "gsm8k"),
        (2, "gpqa_diamond"),
    ]
    assert gpqa[:20] not in json.dumps(report)


def test_all_nine_are_the_default(problems, capsys):
    assert run(problems[0]) == 0
    said = capsys.readouterr().out
    for name in ("gsm8k", "math500", "minerva_math", "olympiadbench", "aime24", "amc23", "arc_c", "mmlu_pro"):
        assert f"| {name} " in said


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--benchmarks", "gsm9k"], "unknown ['gsm9k']"),
        (["--n", "1", "--benchmarks", "gsm8k"], "--n, --common: n and common must be at least 2"),
        (["--benchmarks", "gsm8k", "--remove", "{folder}"], "lies there itself; name another folder"),
    ],
)
def test_what_cannot_be_done_ends_with_one_line(problems, capsys, arguments, complaint):
    file, _ = problems
    before = file.read_bytes()
    assert run(file, *(text.format(folder=file.parent) for text in arguments)) == 2
    assert complaint in capsys.readouterr().err and file.read_bytes() == before


def test_a_file_that_is_not_there_is_named_before_any_benchmark_is_fetched(tmp_path, capsys):
    assert main([str(tmp_path / "nowhere.parquet"), "--data-dir", str(tmp_path / "no benchmarks")]) == 2
    assert "nowhere.parquet: no such file; expected parquet files" in capsys.readouterr().err
