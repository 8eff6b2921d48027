"""The prompt for an annotator, and how its reply becomes the steps of a worked solution.

The annotator is asked for a few steps, each of which begins with ``Step N:``. The requirements are those of
SEELE's appendix E (arXiv:2509.06923) in our words; ``seele.data.annotation.annotate`` sends the requests.

A step of a reply runs from one line that begins with ``Step N:`` to the next, so that the pieces together
are the reply. The grader checks the final answer. ``seele.data.annotation.reply`` cuts the reply.
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
from seele.data.steps.cutting import join_steps
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
    """The prompt that every problem is put into."""

    template: str = DEFAULT_PROMPT
    """Text with ``{question}``, and optionally ``{reference}``, ``{min_steps}`` and ``{max_steps}``."""
    min_steps: int = 2
    """Fewest steps of a solution that is kept. With fewer than two there is no hint to give."""
    max_steps: int = 5
    """Most steps of a solution that is kept, as in the paper."""
    shows_solution: bool = True
    """True to show the worked solution, if the problem has one, in addition to the answer."""

    def __post_init__(self) -> None:
        check_template(self.template, _FIELDS)
        if not 1 <= self.min_steps <= self.max_steps:
            raise ConfigError(
                f"annotation needs 1 <= min_steps <= max_steps, got {self.min_steps} and {self.max_steps}"
            )

    @property
    def settings(self) -> Mapping[str, object]:
        """Settings besides the template that decide what is asked and kept."""
        return {name: getattr(self, name) for name in ("min_steps", "max_steps", "shows_solution")}

    @property
    def sha256(self) -> str:
        """Hash that identifies this prompt and its settings: 64 hexadecimal digits."""
        return fingerprint(self.template, *self.settings.values())

    def render(self, instance: Instance) -> str:
        """Return the prompt for one problem. Braces in the problem's text are never taken for fields."""
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
        r"""Grade a text by its last ``\boxed{}``."""
        ...


_MARKER = heading("Step")


def judge(
    reply: Reply, instance: Instance, grader: Grader, *, min_steps: int, max_steps: int
) -> tuple[Texts, Rejection | None]:
    """Return the steps of a reply and why they are not kept; the reason is None if they are.

    Args:
        reply: The annotator's reply.
        instance: The problem that the reply is about.
        grader: Compares the last step's box with the problem's answer.
        min_steps: Fewest steps of a reply that is kept.
        max_steps: Most steps of a reply that is kept.
    """
    pieces, rejection = cut_reply(reply, _MARKER)
    steps = tuple(piece.text for piece in pieces)
    if rejection is not None:
        return (), rejection
    is_counted = [piece.number for piece in pieces] == list(range(1, len(pieces) + 1))
    if not is_counted or (all(map(str.strip, steps)) and join_steps(steps, separator="") != steps):
        return (), Rejection.FORMAT  # misnumbered, or cut inside a formula
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
