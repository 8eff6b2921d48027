r"""From a text to a verdict, by kind of problem. The grader here knows equality and nothing else."""

import pytest

from seele.records import Grade, GradeReason
from seele_eval.grading import (
    BOX_OR_LAST,
    IN_BOXES,
    WHOLE_TEXT,
    FoundAnswer,
    Reading,
    extract_boxed,
    extract_option,
    judge_all,
    judge_found,
    judge_one,
    judge_option,
)
from seele_eval.problems import choice_problem, open_problem


class ExactGrader:
    """Right is what is the same without blanks."""

    def __init__(self, too_long=False):
        self.asked = []
        self.too_long = too_long

    def grade_answer(self, answer, gold):
        self.asked.append((answer, gold))
        if self.too_long:
            return Grade(False, GradeReason.TOO_LONG)
        if answer is None:
            return Grade(False, GradeReason.NO_ANSWER)
        correct = answer.replace(" ", "") == gold.replace(" ", "")
        return Grade(correct, GradeReason.CORRECT if correct else GradeReason.WRONG)


def verdict(problem, answer, judge=judge_all):
    return judge(ExactGrader(), problem, answer)


ROOTS = open_problem("x^3=x?", "-1", "0", "1")


@pytest.mark.parametrize("answer", ["-1,0,1", "1, 0, -1", "\\{0, 1, -1\\}", "0, \\pm 1", "1 and 0 and -1"])
def test_several_answers_count_in_any_order(answer):
    assert verdict(ROOTS, answer).correct


@pytest.mark.parametrize("answer", ["-1,0", "-1,0,1,2", "0,0,1", "-1,-1,-1", "1", ""])
def test_all_of_them_must_be_given_and_nothing_else(answer):
    assert verdict(ROOTS, answer).reason is GradeReason.WRONG


def test_each_reference_answer_is_used_up_by_one_answer():
    twice = open_problem("?", "2", "2", "3")
    assert verdict(twice, "2,3,2").correct
    assert not verdict(twice, "2,3,3").correct


def test_a_single_answer_is_asked_for_once_and_without_its_unit():
    grader = ExactGrader()
    assert judge_all(grader, open_problem("How far?", "3", unit="km"), "3 \\text{ km}").correct
    assert grader.asked == [("3", "3")]


def test_what_is_too_long_for_the_grader_is_not_taken_apart():
    grader = ExactGrader(too_long=True)
    assert judge_all(grader, ROOTS, "1," * 10**6).reason is GradeReason.TOO_LONG
    assert len(grader.asked) == 1


def test_no_answer_stays_no_answer():
    for judge, problem in ((judge_one, ROOTS), (judge_all, ROOTS), (judge_option, CHOICE)):
        assert judge(ExactGrader(), problem, None).reason is GradeReason.NO_ANSWER


CHOICE = choice_problem("Which?", {"A": "left", "B": "right"}, "B")
NUMBERED = choice_problem("Which?", {"1": "left", "2": "right"}, "2")


@pytest.mark.parametrize(
    ("problem", "text", "label"),
    [
        (CHOICE, "\\boxed{A} no, \\boxed{right}", "B"),
        (CHOICE, "\\boxed{(b)}", "B"),
        (NUMBERED, "\\boxed{2) right}", "2"),
        (NUMBERED, "\\boxed{left}", "1"),
    ],
)
def test_the_last_box_names_an_option_by_its_label(problem, text, label):
    assert extract_option(text, problem) == label


def test_a_box_that_names_no_option_is_kept_as_it_is():
    assert extract_option("\\boxed{up}", CHOICE) == "up"
    assert extract_option("no box", CHOICE) is None
    assert verdict(CHOICE, "up", judge_option).reason is GradeReason.WRONG
    assert verdict(CHOICE, "B", judge_option).correct


def test_the_last_box_counts_and_an_open_one_is_none():
    assert extract_boxed("\\boxed{1} so \\boxed{2}", ROOTS) == "2"
    assert extract_boxed("\\boxed{1} so \\boxed{2", ROOTS) is None


