r"""From a generated text to a verdict: extraction and judgement by kind of problem.

Extraction says what a text answers, judgement whether that is right. Mathematics is compared by a grader of
``seele.reward``, the one that training uses unless another is chosen; labels of options need none.
"""

from collections.abc import Callable
from typing import Protocol

from seele.records import Grade, GradeReason
from seele.reward.extract import last_boxed
from seele.reward.multiple_choice import grade_choice
from seele.reward.reasoning import CHECKERS, check_answer
from seele_eval.answers import drop_unit, split_answers
from seele_eval.problems import Problem


class Grader(Protocol):
    """The part of ``seele.reward.GraderPool`` that judgement needs. Thread-safe."""

    def grade_answer(self, answer: str | None, gold: str) -> Grade:
        """The verdict on an answer out of its box; ``None`` or blank is no answer."""
        ...


Extract = Callable[[str, Problem], str | None]
"""What a text answers to a problem; None where it does not."""

Judge = Callable[[Grader, Problem, str | None], Grade]
"""The verdict on an extracted answer."""


def extract_boxed(text: str, problem: Problem) -> str | None:
    r"""The content of the last ``\boxed{}``, as in training."""
    return last_boxed(text)


def extract_option(text: str, problem: Problem) -> str | None:
    r"""The label of the option that the last ``\boxed{}`` names, or what it says where it names none."""
    answer = last_boxed(text)
    named = (label for label in problem.labels if grade_choice(answer, label, problem.options).correct)
    return next(named, answer)


def judge_one(grader: Grader, problem: Problem, answer: str | None) -> Grade:
    """The verdict against the one reference answer, of the problem's own checker where it has one."""
    if problem.data_source in CHECKERS:
        return check_answer(answer, problem.answer, problem.data_source)
    return grader.grade_answer(answer, problem.answer)


def judge_all(grader: Grader, problem: Problem, answer: str | None) -> Grade:
    """Right if the grader accepts the whole text, as the paper's harness asks, or each of the answers in any
    order, as OlympiadBench's own judge does (arXiv:2402.14008).

    The verdict on the whole says why an answer is wrong.
    """
    said = None if answer is None else drop_unit(answer, problem.unit)
    whole = grader.grade_answer(said, problem.answer)
    may_be_right = whole.reason in (GradeReason.WRONG, GradeReason.ERROR) and len(problem.answers) > 1
    if said is None or not may_be_right:
        return whole
    given, missing = split_answers(said), list(problem.answers)
    if len(given) != len(missing):
        return whole
    for part in given:
        found = next((gold for gold in missing if grader.grade_answer(part, gold).correct), None)
        if found is None:
            return whole
        missing.remove(found)
    return Grade(True, GradeReason.CORRECT)


def judge_option(grader: Grader, problem: Problem, answer: str | None) -> Grade:
    """Right if it names the option that is the reference answer. Needs no grader."""
    return grade_choice(answer, problem.answer, problem.options)
