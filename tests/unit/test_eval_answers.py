r"""What the text in a box says: several answers, units, votes, options."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seele.records import GradeReason
from seele_eval.answers import drop_unit, split_answers, vote_key
from seele_eval.choices import grade_choice


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("1,3,5", ["1", "3", "5"]),
        ("$69$,$84$", ["69", "84"]),
        ("$(1,8,19), (2,7,13)$", ["(1,8,19)", "(2,7,13)"]),
        ("\\{-2, 0, 2\\}", ["-2", "0", "2"]),
        ("\\left\\{1, 2\\right\\}", ["1", "2"]),
        ("1 and 3", ["1", "3"]),
        ("1 \\text{ or } 3", ["1", "3"]),
        ("\\pm 2", ["2", "-2"]),
        ("\\frac{32}{9}, \\frac{1}{2}", ["\\frac{32}{9}", "\\frac{1}{2}"]),
        ("\\left(-\\frac{1}{2}, \\frac{7}{2}\\right)", ["(-\\frac{1}{2}, \\frac{7}{2})"]),
        ("7", ["7"]),
        ("", []),
    ],
)
def test_answers_are_split_outside_brackets(text, answers):
    assert split_answers(text) == answers


@given(st.text())
def test_splitting_never_fails_and_leaves_no_blank_answer(text):
    assert all(answer.strip() for answer in split_answers(text))


@pytest.mark.parametrize(
    ("answer", "unit", "bare"),
    [
        ("3 km", "km", "3"),
        ("\\frac{41}{12} \\text{ km}", "km", "\\frac{41}{12}"),
        ("\\frac{600}{7}\\,\\mathrm{km/h}", "km/h", "\\frac{600}{7}"),
        ("8 mins", "min", "8"),
        ("50 minute", "minutes", "50"),
        ("3", "km", "3"),
        ("3 km", "", "3 km"),
        # Not the end of a word, nor anything before the end.
        ("skm", "km", "skm"),
        ("2 km 300", "km", "2 km 300"),
    ],
)
def test_a_unit_is_dropped_from_the_end_only(answer, unit, bare):
    assert drop_unit(answer, unit) == bare


def test_votes_count_answers_that_only_look_different():
    assert (
        len({vote_key(text) for text in ("\\dfrac{1}{2}", "\\frac{1}{2}", "$\\frac{1} {2}$", "\\frac12")})
        == 2
    )
    assert vote_key("\\text{Paris}") == vote_key("Paris") == "Paris"
    assert vote_key("12") != vote_key("13")


OPTIONS = ("Planetary years become longer.", "Days become shorter.", "3", "12")


@pytest.mark.parametrize(
    "answer",
    ["B", "b", "(B)", "B.", "\\text{B}", "\\textbf{(B)}", "option B", "The answer is B",
     "B) Days become shorter", "Days become shorter.", "days  become shorter",
     "\\text{Days become shorter.}", "$\\mathrm{B}$"],
)  # fmt: skip
def test_an_option_is_named_by_letter_by_text_or_by_both(answer):
    assert grade_choice(answer, "B", OPTIONS).correct
    assert grade_choice(answer, "A", OPTIONS).reason is GradeReason.WRONG


@pytest.mark.parametrize(
    "answer", ["E", "AB", "bc", "B or C", "B) Planetary years become longer.", "Days", "()", "42"]
)
def test_what_names_no_option_is_wrong_whatever_the_gold(answer):
    assert not any(grade_choice(answer, gold, OPTIONS).correct for gold in "ABCD")


def test_digits_are_labels_where_the_gold_is_one_and_texts_elsewhere():
    assert grade_choice("3", "C", OPTIONS).correct
    assert grade_choice("12", "D", OPTIONS).correct
    assert grade_choice("2", "2", ("10 N", "20 N", "2", "40 N")).correct
    assert not grade_choice("2", "3", ("10 N", "20 N", "2", "40 N")).correct
    assert grade_choice("2) 20 N", "2", ("10 N", "20 N", "2", "40 N")).correct


def test_genotypes_are_told_apart_by_their_letters():
    genotypes = ("R", "rr", "Rr", "RR")
    assert grade_choice("Rr", "C", genotypes).correct
    assert not grade_choice("RR", "C", genotypes).correct
    assert not grade_choice("rR", "C", genotypes).correct


def test_no_answer_and_an_endless_one_are_told_apart():
    assert grade_choice(None, "A", OPTIONS).reason is GradeReason.NO_ANSWER
    assert grade_choice(" ", "A", OPTIONS).reason is GradeReason.NO_ANSWER
    assert grade_choice("{" * 10**6, "A", OPTIONS).reason is GradeReason.TOO_LONG
