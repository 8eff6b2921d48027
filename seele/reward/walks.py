"""How responses are walked along their milestones: ``seele.credit.walk``, and a watch for the first error.

``milestones`` is ``seele.reward.milestones.walk``. A user's own walk is a function with the same arguments::

    def walk(milestones, text, *, correct, shown): ...

It returns a ``seele.records.Walk`` in characters of the text. With ``seele.credit.stop`` it is also called on
each line separately, with ``shown`` counting the milestones before the line.
"""

import functools
import inspect
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

    def checked(milestones: Sequence[Milestone], text: str, *, correct: bool | None, shown: int = 0) -> Walk:
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
    if found.first_error is not None and not 0 <= found.first_error < num_chars:
        raise ValueError(f"first_error must lie in the text, got {found.first_error}")


class ErrorWatch:
    """Finds the first sure error of a response while it is being written, line by line. It does not matter
    how the text is split into pieces.
    """

    def __init__(self, milestones: Sequence[Milestone], *, shown: int, walk: str = "milestones") -> None:
        """Begin before the response.

        Args:
            milestones: The problem's milestones.
            shown: How many of them the hint states (``num_shown``).
            walk: As ``seele.credit.walk``; a name, because watches are sent to the engine's process.
        """
        self._walk, self._shown = walk, shown
        self._milestones, self._behind = milestones, shown
        self._line = ""
        self.chars_read = 0
        """Characters of the lines read so far, up to the one with the error."""

    def to_json(self) -> dict[str, Any]:
        """JSON of a watch at the beginning of the response, for the engine's process."""
        milestones = [[each.value, each.end, list(each.equations)] for each in self._milestones]
        return {"milestones": milestones, "shown": self._shown, "walk": self._walk}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "ErrorWatch":
        """The watch that ``to_json`` describes."""
        milestones = [
            Milestone(value, end, tuple(equations)) for value, end, equations in stored["milestones"]
        ]
        return cls(milestones, shown=stored["shown"], walk=stored["walk"])

    def finds_error(self, text: str) -> bool:
        """Read ``text``, which comes next, and return True if a line that ends in it has a sure error."""
        *ended, self._line = (self._line + text).split("\n")
        for line in ended:
            self.chars_read += len(line) + 1
            seen = find_walk(self._walk)(self._milestones, line, correct=None, shown=self._behind)
            if seen.first_error is not None:
                return True
            passed = [segment.milestone_index for segment in seen.segments if segment.passed]
            self._behind = max([self._behind, *(index + 1 for index in passed)])
        return False
