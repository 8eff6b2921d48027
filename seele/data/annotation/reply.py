"""What every annotation has in common: fields of a prompt, pieces of a reply, reasons why it is not kept.

A piece runs from one heading, such as ``Step 2:``, to the next. Headings rather than JSON, because LaTeX in a
JSON text must escape its backslashes: where that is forgotten, ``\\times`` begins with a tab.
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
"""What a reply comes to: the steps of a worked solution, or the tiers of a hint."""


class Rejection(StrEnum):
    """Why a reply is not kept, or why a problem has none."""

    REFUSED = "refused"
    """By the model or a filter, without a text; or by the server, for this request."""
    TRUNCATED = "truncated"
    FORMAT = "format"
    """Text before the first heading, other headings than were asked for, or what is no valid Unicode."""
    BLANK_STEP = "blank_step"
    TOO_FEW_STEPS = "too_few_steps"
    TOO_MANY_STEPS = "too_many_steps"
    BLANK_TIER = "blank_tier"
    STATES_ANSWER = "states_answer"
    """A tier does."""
    NO_ANSWER = "no_answer"
    """No closed box in the last step."""
    WRONG_ANSWER = "wrong_answer"
    UNGRADED = "ungraded"
    """The grader came to no verdict."""
    GAVE_UP = "gave_up"
    """The server did not reply, however often it was asked."""
    BUDGET = "budget"
    """Not asked, for want of money."""


Judge = Callable[[Reply, Instance], tuple[Texts, Rejection | None]]
"""Says what a reply about a problem comes to, and why it is not kept: None where it is. Thread-safe."""


class Prompt(Protocol):
    """The text that stands around every problem."""

    @property
    def template(self) -> str:
        """The text with its fields in braces."""

    @property
    def settings(self) -> Mapping[str, object]:
        """What else decides what is asked and kept."""

    @property
    def sha256(self) -> str:
        """Tells this prompt from every other, its numbers included: 64 hexadecimal digits."""

    def render(self, instance: Instance) -> str:
        """The prompt for one problem. What the problem says is never taken for a field."""


def check_template(template: str, fields: Sequence[str]) -> None:
    """Refuse a prompt without a question.

    Raises:
        ConfigError: With the ``fields`` that it may have.
    """
    if "{question}" not in template:
        raise ConfigError(
            f"the prompt for annotation has no {{question}}; it may have {', '.join(map(repr, fields))} "
            "in braces"
        )


def fill(template: str, values: Mapping[str, str]) -> str:
    """``template`` with the values in place of the fields, each once."""
    return re.sub(r"\{(" + "|".join(values) + r")\}", lambda found: values[found[1]], template)


def fingerprint(*parts: object) -> str:
    """SHA-256 over what decides a prompt: 64 hexadecimal digits."""
    return hashlib.sha256("\x1f".join(map(str, parts)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a reply."""

    word: str
    """Of its heading: ``Step``."""
    number: int
    """Likewise."""
    text: str
    """With the heading; all pieces together are the reply."""
    body: str
    """Without it."""

    @property
    def is_blank(self) -> bool:
        """Whether nothing but decoration stands under the heading."""
        return not self.body.strip(" \t\r\n*_#-")


def heading(*words: str) -> re.Pattern[str]:
    """Finds lines that begin with one of ``words`` and a number. Some models put them in bold."""
    return re.compile(
        rf"^[ \t]*(?:#{{1,6}}[ \t]+)?[*_]{{0,3}}({'|'.join(words)})[ \t]+(\d+)[*_]{{0,3}}[.:)][*_]{{0,3}}",
        re.MULTILINE,
    )


# Of a server that does not keep the thoughts of a reasoning model apart.
_END_OF_THOUGHT = "</think>"


def cut_reply(reply: Reply, marker: re.Pattern[str]) -> tuple[list[Piece], Rejection | None]:
    """The pieces of a reply, or the reason why it has none.

    Args:
        reply: What the annotator said.
        marker: Of ``heading``.
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
