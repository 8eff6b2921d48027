r"""What the text in a box says: several answers, units, votes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seele_eval.answers import drop_unit, split_answers, vote_key


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
        ("1; 3", ["1", "3"]),
        ("1 \\quad 3", ["1", "3"]),
        ("x=1,\\qquad x=3", ["x=1", "x=3"]),
        ("1 \\\\ 3", ["1", "3"]),
        ("1 \\text{, } 3\\text{, and } 5", ["1", "3", "5"]),
        ("(1;3)", ["(1;3)"]),
        ("\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}, 3", ["\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "3"]),
        ("\\begin{cases} x=1, \\\\ y=2 \\end{cases}", ["\\begin{cases} x=1, \\\\ y=2 \\end{cases}"]),
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
