"""What all annotations share: fields of a prompt, pieces of a reply, reasons why a reply is not kept.

A piece runs from one heading, such as ``Step 2:``, to the next. Headings rather than JSON, because LaTeX in a
JSON text must escape its backslashes: where the model forgets to, ``\\times`` begins with a tab.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from seele.data.storage.row_rules import is_unicode
from seele.endpoint import Reply
from seele.errors import ConfigError
from seele.records import Finish, Instance

Texts = tuple[str, ...]
"""The content of a reply: the steps of a worked solution, or the tiers of a hint."""


class Rejection(StrEnum):
    """Why a reply is not kept, or why a problem has no reply."""

    REFUSED = "refused"
    """The model or a filter refused and gave no text, or the server refused this request."""
    TRUNCATED = "truncated"
    FORMAT = "format"
    """Text before the first heading, headings other than the requested ones, or invalid Unicode."""
    BLANK_STEP = "blank_step"
    TOO_FEW_STEPS = "too_few_steps"
    TOO_MANY_STEPS = "too_many_steps"
    BLANK_TIER = "blank_tier"
    STATES_ANSWER = "states_answer"
    """A tier states the answer."""
    NO_ANSWER = "no_answer"
    """The last step has no closed box."""
    WRONG_ANSWER = "wrong_answer"
    UNGRADED = "ungraded"
    """The grader reached no verdict."""
    GAVE_UP = "gave_up"
    """The server did not reply to any of the repeated requests."""
    BUDGET = "budget"
    """The problem was not asked because the budget was used up."""


Judge = Callable[[Reply, Instance], tuple[Texts, Rejection | None]]
"""Returns the texts of a reply about a problem, and why it is not kept, None if it is. Thread-safe."""


class Prompt(Protocol):
    """The prompt that every problem is put into."""

    @property
    def template(self) -> str:
        """The text with its fields in braces."""

    @property
    def settings(self) -> Mapping[str, object]:
        """Settings besides the template that decide what is asked and kept."""

    @property
    def sha256(self) -> str:
        """Hash that identifies this prompt and its settings: 64 hexadecimal digits."""

    def render(self, instance: Instance) -> str:
        """Return the prompt for one problem. Braces in the problem's text are never taken for fields."""


def check_template(template: str, fields: Sequence[str]) -> None:
    """Refuse a prompt without ``{question}``.

    Raises:
        ConfigError: If it is missing; the message lists the ``fields`` that a prompt may have.
    """
    if "{question}" not in template:
        raise ConfigError(
            f"the prompt for annotation has no {{question}}; it may have {', '.join(map(repr, fields))} "
            "in braces"
        )


def fill(template: str, values: Mapping[str, str]) -> str:
    """Return ``template`` with its fields replaced by the values, in a single pass."""
    return re.sub(r"\{(" + "|".join(values) + r")\}", lambda found: values[found[1]], template)


def fingerprint(*parts: object) -> str:
    """Return the SHA-256 over everything that determines a prompt: 64 hexadecimal digits."""
    return hashlib.sha256("\x1f".join(map(str, parts)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a reply."""

    word: str
    """Word of the heading, such as ``Step``."""
    number: int
    """Number of the heading."""
    text: str
    """Text with the heading; all pieces together are the reply."""
    body: str
    """Text without the heading."""

    @property
    def is_blank(self) -> bool:
        """True if only decoration follows the heading."""
        return not self.body.strip(" \t\r\n*_#-")


def heading(*words: str) -> re.Pattern[str]:
    """Return a pattern for lines that begin with one of ``words`` and a number, also in bold."""
    return re.compile(
        rf"^[ \t]*(?:#{{1,6}}[ \t]+)?[*_]{{0,3}}({'|'.join(words)})[ \t]+"
        r"(\d{1,3})[*_]{0,3}[.:)][*_]{0,3}",
        re.MULTILINE,
    )


# Sent by servers that do not separate the thoughts of a reasoning model from its reply.
_END_OF_THOUGHT = "</think>"


def cut_reply(reply: Reply, marker: re.Pattern[str]) -> tuple[list[Piece], Rejection | None]:
    """Return the pieces of a reply, or the reason why it has none.

    Args:
        reply: The annotator's reply.
        marker: Pattern from ``heading``.
    """
    if reply.finish is Finish.LENGTH:
        return [], Rejection.TRUNCATED
    text = reply.text.rpartition(_END_OF_THOUGHT)[2].strip()
    if reply.finish is Finish.ERROR or not text:
        return [], Rejection.REFUSED
    found = list(marker.finditer(text))
    if not found or found[0].start() or not is_unicode(text):
        return [], Rejection.FORMAT
    ends = [*(each.start() for each in found[1:]), len(text)]
    return [
        Piece(each[1], int(each[2]), text[each.start() : end], text[each.end() : end])
        for each, end in zip(found, ends, strict=True)
    ], None
