r"""Where a solution states its answer: as a result, not by chance, however it is written."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seele.data.steps.leakage import mentioned_at, mentioned_end, revealed_at, stated_end

STATED = [
    ("so \\boxed{12}", "12"),
    ("= \\boxed{\\frac12}", "\\frac{1}{2}"),
    ("\\boxed{\\text{(B)}}", "B"),
    ("The answer is 12.", "12"),
    ("The final answer is: $12$", "12"),
    ("**Answer:** 1,234 apples", "1234"),
    ("Correct answer - A", "A"),
    ("Answer: option C", "C"),
    ("#### 12", "12"),
    ("<answer> 12 </answer>", "12"),
    ("3 * 4 = 12 apples", "12"),
    ("she has 3 * 4 = $12.00.", "12"),
    ("costs = \\$1,234", "1234"),
    ("n = 1{,}234 \\]", "1234"),
    ("x = -5", "-5"),
    ("x = - 5.", "-5"),
    ("x = \\dfrac{1}{2}$", "$x = \\frac{1}{2}$"),
    ("p = 1/2", "\\frac{1}{2}"),
    ("(x, y) = (2, 3)", "\\left( 2, 3 \\right)"),
    ("which is 12\\text{ cm}", "12"),
    ("\\angle = 80^\\circ", "80"),
    ("m \\geq 90$", "90"),
    ("5 = a.", "5"),
    ("the sum \\binom{10}{2}x^{3} + 123 turns up", "\\binom{10}{2} x^3+123"),
    ("Therefore, (1) Riley is a knave\n(2) Zoey is a knight", "(1) Riley is a knave\n(2) Zoey is a knight"),
    ("sum = 031", "31"),
    ("half of it = .5", "0.50"),
    ("is 50\\%", "50%"),
]


@pytest.mark.parametrize(("text", "answer"), STATED)
def test_a_result_is_stated_however_it_is_written(text, answer):
    assert stated_end(text, answer) is not None


CHANCE = [
    ("He has 2 dogs and 12 cats.", "12"),
    ("= 12 + 3", "12"),
    ("= 12x + 3", "12"),
    ("= 12 \\times 3", "12"),
    ("= 12 \\text{ cats} \\times 3", "12"),
    ("there are 15 x 3 = 45", "15"),
    ("2b + 10 = 3b", "10"),
    ("= 12/5", "12"),
    ("= 12.5", "12"),
    ("= 1,312", "312"),
    ("= 112", "12"),
    ("= -5", "5"),
    ("= 5", "-5"),
    ("x^{12}", "12"),
    ("= 12^2", "12"),
    ("= 0.5", "\\frac{1}{2}"),
    ("A train and A car", "A"),
    ("let the answer be", "12"),
    ("", "12"),
]


@pytest.mark.parametrize(("text", "answer"), CHANCE)
def test_a_number_that_only_stands_there_is_not_stated(text, answer):
    assert stated_end(text, answer) is None


def test_a_mention_is_a_number_of_its_own():
    assert mentioned_end("He has 12 cats, 120 dogs", "12") == len("He has 12")
    assert mentioned_end("He has 120 cats, 3.12 and 12,000", "12") is None


STEPS = ("Take 3 and 12.\n", "3 * 4 = 12 apples.\n", "So \\boxed{12}.")


def test_hand_worked_solution():
    # Mentioned in the first step, stated in the second, boxed in the third.
    assert revealed_at(STEPS, "12") == 2
    assert mentioned_at(STEPS, "12") == 1
    assert revealed_at(STEPS, "13") == mentioned_at(STEPS, "13") == 3


def test_a_statement_over_two_steps_shows_with_the_second():
    assert revealed_at(("It is =", " 12 ", "or so."), "12") == 2
    assert revealed_at(("= 1", "2, that is", " all"), "12") == 2


def test_nothing_is_revealed_before_the_last_step_or_without_steps():
    assert revealed_at(("only = 12",), "12") == 1
    assert revealed_at((), "12") == 0


NOISE = st.text(alphabet="=12,. $\\{}()boxedfracanswer is-/%\n", max_size=60)


@given(steps=st.lists(NOISE, min_size=1, max_size=6), answer=NOISE)
def test_a_statement_is_a_mention_and_lies_within_the_steps(steps, answer):
    assert 1 <= mentioned_at(steps, answer) <= revealed_at(steps, answer) <= len(steps)


@given(steps=st.lists(NOISE, min_size=1, max_size=4), more=st.lists(NOISE, max_size=3), answer=NOISE)
def test_steps_after_the_statement_do_not_move_it(steps, more, answer):
    # The line ends keep a number at the end of the steps from growing.
    steps, answer = [*steps, "\nso\n"], f"7{answer}"
    if (first := revealed_at(steps, answer)) < len(steps):
        assert revealed_at([*steps, *more], answer) == first


@pytest.mark.parametrize("unit", ["= ", "=(", "is the ", "1,", "-", "option ", "{", "\\frac", "\\text{"])
@pytest.mark.parametrize("answer", ["12", "\\frac{1}{2}", "x+1", "A"])
def test_time_grows_with_the_length_and_not_with_its_square(unit, answer):
    text = unit * (100_000 // len(unit))
    start = time.process_time()
    stated_end(text, answer)
    assert time.process_time() - start < 3.0
