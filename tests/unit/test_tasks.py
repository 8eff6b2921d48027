"""Generated tasks: arithmetic, chains of it, and the checkers of the reasoning tasks."""

import dataclasses
import json
import re
import time
from collections import Counter
from fractions import Fraction
from itertools import islice, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.commands import exit_status
from seele.data.tasks.chains import (
    Chain,
    ChainsConfig,
    StudentConfig,
    generate_splits,
    misconceptions,
    right_operands,
    student_solutions,
)
from seele.data.tasks.chains import evaluate as evaluate_fact
from seele.errors import DataError
from seele.maths.arithmetic import (
    MAX_DEPTH,
    Negation,
    NotArithmeticError,
    Operation,
    TooDeepError,
    evaluate,
    numbers_in,
    parse,
    without_negations,
    write,
)
from seele.records import Grade, GradeReason, Instance
from seele.reward.grader import GraderPool, reward_form
from seele.reward.reasoning import MAX_CHARS, check_answer, check_reference

# --- Expressions of + - * /, against Python's own reading of the same texts


NUMBERS = st.integers(0, 99)
EXPRESSIONS = st.recursive(
    NUMBERS,
    lambda inner: st.builds(Operation, st.sampled_from("+-*/"), inner, inner) | st.builds(Negation, inner),
    max_leaves=12,
)
BLANKS = st.sampled_from(["", " ", "  ", "\t"])


@st.composite
def texts(draw, depth=0):
    """Honest expressions as people and models write them: any brackets, any blanks, any signs in front."""
    kind = draw(st.integers(0, 3 if depth < 4 else 0))
    blank = draw(BLANKS)
    if kind == 0:
        return f"{blank}{draw(NUMBERS)}{blank}"
    inner = draw(texts(depth=depth + 1))
    if kind == 1:
        return f"({inner}){blank}"
    if kind == 2:
        return f"{draw(st.sampled_from('+-'))}{blank}{inner}"
    return f"{inner}{draw(st.sampled_from('+-*/'))}{draw(texts(depth=depth + 1))}"


def python_value(text):
    """What Python makes of the text, in exact arithmetic; only ever called on texts that we made."""
    try:
        return eval(re.sub(r"\d+", r"Fraction(\g<0>)", text.strip()), {"Fraction": Fraction})
    except ZeroDivisionError:
        return None


def value_or_none(expression):
    try:
        return evaluate(expression)
    except ZeroDivisionError:
        return None


@given(texts())
def test_an_honest_expression_has_the_value_that_python_gives_it(text):
    assert value_or_none(parse(text)) == python_value(text)


@given(texts())
def test_the_numbers_are_those_of_the_text_in_its_order(text):
    assert list(numbers_in(parse(text))) == [int(number) for number in re.findall(r"\d+", text)]


@given(EXPRESSIONS, st.booleans())
def test_what_is_written_reads_back_to_the_same_value_and_numbers(expression, blanks):
    again = parse(write(expression, blanks=blanks))
    assert value_or_none(again) == value_or_none(expression)
    assert list(numbers_in(again)) == list(numbers_in(expression))


def holds_negation(expression):
    if isinstance(expression, Operation):
        return holds_negation(expression.left) or holds_negation(expression.right)
    return isinstance(expression, Negation)


@given(EXPRESSIONS)
def test_negations_go_without_a_change_of_value_or_numbers(expression):
    rewritten = without_negations(expression)
    if rewritten is not None:
        assert not holds_negation(rewritten)
        assert value_or_none(rewritten) == value_or_none(expression)
        assert sorted(numbers_in(rewritten)) == sorted(numbers_in(expression))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-14 + 93", "93 - 14"),
        ("-(3 - 17) * 5", "(17 - 3) * 5"),
        ("2 * (-3 + 4) - -5", "2 * (4 - 3) + 5"),
        ("-(5 + (2 - 9))", "9 - 2 - 5"),
        ("-(2 * 3)", None),
    ],
)
def test_a_minus_in_front_becomes_a_subtraction(text, expected):
    rewritten = without_negations(parse(text))
    assert (rewritten if rewritten is None else write(rewritten)) == expected


