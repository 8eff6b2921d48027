"""What graders say: of answers, of golds, of each other; the answer in the box."""

import importlib.util
import json
import random
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.commands import exit_status
from helpers.real_data import SHARED, needs_shared
from seele.config.settings import RewardConfig
from seele.data import prepare as prepare_module
from seele.data.split import Sample
from seele.errors import ConfigError, DataError
from seele.records import UNGRADED, Grade, GradeReason, Instance
from seele.reward import graders as zero
from seele.reward.cross_check import TwiceGraded, disagreements_page
from seele.reward.extract import answer_in, last_boxed, text_after_thinking
from seele.reward.golds import GoldCheck, grade_golds
from seele.reward.grader import GraderPool
from seele.reward.graders import load_judge

# --- What the graders say: of small cases everywhere, of the collected ones where they are at hand


ROOT = Path(__file__).parents[2]
FIXTURE = ROOT / "tests" / "fixtures" / "grader_cases.jsonl"


def rows_of(path: Path) -> list[dict]:
    # Not splitlines(): a text may hold U+2028.
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def verdicts(grader: str, pairs: list[tuple[str, str]]) -> list[bool]:
    with GraderPool(RewardConfig(grader=grader, num_workers=2, max_answer_chars=10_000)) as pool:
        return [grade.correct for grade in pool.grade_answers(pairs)]


def agreement(said: list[bool], expected: list[bool]) -> float:
    return sum(one == other for one, other in zip(said, expected, strict=True)) / len(expected)


SMALL = [pytest.param(row, id=f"{row['trap']}: {row['pred']}") for row in rows_of(FIXTURE)]


@pytest.fixture(scope="module")
def judges():
    pytest.importorskip("math_verify")
    return {name: load_judge(name) for name in ("mathruler", "math_verify", "strict+")}


@pytest.mark.parametrize("row", SMALL)
def test_small_cases(judges, row):
    either = row["mathruler"] or row["math_verify"]
    said = {
        name: answer_in(row["pred"]) and judge(row["pred"], row["gold"]) for name, judge in judges.items()
    }
    assert {name: bool(verdict) for name, verdict in said.items()} == {
        "mathruler": row["mathruler"],
        "math_verify": row["math_verify"],
        "strict+": either,
    }
    assert either == row["expected"]


def as_shipped(pairs: list[tuple[str, str]]) -> list[bool]:
    """MathRuler's verdicts from a process that knows nothing of ours; False where it raises."""
    probe = """
import json, sys
from mathruler.grader import grade_answer
for line in sys.stdin:
    try: print(bool(grade_answer(*json.loads(line))))
    except Exception: print(False)
"""
    lines = "".join(json.dumps(pair) + "\n" for pair in pairs)
    run = subprocess.run(
        [sys.executable, "-c", probe], input=lines, capture_output=True, text=True, check=True
    )
    return [line == "True" for line in run.stdout.split()]


@needs_shared
def test_mathruler_says_what_it_says_as_shipped():
    cases = rows_of(SHARED / "grader_cases.jsonl")
    pairs = [(row["pred"], row["gold"]) for row in cases + rows_of(SHARED / "grader_cases_derived.jsonl")]
    pairs += [(row["pred_answer"], row["gold_answer"]) for row in cases if row["pred_answer"] is not None]
    # Answers to other questions: nearly all wrong, and of every form.
    short = [pair for pair in pairs if max(map(len, pair)) < 60]
    rng = random.Random(0)
    pairs += [(rng.choice(short)[0], rng.choice(short)[1]) for _ in range(1000)]
    # MathRuler accepts a blank answer where the gold is blank, too; we accept nothing blank.
    pairs = [(answer, gold) for answer, gold in pairs if answer.strip() and gold.strip()]
    said = verdicts("mathruler", pairs)
    assert said == as_shipped([(answer_in(answer) or "", answer_in(gold) or gold) for answer, gold in pairs])
    assert 500 < sum(said) < len(said) - 500


@needs_shared
def test_agreement_with_the_peers_labels():
    pytest.importorskip("math_verify")
    cases = rows_of(SHARED / "grader_cases.jsonl")
    pairs = [(row["pred"], row["gold"]) for row in cases]
    expected = [row["expected"] for row in cases]
    said = {name: verdicts(name, pairs) for name in ("mathruler", "math_verify", "strict+")}
    # Measured: 122, 202 and 201 of 211 (docs/grading.md).
    assert agreement(said["mathruler"], expected) >= 122 / 211
    assert agreement(said["math_verify"], expected) >= 0.94
    assert agreement(said["strict+"], expected) >= 0.94
    assert said["strict+"] == [
        one or other for one, other in zip(said["mathruler"], said["math_verify"], strict=True)
    ]


# Traps of ../shared/data/README.md that are about answers.


