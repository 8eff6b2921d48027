r"""Right, wrong, malformed: the checkers of Countdown, Zebra and ARC-1D, and where they are chosen."""

import json
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seele.cli.main import main
from seele.errors import DataError
from seele.maths.arithmetic import evaluate, parse
from seele.records import Grade, GradeReason, Instance
from seele.reward.grader import GraderPool, reward_form
from seele.reward.reasoning import MAX_CHARS, check_answer, check_reference

RIGHT, WRONG, MALFORMED = GradeReason.CORRECT, GradeReason.WRONG, GradeReason.MALFORMED
GOLD = "(91 - 17) / 2 + 5"  # 42


def verdict(task, answer, gold):
    grade = check_answer(answer, gold, task)
    assert grade.correct is (grade.reason is RIGHT)
    return grade.reason


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (GOLD, RIGHT),
        ("5 + (91 - 17) / 2", RIGHT),
        ("5-(17-91)/2", RIGHT),
        (r"\left(91 - 17\right) \div 2 + 5", RIGHT),
        (r"$\frac{91-17}{2}+5$", RIGHT),
        ("5 \N{MINUS SIGN} (17 - 91) \N{DIVISION SIGN} 2", RIGHT),
        ("(91 - 17) / 2 + 5 = 42", RIGHT),
        ("(91 - 17) / 2 + 5.", RIGHT),
        ("(91 - 17) / 2 + 5 = 42.", RIGHT),
        (r"\text{(91 - 17) / 2 + 5}", RIGHT),
        (r"\((91 - 17)\ /\ 2 + 5.\)", RIGHT),
        ("(91 - 17) / 2 + 5 = 43", WRONG),
        ("(91 - 17) / 2 + 6.", WRONG),
        ("(91 - 17) / 2. + 5", MALFORMED),
        (r"\text{91 - 17} over 2 + 5", MALFORMED),
        ("42", WRONG),
        ("(91 - 17) / 2 + 6", WRONG),
        ("91 + 17 / 2 + 5", WRONG),
        ("(91 - 17) / 2 + 5 + 5 - 5", WRONG),
        ("(91 - 17) / 2", WRONG),
        ("91 / (17 - 17) + 2 + 5", WRONG),
        ("91 / (5 - 17 + 2*6)", WRONG),
        ("(91 - 17) / 2 + 5 = forty", MALFORMED),
        ("(91 - 17) / 2 + 5 = 42 = 42", MALFORMED),
        ("91 17 2 5", MALFORMED),
        ("91 ** 17", MALFORMED),
        ("forty-two", MALFORMED),
        ("__import__('os').system('true')", MALFORMED),
        ("(lambda: 42)()", MALFORMED),
        ("(" * 60 + "1" + ")" * 60, GradeReason.TOO_DEEP),
        ("1+" * MAX_CHARS + "1", GradeReason.TOO_LONG),
        ("  ", GradeReason.NO_ANSWER),
        (None, GradeReason.NO_ANSWER),
    ],
)
def test_countdown(answer, expected):
    assert verdict("countdown", answer, GOLD) is expected


@pytest.mark.parametrize(
    "times",
    [r"\times ", r"\cdot ", r"\ast ", "\N{MULTIPLICATION SIGN}", "\N{MIDDLE DOT}", "\N{DOT OPERATOR}",
     "\N{ASTERISK OPERATOR}"],
)  # fmt: skip
def test_signs_of_multiplication(times):
    assert verdict("countdown", f"(6-2){times}3", "(6 - 2) * 3") is RIGHT
    assert verdict("countdown", f"(6-3){times}2", "(6 - 2) * 3") is WRONG


@settings(deadline=None)
@given(st.lists(st.integers(1, 100), min_size=2, max_size=6), st.data())
def test_an_honest_expression_over_the_numbers_is_right_and_one_over_others_is_not(numbers, data):
    """The reference is a chain in the numbers' order; the answer, the same operations in other brackets."""
    signs = [data.draw(st.sampled_from("+-*")) for _ in numbers[1:]]
    gold = "".join(f"{sign}{number}" for sign, number in zip(["", *signs], numbers, strict=True))
    split = data.draw(st.integers(1, len(numbers)))
    left = "".join(
        f"{sign}{number}" for sign, number in zip(["", *signs[: split - 1]], numbers, strict=False)
    )
    rest = "".join(
        f"{sign}{number}" for sign, number in zip(signs[split - 1 :], numbers[split:], strict=True)
    )
    answer = f"({left}){rest}"
    same = eval(answer) == eval(gold) == evaluate(parse(gold))
    assert verdict("countdown", answer, gold) is (RIGHT if same else WRONG)
    assert verdict("countdown", f"{gold} + 0", gold) is WRONG
    assert verdict("countdown", f"{gold} - 1 + 1", gold) is WRONG


