"""AdaPrefix-GRPO (arXiv:2607.07674): each problem's prefix follows its moving success rate."""

from collections.abc import Sequence

from seele.hints.contract import check_count, check_number, nearest_legal
from seele.hints.outcomes import RememberingController


class AdaPrefixController(RememberingController):
    """Each problem has a moving success rate s and a hint ratio x.

        after each round          s <- (1 - smoothing) s + smoothing * accuracy
        every ``every`` steps     x <- x + gain (target - s), within [0, 1], for problems seen since the last

    After the share ``withdraw_from`` of the run, ratios are multiplied by a factor that falls from 1 to 0
    at the last step.

    Args:
        target_accuracy: a* in (0, 1).
        begin: x of a problem never seen before.
        gain: Factor on the error, in units of hint ratio per unit of accuracy.
        smoothing: Weight of the newest round in s.
        every: Training steps between two updates of x.
        withdraw_from: Share of the run after which hints shrink; 1 keeps the hints.
        training_steps: Steps of the run; None if unknown, which keeps the hints.
    """

    name = "adaprefix"
    aims_at_target = True

    def __init__(
        self,
        *,
        target_accuracy: float = 0.5,
        begin: float = 0.5,
        gain: float = 0.5,
        smoothing: float = 0.5,
        every: int = 10,
        withdraw_from: float = 0.8,
        training_steps: int | None = None,
    ) -> None:
        super().__init__()
        self._target = target_accuracy
        self._gain = check_number("gain", gain)
        self._smoothing = check_number("smoothing", smoothing, at_most=1.0)
        self._every = check_count("every", every)
        self._withdraw_from = check_number("withdraw_from", withdraw_from, at_most=1.0)
        self._training_steps = training_steps
        # Success rate; 1 if it is newer than the last move; hint ratio.
        self.start = (self._target, 0.0, check_number("begin", begin, at_most=1.0))

    def begin_step(self, step: int) -> None:
        """Set the clock, and move the ratios every ``every`` steps."""
        if step % self._every == 0 and step != self._step:
            for instance_id, (rate, is_new, ratio) in self._memory.items():
                if is_new:
                    moved = min(max(ratio + self._gain * (self._target - rate), 0.0), 1.0)
                    self._memory[instance_id] = (rate, 0.0, moved)
        super().begin_step(step)

    def next_hint_ratio(self, instance_id: str, *, round_index: int, legal_ratios: Sequence[float]) -> float:
        """See ``Controller``."""
        self._beginning(instance_id, round_index)
        *_, ratio = self.remembered(instance_id)
        return nearest_legal(ratio * self.remaining(self._step), legal_ratios)

    def remaining(self, step: int) -> float:
        """The factor by which ratios are multiplied, in [0, 1]."""
        if self._training_steps is None or self._withdraw_from == 1.0:
            return 1.0
        progress = step / self._training_steps
        return min(max((1.0 - progress) / (1.0 - self._withdraw_from), 0.0), 1.0)

    def moved(self, memory: tuple[float, ...], hint_ratio: float, accuracy: float) -> tuple[float, ...]:
        """See ``RememberingController``."""
        rate, _, ratio = memory
        return (1.0 - self._smoothing) * rate + self._smoothing * accuracy, 1.0, ratio