@needs_shared
def test_gsm8k_golds_with_commas_accept_the_number_without_them():
    golds = [row["answer"].rpartition("####")[2].strip() for row in rows_of(SHARED / "gsm8k" / "test.jsonl")]
    commas = [gold for gold in golds if "," in gold]
    assert len(commas) == 14
    assert all(verdicts("mathruler", [(gold.replace(",", ""), gold) for gold in commas]))
    assert not any(verdicts("mathruler", [(gold.replace(",", "") + "1", gold) for gold in commas]))


@needs_shared
def test_minerva_golds_are_the_last_boxes_of_their_solutions():
    golds = [last_boxed(row["solution"]) for row in rows_of(SHARED / "minerva_math" / "test.jsonl")]
    assert len(golds) == 272 and all(golds)
    assert all(verdicts("mathruler", [(rf"so \boxed{{{gold}}}", gold) for gold in golds]))


@needs_shared
def test_olympiad_golds_accept_themselves_without_dollars_and_several_answers_in_another_order():
    pytest.importorskip("math_verify")
    rows = rows_of(SHARED / "olympiadbench" / "test.jsonl")
    golds = [gold for row in rows for gold in row["final_answer"]]
    dollars = [gold for gold in golds if "$" in gold]
    assert len(dollars) == 266
    assert all(verdicts("mathruler", [(gold.replace("$", ""), gold) for gold in dollars]))

    lists = [gold for gold in golds if gold.replace(",", "").replace("-", "").isdecimal() and "," in gold]
    reversed_lists = [(",".join(reversed(gold.split(","))), gold) for gold in lists]
    assert len(lists) >= 10
    assert all(verdicts("strict+", reversed_lists))
    # Sets to Math-Verify: it does not miss what is there twice.
    shorter = [
        (gold.rpartition(",")[0], gold) for gold in lists if len(set(gold.split(","))) > gold.count(",")
    ]
    assert not any(verdicts("strict+", shorter))


@needs_shared
def test_olympiad_units_may_be_written_or_not():
    pytest.importorskip("math_verify")
    rows = [row for row in rows_of(SHARED / "olympiadbench" / "test.jsonl") if row["unit"]]
    assert len(rows) == 8
    plain = [row for row in rows if "minute" in row["unit"] or row["unit"] == "%"]
    written = [
        (f"{row['final_answer'][0]} {row['unit']}".replace("%", r"\%"), row["final_answer"][0])
        for row in plain
    ]
    assert all(verdicts("strict+", written))


@needs_shared
def test_amc_golds_are_floats_which_mathruler_takes_as_text_only():
    golds = [row["answer"] for row in rows_of(SHARED / "amc23" / "test.jsonl")]
    assert len(golds) == 40 and all(isinstance(gold, float) for gold in golds)
    assert all(verdicts("mathruler", [(f"{gold:g}", str(gold)) for gold in golds]))
    with GraderPool() as pool, pytest.raises(DataError, match="must be a text"):
        pool.grade_answer("27", golds[0])


# What makes MathRuler fast changes none of its verdicts.

x, y = sympy.symbols("x y")
half, root, f = sympy.Rational(1, 2), sympy.sqrt(2), sympy.Function("f")
expressions = st.recursive(
    st.sampled_from([*map(sympy.sympify, (1, 2, 3, 0.5)), half, x, y, root, sympy.sqrt(x), sympy.pi, f(x)]),
    lambda inner: st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: a * b, inner, inner),
        st.builds(lambda a: a**2, inner),
        st.builds(sympy.sqrt, inner),
    ),
    max_leaves=4,
)


@settings(max_examples=60)
@given(expressions, expressions, st.booleans())
def test_zero_is_what_sympy_simplifies_to_zero(left, right, same):
    difference = left - (sympy.expand(left) if same else right)
    assert (zero.simplify(difference) == 0) == (sympy.simplify(difference) == 0)


def test_few_ordinary_answers_are_left_to_sympys_simplify(judges, monkeypatch):
    # MathRuler by itself leaves 408 of these to it. benchmarks/grading_speed.py has the time that takes.
    path = ROOT / "benchmarks" / "grading_speed.py"
    spec = importlib.util.spec_from_file_location("grading_speed", path)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    pairs = benchmark.ordinary_answers(1000, seed=1)
    assert len(set(pairs)) == 1000
    simplify = mock.Mock(side_effect=sympy.simplify)
    monkeypatch.setattr(sympy, "simplify", simplify)
    assert 400 < sum(judges["mathruler"](answer, gold) for answer, gold in pairs) < 600
    assert 0 < simplify.call_count < 60


def test_graders_without_a_verdict_say_why():
    assert GradeReason.WRONG not in UNGRADED
    with GraderPool(RewardConfig(grader="multiple_choice")) as pool:
        assert pool.grade_answer("(C) Paris", "C").correct
        assert pool.grade_answer("D", "C").reason is GradeReason.WRONG
        assert pool.grade_answer("D", "Paris").reason is GradeReason.ERROR


