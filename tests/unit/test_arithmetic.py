"""Expressions of + - * /, against Python's own reading of the same texts."""

import re
import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


@settings(deadline=None)
@given(texts())
def test_an_honest_expression_has_the_value_that_python_gives_it(text):
    assert value_or_none(parse(text)) == python_value(text)


@settings(deadline=None)
@given(texts())
def test_the_numbers_are_those_of_the_text_in_its_order(text):
    assert list(numbers_in(parse(text))) == [int(number) for number in re.findall(r"\d+", text)]


@settings(deadline=None)
@given(EXPRESSIONS, st.booleans())
def test_what_is_written_reads_back_to_the_same_value_and_numbers(expression, blanks):
    again = parse(write(expression, blanks=blanks))
    assert value_or_none(again) == value_or_none(expression)
    assert list(numbers_in(again)) == list(numbers_in(expression))


def holds_negation(expression):
    if isinstance(expression, Operation):
        return holds_negation(expression.left) or holds_negation(expression.right)
    return isinstance(expression, Negation)


@settings(deadline=None)
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
    depth = 24
    expression = parse("-(" + "1+(" * depth + "1+1" + ")" * depth + ")")
    start = time.process_time()
    assert without_negations(expression) is None
    assert time.process_time() - start < 1.0


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


@settings(deadline=None)
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
    assert time.process_time() - started < 10.0
