"""AdaBack (arXiv:2506.18110): a random search for the shortest prefix from which a problem is solved."""

from collections.abc import Sequence
from typing import ClassVar

from seele.hints.contract import check_number
from seele.hints.outcomes import RememberingController


class AdaBackController(RememberingController):
    """Each problem has an interval of hint ratios, at first [0, 1], from which every round draws.

        success   [low, high] <- [0, p]       p is the ratio used
        failure   [low, high] <- [p, high]

    All legal ratios in the interval are equally likely; if there are none, the next longer one is used. If a
    failure leaves no room in the interval, it becomes [p, 1]; otherwise hints could never grow again.

    Args:
        seed: Seeds the draws.
        threshold: A round with at least this accuracy is a success.
    """

    name: ClassVar[str] = "adaback"
    start = (0.0, 1.0)

    def __init__(self, *, seed: int = 0, threshold: float = 0.5) -> None:
        super().__init__(seed=seed)
        self._threshold = check_number("threshold", threshold, at_most=1.0)

    def next_hint_ratio(self, instance_id: str, *, round_index: int, legal_ratios: Sequence[float]) -> float:
        """See ``Controller``."""
        visit = self._beginning(instance_id, round_index).visit
        low, high = self.remembered(instance_id)
        # A new solution may end its steps elsewhere: none between 0 and high, and hints could never grow.
        high = min((ratio for ratio in legal_ratios if ratio >= high), default=max(legal_ratios))
        longer = [ratio for ratio in legal_ratios if ratio >= low] or [max(legal_ratios)]
        inside = [ratio for ratio in longer if ratio <= high] or [min(longer)]
        return self._random(instance_id, visit, round_index=round_index).choice(inside)

    def moved(self, memory: tuple[float, ...], hint_ratio: float, accuracy: float) -> tuple[float, ...]:
        """See ``RememberingController``."""
        _, high = memory
        if accuracy >= self._threshold:
            return 0.0, hint_ratio
        return hint_ratio, high if high > hint_ratio else 1.0
