"""Hints after which the next step is passed half of the time.

The other controllers steer on the whole rollout's success. With credit by milestones
(``seele.methods.credit``), most of a rollout does not learn from that. This controller estimates, for each
legal hint, the probability p that the milestone behind it is passed, and takes the hint with the largest
expected p(1 - p). A step's difficulty does not fall with the hint's length, so there is no curve: each hint
has its own beta distribution, which starts at the pass rate, over all problems, of hints with as many longer
legal ones. These are equally far from the end unless the longest hints of some problems are not legal
(``seele.hints.revealing=forbid``, ``seele.data.overlong=truncate``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seele.hints.contract import SequentialController, check_outcome
from seele.maths.pass_rates import moved_rate
from seele.records import State
from seele.saved_state import read_ratio, read_section, read_value

PRIOR_ROLLOUTS = 4.0
"""The number of rollouts that a pass rate over problems counts as."""
KEPT_BY_VISIT = 0.7
"""Share of the weight of earlier visits that remains after a visit, because the policy has changed."""
LEAST_RATE = 0.05
"""A pass rate over problems is kept at least this far from 0 and 1."""
TIE = 1e-9

_Counts = dict[int, tuple[float, float]]
"""Number of longer legal hints -> rollouts that passed the milestone behind the hint, and that did not."""


@dataclass(slots=True)
class _Visit:
    """A visit in progress."""

    legal_ratios: tuple[float, ...]
    counts: _Counts = field(default_factory=dict)


class NextMilestoneController(SequentialController):
    """Choose the legal hint with the largest expected p(1 - p) of the milestone behind it; the shortest of
    equals.
    """

    name = "next_milestone"
    tolerates_partial_rounds = True
    aims_at_target = False
    steers_on_milestones = True

    def __init__(self) -> None:
        self._problems: dict[str, _Counts] = {}
        self._rates: dict[int, float] = {}
        """Number of longer legal hints -> pass rate over all problems, as of earlier training steps."""
        self._ended: _Counts = {}
        """Outcomes of the visits that ended in this step."""
        self._visits: dict[str, _Visit] = {}

    def begin_step(self, step: int) -> None:
        """See ``Controller``: adds the last step's outcomes to the pass rates."""
        for left, (passed, failed) in sorted(self._ended.items()):
            before = self._rates.get(left, 0.5)
            self._rates[left] = moved_rate(before, passed=passed, outcomes=passed + failed)
        self._ended = {}

    def next_hint_ratio(self, instance_id: str, *, round_index: int, legal_ratios: Sequence[float]) -> float:
        """See ``Controller``."""
        if round_index == 0 or instance_id not in self._visits:
            # An interrupted visit never ended; its observations belong to an older policy.
            self._visits[instance_id] = _Visit(tuple(legal_ratios))
        known = _sum(self._problems.get(instance_id, {}), self._visits[instance_id].counts)
        longer = range(len(legal_ratios) - 1, -1, -1)
        worths = [self._worth(left, *known.get(left, (0.0, 0.0))) for left in longer]
        best = max(worths)
        return next(ratio for ratio, worth in zip(legal_ratios, worths, strict=True) if worth >= best - TIE)

    def _worth(self, left: int, passed: float, failed: float) -> float:
        """The expected p(1 - p) under Beta(a, b): a b / ((a + b) (a + b + 1))."""
        rate = min(max(self._rates.get(left, 0.5), LEAST_RATE), 1.0 - LEAST_RATE)
        a, b = passed + PRIOR_ROLLOUTS * rate, failed + PRIOR_ROLLOUTS * (1.0 - rate)
        return a * b / ((a + b) * (a + b + 1.0))

    def observe(self, instance_id: str, *, hint_ratio: float, num_correct: int, num_rollouts: int) -> None:
        """See ``Controller``; ``num_correct`` counts the rollouts that passed the milestone behind the hint.

        Raises:
            ValueError: If the ratio is outside [0, 1], ``num_rollouts`` is 0, or ``num_correct`` exceeds it.
        """
        ratio, passed, rollouts = check_outcome(hint_ratio, num_correct, num_rollouts)
        visit = self._visits.get(instance_id)
        if visit is None or ratio not in visit.legal_ratios:
            return
        left = len(visit.legal_ratios) - 1 - visit.legal_ratios.index(ratio)
        visit.counts = _sum(visit.counts, {left: (float(passed), float(rollouts - passed))})

    def end_visit(self, instance_id: str) -> None:
        """Keep what was learnt for later visits. A visit without observations leaves nothing."""
        visit = self._visits.pop(instance_id, None)
        if visit is None or not visit.counts:
            return
        before = {
            left: (KEPT_BY_VISIT * passed, KEPT_BY_VISIT * failed)
            for left, (passed, failed) in self._problems.get(instance_id, {}).items()
        }
        self._problems[instance_id] = _sum(before, visit.counts)
        self._ended = _sum(self._ended, visit.counts)

    def state_dict(self) -> State:
        """See ``Controller``."""
        return {
            **super().state_dict(),
            "problems": {name: _write(counts) for name, counts in sorted(self._problems.items())},
            "ended": _write(self._ended),
            "rates": {str(left): rate for left, rate in sorted(self._rates.items())},
            "visits": {
                name: {"legal_ratios": list(visit.legal_ratios), "counts": _write(visit.counts)}
                for name, visit in sorted(self._visits.items())
            },
        }

    def load_state_dict(self, state: State) -> None:
        """See ``Controller``."""
        self._problems, self._rates, self._visits, self._ended = self._read_state(
            state,
            lambda saved: (
                read_section(saved, "problems", _read_counts),
                read_value(saved, "rates", _read_rates),
                read_section(saved, "visits", _read_visit),
                read_value(saved, "ended", _read_counts),
            ),
        )

    def metrics(self) -> dict[str, float]:
        """See ``Controller``."""
        return {"problems": float(len(self._problems)), "open_visits": float(len(self._visits))}


def _sum(one: _Counts, other: _Counts) -> _Counts:
    both = dict(one)
    for left, (passed, failed) in other.items():
        before = both.get(left, (0.0, 0.0))
        both[left] = before[0] + passed, before[1] + failed
    return both


def _write(counts: _Counts) -> dict[str, list[float]]:
    return {str(left): [*pair] for left, pair in sorted(counts.items())}


def _read_counts(counts: Mapping[str, Any]) -> _Counts:
    read = {int(left): (float(passed), float(failed)) for left, (passed, failed) in counts.items()}
    if any(not 0.0 <= count < float("inf") for pair in read.values() for count in pair):
        raise ValueError("counts must be finite and not negative")
    return read


def _read_rates(rates: Mapping[str, Any]) -> dict[int, float]:
    return {int(left): read_ratio(rate) for left, rate in rates.items()}


def _read_visit(visit: Mapping[str, Any]) -> _Visit:
    return _Visit(tuple(map(read_ratio, visit["legal_ratios"])), _read_counts(visit["counts"]))
