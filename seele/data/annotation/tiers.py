"""Hints in tiers: the prompt for an annotator, and how its reply becomes texts that do not state the answer.

*Levels* are three independent hints, as in SAGE (arXiv:2602.03143): the key concept, the direction,
substantial guidance. A *scaffold* is Scaf-GRPO's (arXiv:2510.19807): knowledge, plan and solution, each in
parts, of which a tier holds the first one, the first two, and so on; a plan comes without the knowledge. Both
papers ask for such hints; the wording is ours. Hints that state the answer are found as in
``seele.data.steps.leakage``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from seele.data.annotation.reply import (
    Rejection,
    Texts,
    check_template,
    cut_reply,
    fill,
    fingerprint,
    heading,
)
from seele.data.steps.leakage import stated_end
from seele.endpoint import Reply
from seele.errors import ConfigError
from seele.records import Instance

_LEVELS = r"""
Write three hints for the problem below, from weak to strong. A learner who has failed it will be shown one of
them and has to find the solution, so every hint must help by itself.

Form:
- Each hint begins on a new line with "Level N:", N being 1, 2 and 3.
- Write nothing before "Level 1:" and nothing after the third hint.

Content:
- Level 1 names the key concept, in a sentence or two, without saying what to do with it.
- Level 2 gives the direction: the method, or the intermediate steps, none of them carried out.
- Level 3 guides through most of the solution, and leaves its end to the learner.
""".strip()

_SCAFFOLD = r"""
Write hints of three kinds for the problem below: knowledge, plan and solution. A learner who has failed it
will be shown the first parts of one kind, few or many, and has to find the solution from there.

Form:
- Each kind has {parts} parts, each of which adds to those before it.
- Each part begins on a new line with its kind and its number: "Knowledge 1:" to "Knowledge {parts}:", then
  "Plan 1:" to "Plan {parts}:", then "Solution 1:" to "Solution {parts}:".
- Write nothing before "Knowledge 1:" and nothing after the last part.

Content:
- Knowledge names concepts, theorems and formulas that are needed, without applying them.
- Plan says what to do in which order, without computing anything.
- Solution carries the steps out, one after another, and leaves the last one to the learner.
""".strip()

_END = r"""
- No hint states the final answer in any form, or leaves nothing but copying it.
- Neither mention a reference nor quote it.

Problem:
{question}

{reference}
""".rstrip()

DEFAULT_PROMPTS = {"levels": _LEVELS + _END, "scaffold": _SCAFFOLD + _END}
"""Prompts by form."""

_REFERENCE = """Reference solution, which the learner does not see:
{solution}

"""
_ANSWER = "The final answer, which no hint may state: {answer}"

_FIELDS = ("question", "reference", "parts")
_KINDS = ("Knowledge", "Plan", "Solution")
_PARTS = 4
"""Parts of each kind in Scaf-GRPO's public code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TiersPrompt:
    """The prompt that every problem is put into, and the tiers that a reply must have."""

    form: str = "levels"
    """``levels`` or ``scaffold``."""
    parts: int | None = None
    """Parts of each kind of a scaffold; None for four, and for levels, which have no parts."""
    own: str | None = None
    """Prompt to use in place of ours, with ``{question}``, and optionally ``{reference}`` and ``{parts}``."""

    def __post_init__(self) -> None:
        if self.form not in DEFAULT_PROMPTS:
            raise ConfigError(f"hints: form must be one of {list(DEFAULT_PROMPTS)}, got {self.form!r}")
        if self.parts is not None and (self.form != "scaffold" or self.parts < 1):
            raise ConfigError(
                f"hints: parts must be at least 1 and belongs to form=scaffold, got {self.parts} with "
                f"form={self.form}"
            )
        check_template(self.template, _FIELDS)

    @property
    def template(self) -> str:
        """The text with its fields in braces."""
        return DEFAULT_PROMPTS[self.form] if self.own is None else self.own

    @property
    def settings(self) -> Mapping[str, object]:
        """Settings besides the template that decide a reply's tiers."""
        return {"form": self.form} | ({"parts": self._num_parts} if self.form == "scaffold" else {})

    @property
    def sha256(self) -> str:
        """Hash that identifies this prompt and its settings: 64 hexadecimal digits."""
        return fingerprint(self.template, *self.settings.values())

    @property
    def _num_parts(self) -> int:
        return self.parts or _PARTS

    @property
    def _headings(self) -> list[tuple[str, int]]:
        if self.form == "levels":
            return [("Level", number) for number in (1, 2, 3)]
        return [(kind, number) for kind in _KINDS for number in range(1, self._num_parts + 1)]

    def render(self, instance: Instance) -> str:
        """Return the prompt for one problem. Braces in the problem's text are never taken for fields."""
        solution = "".join(instance.steps).strip()
        reference = _REFERENCE.replace("{solution}", solution) if solution else ""
        values = {
            "question": instance.question.strip(),
            "reference": reference + _ANSWER.replace("{answer}", instance.answer),
            "parts": str(self._num_parts),
        }
        return fill(self.template, values)

    def judge(self, reply: Reply, instance: Instance) -> tuple[Texts, Rejection | None]:
        """Return the tiers of a reply, from weak to strong, and why they are not kept; the reason is None if
        they are.
        """
        wanted = self._headings
        pieces, rejection = cut_reply(reply, heading(*dict(wanted)))
        if rejection is not None:
            return (), rejection
        if [(piece.word, piece.number) for piece in pieces] != wanted:
            return (), Rejection.FORMAT
        if any(piece.is_blank for piece in pieces):
            return (), Rejection.BLANK_TIER
        tiers: list[str] = []
        for piece in pieces:
            goes_on = self.form == "scaffold" and piece.number > 1
            tiers.append(f"{tiers[-1]}\n{piece.body.strip()}" if goes_on else piece.body.strip())
        states_answer = any(stated_end(tier, instance.answer) is not None for tier in tiers)
        return tuple(tiers), Rejection.STATES_ANSWER if states_answer else None
