"""Which option an answer names."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seele.errors import DataError
from seele.records import GradeReason
from seele.reward.multiple_choice import LETTERS, grade_choice

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
CITIES = ("Paris", "Rome", "Oslo", "Bern")


def names(answer: str | None, options: tuple[str, ...] = CITIES, gold: str = "C") -> str:
    """The letters of all options as which the answer is accepted, or why it is not."""
    grades = [grade_choice(answer, letter, options) for letter in LETTERS[: len(options)]]
    reasons = {grade.reason.value for grade in grades if not grade.correct}
    letters = "".join(letter for letter, grade in zip(LETTERS, grades, strict=False) if grade.correct)
    return letters or "/".join(reasons)


@pytest.mark.parametrize(
    "answer",
    [
        "C",
        "c",
        "(C)",
        "C.",
        "C)",
        "C:",
        " C ",
        "$C$",
        "**C**",
        r"\text{C}",
        r"\textbf{(C)}",
        r"\boxed{C}",
        r"so \boxed{\text{(C) Oslo}}",
        "Oslo",
        "oslo.",
        r"\text{ Oslo }",
        "C. Oslo",
        "C) Oslo",
        "(C) Oslo",
        "C: Oslo",
        "C - Oslo",
        "C Oslo",
        "C. it can't be A or B",
        "(C) Oslo, so P(A) is 0",
        "C. Oslo is C. as I said",
        "the answer is Oslo",
        "Option C",
        "the answer is C",
        "The correct answer is (C).",
        "First I took A. No: the answer is C, not B.",
        "3",
        "(3)",
    ],
)
def test_letter_text_and_number_name_an_option(answer):
    assert names(answer) == "C"


@pytest.mark.parametrize(
    "answer",
    [
        "E",
        "5",
        "London",
        "A and B",
        "(A) and (B)",
        "(A), (B)",
        "(A) (B)",
        "(A)(B)",
        "A), B)",
        "A. B.",
        "A) Paris, B) Rome",
        "A. Paris and B. Rome",
        "the answer is A or B",
        "So the answer is (A) and (B)",
        "A or Rome",
        "A. Rome",
        "(A) Rome",
        "Paris, Rome",
        "a city",
        "A city in France",
        "not C",
        "0",
        "33",
        "x",
    ],
)
def test_what_names_no_option_or_two_is_wrong(answer):
    assert names(answer) == "wrong"


@pytest.mark.parametrize("answer", [None, "", " \n", r"\boxed{}", r"I think \boxed{C"])
def test_no_answer(answer):
    assert names(answer) == "no_answer"


def test_texts_come_before_numbers_unless_the_question_is_numbered():
    options = ("4", "3", "2", "1")
    assert grade_choice("3", "B", options).correct  # the text of B
    assert not grade_choice("3", "C", options).correct
    assert grade_choice("3", "3", options).correct  # numbered: the third one
    assert grade_choice("C", "3", options).correct
    assert not grade_choice("2", "3", options).correct
    assert grade_choice("3.", "C", ("x", "y", "z")).correct  # no such text
    assert grade_choice("2) 20 N", "2", ("10 N", "20 N", "2", "40 N")).correct
    assert not grade_choice("2) 10 N", "2", ("10 N", "20 N", "2", "40 N")).correct
    assert not grade_choice("(2), (3)", "2", ("10 N", "20 N", "2", "40 N")).correct
    assert not grade_choice("2) 20 N, 3) 2", "2", ("10 N", "20 N", "2", "40 N")).correct
    assert not grade_choice("2.5 N", "2", ("10 N", "20 N")).correct


def test_a_number_names_no_option_where_another_one_begins_with_it():
    speeds = ("2 m/s", "3 m/s", "4 m/s", "5 m/s")
    assert names("2", speeds) == names("the answer is 3", speeds) == "wrong"
    assert names("1", speeds) == "A"
    assert names("2", ("1 m/s", "2 m/s", "2.5 m/s")) == "B"  # by its number and by what it says
    assert names("2", ("1/2", "1/3", "2/3", "2,000")) == "B"
    assert names("the answer is 3", ("4", "3", "2")) == "B"


@pytest.mark.parametrize(
    ("answer", "option"),
    [
        (r"50\%", "50%"),
        (r"$50\%$", "50%"),
        (r"\$6,000", "$6,000"),
        (r"\$6{,}000", "$6,000"),
        (r"\text{R\&D}", "R&D"),
        (r"\mathrm{MgBr_{2}}", "MgBr_{2}"),
        (r"\text{(B) MgBr$_{2}$}", "MgBr_{2}"),
        (r"\text{(B) }\frac{1}{243}", r"\frac{1}{243}"),
        (r"\text{(B) \frac{\sqrt{1}}{243}}", "something else"),
        (r"\textbf{B. \text{Oslo} {north}}", "something else"),
    ],
)
def test_mark_up_changes_nothing(answer, option):
    assert names(rf"\boxed{{{answer}}}", ("x", option, "y")) == "B"


def test_genotypes_are_told_apart_by_their_letters():
    genotypes = ("R", "rr", "Rr", "RR")
    assert grade_choice("Rr", "C", genotypes).correct
    assert not grade_choice("RR", "C", genotypes).correct
    assert not grade_choice("rR", "C", genotypes).correct


def test_signs_of_texts_are_not_separators():
    assert names("C. -2", ("2", "1", "-2", "-1")) == "C"
    assert names("A -2", ("2", "1", "-2", "-1")) == "wrong"
    assert names("C: .5", ("5", "1", ".5", "-1")) == "C"


def test_options_with_the_same_text_are_the_same():
    assert names("Rome", ("Rome", "Paris", "Rome ")) == "AC"


def test_texts_that_are_labels_are_labels():
    assert names("B", ("B", "A")) == "B"
    assert names("I", ("H", "I")) == "B"  # no ninth option: the text
    assert names("a dog", ("cat", "a dog")) == "B"


@pytest.mark.parametrize("count", [1, 3, 10])
def test_one_to_ten_options(count):
    options = tuple(f"number {index}" for index in range(count))
    for index, letter in enumerate(LETTERS[:count]):
        assert (
            names(letter, options)
            == names(str(index + 1), options)
            == names(options[index], options)
            == letter
        )


@pytest.mark.parametrize(
    ("gold", "options", "complaint"),
    [
        ("A", (), "1 to 10 options, got 0"),
        ("A", ("x",) * 11, "1 to 10 options, got 11"),
        ("C", ("x", "y"), "'C' names none of the 2 options"),
        ("London", CITIES, "'London' names none"),
        (" ", CITIES, "' ' names none"),
    ],
)
def test_a_question_that_makes_no_sense_is_the_callers_mistake(gold, options, complaint):
    with pytest.raises(DataError, match=complaint):
        grade_choice("A", gold, options)


def test_without_the_texts_labels_are_read():
    assert grade_choice("(C) whatever", "C").correct
    assert grade_choice("3", "C").correct
    assert grade_choice("Oslo", "C").reason is GradeReason.WRONG


@given(st.text(max_size=40), st.lists(st.text(min_size=1, max_size=10), min_size=1, max_size=10))
def test_any_text_gets_a_verdict(answer, options):
    grade = grade_choice(answer, "A", options)
    assert grade.reason in {GradeReason.CORRECT, GradeReason.WRONG, GradeReason.NO_ANSWER}


def test_long_texts_take_linear_time():
    assert names(r"\text{" * 300_000 + "C") == "wrong"
    assert names("so " * 300_000 + "the answer is C") == "C"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the benchmarks are not beside this checkout (../shared)")
def test_every_option_of_mmlu_pro_is_found_by_letter_and_by_text():
    rows = [
        json.loads(line)
        for line in (SHARED / "mmlu_pro" / "sample_300.jsonl").read_text().split("\n")
        if line
    ]
    assert {len(row["options"]) for row in rows} >= {3, 10}
    for row in rows:
        for letter, text in zip(LETTERS, row["options"], strict=False):
            right = letter == row["answer"]
            for answer in (letter, f"({letter})", f"{letter}. {text}", f"The answer is ({letter})."):
                assert grade_choice(answer, row["answer"], row["options"]).correct == right, (answer, row)
            assert grade_choice(text, row["answer"], row["options"]).correct == right, (text, row)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the benchmarks are not beside this checkout (../shared)")
def test_golds_of_arc_c_are_letters_and_22_numbers():
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(SHARED / "arc_c" / "valid.arc_c.parquet")
    golds = [row["ground_truth"] for row in table["reward_model"].to_pylist()]
    numbers = [gold for gold in golds if gold.isdecimal()]
    assert (len(golds), len(numbers)) == (1172, 22)
    for gold in golds:
        letter = LETTERS[int(gold) - 1] if gold.isdecimal() else gold
        assert grade_choice(rf"\boxed{{{gold}}}", gold, ("w", "x", "y", "z", "v")).correct
        assert grade_choice(letter, gold, ("w", "x", "y", "z", "v")).correct
