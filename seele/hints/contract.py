"""The contract of hint controllers, and the rule that all of them share: a hint ratio must be legal.

``seele.hints.build_controller`` builds controllers by name. This module also checks their own settings, with
messages that name the key and what is allowed.
"""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any

from seele.errors import ConfigError
from seele.maths.irt import Array
from seele.records import AccuracyCurve, HintShare, RoundOutcome, RoundRequest, State
from seele.saved_state import Saved, read_state, state_header

TIE = 1e-3
"""Two distances that differ by less, in units of hint ratio, are equal: fits are no more exact than that.

Symmetric outcomes put the fitted ratio midway between two steps, and a solver's last digits must not decide.
"""


class Controller(ABC):
    """Chooses the hint ratio of every round of every problem.

    A visit is what happens to one problem in one training step: ``plan_rounds`` with ``round_index`` 0,
    rollouts, ``observe_rounds``, ``plan_rounds`` with ``round_index`` 1, and so on, then ``end_visits``.
    Visits of different problems interleave in any order; one problem has at most one visit at a time.

    A controller's settings are its constructor's keyword arguments. One that learns extends ``state_dict``
    and ``load_state_dict``, which here handle only a header.
    """

    name: str = ""
    """The controller's name in the configuration and in saved states; the class's own name by default."""
    version: int = 1
    """The version of the saved state; loading refuses a state of another version."""
    tolerates_partial_rounds: bool = False
    """True if a round may be observed in parts, and the next one planned before all of it was observed
    (``seele.hints.round_quorum`` below 1): the controller counts rollouts rather than rounds.
    """
    aims_at_target: bool = True
    """True if hints aim at ``target_accuracy``."""
    steers_on_milestones: bool = False
    """True if an outcome counts a rollout as correct when it passed the milestone behind its hint, whatever
    its answer (``seele.reward.milestones``).
    """
    begins_without_hint: bool = False
    """True if the first round of a visit never has a hint, so that a run needs two rounds or more."""
    learns_from_own_hints: bool = False
    """True if outcomes under other hints than it planned would mislead it: it does not observe the rollouts
    whose hint ``seele.hints.when`` or ``.dropout`` took away.
    """

    def __init_subclass__(cls) -> None:
        if "name" not in cls.__dict__:
            cls.name = cls.__name__

    def begin_step(self, step: int) -> None:  # noqa: B027 - most controllers need no clock
        """Begin training step ``step``, counted from 1: the clock of schedules, which is 0 before."""

    @abstractmethod
    def plan_rounds(
        self, requests: Sequence[RoundRequest], *, num_rollouts: int
    ) -> list[tuple[HintShare, ...]]:
        """How each problem's coming round divides over hints; most controllers give all rollouts one hint.

        ``round_index`` 0 begins a new visit.

        Returns:
            At least one share for each request; their rollouts add up to ``num_rollouts``, or to the
            request's ``rollouts_left`` if further rounds would not change the hint.
        """

    @abstractmethod
    def observe_rounds(self, outcomes: Sequence[RoundOutcome]) -> None:
        """Record how many rollouts under a hint were correct.

        Raises:
            ValueError: If an outcome is impossible (``check_outcome``).
        """

    def end_visits(self, instance_ids: Sequence[str]) -> None:  # noqa: B027 - some carry everything over
        """End the problems' visits: their rounds of this step are over."""

    def predicted_accuracy(self, instance_id: str, hint_ratios: Sequence[float]) -> Array | None:
        """The accuracy expected now at each hint ratio; None if the controller cannot tell."""
        return None

    def state_dict(self) -> State:
        """All that the controller has learnt, including visits in progress: JSON with string keys. Equal
        states give equal JSON.
        """
        return self._state_header

    def load_state_dict(self, state: State) -> None:
        """Continue from a ``state_dict`` as if there had been no interruption.

        Raises:
            CheckpointError: If it is of another controller or version, or damaged; nothing changes then.
        """
        read_state(state, header=self._state_header, read=dict)

    def _read_state(self, state: State, read: Callable[[State], Saved]) -> Saved:
        """Return ``read(state)`` if the state has the header and the keys of this controller's own states."""
        return read_state(state, header=self._state_header, read=read, keys=self.state_dict())

    @property
    def _state_header(self) -> State:
        return state_header(self.name, self.version)

    def metrics(self) -> dict[str, float]:
        """Numbers for the log, named without a prefix. Counters count from the start of training; reading
        changes nothing.
        """
        return {}

    def curves(self, instance_ids: Collection[str] | None = None) -> list[AccuracyCurve]:
        """Each problem's expected accuracy by hint ratio; empty if the controller keeps no curves.

        Args:
            instance_ids: The problems whose curves are wanted; None for all.
        """
        return []


