"""What the graders say: of small cases everywhere, of the collected ones where they are at hand."""

import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from seele.errors import DataError
from seele.records import UNGRADED, GradeReason
from seele.reward import fast_simplify as zero
from seele.reward.extract import answer_in, last_boxed
from seele.reward.grader import GraderPool
from seele.reward.graders import load_judge

ROOT = Path(__file__).parents[2]
FIXTURE = ROOT / "tests" / "fixtures" / "grader_cases.jsonl"
SHARED = ROOT.parent / "shared" / "data"

needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the collected cases and benchmarks are not beside this checkout (../shared)"
)


def rows_of(path: Path) -> list[dict]:
    # Not splitlines(): a text may hold U+2028.
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def verdicts(grader: str, pairs: list[tuple[str, str]]) -> list[bool]:
    with GraderPool(grader=grader, num_workers=2, max_answer_chars=10_000) as pool:
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


@settings(max_examples=60, deadline=None)
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
    with GraderPool(grader="multiple_choice") as pool:
        assert pool.grade_answer("(C) Paris", "C").correct
        assert pool.grade_answer("D", "C").reason is GradeReason.WRONG
        assert pool.grade_answer("D", "Paris").reason is GradeReason.ERROR
