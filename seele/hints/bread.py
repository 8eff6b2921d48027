"""BREAD (arXiv:2506.17211): a bisection for a prefix under which a group is mixed."""

from collections.abc import Sequence
from typing import ClassVar

from seele.hints.contract import SequentialController, check_outcome
from seele.records import State
from seele.saved_state import read_ratio, read_section

Bounds = tuple[float, float]
"""Hint ratios: the longest that was too hard, and the shortest that was too easy."""


class BreadController(SequentialController):
    """The first round of a visit has no hint. Each later one has the middle of the hints between the longest
    that was too hard, with fewer than half of its rollouts correct, and the shortest that was too easy. If
    none is left, it repeats the shortest that was too easy, or else the longest.

    With ``seele.hints.when=until_success`` the search ends at a round whose accuracy lies between
    ``failing_accuracy`` and ``passing_accuracy``, or when a hint is repeated.
    """

    name = "bread"
    aims_at_target = False
    begins_without_hint = True
    _UNKNOWN: ClassVar[Bounds] = (0.0, 1.0)

    def __init__(self) -> None:
        self._bounds: dict[str, Bounds] = {}

    def next_hint_ratio(self, instance_id: str, *, round_index: int, legal_ratios: Sequence[float]) -> float:
        """See ``Controller``."""
        if round_index == 0:
            self._bounds[instance_id] = self._UNKNOWN
            return min(legal_ratios)
        hard, easy = self._bounds.get(instance_id, self._UNKNOWN)
        between = sorted(ratio for ratio in legal_ratios if hard < ratio < easy)
        if between:
            return between[(len(between) - 1) // 2]
        return easy if easy in legal_ratios else max(ratio for ratio in legal_ratios if ratio <= hard)

    def observe(self, instance_id: str, *, hint_ratio: float, num_correct: int, num_rollouts: int) -> None:
        """See ``Controller``. Rollouts without a hint do not move the bounds.

        Raises:
            ValueError: If the outcome is impossible.
        """
        ratio, correct, rollouts = check_outcome(hint_ratio, num_correct, num_rollouts)
        if ratio:
            hard, easy = self._bounds.get(instance_id, self._UNKNOWN)
            is_hard = 2 * correct < rollouts
            self._bounds[instance_id] = (max(hard, ratio), easy) if is_hard else (hard, min(easy, ratio))

    def end_visit(self, instance_id: str) -> None:
        """Forget the visit: the policy is about to change."""
        self._bounds.pop(instance_id, None)

    def state_dict(self) -> State:
        """See ``Controller``. A visit in progress is [hard, easy]."""
        visits = {instance_id: list(bounds) for instance_id, bounds in sorted(self._bounds.items())}
        return {**super().state_dict(), "visits": visits}

    def load_state_dict(self, state: State) -> None:
        """See ``Controller``."""
        self._bounds = self._read_state(state, lambda saved: read_section(saved, "visits", _read_bounds))


def _read_bounds(value: Sequence[float]) -> Bounds:
    hard, easy = map(read_ratio, value)
    return hard, easy
