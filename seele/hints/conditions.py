"""When hints are given at all, whichever controller chooses them: ``seele.hints.when`` and ``.dropout``.

Both wrap a controller and act as one. The wrapped controller observes every outcome with the hint that was
actually used, unless it learns only from hints of its own choice (``learns_from_own_hints``).
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from random import Random

from seele.hints.contract import Controller, check_outcome, take_over_attributes
from seele.maths.irt import Array
from seele.records import AccuracyCurve, HintShare, RoundOutcome, RoundRequest, State
from seele.saved_state import (
    read_count,
    read_ratio,
    read_section,
    read_two_counts,
    read_value,
    state_header,
)
from seele.seeds import seed_of


def with_conditions(
    controller: Controller,
    *,
    when: str = "always",
    failing_accuracy: float = 0.0,
    dropout: float = 0.0,
    seed: int = 0,
) -> Controller:
    """Wrap the controller in a run's conditions (``HintConfig`` explains them)."""
    if dropout:
        controller = Dropout(controller, share=dropout, seed=seed)
    if when != "always":
        controller = AfterFailure(controller, failing_accuracy=failing_accuracy)
    return controller


class ConditionalController(Controller):
    """The wrapped controller unchanged; subclasses add a condition."""

    version = 2
    _section: str
    """Name of the state."""

    def __init__(self, inner: Controller) -> None:
        self._inner = inner
        self._imposed: dict[str, float] = {}
        """The hint that the condition gave, in place of another one, to rollouts of a visit's last round."""
        take_over_attributes(self, inner)

    def begin_step(self, step: int) -> None:
        """See ``Controller``."""
        self._inner.begin_step(step)

    def plan_rounds(
        self, requests: Sequence[RoundRequest], *, num_rollouts: int
    ) -> list[tuple[HintShare, ...]]:
        """See ``Controller``."""
        plans = []
        wanted_plans = self._inner.plan_rounds(requests, num_rollouts=num_rollouts)
        for request, wanted in zip(requests, wanted_plans, strict=True):
            plan = self._changed(wanted, request, num_rollouts)
            plans.append(tuple(self._with_prediction(request.instance_id, share) for share in plan))
            self._imposed.pop(request.instance_id, None)
            for ratio in {share.hint_ratio for share in plan} - {share.hint_ratio for share in wanted}:
                self._imposed[request.instance_id] = ratio
        return plans

    def _with_prediction(self, instance_id: str, share: HintShare) -> HintShare:
        """The share with the accuracy that the controller expects, also where it did not plan the hint."""
        if share.predicted_accuracy is not None:
            return share
        expected = self.predicted_accuracy(instance_id, [share.hint_ratio])
        return share if expected is None else replace(share, predicted_accuracy=float(expected[0]))

    def predicted_accuracy(self, instance_id: str, hint_ratios: Sequence[float]) -> Array | None:
        """See ``Controller``."""
        return self._inner.predicted_accuracy(instance_id, hint_ratios)

    def _changed(
        self, plan: tuple[HintShare, ...], request: RoundRequest, num_rollouts: int
    ) -> tuple[HintShare, ...]:
        """The round that the condition makes of the wrapped controller's."""
        return plan

    def observe_rounds(self, outcomes: Sequence[RoundOutcome]) -> None:
        """See ``Controller``."""
        if self.learns_from_own_hints:
            outcomes = [each for each in outcomes if self._imposed.get(each.instance_id) != each.hint_ratio]
        self._inner.observe_rounds(outcomes)

    def end_visits(self, instance_ids: Sequence[str]) -> None:
        """See ``Controller``."""
        for instance_id in instance_ids:
            self._imposed.pop(instance_id, None)
        self._inner.end_visits(instance_ids)

    def state_dict(self) -> State:
        """See ``Controller``."""
        imposed = dict(sorted(self._imposed.items()))
        return {**super().state_dict(), "inner": self._inner.state_dict(), "imposed": imposed}

    def load_state_dict(self, state: State) -> None:
        """See ``Controller``."""
        imposed = self._read_state(state, lambda saved: read_section(saved, "imposed", read_ratio))
        self._inner.load_state_dict(state["inner"])
        self._imposed = imposed

    @property
    def _state_header(self) -> State:
        return state_header(self._section, self.version)

    def metrics(self) -> dict[str, float]:
        """See ``Controller``."""
        return self._inner.metrics()

    def curves(self, instance_ids: Collection[str] | None = None) -> list[AccuracyCurve]:
        """See ``Controller``."""
        return self._inner.curves(instance_ids)