def test_sums_within_sums_that_no_difference_turns_round_take_no_longer_than_they_are():
    # Trying both signs at each depth would take years.
    depth = 45
    assert without_negations(parse("-(" + "1+(" * depth + "1+1" + ")" * depth + ")")) is None


@pytest.mark.parametrize("name", ["frac", "dfrac", "tfrac"])
def test_latex_fractions_are_quotients(name):
    assert evaluate(parse(rf"2*\{name}{{3+4}}{{\{name}{{7}}{{2}}}}")) == 4


NO_ARITHMETIC = (
    *("", "  ", "()", "1+", "*2", "2**3", "7//2", "1 2", "2(3)", "(1+2", "1+2)", "1.5", "1e3", "x", "0x1f"),
    *("1_0", "__import__('os')", "\N{FULLWIDTH DIGIT ONE}", "\N{SUPERSCRIPT TWO}", "9" * 19, "\x00"),
    *(r"\frac12", r"\frac{1}2", "{1}"),
)


@pytest.mark.parametrize("text", NO_ARITHMETIC)
def test_everything_else_is_refused(text):
    with pytest.raises(NotArithmeticError):
        parse(text)


@given(st.text(alphabet="0123456789+-*/(){} \\frac.x=,", max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        expression = parse(text)
    except NotArithmeticError:
        return
    assert list(numbers_in(expression))


def test_brackets_may_stand_as_deep_as_stated():
    assert parse("(" * MAX_DEPTH + "1" + ")" * MAX_DEPTH) == 1
    with pytest.raises(TooDeepError, match=str(MAX_DEPTH)):
        parse("(" * (MAX_DEPTH + 1) + "1" + ")" * (MAX_DEPTH + 1))


@pytest.mark.parametrize("text", ["1+" * 50_000 + "1", "-" * 100_000 + "1", "(1)*" * 30_000 + "1"])
def test_a_long_text_is_read_in_time_that_grows_with_its_length(text):
    # Seconds would mean quadratic; the pytest timeout would catch worse.
    started = time.process_time()
    expression = parse(text)
    assert sum(numbers_in(expression)) >= 1
    evaluate(expression)
    assert time.process_time() - started < 10.0


# --- Chains: questions and steps agree, splits do not overlap, and the student errs as stated


CONFIG = ChainsConfig(train_levels=(5, 6, 7), num_train=60, num_heldout=30, num_harder=30)

STEP = re.compile(r"(\d)([a-z])([-+*])(\d)=(\d)\n")

INVALID_SETTINGS = [
    pytest.param({"modulus": 11}, "modulus must be from 3 to 10", id="two digits"),
    pytest.param({"operations": "+/"}, "operations must be distinct", id="unknown operation"),
    pytest.param({"operations": "++"}, "operations must be distinct", id="operation twice"),
    pytest.param({"operations": ""}, "operations must be distinct", id="no operation"),
    pytest.param({"train_levels": ()}, "train_levels must be distinct numbers", id="no level"),
    pytest.param({"train_levels": (5, 5)}, "train_levels must be distinct numbers", id="level twice"),
    pytest.param({"harder_levels": (0, 9)}, "harder_levels must be distinct numbers", id="level 0"),
    pytest.param({"harder_levels": (27,)}, "from 1 to 26", id="more operations than letters"),
    pytest.param({"harder_levels": (7, 8)}, r"\[7\] are both", id="level in both"),
    pytest.param({"num_heldout": 0}, "num_heldout must be >= 1", id="empty split"),
    pytest.param({"train_levels": (1,), "num_train": 90}, "too few different questions", id="used up"),
]


def all_instances(config: ChainsConfig) -> list[Instance]:
    return [instance for split in generate_splits(config).values() for instance in split]


def test_a_worked_example():
    # 7 + 5 = 12, that is 2 modulo 10; 2 - 3 = -1, that is 9.
    assert Chain(7, (("+", 5), ("-", 3))).question == "7 a+5 b-3"
    assert evaluate_fact((7, "+", 5), 10) == 2
    assert evaluate_fact((2, "-", 3), 10) == 9


@pytest.mark.parametrize("config", [CONFIG, dataclasses.replace(CONFIG, modulus=7, operations="*+-")])
def test_every_step_follows_from_the_one_before_and_the_question(config):
    for instance in all_instances(config):
        solution, box = "".join(instance.steps).split("\\")
        steps = [STEP.fullmatch(line) for line in solution.splitlines(keepends=True)]
        value, *operations = instance.question.split(" ")
        for step, operation in zip(steps, operations, strict=True):
            left, label, sign, right, result = step.groups()
            assert left == value
            assert f"{label}{sign}{right}" == operation
            assert int(result) == evaluate_fact((int(left), sign, int(right)), config.modulus)
            value = result
        assert (box, instance.answer) == (f"boxed{{{value}}}", value)


def test_no_hint_shows_the_answer_box():
    for instance in all_instances(CONFIG):
        assert len(instance.steps) == instance.level
        assert "boxed" not in "".join(instance.steps[:-1])


def test_splits_have_their_sizes_and_levels_in_equal_parts():
    splits = generate_splits(CONFIG)
    levels = {split: Counter(instance.level for instance in splits[split]) for split in splits}
    assert levels == {
        "train": {5: 20, 6: 20, 7: 20},
        "heldout": {5: 10, 6: 10, 7: 10},
        "harder": {8: 10, 9: 10, 10: 10},
    }


def test_no_question_and_no_id_occurs_twice():
    # 180 chains of one operation, of which 90 are drawn: without the check some would come twice.
    config = ChainsConfig(train_levels=(1,), num_train=50, num_heldout=40, harder_levels=(2,), num_harder=10)
    instances = all_instances(config)
    assert len({instance.question for instance in instances}) == len(instances)
    assert len({instance.instance_id for instance in instances}) == len(instances)


def test_ids_depend_on_the_problem_alone_and_have_no_underscore():
    first, second = (
        {i.question: i.instance_id for i in all_instances(dataclasses.replace(CONFIG, num_train=count))}
        for count in (60, 90)
    )
    shared = first.keys() & second.keys()
    assert len(shared) >= 60
    assert all(first[question] == second[question] for question in shared)
    assert not any("_" in instance_id for instance_id in first.values())


def test_the_same_seed_gives_the_same_problems_on_every_machine():
    assert generate_splits(CONFIG) == generate_splits(CONFIG)
    assert generate_splits(CONFIG) != generate_splits(dataclasses.replace(CONFIG, seed=1))
    train = generate_splits(ChainsConfig())["train"]
    assert train[0].instance_id == "chains-d015c567298f309f"
    assert train[0].question == "3 a-4 b+2 c-7 d+6 e+2 f+4"


@pytest.mark.parametrize("modulus", range(3, 11))
@pytest.mark.parametrize("operation", "+-*")
def test_no_operation_forgets_its_left_operand_or_leaves_it_alone(operation, modulus):
    for right in right_operands(operation, modulus):
        images = [evaluate_fact((left, operation, right), modulus) for left in range(modulus)]
        assert sorted(images) == list(range(modulus))
        assert images != list(range(modulus))


@pytest.mark.parametrize(("settings", "message"), INVALID_SETTINGS)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"slip": 1.5}, "slip must lie in"), ({"believed": 0.9, "doubted": 0.2}, "must be <= 1")],
)
def test_probabilities_that_are_none_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        StudentConfig(**settings)


