"""Reads and writes a batch's N rows in TransferQueue: columns are nested, (N, tokens of each row)."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from seele_verl.losses import have_weight


def real_rows(batch: KVBatchMeta) -> dict[str, Mapping[str, Any]]:
    """Return the tags of the batch's rows, by key, without the rows that only pad it."""
    return {key: tag for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding")}


def read_columns(batch: KVBatchMeta, names: Sequence[str]) -> TensorDict:
    """Return these columns of the batch's rows, in the batch's order."""
    return tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(names))


def write_columns(batch: KVBatchMeta, columns: Mapping[str, Sequence[torch.Tensor]]) -> KVBatchMeta:
    """Write columns, with one tensor per row of the batch, and return the batch with them."""
    fields = {
        name: torch.nested.as_nested_tensor(list(rows), layout=torch.jagged) for name, rows in columns.items()
    }
    return tq.kv_batch_put(
        keys=batch.keys,
        partition_id=batch.partition_id,
        fields=TensorDict(fields, batch_size=len(batch)),  # type: ignore[arg-type]
    )


def count_tokens(batch: KVBatchMeta, column: str) -> int:
    """Return the number of the batch's tokens that a column of masks or weights marks."""
    return sum(int(row.count_nonzero()) for row in read_columns(batch, [column])[column].unbind())


def keys_with_weight(batch: KVBatchMeta, columns: Sequence[str]) -> set[str]:
    """Return the keys of rows with a nonzero value in any column; all keys without columns."""
    if not columns:
        return {*batch.keys}
    weighed = have_weight(read_columns(batch, [*columns]), columns)
    return {key for key, has_weight in zip(batch.keys, weighed, strict=True) if has_weight}


def keys_marked_whole(batch: KVBatchMeta, columns: Sequence[str]) -> set[str]:
    """Return the keys of rows that any column of masks or weights marks on every token."""
    if not columns:
        return set()
    data = read_columns(batch, columns)
    return {
        key
        for name in columns
        for key, row in zip(batch.keys, data[name].unbind(), strict=True)
        if (row != 0).all()
    }


@contextmanager
def rows_apart(rows: Sequence[dict[str, torch.Tensor]], partition_id: str) -> Iterator[KVBatchMeta]:
    """While open, rows that are not the step's are in a partition of their own; yield their batch.

    Args:
        rows: Fields of each row, as ``forward_row`` makes them.
        partition_id: The partition, which holds nothing else.
    """
    keys = [f"row-{number}" for number in range(len(rows))]
    batch = tq.kv_batch_put(
        keys=keys,
        partition_id=partition_id,
        fields=list_of_dict_to_tensordict(rows),
        tags=[{"seq_len": len(row["input_ids"])} for row in rows],
    )
    try:
        yield batch
    finally:
        tq.kv_clear(keys=keys, partition_id=partition_id)
