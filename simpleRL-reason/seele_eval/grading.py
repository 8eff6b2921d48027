r"""From a generated text to a verdict: reading, extraction and judgement by kind of problem.

Reading finds the part of a response that holds the answer, extraction finds the answer, judgement decides
whether it is right. A grader of ``seele.reward``, by default training's, compares mathematics; labels of
options need no grader.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from seele.maths.boxed import OPENING
from seele.records import Grade, GradeReason
from seele.reward.extract import answer_sentences, last_boxed, last_line, unboxed_answer
from seele.reward.graders import holds_formula
from seele.reward.multiple_choice import grade_choice
from seele.reward.reading import CountingRules
from seele.reward.reasoning import CHECKERS, check_answer
from seele_eval.problems import Problem, drop_unit, split_answers, without_separators


class Grader(Protocol):
    """The part of ``seele.reward.GraderPool`` that judgement needs. Thread-safe."""

    def grade_answer(self, answer: str | None, gold: str) -> Grade:
        """The verdict on an unboxed answer; ``None`` or blank counts as no answer."""
        ...


Extract = Callable[[str, Problem], str | None]
"""Function that extracts the answer to a problem from a text; None if it has no answer."""

Judge = Callable[[Grader, Problem, str | None], Grade]
"""Function that returns the verdict on an extracted answer."""


BOX, BOX_OR_LAST, WHOLE_TEXT = "box", "box-or-last", "text"
ANSWERS = (BOX, BOX_OR_LAST, WHOLE_TEXT)
"""Where to look for an answer: in a box; in a box or, without one, in the last "answer is ..." or number; or
wherever Math-Verify finds it in the text.
"""

READ_TEXTS = ("math_verify", "strict+")
"""Graders that find an answer in a text."""

MAX_TEXT_CHARS = 32_768
"""Longest text that is graded as a whole: 8,192 tokens of four characters fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAnswer:
    """The answer found in a response."""

    answer: str | None
    """None if the response has no answer."""
    is_unboxed: bool = False
    """True if the answer was found without a box."""
    text: str | None = None
    """Text in which the grader itself looks for the answer, unless another judge decides; None if it grades
    ``answer``.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(CountingRules):
    """Where to look for the answer in a response, and which responses are not read."""

    answers: str = BOX
    """One of ``ANSWERS``."""

    def read(self, text: str, problem: Problem, extract: Extract) -> FoundAnswer:
        """Find the answer to a problem.

        A text that opens a box answers there; if the box is never closed, the text has no answer. A
        benchmark's own ``extract`` alone decides where an answer is.
        """
        counted = self.counted(text)
        if counted is not None and extract not in (extract_boxed, extract_option):
            return FoundAnswer(answer=extract(counted, problem))
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
    """Return the verdict on an answer, or the grader's verdict on the text that contains it.

    A benchmark's own judge always judges the answer: all of its verdicts follow one rule.
    """
    if found.text is not None and judge in (judge_one, judge_all):
        return grader.grade_answer(found.text, problem.answer)
    return judge(grader, problem, found.answer)


def extract_boxed(text: str, problem: Problem) -> str | None:
    r"""The content of the last ``\boxed{}``, as in training."""
    return last_boxed(text)


def extract_option(text: str, problem: Problem) -> str | None:
    r"""The label of the option that the last ``\boxed{}`` names, or the box's content if it names none."""
    answer = last_boxed(text)
    return _named_label(answer, problem) or answer


_IS_CORRECT = re.compile(
    r"(?:^|[.:;,]\s+|\b(?:so|thus|hence|therefore)\s+)(?:option\s+)?\(?([A-J])\)?\s+is\s+(?:the\s+)?"
    r"(?:correct|right|best)\b[^.!]*[.!]?$",
    re.IGNORECASE,
)
"""What the last line of a text says of an option, such as "So option B is the correct one."."""


def extract_unboxed(text: str, problem: Problem) -> str | None:
    """The answer of a text without a box, by the rules of ``seele.reward.extract``.

    For a problem with options: the option named by the last "answer is ..." that names one, else by the last
    line, which may say "B is correct", else the content of the last "answer is ...".
    """
    if not problem.labels:
        return unboxed_answer(text)
    sentences = [*answer_sentences(text)]
    ending = last_line(text)
    said = _IS_CORRECT.search(ending)
    named = (_named_label(each, problem) for each in (*sentences, said[1] if said else ending))
    return next((label for label in named if label), sentences[0] if sentences else None)


def _named_label(answer: str | None, problem: Problem) -> str | None:
    named = (label for label in problem.labels if grade_choice(answer, label, problem.options).correct)
    return next(named, None)


def judge_one(grader: Grader, problem: Problem, answer: str | None) -> Grade:
    """The verdict against one reference answer, by the problem's own checker if it has one."""
    if problem.data_source in CHECKERS:
        return check_answer(answer, problem.answer, problem.data_source)
    return grader.grade_answer(answer, problem.answer)


def judge_all(grader: Grader, problem: Problem, answer: str | None) -> Grade:
    """Right if the text holds as many answers as the reference, and the grader accepts the whole text, as the
    paper's harness requires, or each answer in any order, as OlympiadBench's own judge does
    (arXiv:2402.14008).

    The reason for a wrong answer is that of the whole text.
    """
    bare = None if answer is None else drop_unit(answer, problem.unit)
    whole = grader.grade_answer(bare, problem.answer)
    is_read = whole.reason in (GradeReason.CORRECT, GradeReason.WRONG, GradeReason.ERROR)
    if bare is None or len(problem.answers) == 1 or not is_read:
        return whole
    given, missing = split_answers(bare), split_answers(problem.answer)
    if len(given) != len(missing) and len(joined := split_answers(without_separators(bare))) == len(missing):
        given = joined
    if len(given) != len(missing):
        # A grader that ignores commas takes 5100 for "5, 100".
        return Grade(False, GradeReason.WRONG) if whole.correct else whole
    if whole.correct:
        return whole
    for part in given:
        found = next((gold for gold in missing if grader.grade_answer(part, gold).correct), None)
        if found is None:
            return whole
        missing.remove(found)
    return Grade(True, GradeReason.CORRECT)


def judge_option(grader: Grader, problem: Problem, answer: str | None) -> Grade:
    """Right if the answer names the reference option; no grader is needed."""
    return grade_choice(answer, problem.answer, problem.options)


JUDGES = (judge_one, judge_all, judge_option)
"""Judges that a user's own reward function replaces; a benchmark may have one of its own."""