def test_misconceptions_overshoot_by_one_or_two_in_the_stated_share_of_each_operation():
    believed = misconceptions(CONFIG, StudentConfig(misconceived=0.3))
    # Ten left and nine right operands: 90 facts an operation.
    assert Counter(operation for _, operation, _ in believed) == {"+": 27, "-": 27}
    assert {(value - evaluate_fact(fact, 10)) % 10 for fact, value in believed.items()} == {1, 2}


def test_the_student_errs_as_often_as_stated():
    student = StudentConfig(misconceived=0.4, believed=0.6, doubted=0.3, slip=0.1)
    believed = misconceptions(CONFIG, student)
    outcomes: dict[bool, list[str]] = {True: [], False: []}
    for _, solution in student_solutions(CONFIG, student, levels=repeat(5, 4000)):
        for left, _, sign, right, result in STEP.findall(solution):
            fact = int(left), sign, int(right)
            if int(result) == evaluate_fact(fact, 10):
                outcome = "right"
            else:
                outcome = "believed" if int(result) == believed.get(fact) else "other"
            outcomes[fact in believed].append(outcome)
    shares = {
        is_misconceived: {kind: number / len(kinds) for kind, number in Counter(kinds).items()}
        for is_misconceived, kinds in outcomes.items()
    }
    # A tenth of the values drawn at random are the believed one, and a tenth the right one.
    assert shares[True] == pytest.approx({"believed": 0.61, "right": 0.31, "other": 0.08}, abs=0.03)
    assert shares[False] == pytest.approx({"right": 0.91, "other": 0.09}, abs=0.03)


