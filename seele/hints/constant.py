"""Controllers that learn nothing: no hint at all, and the same share of every solution."""

from collections.abc import Sequence
from typing import ClassVar

from seele.hints.contract import SequentialController, check_outcome, nearest_legal
from seele.hints.settings import check_number
from seele.records import State
from seele.saved_state import check_state


class FixedHint(SequentialController):
    """Reveals the same share of every solution in every round: the legal ratio nearest to ``ratio``.

    Args:
        ratio: Share of the solution, in [0, 1]. The whole solution is never legal, so 1 reveals all but the
            last step.
    """

    name: ClassVar[str] = "fixed"
    aims_at_target: ClassVar[bool] = False

    def __init__(self, *, ratio: float = 0.5) -> None:
        self._ratio = check_number("ratio", ratio, at_most=1.0)

    def next_hint_ratio(self, instance_id: str, *, round_index: int, legal_ratios: Sequence[float]) -> float:
        """The same for every problem and round that has the same legal ratios."""
        return nearest_legal(self._ratio, legal_ratios)

    def observe(self, instance_id: str, *, hint_ratio: float, num_correct: int, num_rollouts: int) -> None:
        """Checks the outcome, and changes nothing."""
        check_outcome(hint_ratio, num_correct, num_rollouts)

    def load_state_dict(self, state: State) -> None:
        """Checks that the checkpoint is of this controller: the ratio is a setting, not something learnt."""
        check_state(state, header=self.state_dict())


class NoHint(FixedHint):
    """Reveals nothing: the problem as posed, as in GRPO."""

    name: ClassVar[str] = "none"

    def __init__(self) -> None:
        super().__init__(ratio=0.0)