# --- Reference answers are graded against themselves before a folder is prepared


LINES = "Ben has 4 boxes of 6 eggs.\nThat makes 4*6=<<4*6=24>>24 eggs.\n"
PROSE = "Ben counts the eggs in every box, writes the numbers down and adds them one by one. " * 4


def problem(answer: str, number: int = 0, data_source: str = "toy") -> Instance:
    return Instance(
        instance_id=f"toy-{number}", data_source=data_source, question="?", steps=(), answer=answer
    )


def reasons(golds: Sequence[str], grader: str, data_source: str = "toy") -> list[GradeReason]:
    grades = grade_golds([problem(gold, data_source=data_source) for gold in golds], grader=grader)
    return [grade.reason for grade in grades]


run = partial(exit_status, "data", "prepare")


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
    assert not (tmp_path / "new").exists()


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


@needs_shared
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


# --- The page of disagreements


CORRECT, WRONG, TIMEOUT = (
    Grade(reason is GradeReason.CORRECT, reason)
    for reason in (GradeReason.CORRECT, GradeReason.WRONG, GradeReason.TIMEOUT)
)


def answer(name: str, first: Grade, second: Grade, text: str = "1/2") -> TwiceGraded:
    return TwiceGraded(name=name, answer=text, gold=r"\frac{1}{2}", first=first, second=second)


def page(*answers: TwiceGraded) -> str:
    return disagreements_page(answers, graders=("one", "other"))


def test_counts_and_both_directions():
    text = page(
        answer("both", CORRECT, CORRECT),
        answer("neither", WRONG, TIMEOUT),
        answer("first only", CORRECT, TIMEOUT),
        answer("second only", WRONG, CORRECT),
        answer("second again", WRONG, CORRECT),
    )
    assert text.startswith("# one and other: 3 of 5 disagree\n")
    assert "| one accepts | 1 | 1 |" in text
    assert "| one rejects | 2 | 1 |" in text
    assert "0 by one, 2 by other" in text
    first, second = text.split("## one accepts, other does not")[1].split("## other accepts, one does not")
    assert "### first only: timeout" in first and "second" not in first
    assert second.index("### second only: wrong") < second.index("### second again: wrong")
    assert "both" not in text and "neither" not in text


def test_no_text_leaves_its_block_and_long_ones_are_shown_by_their_end():
    text = page(answer("x", CORRECT, WRONG, "# not a heading\n```\n\u2028\0 " + "y" * 1000 + " end"))
    block = text.split("### x: wrong\n")[1].split("\n## ")[0]
    assert all(line.startswith("    ") or not line for line in block.splitlines())
    assert "answer ... yyy" in block and block.rstrip().endswith(" end") and len(block) < 800
    short = page(answer("x", CORRECT, WRONG, "# not a heading\n\0\u202e"))
    assert "    answer # not a heading\n           \\x00\\u202e" in short


def test_a_page_without_disagreement_says_so():
    assert page(answer("both", CORRECT, CORRECT)).startswith("# one and other: 0 of 1 disagree\n")
    assert page().startswith("# one and other: 0 of 0 disagree\n")


# --- The last ``\boxed{}`` of a text


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", None),
        ("no box, only {braces}", None),
        (r"\boxed{3}", "3"),
        (r"first \boxed{3}, then \boxed{ 4 }.", "4"),
        (r"\boxed{\frac{1}{2}} and {more}", r"\frac{1}{2}"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{}", ""),
        (r"\boxed{3} and then cut off: \boxed{4", None),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed 3 \fbox{4}", None),
    ],
)
def test_the_last_box_counts(text, answer):
    assert last_boxed(text) == answer


def test_long_texts_take_linear_time():
    assert last_boxed("\\boxed{" * 100_000) is None
    assert last_boxed("\\boxed{" + "{}" * 100_000 + "}") == "{}" * 100_000


@given(st.lists(st.sampled_from([r"\boxed{", "{", "}", "3", r"\frac", " ", "\n"])).map("".join))
def test_boxes_are_the_ones_mathruler_finds(text):
    mathruler = pytest.importorskip("mathruler.grader")
    found = last_boxed(text)
    assert mathruler.extract_boxed_content(text) == ("None" if found is None else found)


@pytest.mark.parametrize(
    ("text", "begun", "behind"),
    [
        ("thoughts </think> 4", True, " 4"),
        ("<think>thoughts</think>4", False, "4"),
        ("a </think> b </think> c", True, " c"),
        ("thoughts that are cut off", True, None),
        ("\n<think> thoughts that are cut off", False, None),
        ("no thoughts", False, "no thoughts"),
        ("of <think> tags", False, "of <think> tags"),
        ("thoughts</think>", True, ""),
    ],
)
def test_only_what_stands_behind_the_thoughts_is_left(text, begun, behind):
    assert text_after_thinking(text, begun=begun) == behind
