"""What is remembered of each problem between visits, packed: 328 bytes a problem.

Probabilities are kept as 16-bit floats and handed out as what was kept, so that a restored store cannot
differ from the one that was saved.
"""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seele.maths.curve_grid import PACKED, Array32, unpack

_FIRST_CAPACITY = 64


class BeliefStore:
    """Rows by instance id, in the order in which problems were first put."""

    def __init__(self) -> None:
        self._row_of: dict[str, int] = {}
        self._rows = np.zeros(_FIRST_CAPACITY, dtype=PACKED)

    @property
    def rows(self) -> NDArray[np.void]:
        """All rows, with the fields of ``PACKED``."""
        return self._rows[: len(self._row_of)]

    @property
    def ids(self) -> Sequence[str]:
        """Instance ids of all rows, in their order."""
        return tuple(self._row_of)

    def find(self, instance_ids: Sequence[str]) -> NDArray[np.int64]:
        """(N,) row of each problem, -1 for one that was never put."""
        return np.fromiter((self._row_of.get(name, -1) for name in instance_ids), dtype=np.int64)

    def beliefs(self, rows: NDArray[np.int64]) -> tuple[Array32, Array32]:
        """(N, S, M) crossings given the slope and (N, S, F) bounds of the problems in ``rows``."""
        return unpack(self._rows[rows])

    def put(self, instance_ids: Sequence[str], **fields: NDArray[np.floating[Any]]) -> None:
        """Replace the problems' rows, or add them; ``fields`` are those of ``PACKED``, a row a problem."""
        for name in instance_ids:
            self._row_of.setdefault(name, len(self._row_of))
        while len(self._row_of) > len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        rows = self.find(instance_ids)
        for field, values in fields.items():
            self._rows[field][rows] = values

    def state(self) -> dict[str, Any]:
        """JSON: the ids in order, and the rows as base64 of their bytes."""
        order = sorted(self._row_of)
        packed = self._rows[self.find(order)].tobytes()
        return {"instance_ids": order, "rows": base64.b64encode(packed).decode("ascii")}

    def load(self, state: Any) -> None:
        """Become what ``state`` was saved from.

        Raises:
            ValueError: If the two parts do not belong together, or are not what was kept.
        """
        names = list(state["instance_ids"])
        rows = np.frombuffer(base64.b64decode(state["rows"], validate=True), dtype=PACKED)
        if not len(rows) == len(names) == len(set(names)):
            raise ValueError(f"{len(set(names))} different instance ids of {len(names)} for {len(rows)} rows")
        if not all(((rows[field] >= 0.0) & (rows[field] <= 1.0)).all() for field in PACKED.names or ()):
            raise ValueError("what is kept of a problem are probabilities, in [0, 1]")
        self._row_of = {name: row for row, name in enumerate(names)}
        self._rows = np.concatenate([rows, np.zeros(_FIRST_CAPACITY, dtype=PACKED)])
