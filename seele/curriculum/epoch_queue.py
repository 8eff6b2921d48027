"""Turns: which problems a draw may take, and the queue of epochs from which it takes them.

Shared by all curricula, which decide the order of an epoch and which of several queues to draw from. P counts
all problems.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Set
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from seele.errors import DataError
from seele.saved_state import read_count

Problems = NDArray[np.int64]
"""Indices of problems."""
MAX_EMPTY_EPOCHS = 100
"""Epochs in a row that may bring no eligible problem, for curricula whose epochs differ."""


def shuffled(problems: Problems | int, *, seed: tuple[int, ...]) -> Problems:
    """Return ``problems``, or all below a number, in an order that depends only on ``seed``."""
    return np.random.default_rng(seed).permutation(problems)


class Supply:
    """The problems that a draw may still take: eligible ones, then pruned ones once those run out."""

    def __init__(
        self, num_problems: int, *, wanted: int, postponed: Collection[int], pruned: Collection[int]
    ) -> None:
        """Sort ``num_problems`` problems into eligible, pruned and postponed.

        Raises:
            DataError: If fewer than ``wanted`` problems are not postponed.
        """
        available_P = np.ones(num_problems, dtype=np.bool_)
        available_P[list(postponed)] = False
        num_available = int(available_P.sum())
        if wanted > num_available:
            raise DataError(
                f"the step needs {wanted} problems, but the training data has {num_available} of its "
                f"{num_problems} left, because the others are already being rolled out; add data, or lower "
                "data.train_batch_size or seele.curriculum.spare_problems"
            )
        self.is_pruned_P = np.zeros(num_problems, dtype=np.bool_)
        self.is_pruned_P[list(pruned)] = True
        self.is_pruned_P &= available_P
        self.is_eligible_P = available_P & ~self.is_pruned_P
        self.epoch_of_queue: dict[EpochQueue, int] = {}
        """The epoch in which each queue began the draw: the one that the pruned problems are of."""
        self._fall_back()

    def take(self, problem: int) -> int:
        """Take ``problem`` out of this supply, so that it is not drawn again."""
        self.is_eligible_P[problem] = False
        self._fall_back()
        return problem

    def _fall_back(self) -> None:
        if not self.is_eligible_P.any():
            self.is_eligible_P, self.is_pruned_P = self.is_pruned_P, self.is_eligible_P


class EpochQueue:
    """Epochs one after the other; each problem has one place in an epoch, and at most one in the queue.

    The queue is therefore never longer than an epoch. A problem that is still waiting when the next epoch
    begins, because it is postponed whenever its turn comes, gets no second place.
    """

    def __init__(self, order_of_epoch: Callable[[int], Problems]) -> None:
        """Queue ``order_of_epoch(0)``, then ``order_of_epoch(1)``, and so on. Epochs may differ in their
        problems.
        """
        self._order_of_epoch = order_of_epoch
        self._epochs_begun = 0
        self._pending: deque[int] = deque()

    @property
    def epochs_begun(self) -> int:
        """Number of epochs that have begun; 0 before the first draw."""
        return self._epochs_begun

    def __len__(self) -> int:
        """Number of problems that wait for their turn."""
        return len(self._pending)

    def next_eligible(self, supply: Supply) -> int:
        """Remove and return the first problem eligible in ``supply``; the queue must have one.

        Pruned problems before it lose their places; others (postponed, or already in the draw) keep them. So
        do pruned ones in an epoch that begins during the draw, because it may prune others.

        Raises:
            DataError: If none of the next epochs has an eligible problem.
        """
        kept: list[int] = []
        first_epoch = self._epochs_begun
        epoch = supply.epoch_of_queue.setdefault(self, first_epoch if self._pending else first_epoch + 1)
        while True:
            while not self._pending:
                if self._epochs_begun > epoch and supply.is_pruned_P[kept].any():
                    # A whole epoch brought none: a full batch has priority over pruning.
                    supply.is_eligible_P |= supply.is_pruned_P
                    supply.is_pruned_P[:] = False
                    self._pending.extend(kept)
                    kept.clear()
                    continue
                if self._epochs_begun == first_epoch + MAX_EMPTY_EPOCHS:
                    raise DataError(
                        f"the curriculum's epochs {first_epoch} to {self._epochs_begun - 1} have too few "
                        f"problems for the step: {len(set(kept))} are already being rolled out, and no other "
                        "is left; give each epoch at least data.train_batch_size + "
                        "seele.curriculum.spare_problems problems"
                    )
                self._begin_epoch(besides=kept)
            problem = self._pending.popleft()
            if supply.is_eligible_P[problem]:
                break
            if not supply.is_pruned_P[problem] or self._epochs_begun > epoch:
                kept.append(problem)
        self._pending.extendleft(reversed(kept))
        return problem

    def _begin_epoch(self, *, besides: Collection[int]) -> None:
        waiting = set(besides)
        order = self._order_of_epoch(self._epochs_begun).tolist()
        if len(set(order)) < len(order):
            raise DataError(
                f"the curriculum's epoch {self._epochs_begun} has {len(order)} places for {len(set(order))} "
                "problems; an epoch must name each problem at most once: put the second time into the next"
            )
        self._pending.extend(problem for problem in order if problem not in waiting)
        self._epochs_begun += 1

    def state(self) -> dict[str, Any]:
        """Return the state of the queue."""
        return {"epochs_begun": self._epochs_begun, "pending": list(self._pending)}

    def restored(self, state: Mapping[str, Any], *, problems: Set[int]) -> Self:
        """Return a queue of the same epochs over ``problems`` in the given state.

        Raises:
            KeyError, TypeError, ValueError: If ``state`` is not an ``EpochQueue.state`` over these problems.
        """
        pending = [read_count(problem) for problem in state["pending"]]
        if len(set(pending)) < len(pending) or not problems >= set(pending):
            raise ValueError("pending has duplicate problems, or problems that are not in this queue")
        restored = type(self)(self._order_of_epoch)
        restored._epochs_begun = read_count(state["epochs_begun"])
        restored._pending.extend(pending)
        return restored