@settings(deadline=None)
@given(st.text(max_size=200))
def test_no_text_is_more_than_a_text(text):
    """Whatever a model writes, a checker says something and raises nothing."""
    for task, gold in (("countdown", GOLD), ("zebra", "arnold"), ("arc_1d", "0 1 2")):
        assert isinstance(verdict(task, text, gold), GradeReason)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("arnold", RIGHT),
        ("Arnold.", RIGHT),
        (r"\text{Arnold}", RIGHT),
        ("alice", WRONG),
        ("Arnold and Alice", WRONG),
        ("Arnold, Alice", MALFORMED),
        ("house 1", MALFORMED),
        ("1", MALFORMED),
        ("", GradeReason.NO_ANSWER),
    ],
)
def test_zebra(answer, expected):
    assert verdict("zebra", answer, "arnold") is expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("0 0 1 2", RIGHT),
        ("[0, 0, 1, 2]", RIGHT),
        ("0012", RIGHT),
        ("0,0,1,2", RIGHT),
        ("0 0 1", WRONG),
        ("0 0 1 2 2", WRONG),
        ("0 0 2 1", WRONG),
        ("0 0 1 x", MALFORMED),
        ("[[0 0 1 2]]", MALFORMED),
        ("zeros", MALFORMED),
        (", ,", MALFORMED),
    ],
)
def test_arc_1d(answer, expected):
    assert verdict("arc_1d", answer, "0 0 1 2") is expected


def instance(data_source, answer, **fields):
    given = {"instance_id": "i", "question": "q", "steps": ()}
    return Instance(data_source=data_source, answer=answer, **given | fields)


def test_a_pool_grades_a_mixed_batch_by_each_problems_data_source():
    asked = [
        (r"so \boxed{5 + (91-17)/2}", instance("countdown", GOLD)),
        (r"so \boxed{1/2}", instance("chains", "0.5")),
        (r"so \boxed{Arnold}", instance("zebra", "arnold")),
        (r"so \boxed{2}", instance("chains", "3")),
        (r"so \boxed{0 1}", instance("arc_1d", "0 1")),
        ("42", instance("countdown", GOLD)),
    ]
    with GraderPool() as pool:
        grades = pool.grade_problems(asked)
        assert [pool.grade_problem(*each) for each in asked] == grades
    assert [grade.reason for grade in grades] == [RIGHT, RIGHT, RIGHT, WRONG, RIGHT, GradeReason.NO_ANSWER]


def test_only_a_wrong_answer_of_the_right_form_earns_the_score_for_it():
    rewards = {reason: reward_form(Grade(reason is RIGHT, reason), 0.1).reward for reason in GradeReason}
    assert rewards.pop(RIGHT) == 1.0
    assert rewards.pop(WRONG) == 0.1
    assert set(rewards.values()) == {0.0}
    assert reward_form(Grade(False, WRONG), 0.0).reward == 0.0


@pytest.mark.parametrize(
    ("data_source", "answer"),
    [("countdown", "42 ="), ("countdown", "1 / (2 - 2)"), ("arc_1d", "0 0 x"), ("zebra", "house 1")],
)
def test_a_reference_answer_that_its_checker_cannot_use_is_found_before_training(data_source, answer):
    with pytest.raises(DataError, match="reference answer"):
        check_reference(instance(data_source, answer))
    check_reference(instance("gsm8k", answer))


def test_grade_takes_the_checker_of_a_rows_data_source(tmp_path):
    rows = [
        {"gold": GOLD, "pred": r"\boxed{5 + (91-17)/2}", "data_source": "countdown"},
        {"gold": GOLD, "pred": "42", "data_source": "countdown"},
        {"gold": "0.5", "pred": "1/2", "data_source": "gsm8k"},
        {"gold": "arnold", "pred": None, "data_source": "zebra"},
        {"gold": "0.5", "pred": "1/2"},
    ]
    cases, out = tmp_path / "cases.jsonl", tmp_path / "out.jsonl"
    cases.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(SystemExit) as ended:
        main(["grade", str(cases), "--out", str(out), "--workers", "1"])
    assert not ended.value.code
    graded = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["correct"] for row in graded] == [True, False, True, False, True]
    assert [row["reason"] for row in graded] == ["correct", "wrong", "correct", "no_answer", "correct"]


def test_verdicts_come_fast_enough_for_a_step():
    """A step of 256 problems with 8 rollouts has 2,048 answers."""
    draw = random.Random(0)
    answers = [f"{draw.randint(1, 99)} + 91 * ({draw.randint(1, 99)} - 17) / 2" for _ in range(2048)]
    started = time.process_time()
    for answer in answers:
        check_answer(answer, GOLD, "countdown")
    assert time.process_time() - started < 2.0
