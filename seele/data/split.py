"""Selection of problems by a hash of their ids, independent of order: two disjoint parts, or a sample."""

import hashlib
import heapq
from pathlib import Path

from seele.data.storage.parquet import copy_rows
from seele.data.storage.schema import iterate_problems
from seele.records import Instance


def is_in_first_part(instance_id: str, *, share: float, seed: int) -> bool:
    """Return True if a seeded hash of the id, uniform in [0, 1), lies below ``share``.

    A part therefore depends only on seed and share, and grows with the share.
    """
    digest = hashlib.sha256(f"{seed}/{instance_id}".encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48 < share


def divide_file(
    file: Path, first: Path, rest: Path, *, share: float, seed: int, max_samples: int = -1
) -> int:
    """Copy the rows of a file of problems, with all their columns, into two files.

    Args:
        file: A file of problems.
        first: Gets a share of the problems, by a hash of their ids; not written if there are none.
        rest: Gets the other problems; not written if there are none.
        share: Expected share of the first part, in [0, 1].
        seed: Each seed gives another division.
        max_samples: Divide only this number of problems, from the beginning of the file; -1 for all.

    Returns:
        The number of problems that were divided.

    Raises:
        DataError: If the file is missing, or a row violates the schema.
    """
    # The prefix makes the parts independent of the division by which the file was prepared.
    ids = (f"stages/{each.instance_id}" for each in iterate_problems(file))
    is_first = [is_in_first_part(each, share=share, seed=seed) for each in ids]
    divided = is_first if max_samples < 0 else is_first[:max_samples]
    left_out = [None] * (len(is_first) - len(divided))
    for target, part in ((first, True), (rest, False)):
        if part in divided:
            copy_rows(file, target, (each is part for each in [*divided, *left_out]))
    return len(divided)


class Sample:
    """A sample of at most ``size`` of the problems that were added."""

    def __init__(self, size: int) -> None:
        """Create an empty sample."""
        self._size = size
        # The largest hash, stored as the smallest number, is dropped first. Unique rows prevent ties.
        self._heap: list[tuple[int, int, Instance]] = []

    def add(self, row: int, instance: Instance) -> None:
        """Add a problem and its row in the file as a candidate."""
        digest = hashlib.sha256(f"sample/{instance.instance_id}".encode()).digest()
        entry = (-int.from_bytes(digest[:8]), row, instance)
        if len(self._heap) < self._size:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)

    @property
    def problems(self) -> list[tuple[int, Instance]]:
        """The chosen problems with their rows, in row order."""
        return sorted(((row, instance) for _, row, instance in self._heap), key=lambda pair: pair[0])
