r"""From a generated text to a verdict: extraction and judgement by kind of problem.

Reading says where in a response its answer stands, extraction what a text answers, judgement whether that is
right. Mathematics is compared by a grader of
``seele.reward``, the one that training uses unless another is chosen; labels of options need none.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from seele.maths.boxed import OPENING
from seele.records import Grade, GradeReason
from seele.reward.extract import last_boxed, text_after_thinking
from seele.reward.graders import holds_formula
from seele.reward.multiple_choice import grade_choice
from seele.reward.reasoning import CHECKERS, check_answer
from seele.reward.unboxed import answer_sentences, last_line, unboxed_answer
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


BOX, BOX_OR_LAST, WHOLE_TEXT = "box", "box-or-last", "text"
ANSWERS = (BOX, BOX_OR_LAST, WHOLE_TEXT)
"""Where an answer may stand: in a box; without one in the last "answer is ..." or number; or wherever
Math-Verify finds it in the text.
"""

READ_TEXTS = ("math_verify", "strict+")
"""Graders that find an answer in a text."""

MAX_TEXT_CHARS = 32_768
"""Longest text that is graded as a whole, in which 8,192 tokens of four characters fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAnswer:
    """What a response answers."""

    answer: str | None
    """None without an answer."""
    is_unboxed: bool = False
    """Whether it was found without a box."""
    text: str | None = None
    """What the grader looks for the answer in; None where it is given the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Where in a response its answer is looked for."""

    answers: str = BOX
    """One of ``ANSWERS``."""
    after_thinking: bool = False
    """Whether only the text behind ``</think>`` counts."""
    begun: bool = False
    """Whether the prompt ends with ``<think>``."""

    def read(self, text: str, problem: Problem, extract: Extract) -> FoundAnswer:
        """What the response answers to a problem, whose boxes ``extract`` reads.

        A text that opens a box says its answer there, or nowhere where the box is never closed.
        """
        counted = text_after_thinking(text, begun=self.begun) if self.after_thinking else text
        if counted is None or (OPENING in counted and last_boxed(counted) is None):
            return FoundAnswer(answer=None)
        is_open = not problem.labels and problem.data_source not in CHECKERS
        whole = counted if self.answers == WHOLE_TEXT and is_open and holds_formula(counted) else None
        if self.answers == BOX or OPENING in counted:
            return FoundAnswer(answer=extract(counted, problem), text=whole)
        answer = extract_unboxed(counted, problem)
        return FoundAnswer(answer=answer, is_unboxed=answer is not None, text=whole)


IN_BOXES = Reading()


def judge_found(judge: Judge, grader: Grader, problem: Problem, found: FoundAnswer) -> Grade:
    """The verdict on an answer, or the grader's on the text in which it stands."""
    if found.text is not None:
        return grader.grade_answer(found.text, problem.answer)
    return judge(grader, problem, found.answer)


def extract_boxed(text: str, problem: Problem) -> str | None:
    r"""The content of the last ``\boxed{}``, as in training."""
    return last_boxed(text)


def extract_option(text: str, problem: Problem) -> str | None:
    r"""The label of the option that the last ``\boxed{}`` names, or what it says where it names none."""
    answer = last_boxed(text)
    return _named_label(answer, problem) or answer


def extract_unboxed(text: str, problem: Problem) -> str | None:
    """What a text without any box answers: by the rules of ``seele.reward.unboxed``.

    Of options, the one that the last "answer is ..." with one names, else the one that the last line does,
    else what the last "answer is ..." says.
    """
    if not problem.labels:
        return unboxed_answer(text)
    sentences = [*answer_sentences(text)]
    named = (_named_label(each, problem) for each in (*sentences, last_line(text)))
    return next((label for label in named if label), sentences[0] if sentences else None)


def _named_label(answer: str | None, problem: Problem) -> str | None:
    named = (label for label in problem.labels if grade_choice(answer, label, problem.options).correct)
    return next(named, None)


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
    bare = None if answer is None else drop_unit(answer, problem.unit)
    whole = grader.grade_answer(bare, problem.answer)
    may_be_right = whole.reason in (GradeReason.WRONG, GradeReason.ERROR) and len(problem.answers) > 1
    if bare is None or not may_be_right:
        return whole
    given, missing = split_answers(bare), list(problem.answers)
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
