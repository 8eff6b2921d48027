"""How responses are walked along their milestones: ``seele.credit.walk``, and a watch for the first error.

``milestones`` is ``seele.reward.milestones.walk``. A user's own walk is a function with the same arguments::

    def walk(milestones, text, *, correct, shown): ...

It returns a ``seele.records.Walk`` in characters of the text. With ``seele.credit.stop`` it is also called
after each line of a response, on all lines so far.
"""

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seele.errors import ConfigError
from seele.plugins import blame, find_part, where
from seele.records import Milestone, Walk
from seele.reward.milestones import walk

KEY = "seele.credit.walk"

WalkFunction = Callable[..., Walk]


@functools.cache
def find_walk(spec: str) -> WalkFunction:
    """Return the walk that a setting names; faults of a user's own walk are reported.

    Raises:
        ConfigError: There is no such walk, or it does not take ``walk``'s arguments.
    """
    built_in = {"milestones": walk}
    function: WalkFunction = find_part(spec, key=KEY, group="walks", built_in=built_in)
    return function if spec in built_in else _checked(function)


def _checked(function: WalkFunction) -> WalkFunction:
    try:
        inspect.signature(function).bind((), "", correct=None, shown=0)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{KEY}: {where(function)} must be a function of (milestones, text, *, correct, shown): {error}"
        ) from error

    def checked(
        milestones: Sequence[Milestone], text: str, *, correct: bool | None, shown: int = 0, hint: str = ""
    ) -> Walk:
        with blame(function, f"a response of {len(text)} characters", key=KEY):
            found = function(milestones, text, correct=correct, shown=shown)
            _check(found, len(milestones), len(text))
        return found

    return checked


def _check(found: Walk, num_milestones: int, num_chars: int) -> None:
    """Raise ``ValueError`` unless the segments follow each other within the text."""
    ends = [0, *(segment.end for segment in found.segments)]
    if [segment.start for segment in found.segments] != ends[:-1] or ends != sorted(ends):
        raise ValueError(f"segments must follow each other from 0 on, got {found.segments}")
    if ends[-1] > num_chars:
        raise ValueError(f"segments must end within the {num_chars} characters, got {found.segments}")
    if any(not 0 <= segment.milestone_index < num_milestones for segment in found.segments):
        raise ValueError(f"milestone_index must be below {num_milestones}, got {found.segments}")
    indices = [segment.milestone_index for segment in found.segments]
    if indices != sorted(set(indices)):
        raise ValueError(f"milestone_index must rise from segment to segment, got {found.segments}")
    if found.first_error is not None and not 0 <= found.first_error < num_chars:
        raise ValueError(f"first_error must lie in the text, got {found.first_error}")


class ErrorWatch:
    """Finds the first sure error of a response while it is being written: after each line, it knows whether
    the walk over all lines so far has one. It does not matter how the text is split into pieces.
    """

    def __init__(
        self, milestones: Sequence[Milestone], *, shown: int, walk: str = "milestones", hint: str = ""
    ) -> None:
        """Begin before the response.

        Args:
            milestones: The problem's milestones.
            shown: How many of them the hint states (``num_shown``).
            walk: As ``seele.credit.walk``; a name, because watches are sent to the engine's process.
            hint: The text right before the response, which continues it.
        """
        self._milestones, self._shown, self._walk = milestones, shown, walk
        self._hint_chars = len(hint)
        self._written = hint
        """The hint and the response so far."""
        self.chars_read = 0
        """Characters of the response's lines read so far, up to the one with the error."""

    def to_json(self) -> dict[str, Any]:
        """JSON of a watch at the beginning of the response, for the engine's process."""
        milestones = [[each.value, each.end, list(each.equations)] for each in self._milestones]
        hint = self._written[: self._hint_chars]
        return {"milestones": milestones, "shown": self._shown, "walk": self._walk, "hint": hint}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "ErrorWatch":
        """The watch that ``to_json`` describes."""
        milestones = [
            Milestone(value, end, tuple(equations)) for value, end, equations in stored["milestones"]
        ]
        return cls(milestones, shown=stored["shown"], walk=stored["walk"], hint=stored["hint"])

    def finds_error(self, text: str) -> bool:
        """Read ``text``, which comes next, and return True if the walk up to a line that ends in it has a
        sure error.
        """
        self._written += text
        while end := self._written.find("\n", line := self._hint_chars + self.chars_read) + 1:
            self.chars_read = end - self._hint_chars
            views = [(0, 0)]
            if self._walk == "milestones":
                # Whole walks after every line would take quadratic time. Only the line and those that it
                # continues may show a new error, and what looks like one is looked at again with more around.
                start = _start_of_joined(self._written, line, end)
                around = self._written.rfind("\n", 0, max(start - _AROUND, 0)) + 1
                views = [(start, start), (around, start), *views]
            if all(self._has_error(begin, judged_from, end) for begin, judged_from in views):
                return True
        return False

    def _has_error(self, begin: int, judged_from: int, end: int) -> bool:
        """Walk ``_written[judged_from:end]``, knowing what was written from ``begin`` on."""
        judged_from = max(judged_from, self._hint_chars)
        text, before = self._written[judged_from:end], self._written[begin:judged_from]
        seen = find_walk(self._walk)(self._milestones, text, correct=None, shown=self._shown, hint=before)
        return seen.first_error is not None


_AROUND = 400
"""Characters before an equation that are enough to judge it almost always."""
_BEGINS_OPEN = re.compile(r"[^0-9]*=")
"""An equals sign without a number before it."""
_ENDS_OPEN = re.compile(r"[^0-9]*?[-+*/=(\[{\\\u00d7\u00f7\u2212]")
"""Read backwards: a sign without a number behind it."""
_MOST_JOINED = 12
"""Lines that one equation with the words behind it may take."""


def _start_of_joined(text: str, start: int, end: int) -> int:
    """Where the lines begin that may share an equation, or a box, with the last one, ``text[start:end]``.

    A line continues the one before if that one ends, or this one begins, with a sign whose number is missing.
    """
    box = text.rfind("\\boxed{", 0, start)
    closes_box = box >= 0 and "}" not in text[box:start] and "}" in text[start:end]
    start = text.rfind("\n", 0, start) + 1
    for _ in range(_MOST_JOINED):
        before = text.rfind("\n", 0, max(start - 1, 0)) + 1
        earlier = text[before:start]
        if earlier.strip() and not (_ENDS_OPEN.match(earlier[::-1]) or _BEGINS_OPEN.match(text[start:end])):
            break
        start, end = before, start
    return min(start, box) if closes_box else start
