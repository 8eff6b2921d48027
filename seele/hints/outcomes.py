"""The base of controllers that choose by numbers learnt from a problem's earlier outcomes."""

from abc import abstractmethod
from statistics import fmean
from typing import Any

from seele.hints.contract import SequentialController, check_outcome
from seele.hints.scheduled import VisitCounter
from seele.records import State
from seele.saved_state import read_ratio, read_section


class RememberingController(VisitCounter, SequentialController):
    """A few numbers in [0, 1] per problem, which its outcomes update."""

    learns_from_own_hints = True

    start: tuple[float, ...]
    """The numbers of a problem without outcomes."""

    def __init__(self, *, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self._memory: dict[str, tuple[float, ...]] = {}

    def remembered(self, instance_id: str) -> tuple[float, ...]:
        """The problem's numbers."""
        return self._memory.get(instance_id, self.start)

    def observe(self, instance_id: str, *, hint_ratio: float, num_correct: int, num_rollouts: int) -> None:
        """See ``Controller``.

        Raises:
            ValueError: If the outcome is impossible.
        """
        ratio, correct, rollouts = check_outcome(hint_ratio, num_correct, num_rollouts)
        self._memory[instance_id] = self.moved(self.remembered(instance_id), ratio, correct / rollouts)

    @abstractmethod
    def moved(self, memory: tuple[float, ...], hint_ratio: float, accuracy: float) -> tuple[float, ...]:
        """The problem's numbers after a round with this hint ratio and accuracy."""

    def state_dict(self) -> State:
        """See ``Controller``."""
        memory = {instance_id: list(numbers) for instance_id, numbers in sorted(self._memory.items())}
        return {**super().state_dict(), "memory": memory}

    def load_state_dict(self, state: State) -> None:
        """See ``Controller``. Settings are not part of the state: this controller keeps its own."""
        memory = self._read_state(state, lambda saved: read_section(saved, "memory", self._read_numbers))
        super().load_state_dict(state)
        self._memory = memory

    def metrics(self) -> dict[str, float]:
        """See ``Controller``: also the mean of each problem's last number."""
        last = [numbers[-1] for numbers in self._memory.values()]
        return {**super().metrics(), **({"mean_rate": fmean(last)} if last else {})}

    def _read_numbers(self, value: Any) -> tuple[float, ...]:
        numbers = tuple(map(read_ratio, value))
        if len(numbers) != len(self.start):
            raise ValueError(f"expected {len(self.start)} numbers")
        return numbers
