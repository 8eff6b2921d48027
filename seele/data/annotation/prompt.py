r"""What an annotator is asked: a problem's solution in few steps, each of which begins with ``Step N:``.

The requirements are those of SEELE's appendix E (arXiv:2509.06923) in our words. How a reply is read is in
``seele.data.annotation.reply``; who is asked, in ``seele.data.annotation.annotate``.
"""

import hashlib
import re
from dataclasses import dataclass

from seele.errors import ConfigError
from seele.records import Instance

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
_FIELD = re.compile(r"\{(" + "|".join(_FIELDS) + r")\}")


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
        if "{question}" not in self.template:
            raise ConfigError(
                f"the prompt for annotation has no {{question}}; it may have {', '.join(map(repr, _FIELDS))} "
                "in braces"
            )
        if not 1 <= self.min_steps <= self.max_steps:
            raise ConfigError(
                f"annotation needs 1 <= min_steps <= max_steps, got {self.min_steps} and {self.max_steps}"
            )

    @property
    def sha256(self) -> str:
        """Tells this prompt from every other, its numbers included: 64 hexadecimal digits."""
        parts = (self.template, str(self.min_steps), str(self.max_steps), str(self.shows_solution))
        return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()

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
        return _FIELD.sub(lambda found: values[found[1]], self.template)
