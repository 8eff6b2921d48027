"""Problems chosen by a hash of their ids, in any order the same: two parts without overlap, or a sample."""

import hashlib
import heapq
from pathlib import Path

from seele.data.storage.parquet import copy_rows
from seele.data.storage.schema import iterate_problems
from seele.records import Instance


def is_in_first_part(instance_id: str, *, share: float, seed: int) -> bool:
    """Whether a seeded hash of the id, uniform in [0, 1), lies below ``share``.

    So a part depends on nothing but seed and share, and grows with the share.
    """
    digest = hashlib.sha256(f"{seed}/{instance_id}".encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48 < share


def divide_file(
    file: Path, first: Path, rest: Path, *, share: float, seed: int, max_samples: int = -1
) -> int:
    """Copy the rows of a file of problems, with all their columns, into two files.

    Args:
        file: A file of problems.
        first: Gets the problems that ``is_in_first_part``; is not written where there are none.
        rest: Gets the others, likewise.
        share: Expected share of the first part, in [0, 1].
        seed: Another seed, another division.
        max_samples: How many of the file's problems are divided, the first ones; -1 for all.

    Returns:
        How many problems were divided.

    Raises:
        DataError: The file is missing, or a row is not what the schema asks for.
    """
    is_first = [is_in_first_part(each.instance_id, share=share, seed=seed) for each in iterate_problems(file)]
    divided = is_first if max_samples < 0 else is_first[:max_samples]
    left_out = [None] * (len(is_first) - len(divided))
    for target, part in ((first, True), (rest, False)):
        if part in divided:
            copy_rows(file, target, (each is part for each in [*divided, *left_out]))
    return len(divided)


class Sample:
    """At most ``size`` of the problems that were added; all of them as long as they are fewer."""

    def __init__(self, size: int) -> None:
        """An empty sample."""
        self._size = size
        # The largest hash, here the smallest number, goes first. Rows are unique, so that no two entries tie.
        self._heap: list[tuple[int, int, Instance]] = []

    def add(self, row: int, instance: Instance) -> None:
        """Consider a problem and its row in the file."""
        digest = hashlib.sha256(f"sample/{instance.instance_id}".encode()).digest()
        entry = (-int.from_bytes(digest[:8]), row, instance)
        if len(self._heap) < self._size:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)

    @property
    def problems(self) -> list[tuple[int, Instance]]:
        """The chosen problems with their rows, in the order of these."""
        return sorted(((row, instance) for _, row, instance in self._heap), key=lambda pair: pair[0])