def test_the_student_carries_its_mistakes_on_and_boxes_its_last_value():
    for question, solution in islice(student_solutions(CONFIG, StudentConfig(), levels=repeat(6)), 50):
        value = question[0]
        for left, *_, result in STEP.findall(solution):
            assert left == value
            value = result
        assert solution.endswith(f"\\boxed{{{value}}}")


def test_the_student_sees_no_heldout_and_no_harder_question():
    config = ChainsConfig(train_levels=(1,), num_train=20, num_heldout=60, harder_levels=(2,), num_harder=10)
    splits = generate_splits(config)
    apart = {instance.question for split in ("heldout", "harder") for instance in splits[split]}
    texts = student_solutions(config, StudentConfig(), levels=repeat(1, 1000))
    assert not apart & {question for question, _ in texts}


def test_the_student_writes_the_levels_asked_for_in_their_order():
    texts = student_solutions(CONFIG, StudentConfig(), levels=[1, 3, 2])
    assert [len(question.split(" ")) - 1 for question, _ in texts] == [1, 3, 2]


# A teacher who skips steps, and answers that cannot be guessed.

SKIPPING = ChainsConfig(operations_per_step=2, answer_values=3, train_levels=(4, 5), harder_levels=(8,))


def test_the_problems_do_not_depend_on_the_style_of_their_solutions():
    one = generate_splits(dataclasses.replace(SKIPPING, operations_per_step=1))
    two = generate_splits(SKIPPING)
    for split in one:
        assert [(i.question, i.answer, i.instance_id) for i in one[split]] == [
            (i.question, i.answer, i.instance_id) for i in two[split]
        ]
        assert all(len(i.steps) == i.level for i in one[split])
        assert all(len(i.steps) == -(-i.level // 2) for i in two[split])


def test_a_skipped_operation_is_written_but_not_its_value():
    odd = next(i for i in generate_splits(SKIPPING)["train"] if i.level == 5)
    assert re.fullmatch(
        r"\da[+-]\d=\d\n\db[+-]\dc[+-]\d=\d\n\dd[+-]\de[+-]\d=\d\n\\boxed\{\d{3}\}", "".join(odd.steps)
    )


def test_the_answer_is_made_of_values_that_both_styles_write():
    for instance in generate_splits(SKIPPING)["train"]:
        values = [step.split("=")[1][0] for step in instance.steps]
        # Of four operations there are two such values behind the start.
        assert instance.answer == "".join(values[-3:])


def test_a_student_skips_at_first_and_then_no_more():
    student = StudentConfig(skipping=0.5, returning=0.5)
    texts = [text for _, text in student_solutions(SKIPPING, student, levels=repeat(8, 400))]
    sizes = [[len(re.findall("[a-z]", line)) for line in text.split("\n")[:-1]] for text in texts]
    assert all(size == sorted(size, reverse=True) and sum(size) == 8 for size in sizes)
    assert 0.4 < sum(size[0] == 2 for size in sizes) / len(sizes) < 0.6
    assert {size.count(2) for size in sizes} == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("settings", [{"operations_per_step": 3}, {"answer_values": 0}])
def test_other_styles_are_refused(settings):
    with pytest.raises(ValueError, match="must be"):
        ChainsConfig(**settings)


# --- Right, wrong, malformed: the checkers of Countdown, Zebra and ARC-1D, and where they are chosen


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
    assert exit_status("grade", cases, "--out", out, "--workers", 1) == 0
    graded = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["correct"] for row in graded] == [True, False, True, False, True]
    assert [row["reason"] for row in graded] == ["correct", "wrong", "correct", "no_answer", "correct"]
