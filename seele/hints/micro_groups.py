"""Hints that depend on a visit's earlier outcomes: TRAPO's micro-groups and ADHint's difficulty."""

from collections.abc import Sequence

from seele.errors import ConfigError
from seele.hints.contract import (
    SequentialController,
    check_number,
    check_numbers,
    check_outcome,
    nearest_legal,
)
from seele.records import State
from seele.saved_state import read_section, read_two_counts


class VisitController(SequentialController):
    """The base of controllers that use only a visit's counts of correct and of all rollouts."""

    aims_at_target = False
    begins_without_hint = True

    def __init__(self) -> None:
        self._visits: dict[str, tuple[int, int]] = {}

    def _so_far(self, instance_id: str, round_index: int) -> tuple[int, int]:
        if round_index == 0:
            self._visits[instance_id] = (0, 0)
        return self._visits.get(instance_id, (0, 0))

    def observe(self, instance_id: str, *, hint_ratio: float, num_correct: int, num_rollouts: int) -> None:
        """See ``Controller``.

        Raises:
            ValueError: If the outcome is impossible.
        """
        _, correct, rollouts = check_outcome(hint_ratio, num_correct, num_rollouts)
        right, all_ = self._visits.get(instance_id, (0, 0))
        self._visits[instance_id] = (right + correct, all_ + rollouts)

    def end_visit(self, instance_id: str) -> None:
        """Forget the visit."""
        self._visits.pop(instance_id, None)

    def state_dict(self) -> State:
        """See ``Controller``. A visit in progress is [correct, rolled out]."""
        visits = {instance_id: list(counts) for instance_id, counts in sorted(self._visits.items())}
        return {**super().state_dict(), "visits": visits}

    def load_state_dict(self, state: State) -> None:
        """See ``Controller``. Settings are not part of the state: this controller keeps its own."""
        self._visits = self._read_state(state, lambda saved: read_section(saved, "visits", read_two_counts))


class TrapoController(VisitController):
    """TRAPO (arXiv:2512.17636): round k reveals ``shares[k]`` of the solution if the mean reward so far is
    below ``below[k]``, else nothing. The first round has no hint.

    The defaults are those of the authors' code, for rounds of 4, 2, 1 and 1 rollouts: a quarter if fewer than
    2 of 4 are correct, half if fewer than 4 of 6, and the whole solution unless all 7 are. Here the whole
    solution is never legal: its last step is left to the policy.

    Args:
        shares: Share of the solution for each round after the first; further rounds use the last one.
        below: Mean reward under which each share is revealed.
    """

    name = "trapo"

    def __init__(
        self,
        *,
        shares: Sequence[float] = (0.25, 0.5, 1.0),
        below: Sequence[float] = (0.5, 2 / 3, 1.0),
    ) -> None:
        super().__init__()
        self._shares, self._below = check_numbers("shares", shares), check_numbers("below", below)
        if len(self._shares) != len(self._below):
            raise ConfigError(
                f"seele.hints.settings.below: expected as many numbers as shares ({len(self._shares)}), got "
                f"{list(self._below)}"
            )

    def next_hint_ratio(self, instance_id: str, *, round_index: int, legal_ratios: Sequence[float]) -> float:
        """See ``Controller``."""
        right, rolled_out = self._so_far(instance_id, round_index)
        level = min(round_index, len(self._shares)) - 1
        if level < 0 or right >= self._below[level] * rolled_out:
            return min(legal_ratios)
        return nearest_legal(self._shares[level], legal_ratios)


class AdHintController(VisitController):
    """ADHint (arXiv:2512.13095): the first round has no hint, and the harder it was, the more of the solution
    later rounds reveal.

        hint ratio = (largest - smallest) (1 - accuracy of the first round) + smallest

    Args:
        smallest: Hint ratio of later rounds if all of the first was correct.
        largest: The same if all of it was wrong.
    """

    name = "adhint"

    def __init__(self, *, smallest: float = 0.1, largest: float = 0.9) -> None:
        super().__init__()
        self._smallest = check_number("smallest", smallest, at_most=1.0)
        self._largest = check_number("largest", largest, at_least=self._smallest, at_most=1.0)

    def observe(self, instance_id: str, *, hint_ratio: float, num_correct: int, num_rollouts: int) -> None:
        """See ``Controller``. Ignores rounds after the first: they do not show the un-hinted difficulty."""
        if self._visits.get(instance_id, (0, 0)) == (0, 0):
            super().observe(
                instance_id, hint_ratio=hint_ratio, num_correct=num_correct, num_rollouts=num_rollouts
            )

    def next_hint_ratio(self, instance_id: str, *, round_index: int, legal_ratios: Sequence[float]) -> float:
        """See ``Controller``."""
        right, rolled_out = self._so_far(instance_id, round_index)
        if not rolled_out:
            return min(legal_ratios)
        difficulty = 1.0 - right / rolled_out
        return nearest_legal((self._largest - self._smallest) * difficulty + self._smallest, legal_ratios)
