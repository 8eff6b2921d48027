"""Some of a file's problems, chosen by a hash of their ids while they pass by: the same ones in any order."""

import hashlib
import heapq

from seele.records import Instance


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
