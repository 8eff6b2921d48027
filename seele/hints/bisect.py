"""Bisection: every round cuts an interval of hint ratios that should contain the crossing of the target."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from seele.hints.contract import SequentialController, check_number, check_outcome, nearest_legal
from seele.records import State
from seele.saved_state import read_ratio, read_section

SMALLEST_WIDEN = 0.01
"""The smallest ``widen``; with less, the interval could not grow from a point."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Hint ratios between which the accuracy should cross the target."""

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.low <= self.high <= 1.0:
            raise ValueError(f"an interval needs 0 <= low <= high <= 1, got {self}")

    @property
    def middle(self) -> float:
        """The ratio to try next."""
        return 0.5 * (self.low + self.high)

    @property
    def width(self) -> float:
        """The interval's width in units of hint ratio."""
        return self.high - self.low

    def widened(self, margin: float) -> "Interval":
        """The interval widened by ``margin`` on both sides, within [0, 1]."""
        return Interval(max(self.low - margin, 0.0), min(self.high + margin, 1.0))

    def below(self, ratio: float, *, margin: float) -> "Interval":
        """The part below ``ratio``, where the accuracy was above the target.

        A ratio outside the interval does not cut it: it confirms or contradicts what was known. The interval
        then extends down from the lower of ratio and ``high``, wider by ``margin``, so the search continues.
        """
        high = min(self.high, ratio)
        return Interval(self.low if self._holds(ratio) else max(high - self.width - margin, 0.0), high)

    def above(self, ratio: float, *, margin: float) -> "Interval":
        """The part above ``ratio``, where the accuracy was below the target; mirrors ``below``."""
        low = max(self.low, ratio)
        return Interval(low, self.high if self._holds(ratio) else min(low + self.width + margin, 1.0))

    def _holds(self, ratio: float) -> bool:
        return self.low < ratio < self.high


class BisectController(SequentialController):
    """Reveal the legal ratio nearest to the middle of each problem's interval.

    A round above the target shows that the crossing lies below its hint ratio, a round below the target that
    it lies above, and a round exactly at the target that it lies there. Rounds are noisy and the policy
    changes, so the interval grows again: between visits, and after a round that does not cut it
    (``Interval.below``).

    Args:
        target_accuracy: a* in (0, 1).
        widen: How much the interval grows, in units of hint ratio: on either side when a visit ends, and on
            one side after a round that does not cut it.
    """

    name = "bisect"
    learns_from_own_hints = True

    def __init__(self, *, target_accuracy: float = 0.5, widen: float = 0.1) -> None:
        self._target_accuracy = target_accuracy
        self._widen = check_number("widen", widen, at_least=SMALLEST_WIDEN, at_most=1.0)
        self._intervals: dict[str, Interval] = {}

    def next_hint_ratio(self, instance_id: str, *, round_index: int, legal_ratios: Sequence[float]) -> float:
        """See ``Controller``."""
        return nearest_legal(self._intervals.get(instance_id, Interval()).middle, legal_ratios)

    def observe(self, instance_id: str, *, hint_ratio: float, num_correct: int, num_rollouts: int) -> None:
        """See ``Controller``.

        Raises:
            ValueError: If the outcome is impossible.
        """
        ratio, correct, rollouts = check_outcome(hint_ratio, num_correct, num_rollouts)
        interval, accuracy = self._intervals.get(instance_id, Interval()), correct / rollouts
        if accuracy > self._target_accuracy:
            interval = interval.below(ratio, margin=self._widen)
        elif accuracy < self._target_accuracy:
            interval = interval.above(ratio, margin=self._widen)
        else:
            interval = Interval(ratio, ratio)
        self._intervals[instance_id] = interval

    def end_visit(self, instance_id: str) -> None:
        """Widen the interval, because the policy is about to change."""
        if instance_id in self._intervals:
            self._intervals[instance_id] = self._intervals[instance_id].widened(self._widen)

    def state_dict(self) -> State:
        """See ``Controller``. An interval is [low, high]."""
        return {
            **super().state_dict(),
            "intervals": {
                instance_id: [interval.low, interval.high]
                for instance_id, interval in sorted(self._intervals.items())
            },
        }

    def load_state_dict(self, state: State) -> None:
        """See ``Controller``. Settings are not part of the state: this controller keeps its own."""
        self._intervals = self._read_state(
            state, lambda saved: read_section(saved, "intervals", _read_interval)
        )

    def metrics(self) -> dict[str, float]:
        """See ``Controller``: the number of problems observed, and their intervals' mean middle and width."""
        intervals = self._intervals.values()
        means = (
            {
                "mean_rate": fmean(interval.middle for interval in intervals),
                "mean_width": fmean(interval.width for interval in intervals),
            }
            if intervals
            else {}
        )
        return {"problems": float(len(intervals)), **means}


def _read_interval(value: Any) -> Interval:
    low, high = map(read_ratio, value)
    return Interval(low, high)