OPEN = open_problem("1+1?", "2")
LAST = Reading(answers=BOX_OR_LAST)


def read(text, problem=OPEN, reading=LAST):
    return reading.read(text, problem, extract_option if problem.labels else extract_boxed)


def test_a_box_goes_before_everything_and_an_open_one_leaves_no_answer():
    assert read("\\boxed{3}, so the answer is 2.") == FoundAnswer(answer="3")
    # What was cut off is not replaced by what was found earlier.
    assert read("The answer is 2: \\boxed{2") == FoundAnswer(answer=None)
    assert read("\\boxed{1}, or \\boxed{2") == FoundAnswer(answer=None)


def test_without_a_box_the_phrase_or_the_last_number_counts_where_it_is_asked_for():
    assert read("The answer is 2.") == FoundAnswer(answer="2", is_unboxed=True)
    assert read("Hence 2") == FoundAnswer(answer="2", is_unboxed=True)
    assert read("Nothing.") == FoundAnswer(answer=None)
    assert read("The answer is 2.", reading=IN_BOXES) == FoundAnswer(answer=None)


@pytest.mark.parametrize(
    ("problem", "text", "label"),
    [
        (CHOICE, "(A) is wrong. The answer is (B).", "B"),
        (CHOICE, "The answer is right, because of 1 and 2.", "B"),
        (CHOICE, "The correct answer: **A) left**", "A"),
        (CHOICE, "The answer is B. The other answers are incorrect.", "B"),
        (CHOICE, "It is A.\n\nI hope this answer is clear.\n\nB", "B"),
        (NUMBERED, "The answer is 2.", "2"),
        (CHOICE, "Let us see.\n\n(B)\n", "B"),
        # What names no option in a phrase is a wrong answer, elsewhere none at all.
        (CHOICE, "The answer is up.", "up"),
        (CHOICE, "There are 2 of them", None),
        (CHOICE, "A long way to go", None),
    ],
)
def test_an_option_may_be_named_without_a_box(problem, text, label):
    assert read(text, problem) == FoundAnswer(answer=label, is_unboxed=label is not None)


def test_thoughts_do_not_count_where_only_what_is_behind_them_does():
    after = Reading(after_thinking=True, begun=True)
    assert read("\\boxed{1} </think> \\boxed{2}", reading=after).answer == "2"
    assert read("\\boxed{1} </think> two", reading=after).answer is None
    assert read("\\boxed{1} and on and on", reading=after).answer is None
    assert read("\\boxed{1}", reading=Reading(after_thinking=True)).answer == "1"
    last = Reading(answers=BOX_OR_LAST, after_thinking=True, begun=True)
    assert read("\\boxed{1} </think> The answer is 2.", reading=last) == FoundAnswer(
        answer="2", is_unboxed=True
    )


def test_a_grader_may_be_given_the_text_and_a_text_without_a_formula_its_answer():
    whole = Reading(answers=WHOLE_TEXT, after_thinking=True, begun=True)
    found = read("$3$ </think> So it is $2$.", reading=whole)
    assert found == FoundAnswer(answer="2", is_unboxed=True, text=" So it is $2$.")
    grader = ExactGrader()
    judge_found(judge_one, grader, OPEN, found)
    judge_found(judge_one, grader, OPEN, read("</think> The answer is 2.", reading=whole))
    assert grader.asked == [(" So it is $2$.", "2"), ("2", "2")]
    assert read("$x=2$. And \\boxed{", reading=Reading(answers=WHOLE_TEXT)) == FoundAnswer(answer=None)
    # An option is read by its own rules.
    assert read("</think> It is $x$. The answer is (B).", CHOICE, whole) == FoundAnswer(
        answer="B", is_unboxed=True
    )
    assert judge_found(judge_one, grader, OPEN, read("$2$", reading=whole)).reason is GradeReason.NO_ANSWER
