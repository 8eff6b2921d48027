r"""Answers of texts without a box: the last "answer is ...", else the last number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seele.reward.unboxed import answer_sentences, last_line, unboxed_answer


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
        ("The answer is 5 million.", "5 million"),
        ("The answer is 2 thirds.", "2 thirds"),
        ("The answer is 101 base two.", "101 base two"),
        ("The answer is 3 percent.", "3\\%"),
        ("The answer is 5; 6.", "5; 6"),
        ("The answer is 3, x.", "3, x"),
        ("The answer is 1, pi.", "1, pi"),
        ("The answer is 7, minus x.", "7, minus x"),
        ("The answer is 2 alpha.", "2 alpha"),
        ("The answer is 1 1/2.", "1 1/2"),
        ("The answer is x.", "x"),
        # Remarks go, of an equation the right side stays, of words the number.
        ("The answer is 12 (since 3*4=12).", "12"),
        ("The answer is 12 - as shown above.", "12"),
        ("The answer is $42$ and it is correct.", "42"),
        ("The answer is 3+4 = 7.", "7"),
        ("The answer is $2^{10}$ = 1024.", "1024"),
        ("The answer is found as follows: 3+4=7", "7"),
        ("*Answer:* 42", "42"),
        ("The answer is:\n- 12", "12"),
        ("The answer for x = 3 is 7.", "7"),
        ("The answer is only 42.", "42"),
        ("Answer: Tom has 12 apples.", "12"),
        ("So the final answer is: (B) 12", "12"),
        # What says nothing leaves the answer to the phrase before it, or to the last number.
        ("The answer is 42. I hope this answer is helpful.", "42"),
        ("The answer is 12.\n\nIs this right? Let me know if the answer is wrong.", "12"),
        ("## Answer:\nWe have 3 apples and 4 more.\nSo the total is 7.", "7"),
        ("Answer:\nLet's think step by step. 3 and 4. So it is 7", "7"),
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
        ("So it takes 1 1/2 hours.", "1 1/2"),
        ("So $1\\frac{1}{2}$", "1\\frac{1}{2}"),
        ("So it is $2\\sqrt{3}$.", "2\\sqrt{3}"),
        ("So $x = \\frac{\\pi}{4}$", "\\frac{\\pi}{4}"),
        ("it leaves at 3:45", "3:45"),
        ("It is 42 [1]", "42"),
        ("It is 42.\n1. Read.\n2. Check.", "42"),
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
    for said in (unboxed_answer(text), *answer_sentences(text)):
        assert said is None or said.strip()
    assert "\n" not in last_line(text)


@pytest.mark.parametrize(
    "text",
    [
        *("answer of " * 20_000, "1,111" * 20_000, "$" * 100_000, "answer is $" * 20_000, "(-" * 50_000),
        *("1/" + "1" * 50_000 + "/", "3" * 50_000, "answer: .\n" * 20_000, "answer: . $$\n" * 20_000),
    ],
)
def test_long_texts_are_read(text):
    unboxed_answer(text)


def test_a_sentence_is_kept_as_it_is_for_options():
    assert [*answer_sentences("I think the answer is (C) because of (A).")] == ["(C)"]
    assert [*answer_sentences("The answer is 5 apples. The answers are wrong.")] == ["wrong", "5 apples"]
    assert not [*answer_sentences("Perhaps (C).")]
    assert last_line("It is\n **B** \n\n") == "B"
