"""Chains: questions and steps agree, splits do not overlap, and the student errs as stated."""

import dataclasses
import re
from collections import Counter
from itertools import islice, repeat

import pytest

from seele.data.tasks.chains import (
    Chain,
    ChainsConfig,
    StudentConfig,
    evaluate,
    generate_splits,
    misconceptions,
    right_operands,
    student_solutions,
)
from seele.records import Instance

CONFIG = ChainsConfig(train_levels=(5, 6, 7), num_train=60, num_heldout=30, num_harder=30)

STEP = re.compile(r"(\d)([a-z])([-+*])(\d)=(\d)\n")

INVALID_SETTINGS = [
    pytest.param({"modulus": 11}, "modulus must be from 3 to 10", id="two digits"),
    pytest.param({"operations": "+/"}, "operations must be different ones", id="unknown operation"),
    pytest.param({"operations": "++"}, "operations must be different ones", id="operation twice"),
    pytest.param({"operations": ""}, "operations must be different ones", id="no operation"),
    pytest.param({"train_levels": ()}, "train_levels must be different numbers", id="no level"),
    pytest.param({"train_levels": (5, 5)}, "train_levels must be different numbers", id="level twice"),
    pytest.param({"harder_levels": (0, 9)}, "harder_levels must be different numbers", id="level 0"),
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
    assert evaluate((7, "+", 5), 10) == 2
    assert evaluate((2, "-", 3), 10) == 9


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
            assert int(result) == evaluate((int(left), sign, int(right)), config.modulus)
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
        images = [evaluate((left, operation, right), modulus) for left in range(modulus)]
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
    assert {(value - evaluate(fact, 10)) % 10 for fact, value in believed.items()} == {1, 2}


def test_the_student_errs_as_often_as_stated():
    student = StudentConfig(misconceived=0.4, believed=0.6, doubted=0.3, slip=0.1)
    believed = misconceptions(CONFIG, student)
    outcomes: dict[bool, list[str]] = {True: [], False: []}
    for _, solution in student_solutions(CONFIG, student, levels=repeat(5, 4000)):
        for left, _, sign, right, result in STEP.findall(solution):
            fact = int(left), sign, int(right)
            if int(result) == evaluate(fact, 10):
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
