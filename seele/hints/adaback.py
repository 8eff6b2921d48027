"""AdaBack (arXiv:2506.18110): a random search for the shortest prefix from which a problem is solved.

The rule is that of one of its authors' code (docs/methods/adaback.md).
"""

from collections.abc import Sequence
from statistics import fmean

from seele.hints.contract import check_number
from seele.hints.outcomes import RememberingController
from seele.records import State
from seele.saved_state import read_ratio, read_section, read_value

ALPHA = 0.8
"""Weight of the old value in the moving average m."""
LONGEST = 0.9
"""High end of the interval of a problem's first visit."""


class AdaBackController(RememberingController):
    """Each problem has an interval of hint ratios, from which every round draws.

        first visit   [low, high] <- [m, 0.9]
        success       [low, high] <- [0, p]       p is the ratio used
        failure       [low, high] <- [p, high]

    m begins at 0, and each step moves it: m <- 0.8 m + 0.2 (mean low of the problems that it visited).
    All legal ratios in the interval are equally likely; if there are none, the next longer one is used.

    Args:
        seed: Seeds the draws.
        threshold: A round with at least this accuracy is a success.
    """

    name = "adaback"
    version = 2
    start = (0.0, LONGEST)

    def __init__(self, *, seed: int = 0, threshold: float = 0.5) -> None:
        super().__init__(seed=seed)
        self._threshold = check_number("threshold", threshold, at_most=1.0)
        self._mean_low = 0.0
        self._lows: dict[str, float] = {}
        """Low ends of the problems that the step has visited."""

    def remembered(self, instance_id: str) -> tuple[float, ...]:
        """The problem's interval."""
        return self._memory.get(instance_id, (min(self._mean_low, LONGEST), LONGEST))

    def begin_step(self, step: int) -> None:
        """Set the clock, and move m by the step before."""
        super().begin_step(step)
        if self._lows:
            self._mean_low = ALPHA * self._mean_low + (1.0 - ALPHA) * fmean(self._lows.values())
            self._lows = {}

    def next_hint_ratio(self, instance_id: str, *, round_index: int, legal_ratios: Sequence[float]) -> float:
        """See ``Controller``."""
        visit = self._beginning(instance_id, round_index).visit
        low, high = self.remembered(instance_id)
        longer = [ratio for ratio in legal_ratios if ratio >= low] or [max(legal_ratios)]
        inside = [ratio for ratio in longer if ratio <= high] or [min(longer)]
        return self._random(instance_id, visit, round_index=round_index).choice(inside)

    def observe(self, instance_id: str, *, hint_ratio: float, num_correct: int, num_rollouts: int) -> None:
        """See ``Controller``.

        Raises:
            ValueError: If the outcome is impossible.
        """
        super().observe(
            instance_id, hint_ratio=hint_ratio, num_correct=num_correct, num_rollouts=num_rollouts
        )
        self._lows[instance_id] = self.remembered(instance_id)[0]

    def moved(self, memory: tuple[float, ...], hint_ratio: float, accuracy: float) -> tuple[float, ...]:
        """See ``RememberingController``."""
        _, high = memory
        if accuracy >= self._threshold:
            return 0.0, hint_ratio
        return hint_ratio, max(hint_ratio, high)

    def state_dict(self) -> State:
        """See ``Controller``."""
        return {**super().state_dict(), "mean_low": self._mean_low, "lows": dict(sorted(self._lows.items()))}

    def load_state_dict(self, state: State) -> None:
        """See ``Controller``. Settings are not part of the state: this controller keeps its own."""
        mean_low, lows = self._read_state(
            state,
            lambda saved: (
                read_value(saved, "mean_low", read_ratio),
                read_section(saved, "lows", read_ratio),
            ),
        )
        super().load_state_dict(state)
        self._mean_low, self._lows = mean_low, lows
