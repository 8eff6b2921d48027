"""MFC (arXiv:2609.13997): a ratchet that only ever shortens a problem's hints."""

from collections.abc import Sequence

from seele.hints.contract import check_number
from seele.hints.outcomes import RememberingController


class MfcController(RememberingController):
    """Each round reveals a number of steps drawn uniformly from 0..g; g is at first all steps.

    A round with a mean reward of ``threshold`` or more sets g to what it revealed. g never grows.

    Args:
        seed: Seeds the draws.
        threshold: The ratchet falls after a round with at least this accuracy.
    """

    name = "mfc"
    start = (1.0,)

    def __init__(self, *, seed: int = 0, threshold: float = 0.5) -> None:
        super().__init__(seed=seed)
        self._threshold = check_number("threshold", threshold, at_most=1.0)

    def next_hint_ratio(self, instance_id: str, *, round_index: int, legal_ratios: Sequence[float]) -> float:
        """See ``Controller``."""
        visit = self._beginning(instance_id, round_index).visit
        (largest,) = self.remembered(instance_id)
        allowed = [ratio for ratio in legal_ratios if ratio <= largest] or [min(legal_ratios)]
        return self._random(instance_id, visit, round_index=round_index).choice(allowed)

    def moved(self, memory: tuple[float, ...], hint_ratio: float, accuracy: float) -> tuple[float, ...]:
        """See ``RememberingController``."""
        (largest,) = memory
        return (min(hint_ratio, largest) if accuracy >= self._threshold else largest,)