def take_over_attributes(wrapper: Controller, wrapped: Controller) -> None:
    """Give a controller that wraps another one its name and what it says of itself."""
    wrapper.name = wrapped.name
    wrapper.tolerates_partial_rounds = wrapped.tolerates_partial_rounds
    wrapper.aims_at_target = wrapped.aims_at_target
    wrapper.steers_on_milestones = wrapped.steers_on_milestones
    wrapper.begins_without_hint = wrapped.begins_without_hint
    wrapper.learns_from_own_hints = wrapped.learns_from_own_hints


class SequentialController(Controller):
    """Decides for one problem after the other, and gives all rollouts of a round one hint."""

    def plan_rounds(
        self, requests: Sequence[RoundRequest], *, num_rollouts: int
    ) -> list[tuple[HintShare, ...]]:
        """Give each round the hint that ``next_hint_ratio`` chooses."""
        plans: list[tuple[HintShare, ...]] = []
        for request in requests:
            ratio = self.next_hint_ratio(
                request.instance_id, round_index=request.round_index, legal_ratios=request.legal_ratios
            )
            plans.append((HintShare(ratio, num_rollouts),))
        return plans

    def observe_rounds(self, outcomes: Sequence[RoundOutcome]) -> None:
        """Call ``observe`` for each outcome in turn."""
        for seen in outcomes:
            self.observe(
                seen.instance_id,
                hint_ratio=seen.hint_ratio,
                num_correct=seen.num_correct,
                num_rollouts=seen.num_rollouts,
            )

    def end_visits(self, instance_ids: Sequence[str]) -> None:
        """Call ``end_visit`` for each problem in turn."""
        for instance_id in instance_ids:
            self.end_visit(instance_id)

    @abstractmethod
    def next_hint_ratio(self, instance_id: str, *, round_index: int, legal_ratios: Sequence[float]) -> float:
        """The hint ratio of the coming round, one of ``legal_ratios``. ``round_index`` 0 begins a new visit.

        Args:
            instance_id: The problem.
            round_index: Counts the rounds of the visit from 0.
            legal_ratios: Ratios at which a step of the solution ends, not empty
                (``Instance.legal_hint_ratios``).
        """

    @abstractmethod
    def observe(self, instance_id: str, *, hint_ratio: float, num_correct: int, num_rollouts: int) -> None:
        """Record that ``num_correct`` of ``num_rollouts`` rollouts under ``hint_ratio`` were correct."""

    def end_visit(self, instance_id: str) -> None:
        """End the problem's visit."""


def check_outcome(hint_ratio: float, num_correct: int, num_rollouts: int) -> tuple[float, int, int]:
    """Return the outcome as plain Python numbers: NumPy's do not survive JSON.

    Raises:
        ValueError: If the ratio is outside [0, 1], ``num_rollouts`` is 0, or ``num_correct`` exceeds it.
    """
    if not (0.0 <= hint_ratio <= 1.0 and 0 <= num_correct <= num_rollouts > 0):
        raise ValueError(
            "an outcome needs hint_ratio in [0, 1], num_rollouts > 0 and num_correct in 0..num_rollouts; got "
            f"hint_ratio={hint_ratio!r}, num_correct={num_correct!r}, num_rollouts={num_rollouts!r}"
        )
    return float(hint_ratio), int(num_correct), int(num_rollouts)


def nearest_legal(hint_ratio: float, legal_ratios: Sequence[float]) -> float:
    """The legal ratio nearest to ``hint_ratio``: l = round(p |y|) of paper Alg. 1, among the legal ratios.

    Of two ratios about equally near, the smaller one is chosen: in doubt, less help.
    """
    smallest_distance = min(abs(legal - hint_ratio) for legal in legal_ratios)
    # Of a solution with thousands of tokens, ratios lie closer together than TIE.
    tie = min(TIE, 0.4 / len(legal_ratios))
    return min(legal for legal in legal_ratios if abs(legal - hint_ratio) <= smallest_distance + tie)


def check_number(key: str, value: Any, *, at_least: float = 0.0, at_most: float = math.inf) -> float:
    """Return ``value`` as a float if it is a finite number in the closed range.

    Raises:
        ConfigError: It is not; the message says what was expected.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not at_least <= value <= min(at_most, sys.float_info.max):
        allowed = f"in [{at_least:g}, {at_most:g}]" if math.isfinite(at_most) else f"of at least {at_least:g}"
        raise ConfigError(f"seele.hints.settings.{key}: expected a number {allowed}, got {value!r}")
    return float(value)


def check_numbers(key: str, values: Any) -> tuple[float, ...]:
    """Return ``values`` if they are numbers in [0, 1], at least one.

    Raises:
        ConfigError: They are not; the message says what was expected.
    """
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        raise ConfigError(f"seele.hints.settings.{key}: expected numbers in [0, 1], got {values!r}")
    return tuple(check_number(key, value, at_most=1.0) for value in values)


def check_count(key: str, value: Any, *, at_least: int = 1) -> int:
    """Return ``value`` if it is a whole number that is large enough.

    Raises:
        ConfigError: It is not; the message says what was expected.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise ConfigError(
            f"seele.hints.settings.{key}: expected a whole number of at least {at_least}, got {value!r}"
        )
    return value
