"""Every problem once an epoch, sorted by its values in some columns: the classic easy-to-hard curriculum.

The baseline ``ordered`` of SEC (arXiv:2505.14970), where the column is the level of difficulty.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from seele.curriculum.columns import rank_problems
from seele.curriculum.epoch_queue import Problems, shuffled
from seele.curriculum.epochs import EpochCurriculum


class OrderedCurriculum(EpochCurriculum):
    """Epochs in ascending order of the columns' values; problems of equal values are shuffled in each."""

    name: ClassVar[str] = "ordered"

    def __init__(self, rows: Sequence[Mapping[str, Any]], *, columns: Sequence[str], seed: int) -> None:
        """Sort by the values of ``columns``, the first of them first.

        Args:
            rows: One mapping a problem with at least these columns.
            columns: Numbers are sorted as numbers, texts as texts, False before True.
            seed: Of the shuffles.

        Raises:
            DataError: If a value is missing, or a column mixes texts with numbers.
        """
        _, rank_P = rank_problems(rows, columns)

        def order_of_epoch(epoch: int) -> Problems:
            order_P = shuffled(len(rank_P), seed=(seed, epoch))
            return order_P[np.argsort(rank_P[order_P], kind="stable")]

        super().__init__(len(rows), order_of_epoch, columns=list(columns))