class AfterFailure(ConditionalController):
    """A visit's first round has no hint; later rounds have one only if the first failed.

    If it did not fail, all remaining rollouts are un-hinted, in one round.

    Args:
        inner: Chooses the hints of the later rounds.
        failing_accuracy: The largest accuracy at which the first round counts as failed, in [0, 1).
    """

    _section = "after_failure"

    def __init__(self, inner: Controller, *, failing_accuracy: float = 0.0) -> None:
        super().__init__(inner)
        # Only once all of a round is graded is it known whether it failed.
        self.tolerates_partial_rounds = False
        self._failing_accuracy = failing_accuracy
        self._first_rounds: dict[str, tuple[int, int]] = {}
        """Numbers of correct and of all rollouts, of the visits whose first round has begun."""
        self._num_visits = self._num_failures = 0

    def _changed(
        self, plan: tuple[HintShare, ...], request: RoundRequest, num_rollouts: int
    ) -> tuple[HintShare, ...]:
        smallest = min(request.legal_ratios)
        if request.round_index == 0:
            self._first_rounds[request.instance_id] = (0, 0)
            return (HintShare(smallest, num_rollouts),)
        if not self._has_failed(request.instance_id):
            return (HintShare(smallest, max(request.rollouts_left, num_rollouts)),)
        return plan

    def observe_rounds(self, outcomes: Sequence[RoundOutcome]) -> None:
        """See ``Controller``."""
        super().observe_rounds(outcomes)
        for seen in outcomes:
            _, num_correct, num_rollouts = check_outcome(seen.hint_ratio, seen.num_correct, seen.num_rollouts)
            # Later rounds do not count: whether they have hints is already decided.
            if self._first_rounds.get(seen.instance_id) == (0, 0):
                self._first_rounds[seen.instance_id] = (num_correct, num_rollouts)
                self._num_visits += 1
                self._num_failures += self._has_failed(seen.instance_id)

    def end_visits(self, instance_ids: Sequence[str]) -> None:
        """See ``Controller``."""
        for instance_id in instance_ids:
            self._first_rounds.pop(instance_id, None)
        super().end_visits(instance_ids)

    def _has_failed(self, instance_id: str) -> bool:
        right, rolled_out = self._first_rounds.get(instance_id, (0, 0))
        return right <= self._failing_accuracy * rolled_out

    def state_dict(self) -> State:
        """See ``Controller``. A first round is [correct, rolled out]."""
        return {
            **super().state_dict(),
            "first_rounds": {key: list(seen) for key, seen in sorted(self._first_rounds.items())},
            "visits": self._num_visits,
            "failures": self._num_failures,
        }

    def load_state_dict(self, state: State) -> None:
        """See ``Controller``."""
        first_rounds, visits, failures = self._read_state(
            state,
            lambda saved: (
                read_section(saved, "first_rounds", read_two_counts),
                read_value(saved, "visits", read_count),
                read_value(saved, "failures", read_count),
            ),
        )
        super().load_state_dict(state)
        self._first_rounds, self._num_visits, self._num_failures = first_rounds, visits, failures

    def metrics(self) -> dict[str, float]:
        """See ``Controller``: also the share of visits since training began whose first round failed."""
        return {**self._inner.metrics(), "failed_share": self._num_failures / max(self._num_visits, 1)}


class Dropout(ConditionalController):
    """Each rollout loses its hint with the same probability.

    Args:
        inner: Chooses the hints.
        share: The probability, in [0, 1).
        seed: Seeds the draws, which otherwise depend only on step, problem and round.
    """

    _section = "hint_dropout"

    def __init__(self, inner: Controller, *, share: float, seed: int = 0) -> None:
        super().__init__(inner)
        self._share, self._seed, self._step = share, seed, 0

    def begin_step(self, step: int) -> None:
        """See ``Controller``."""
        self._step = int(step)
        super().begin_step(step)

    def _changed(
        self, plan: tuple[HintShare, ...], request: RoundRequest, num_rollouts: int
    ) -> tuple[HintShare, ...]:
        place = (request.instance_id, self._step, request.round_index)
        random = Random(seed_of(self._seed, "dropout", *place))
        smallest, thinned = min(request.legal_ratios), []
        for share in plan:
            lost = 0
            if share.hint_ratio != smallest:
                lost = sum(random.random() < self._share for _ in range(share.num_rollouts))
            if lost < share.num_rollouts:
                kept = share.num_rollouts - lost
                thinned.append(HintShare(share.hint_ratio, kept, share.is_probe, share.predicted_accuracy))
            if lost:
                thinned.append(HintShare(smallest, lost))
        return tuple(thinned)

    def state_dict(self) -> State:
        """See ``Controller``."""
        return {**super().state_dict(), "step": self._step}

    def load_state_dict(self, state: State) -> None:
        """See ``Controller``."""
        step = self._read_state(state, lambda saved: read_value(saved, "step", read_count))
        super().load_state_dict(state)
        self._step = step
