"""The parts of the contract that curricula with one queue for all problems share."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

from seele.curriculum.epoch_queue import EpochQueue, Problems, Supply
from seele.records import State
from seele.saved_state import read_state

VERSION = 1
"""Of the saved state."""


class EpochCurriculum:
    """Every problem once an epoch. A step that an epoch's end falls into goes on with the next epoch.

    A curriculum of your own derives from it and gives it the order of each epoch.
    """

    name: ClassVar[str] = ""
    """The class's own name unless it says another."""

    def __init_subclass__(cls) -> None:
        if "name" not in cls.__dict__:
            cls.name = cls.__name__

    def __init__(self, num_problems: int, order_of_epoch: Callable[[int], Problems], **header: Any) -> None:
        """Draw from the orders of epochs 0, 1, ...; ``header`` is what else a saved state must agree with."""
        self._num_problems = num_problems
        self._queue = EpochQueue(order_of_epoch)
        self._header = {
            "curriculum": self.name,
            "version": VERSION,
            "num_problems": num_problems,
            **header,
        }

    @property
    def epochs(self) -> float:
        """See ``Curriculum``."""
        return self._queue.epochs_begun - len(self._queue) / self._num_problems

    def draw(
        self, num_problems: int, *, postponed: Collection[int] = (), pruned: Collection[int] = ()
    ) -> list[int]:
        """See ``Curriculum``."""
        supply = Supply(self._num_problems, wanted=num_problems, postponed=postponed, pruned=pruned)
        return [supply.take(self._queue.next_eligible(supply)) for _ in range(num_problems)]

    def observe(self, signal_of_problem: Mapping[int, float]) -> None:
        """The order of the problems is settled beforehand."""

    def state_dict(self) -> State:
        """See ``Curriculum``."""
        return {**self._header, "queue": self._queue.state()}

    def load_state_dict(self, state: State) -> None:
        """See ``Curriculum``."""
        self._queue = read_state(
            state, header=self._header, read=lambda state: self._queue.restored(state["queue"])
        )

    def metrics(self) -> dict[str, float]:
        """``epoch``: passes over all problems so far, such as 1.5 in the middle of the second."""
        return {"epoch": self.epochs}
