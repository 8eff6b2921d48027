"""The first sure error of a response, seen while the response is being written."""

from collections.abc import Sequence

from seele.records import Milestone
from seele.reward.milestones import walk


class ErrorWatch:
    """Reads one response line by line; in what pieces the text comes makes no difference."""

    def __init__(self, milestones: Sequence[Milestone], *, shown: int) -> None:
        """Begin in front of the response.

        Args:
            milestones: Of the problem.
            shown: How many of them the hint states (``seele.reward.milestones.num_shown``).
        """
        self._milestones, self._behind = milestones, shown
        self._line = ""
        self.chars_read = 0
        """Characters of the lines that it has looked at, up to the one with the error."""

    def finds_error(self, text: str) -> bool:
        """Whether a line that ends in ``text``, which comes next, holds a sure error."""
        *ended, self._line = (self._line + text).split("\n")
        for line in ended:
            self.chars_read += len(line) + 1
            seen = walk(self._milestones, line, correct=None, shown=self._behind)
            if seen.first_error is not None:
                return True
            passed = [segment.milestone_index for segment in seen.segments if segment.passed]
            self._behind = max([self._behind, *(index + 1 for index in passed)])
        return False
