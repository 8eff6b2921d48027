"""Credit by milestones: an advantage for each segment of a response instead of one for all of it.

    b_ij = (sum of the other rollouts' v_j + m p_j) / (n_ij + m)
    A_ij = v_ij - b_ij        on the tokens of segment j; 0 after a first error

v_ij is 1 if rollout i passed milestone j and 0 if it failed; on the last milestone, the final answer, it is
the rollout's reward, unless a sure error ended the rollout's walk. n_ij counts the other rollouts of the
problem that reached j, m is ``prior_rollouts``, and p_j the pass rate, over all problems, of milestones that
lie as far from the answer.
Pure; docs/methods/milestones.md.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple

from seele.config import CreditConfig
from seele.maths.pass_rates import moved_rate
from seele.records import Rollout, Segment, State, Visit
from seele.saved_state import read_count, read_ratio, read_state

FEWEST_ALARMS = 5
"""Number of correct rollouts that must have been flagged before their share can end stopping."""


class Span(NamedTuple):
    """Tokens of a completion that share an advantage."""

    start: int
    end: int
    advantage: float


class MilestoneCredit:
    """The state of a run's credit: pass rates over problems, and whether rollouts are still stopped."""

    _HEADER: ClassVar[State] = {"credit": "milestones", "version": 1}

    def __init__(self, settings: CreditConfig) -> None:
        self._settings = settings
        self._rates: dict[int, float] = {}
        """Milestones left to the answer -> share of segments that passed."""
        self._num_right = 0
        """Number of rollouts with a correct answer that could not have been stopped."""
        self._num_alarms = 0
        """Number of these that have a sure error even so, judged without their grade."""
        self._stopping_ended = False
        self._of_step: dict[str, float] = {}

    def take_step(self, visits: Mapping[str, Visit]) -> dict[str, dict[int, list[Span]]]:
        """The advantages of a step's rollouts, by uid and rollout index; tokens without a span have 0.

        Their baseline depends only on earlier steps and on the problem's other rollouts; the step then
        updates the pass rates.
        """
        spans = {uid: self._spans(visit) for uid, visit in visits.items()}
        rollouts = [rollout for visit in visits.values() for rollout in visit.generated]
        self._measure(rollouts)
        self._learn_rates(visits.values())
        return spans

    def _spans(self, visit: Visit) -> dict[int, list[Span]]:
        values = _values_by_milestones_left([visit])
        totals = {left: math.fsum(of_milestone) for left, of_milestone in values.items()}

        def advantage(left: int, value: float) -> float:
            rate, others = self._rates.get(left, 0.5), len(values[left]) - 1
            # Without other rollouts the rate alone is the baseline.
            prior = self._settings.prior_rollouts if others else self._settings.prior_rollouts or 1.0
            return value - (totals[left] - value + prior * rate) / (others + prior)

        return {
            rollout.rollout_index: [
                Span(segment.start, segment.end, advantage(left, value))
                for segment, left, value in _outcomes(visit, rollout)
            ]
            for rollout in visit.generated
        }

    def _learn_rates(self, visits: Iterable[Visit]) -> None:
        for left, outcomes in _values_by_milestones_left(visits).items():
            before, passed = self._rates.get(left, 0.5), math.fsum(outcomes)
            self._rates[left] = moved_rate(before, passed=passed, outcomes=len(outcomes))

    def _measure(self, rollouts: Sequence[Rollout]) -> None:
        # A problem's first rollout is never stopped: it serves to count false alarms.
        right = [each for each in rollouts if each.grade.correct and not (self.stops and each.rollout_index)]
        self._num_right += len(right)
        self._num_alarms += sum(each.grade.is_flagged for each in right)
        segments = [
            segment for rollout in rollouts if rollout.grade.walk for segment in rollout.grade.walk.segments
        ]
        count = max(len(rollouts), 1)
        self._of_step = {
            "passed_share": sum(segment.passed for segment in segments) / max(len(segments), 1),
            "segments_per_rollout": len(segments) / count,
            "flagged_share": sum(each.grade.is_flagged for each in rollouts) / count,
            "false_alarms": self.false_alarms,
            "right_and_unstopped": float(self._num_right),
            "stops": float(self.stops),
        }
        too_many = self.false_alarms > self._settings.stop_below
        self._stopping_ended |= too_many and self._num_alarms >= FEWEST_ALARMS

    @property
    def stops(self) -> bool:
        """True if rollouts of coming steps end at their first sure error."""
        return self._settings.stop and not self._stopping_ended

    @property
    def false_alarms(self) -> float:
        """Share of the rollouts with a correct answer that have a sure error even so, in [0, 1]: counted
        since the run began, over rollouts that could not have been stopped.
        """
        return self._num_alarms / max(self._num_right, 1)

    def metrics(self) -> dict[str, float]:
        """Metrics of the last step, named without a prefix."""
        return self._of_step

    def state_dict(self) -> State:
        """All that later steps depend on; equal states give equal JSON."""
        return {
            **self._HEADER,
            "rates": {str(left): rate for left, rate in sorted(self._rates.items())},
            "num_right": self._num_right,
            "num_alarms": self._num_alarms,
            "stopping_ended": self._stopping_ended,
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a ``state_dict``.

        Raises:
            CheckpointError: It is of another kind or version, or damaged; nothing changes then.
        """
        self._rates, self._num_right, self._num_alarms, self._stopping_ended = read_state(
            state, header=self._HEADER, read=_read
        )


def _outcomes(visit: Visit, rollout: Rollout) -> Iterator[tuple[Segment, int, float]]:
    """A rollout's segments, each with the number of milestones left to the answer and its value."""
    last = len(visit.instance.milestones or ()) - 1
    if (walk := rollout.grade.walk) is None:
        return
    for segment in walk.segments:
        left = last - segment.milestone_index
        # A sure error earns 0 whether or not the rollout was stopped there, and so never had a form.
        earns_reward = left == 0 and walk.first_error is None
        yield segment, left, rollout.reward if earns_reward else float(segment.passed)


def _values_by_milestones_left(visits: Iterable[Visit]) -> dict[int, list[float]]:
    values: dict[int, list[float]] = defaultdict(list)
    for visit in visits:
        for rollout in visit.generated:
            for _, left, value in _outcomes(visit, rollout):
                values[left].append(value)
    return values


def _read(state: State) -> tuple[dict[int, float], int, int, bool]:
    rates = {int(left): read_ratio(rate) for left, rate in state["rates"].items()}
    return (
        rates,
        read_count(state["num_right"]),
        read_count(state["num_alarms"]),
        bool(state["stopping_ended"]),
    )
