r"""From an annotator's reply to the steps of a worked solution, or to the reason why it is not kept.

A step runs from one line that begins with ``Step N:`` to the next, so that the pieces together are the reply.
What the final answer is worth is the grader's to say.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from seele.data.storage.row_rules import is_unicode
from seele.endpoint import Reply
from seele.records import UNGRADED, Finish, Grade, GradeReason, Instance

Steps = tuple[str, ...]


class Rejection(StrEnum):
    """Why a reply is not kept, or why a problem has none."""

    REFUSED = "refused"
    """By the model or a filter, without a text; or by the server, for this request."""
    TRUNCATED = "truncated"
    FORMAT = "format"
    """Text before the first step, steps that are not numbered 1, 2, 3 ..., or what is no valid Unicode."""
    BLANK_STEP = "blank_step"
    TOO_FEW_STEPS = "too_few_steps"
    TOO_MANY_STEPS = "too_many_steps"
    NO_ANSWER = "no_answer"
    """No closed box in the last step."""
    WRONG_ANSWER = "wrong_answer"
    UNGRADED = "ungraded"
    """The grader came to no verdict."""
    GAVE_UP = "gave_up"
    """The server did not reply, however often it was asked."""
    BUDGET = "budget"
    """Not asked, for want of money."""


class Grader(Protocol):
    """The part of ``seele.reward.GraderPool`` that annotation needs. Thread-safe."""

    def grade_problem(self, text: str, instance: Instance) -> Grade:
        r"""The verdict on a text by its last ``\boxed{}``."""
        ...


# Some models put the marker in bold or make it a heading.
_MARKER = re.compile(r"^[ \t]*(?:#{1,6}[ \t]+)?[*_]{0,3}Step[ \t]+(\d+)[*_]{0,3}[.:)][*_]{0,3}", re.MULTILINE)
# Of a server that does not keep the thoughts of a reasoning model apart.
_END_OF_THOUGHT = "</think>"


def judge(
    reply: Reply, instance: Instance, grader: Grader, *, min_steps: int, max_steps: int
) -> tuple[Steps, Rejection | None]:
    """The steps of a reply and why they are not kept; the reason is None where they are.

    Args:
        reply: What the annotator said.
        instance: The problem that it is about.
        grader: Compares the last step's box with its answer.
        min_steps: Of a reply that is kept.
        max_steps: Likewise.
    """
    if reply.finish is Finish.LENGTH:
        return (), Rejection.TRUNCATED
    text = reply.text.rpartition(_END_OF_THOUGHT)[2].strip()
    if reply.finish is Finish.ERROR or not text:
        return (), Rejection.REFUSED
    markers = list(_MARKER.finditer(text))
    if not markers or markers[0].start() or not _are_numbered(markers) or not is_unicode(text):
        return (), Rejection.FORMAT
    starts = [marker.start() for marker in markers]
    steps = tuple(text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True))
    bodies = [
        text[marker.end() : start + len(step)]
        for marker, start, step in zip(markers, starts, steps, strict=True)
    ]
    if not all(body.strip(" \t\r\n*_#-") for body in bodies):
        return steps, Rejection.BLANK_STEP
    if len(steps) < min_steps:
        return steps, Rejection.TOO_FEW_STEPS
    if len(steps) > max_steps:
        return steps, Rejection.TOO_MANY_STEPS
    return steps, _to_rejection(grader.grade_problem(steps[-1], instance))


def _are_numbered(markers: Sequence[re.Match[str]]) -> bool:
    return [int(marker[1]) for marker in markers] == list(range(1, len(markers) + 1))


def _to_rejection(grade: Grade) -> Rejection | None:
    if grade.correct:
        return None
    if grade.reason in UNGRADED:
        return Rejection.UNGRADED
    return Rejection.NO_ANSWER if grade.reason is GradeReason.NO_ANSWER else Rejection.WRONG_ANSWER
