"""Walks of chains by a checker that sees less and errs: ``seele.credit.walk=FILE:visible_85_errors_2``.

It sees the values of a share of the milestones. Of those it calls some right values wrong (false alarms) and
some wrong ones right (false passes). Its verdict on a line is always the same: a hash of the worked
solution and the line decides.
"""

import zlib
from collections.abc import Callable, Sequence
from itertools import product

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
_FALSE_PASSES = {0: 0.0, 2: 0.05, 5: 0.2}
for _visible, _alarms in product((100, 85, 50), _FALSE_PASSES):
    globals()[f"visible_{_visible}_errors_{_alarms}"] = weak_walk(
        visible=_visible / 100, false_alarms=_alarms / 100, false_passes=_FALSE_PASSES[_alarms]
    )
