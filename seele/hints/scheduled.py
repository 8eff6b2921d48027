"""Controllers that ignore outcomes: no hint, the same share of every solution, and the base of schedules.

Schedules share a clock, a count of visits, and draws that depend on it. A draw is a pure function of the
seed, the problem, the number of its visit and, where it matters, the round. So neither the order of problems
nor an interruption changes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

from seele.errors import ConfigError
from seele.hints.contract import (
    Controller,
    SequentialController,
    check_count,
    check_number,
    check_numbers,
    check_outcome,
    nearest_legal,
)
from seele.records import HintShare, RoundOutcome, RoundRequest, State
from seele.saved_state import read_count, read_section, read_value
from seele.seeds import seed_of


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a problem's last visit began."""

    visit: int
    """Counts the problem's visits from 1."""
    step: int
    """The training step: all rounds of a visit use the same one, whenever they run."""


class VisitCounter(Controller):
    """The clock, the count of each problem's visits, and the random draws of a visit.

    Args:
        seed: Seeds the draws.
    """

    aims_at_target = False

    def __init__(self, *, seed: int = 0) -> None:
        self._seed, self._step = seed, 0
        self._beginnings: dict[str, Beginning] = {}

    def begin_step(self, step: int) -> None:
        """Set the clock."""
        self._step = int(step)

    def state_dict(self) -> State:
        """See ``Controller``. The beginning of a visit is [visit, step]."""
        return {
            **super().state_dict(),
            "step": self._step,
            "beginnings": {
                instance_id: [beginning.visit, beginning.step]
                for instance_id, beginning in sorted(self._beginnings.items())
            },
        }

    def load_state_dict(self, state: State) -> None:
        """See ``Controller``. Settings are not part of the state: this controller keeps its own."""
        self._step, self._beginnings = self._read_state(
            state,
            lambda saved: (
                read_value(saved, "step", read_count),
                read_section(saved, "beginnings", _read_beginning),
            ),
        )

    def metrics(self) -> dict[str, float]:
        """See ``Controller``: numbers of problems seen and of their visits."""
        return {
            "problems": float(len(self._beginnings)),
            "visits": float(sum(beginning.visit for beginning in self._beginnings.values())),
        }

    def _beginning(self, instance_id: str, round_index: int) -> Beginning:
        """The beginning of the round's visit, which is round 0 or a problem's first round ever."""
        last = self._beginnings.get(instance_id)
        if last is None or round_index == 0:
            last = Beginning(visit=1 if last is None else last.visit + 1, step=self._step)
            self._beginnings[instance_id] = last
        return last

    def _random(self, instance_id: str, visit: int, *, round_index: int = 0) -> Random:
        """The random generator for one round, or with round 0 for a whole visit."""
        return Random(seed_of(self._seed, instance_id, visit, round_index))


class ScheduledController(VisitCounter, SequentialController):
    """All of a schedule except the choice itself."""

    def observe(self, instance_id: str, *, hint_ratio: float, num_correct: int, num_rollouts: int) -> None:
        """Only check the outcome."""
        check_outcome(hint_ratio, num_correct, num_rollouts)


def _read_beginning(value: Any) -> Beginning:
    visit, step = map(read_count, value)
    if visit == 0:
        raise ValueError("visits are counted from 1")
    return Beginning(visit, step)


class FixedHint(SequentialController):
    """Reveal the same share of every solution in every round: the legal ratio nearest to ``ratio``.

    Args:
        ratio: Share of the solution, in [0, 1]. The whole solution is never legal, so 1 reveals all but the
            last step.
    """

    name = "fixed"
    aims_at_target = False

    def __init__(self, *, ratio: float = 0.5) -> None:
        self._ratio = check_number("ratio", ratio, at_most=1.0)

    def next_hint_ratio(self, instance_id: str, *, round_index: int, legal_ratios: Sequence[float]) -> float:
        """The same ratio for all problems and rounds with the same legal ratios."""
        return nearest_legal(self._ratio, legal_ratios)

    def observe(self, instance_id: str, *, hint_ratio: float, num_correct: int, num_rollouts: int) -> None:
        """Only check the outcome."""
        check_outcome(hint_ratio, num_correct, num_rollouts)

    def load_state_dict(self, state: State) -> None:
        """Check that the state is of this controller: the ratio is a setting, not something learnt."""
        self._read_state(state, dict)


class LadderController(FixedHint):
    """The first round of a visit has no hint, and each later one the next of ``shares``; with
    ``seele.hints.when=until_success`` as in GHPO (arXiv:2507.10628).

    A larger share reveals more than the round before it, as long as that is legal: of a short solution, two
    shares may be nearest to the same hint, which has just failed.

    Args:
        shares: Share of the solution for each round after the first; further rounds use the last one.
    """

    name = "ladder"
    begins_without_hint = True

    def __init__(self, *, shares: Sequence[float] = (0.25, 0.5, 0.75)) -> None:
        super().__init__(ratio=0.0)
        self._shares = (0.0, *check_numbers("shares", shares))

    def next_hint_ratio(self, instance_id: str, *, round_index: int, legal_ratios: Sequence[float]) -> float:
        """The share of the round, the same for all problems with the same legal ratios."""
        ratio = min(legal_ratios)
        for before, share in pairwise(self._shares[: round_index + 1]):
            longer = [legal for legal in legal_ratios if legal > ratio] or [ratio]
            ratio = nearest_legal(share, longer if share > before else legal_ratios)
        return ratio


class EachHint(VisitCounter):
    """The first round of a visit has no hint; each later one divides evenly over all hints, so that with
    ``seele.hints.when=rescue`` every hint is tried once, as in Scaf-GRPO (arXiv:2510.19807).

    Args:
        warmup_steps: Number of training steps at the beginning without any hints; less than the run has.
        training_steps: Steps of the run; None if unknown.

    Raises:
        ConfigError: If the run would end before its first hint.
    """

    name = "each"
    begins_without_hint = True

    def __init__(self, *, warmup_steps: int = 0, training_steps: int | None = None) -> None:
        super().__init__()
        self._warmup_steps = check_count("warmup_steps", warmup_steps, at_least=0)
        if training_steps is not None and warmup_steps >= training_steps:
            raise ConfigError(
                f"warmup_steps: {warmup_steps} steps without hints are all of the run's {training_steps}; "
                f"set seele.hints.settings.warmup_steps below {training_steps}"
            )

    def plan_rounds(
        self, requests: Sequence[RoundRequest], *, num_rollouts: int
    ) -> list[tuple[HintShare, ...]]:
        """See ``Controller``. If rollouts are left over, the weakest hints get one more each."""
        return [self._plan(request, num_rollouts) for request in requests]

    def observe_rounds(self, outcomes: Sequence[RoundOutcome]) -> None:
        """Only check the outcomes."""
        for seen in outcomes:
            check_outcome(seen.hint_ratio, seen.num_correct, seen.num_rollouts)

    def _plan(self, request: RoundRequest, num_rollouts: int) -> tuple[HintShare, ...]:
        self._beginning(request.instance_id, request.round_index)
        none, *hints = sorted(request.legal_ratios)
        if request.round_index == 0 or self._step <= self._warmup_steps or not hints:
            return (HintShare(none, num_rollouts),)
        each, more = divmod(num_rollouts, len(hints))
        sizes = [each + (index < more) for index in range(len(hints))]
        return tuple(HintShare(hint, size) for hint, size in zip(hints, sizes, strict=True) if size)


class NoHint(FixedHint):
    """Reveal nothing: the problem as posed, as in GRPO."""

    name = "none"

    def __init__(self) -> None:
        super().__init__(ratio=0.0)
