"""What an annotator is asked, and how its reply becomes the steps of a worked solution.

It is asked for few steps, each of which begins with ``Step N:``. The requirements are those of SEELE's
appendix E (arXiv:2509.06923) in our words; who is asked is in ``seele.data.annotation.annotate``.

A step of a reply runs from one line that begins with ``Step N:`` to the next, so that the pieces together
are the reply. What the final answer is worth is the grader's to say. How a reply is cut is in
``seele.data.annotation.reply``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from seele.data.annotation.reply import (
    Rejection,
    Texts,
    check_template,
    cut_reply,
    fill,
    fingerprint,
    heading,
)
from seele.endpoint import Reply
from seele.errors import ConfigError
from seele.records import UNGRADED, Grade, GradeReason, Instance

DEFAULT_PROMPT = r"""
Write a worked solution of the problem below. A learner will be shown its first steps, few or many, and has to
go on from where they stop, so every step must be worth reading.

Form:
- Between {min_steps} and {max_steps} steps. Each step begins on a new line with "Step N:", N counting from 1.
- Write nothing before "Step 1:" and nothing after the last step.
- A formula, a table or a block of code lies within one step.
- Only the last step tells the final answer, and it ends with that answer in \boxed{}. There is no other box.

Content:
- Leave no gap: whatever is not obvious is justified where it is used.
- Say in a few words why a step is taken, not only what is done.
- A computation shows at least one value between its beginning and its result.
- A step that computes something ends with a line of its own for what it found: "Result: 48 / 2 = 24".
- A symbolic transformation names the rule that it follows.
- Do not define again what the problem defines, or terms that everybody knows.
- Neither mention a reference nor quote it: write as if you had found the solution yourself.

Problem:
{question}

{reference}
""".strip()

_REFERENCE = """Reference solution, to be reworked into such steps:
{solution}

"""
_ANSWER = "The final answer is: {answer}"

_FIELDS = ("question", "reference", "min_steps", "max_steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatorPrompt:
    """The text that stands around every problem."""

    template: str = DEFAULT_PROMPT
    """With ``{question}``, and where they are wanted ``{reference}``, ``{min_steps}`` and ``{max_steps}``."""
    min_steps: int = 2
    """Of a solution that is kept. Below two there is no hint to give."""
    max_steps: int = 5
    """Likewise; the paper's."""
    shows_solution: bool = True
    """Whether the reference solution is shown where the problem has one, besides its answer."""

    def __post_init__(self) -> None:
        check_template(self.template, _FIELDS)
        if not 1 <= self.min_steps <= self.max_steps:
            raise ConfigError(
                f"annotation needs 1 <= min_steps <= max_steps, got {self.min_steps} and {self.max_steps}"
            )

    @property
    def settings(self) -> Mapping[str, object]:
        """What else decides what is asked and kept."""
        return {name: getattr(self, name) for name in ("min_steps", "max_steps", "shows_solution")}

    @property
    def sha256(self) -> str:
        """Tells this prompt from every other, its numbers included: 64 hexadecimal digits."""
        return fingerprint(self.template, *self.settings.values())

    def render(self, instance: Instance) -> str:
        """The prompt for one problem. What the problem says is never taken for a field."""
        solution = "".join(instance.steps).strip() if self.shows_solution else ""
        reference = _REFERENCE.replace("{solution}", solution) if solution else ""
        values = {
            "question": instance.question.strip(),
            "reference": reference + _ANSWER.replace("{answer}", instance.answer),
            "min_steps": str(self.min_steps),
            "max_steps": str(self.max_steps),
        }
        return fill(self.template, values)


class Grader(Protocol):
    """The part of ``seele.reward.GraderPool`` that annotation needs. Thread-safe."""

    def grade_problem(self, text: str, instance: Instance) -> Grade:
        r"""The verdict on a text by its last ``\boxed{}``."""
        ...


_MARKER = heading("Step")


def judge(
    reply: Reply, instance: Instance, grader: Grader, *, min_steps: int, max_steps: int
) -> tuple[Texts, Rejection | None]:
    """The steps of a reply and why they are not kept; the reason is None where they are.

    Args:
        reply: What the annotator said.
        instance: The problem that it is about.
        grader: Compares the last step's box with its answer.
        min_steps: Of a reply that is kept.
        max_steps: Likewise.
    """
    pieces, rejection = cut_reply(reply, _MARKER)
    steps = tuple(piece.text for piece in pieces)
    if rejection is not None:
        return (), rejection
    if [piece.number for piece in pieces] != list(range(1, len(pieces) + 1)):
        return (), Rejection.FORMAT
    if any(piece.is_blank for piece in pieces):
        return steps, Rejection.BLANK_STEP
    if len(steps) < min_steps:
        return steps, Rejection.TOO_FEW_STEPS
    if len(steps) > max_steps:
        return steps, Rejection.TOO_MANY_STEPS
    return steps, _to_rejection(grader.grade_problem(steps[-1], instance))


def _to_rejection(grade: Grade) -> Rejection | None:
    if grade.correct:
        return None
    if grade.reason in UNGRADED:
        return Rejection.UNGRADED
    return Rejection.NO_ANSWER if grade.reason is GradeReason.NO_ANSWER else Rejection.WRONG_ANSWER
