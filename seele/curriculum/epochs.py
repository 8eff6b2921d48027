"""Curricula with one queue for all problems: every problem once per epoch, in random or sorted order.

Sorting by columns gives the classic easy-to-hard curriculum, the baseline ``ordered`` of SEC
(arXiv:2505.14970), where the column is the difficulty level. The columns are read elsewhere
(``seele.data.storage.schema.read_columns``). P counts all problems.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from seele.curriculum.epoch_queue import EpochQueue, Problems, Supply, shuffled
from seele.errors import DataError
from seele.records import State
from seele.saved_state import read_state

VERSION = 1
"""Version of the saved state."""


class EpochCurriculum:
    """Every problem once per epoch. A step in which an epoch ends continues with the next epoch.

    A curriculum of your own can derive from it and pass it the order of each epoch.
    """

    name: ClassVar[str] = ""
    """Defaults to the name of the class."""

    def __init_subclass__(cls) -> None:
        if "name" not in cls.__dict__:
            cls.name = cls.__name__

    def __init__(self, num_problems: int, order_of_epoch: Callable[[int], Problems], **header: Any) -> None:
        """Draw from the orders of epochs 0, 1, ..., each with all or some problems, none of them twice; a
        saved state must also match ``header``.
        """
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
        """Do nothing: the order of the problems is fixed in advance."""

    def state_dict(self) -> State:
        """See ``Curriculum``."""
        return {**self._header, "queue": self._queue.state()}

    def load_state_dict(self, state: State) -> None:
        """See ``Curriculum``."""
        problems = set(range(self._num_problems))
        self._queue = read_state(
            state,
            header=self._header,
            read=lambda state: self._queue.restored(state["queue"], problems=problems),
        )

    def metrics(self) -> dict[str, float]:
        """Return ``epoch``: passes over all problems so far, such as 1.5 in the middle of the second."""
        return {"epoch": self.epochs}


class UniformCurriculum(EpochCurriculum):
    """Shuffled epochs; the order of an epoch depends only on the seed and its number."""

    name: ClassVar[str] = "uniform"

    def __init__(self, num_problems: int, *, seed: int) -> None:
        """Shuffle ``num_problems`` problems in each epoch."""
        super().__init__(num_problems, lambda epoch: shuffled(num_problems, seed=(seed, epoch)))


Key = tuple[Any, ...]
"""A problem's values, one for each column."""

_KINDS = {bool: "booleans", int: "numbers", float: "numbers", str: "texts"}


def rank_problems(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str]
) -> tuple[list[Key], NDArray[np.int64]]:
    """Group problems that share their values in ``columns``.

    Returns:
        The groups' values in ascending order, and (P,) the index of each problem's group in that list.

    Raises:
        DataError: If a value is missing, or a column mixes texts, numbers and booleans.
    """
    for column in columns:
        _check_column(rows, column)
    keys = [tuple(row[column] for column in columns) for row in rows]
    groups = sorted(set(keys))
    rank = {key: place for place, key in enumerate(groups)}
    return groups, np.array([rank[key] for key in keys], dtype=np.int64)


def _check_column(rows: Sequence[Mapping[str, Any]], column: str) -> None:
    first_of_kind: dict[str, str] = {}
    for problem, row in enumerate(rows):
        value = row.get(column)
        kind = _KINDS.get(type(value))
        if kind is None or (isinstance(value, float) and math.isnan(value)):
            raise DataError(
                f"seele.curriculum.columns, column {column!r}: problem {problem} (counted from 0) has "
                f"{value!r}; allowed are a text, a number or a boolean; fill in the value or choose another "
                "column"
            )
        first_of_kind.setdefault(kind, f"problem {problem} has {value!r}")
    if len(first_of_kind) > 1:
        raise DataError(
            f"seele.curriculum.columns, column {column!r} mixes {' and '.join(first_of_kind)}: "
            f"{', '.join(first_of_kind.values())}; only values of one kind can be sorted"
        )


class OrderedCurriculum(EpochCurriculum):
    """Epochs in ascending order of the columns' values; in each, problems with equal values are shuffled."""

    name: ClassVar[str] = "ordered"

    def __init__(self, rows: Sequence[Mapping[str, Any]], *, columns: Sequence[str], seed: int) -> None:
        """Sort by the values of ``columns``, the first column first.

        Args:
            rows: One mapping per problem with at least these columns.
            columns: Columns to sort by: numbers as numbers, texts as texts, False before True.
            seed: Seed of the shuffles.

        Raises:
            DataError: If a value is missing, or a column mixes texts with numbers.
        """
        _, rank_P = rank_problems(rows, columns)

        def order_of_epoch(epoch: int) -> Problems:
            order_P = shuffled(len(rank_P), seed=(seed, epoch))
            return order_P[np.argsort(rank_P[order_P], kind="stable")]

        super().__init__(len(rows), order_of_epoch, columns=list(columns))
