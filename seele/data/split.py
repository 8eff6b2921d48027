"""Problems divided into two parts that never overlap, whatever the order and the files they come in."""

import hashlib
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from seele.data.files import write_atomically
from seele.data.schema import read_problems


def is_in_first_part(instance_id: str, *, share: float, seed: int) -> bool:
    """Whether a seeded hash of the id, uniform in [0, 1), lies below ``share``.

    So a part depends on nothing but seed and share, and grows with the share.
    """
    digest = hashlib.sha256(f"{seed}/{instance_id}".encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48 < share


def divide_file(file: Path, first: Path, rest: Path, *, share: float, seed: int) -> None:
    """Copy the rows of a file of problems, with all their columns, into two files.

    Args:
        file: A file of problems.
        first: Gets the problems that ``is_in_first_part``; is not written where there are none.
        rest: Gets the others, likewise.
        share: Expected share of the first part, in [0, 1].
        seed: Another seed, another division.

    Raises:
        DataError: The file is missing, or a row is not what the schema asks for.
    """
    problems = read_problems(file)
    table = pq.read_table(file)
    is_first = np.array([is_in_first_part(each.instance_id, share=share, seed=seed) for each in problems])
    for target, is_chosen in ((first, is_first), (rest, ~is_first)):
        if is_chosen.any():
            sink = io.BytesIO()
            pq.write_table(table.filter(pa.array(is_chosen)), sink)
            write_atomically(target, sink.getvalue())
