r"""Answers of texts without a box: the last "answer is ...", else the last number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seele.reward.unboxed import answer_sentence, last_line, unboxed_answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        # Numbers, whatever stands around them.
        ("The answer is 42.", "42"),
        ("The answer is: **1,234.50**.", "1234.50"),
        ("**Answer:** \\$1,234", "1234"),
        ("the final answer is $1{,}234$", "1234"),
        ("answer = -3", "-3"),
        ("The answer is \N{MINUS SIGN}7.", "-7"),
        ("The answer is 1/2.", "1/2"),
        ("The answer is $\\frac{1}{2}$.", "\\frac{1}{2}"),
        ("The answer is \\(7\\).", "7"),
        ("The answer is:\n\n$$\n\\frac{3}{4}\n$$\n", "\\frac{3}{4}"),
        ("The answer to the problem is therefore 7, because 3+4 = 7.", "7"),
        ("The answer is 10^5.", "10^5"),
        # Percent signs stay, units go.
        ("The answer is 50%.", "50\\%"),
        ("The answer is $50\\%$", "50\\%"),
        ("The answer is 12 apples.", "12"),
        ("The answer is 9.8 m/s^2, as measured.", "9.8"),
        ("The answer is $\\frac{1}{2}$ metres per second.", "\\frac{1}{2}"),
        ("The answer is 90°.", "90"),
        # More than a number is taken whole.
        ("The answer is 2x + 3.", "2x + 3"),
        ("The answer is 3 pi.", "3 pi"),
        ("The answer is $x=3$ or $x=4$.", "$x=3$ or $x=4$"),
        ("The answers are 1, 3 and 5.", "1, 3 and 5"),
        ("The answer is $5 and he has $6 left.", "$5 and he has $6 left"),
        ("Answer: blue", "blue"),
        # The last phrase that says something counts, and goes before numbers behind it.
        ("The answer is 3. No, the answer is 4. There were 5.", "4"),
        ("There are 7. The answer is", "7"),
        # The last number, without the phrase.
        ("we get 5 - 3, hence 2.", "2"),
        ("x = 5 - 3", "3"),
        ("it falls to -3.", "-3"),
        ("so 1,234,567 of them", "1234567"),
        ("= 3/4 in all", "3/4"),
        ("thus $\\frac{3}{4}$", "\\frac{3}{4}"),
        ("about $1.5 \\times 10^{-7}$ m", "1.5 \\times 10^{-7}"),
        ("about 1.5e-7 m", "1.5e-7"),
        ("60% of 5 is 3", "3"),
        ("H2O", None),
        ("no digits", None),
        ("", None),
    ],
)
def test_the_last_phrase_counts_and_else_the_last_number(text, answer):
    assert unboxed_answer(text) == answer


@given(st.integers(-(10**12), 10**12), st.sampled_from(["{}", "{:,}", "${}$", "**{}**", "{} apples", "{}."]))
def test_an_integer_is_found_however_it_is_written(number, form):
    written = form.format(number)
    assert unboxed_answer(f"I counted 3. The answer is {written}") == str(number)
    assert unboxed_answer(f"I counted 3, and then {written}") == str(number)


@given(st.text())
def test_no_text_makes_it_fail_and_no_answer_is_blank(text):
    for said in (unboxed_answer(text), answer_sentence(text)):
        assert said is None or said.strip()
    assert "\n" not in last_line(text)


@pytest.mark.parametrize(
    "text", ["answer of " * 20_000, "1,111" * 20_000, "$" * 100_000, "answer is $" * 20_000, "(-" * 50_000]
)
def test_long_texts_are_read(text):
    unboxed_answer(text)


def test_a_sentence_is_kept_as_it_is_for_options():
    assert answer_sentence("I think the answer is (C) because of (A).") == "(C)"
    assert answer_sentence("The answer is 5 apples.") == "5 apples"
    assert answer_sentence("Perhaps (C).") is None
    assert last_line("It is\n **B** \n\n") == "B"
