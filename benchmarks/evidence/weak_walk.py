"""Walks of chains by a checker that sees less and errs: ``seele.credit.walk=FILE:visible_85_errors_2``.

It sees the values of a share of the milestones. Of those it calls some right values wrong (false alarms) and
some wrong ones right (false passes). Its verdict on a line is always the same: a hash of the worked
solution and the line decides.
"""

import zlib
from collections.abc import Callable, Sequence

from seele.records import Milestone, Segment, Walk
from seele.reward.milestones import walk as exact


def weak_walk(*, visible: float, false_alarms: float, false_passes: float) -> Callable[..., Walk]:
    """Return a walk with these shares, each in [0, 1]; 1, 0 and 0 make it exact."""

    def walk(milestones: Sequence[Milestone], text: str, *, correct: bool | None, shown: int = 0) -> Walk:
        last = len(milestones) - 1
        segments: list[Segment] = []
        start = at = 0
        ahead = min(shown, last)
        for line in text.splitlines(keepends=True):
            found = exact(milestones, line, correct=None, shown=ahead)
            line_start, at = at, at + len(line)
            error = found.first_error
            if error is not None and "\\boxed" in line[:error]:
                continue  # The answer is the grader's.
            judged = [each for each in found.segments if each.milestone_index < last or error is not None]
            if not judged or _draw("sees", milestones, judged[-1].milestone_index) >= visible:
                continue
            _, end, index, passed = judged[-1]
            if _draw("errs", milestones, index, line.strip()) < (false_alarms if passed else false_passes):
                passed = not passed
            if not passed and correct:
                continue
            if passed and index == last:
                continue
            segments.append(Segment(start, line_start + end, index, passed))
            if not passed:
                return Walk(tuple(segments), line_start + (end - 1 if error is None else error))
            start, ahead = line_start + end, index + 1
        if correct is None and any(
            each.passed for each in exact(milestones[-1:], text, correct=None).segments
        ):
            correct = True
        if correct is not None:
            segments.append(Segment(start, len(text), last, correct))
        return Walk(tuple(segments), None)

    return walk


def _draw(what: str, milestones: Sequence[Milestone], index: int, line: str = "") -> float:
    """Return a number in [0, 1) for a milestone of a problem, and for a line about it."""
    solution = "".join(equation for milestone in milestones for equation in milestone.equations)
    return zlib.crc32(f"{what} {solution} {index} {line}".encode()) / 2**32


# visible_VV_errors_EE: percent of milestones seen, and of right values called wrong.
_ERRORS_0 = {"false_alarms": 0.0, "false_passes": 0.0}
_ERRORS_2 = {"false_alarms": 0.02, "false_passes": 0.05}
_ERRORS_5 = {"false_alarms": 0.05, "false_passes": 0.2}
visible_100_errors_2 = weak_walk(visible=1.0, **_ERRORS_2)
visible_100_errors_5 = weak_walk(visible=1.0, **_ERRORS_5)
visible_85_errors_0 = weak_walk(visible=0.85, **_ERRORS_0)
visible_85_errors_2 = weak_walk(visible=0.85, **_ERRORS_2)
visible_85_errors_5 = weak_walk(visible=0.85, **_ERRORS_5)
visible_50_errors_0 = weak_walk(visible=0.5, **_ERRORS_0)
visible_50_errors_2 = weak_walk(visible=0.5, **_ERRORS_2)
visible_50_errors_5 = weak_walk(visible=0.5, **_ERRORS_5)
