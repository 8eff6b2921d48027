"""Reads and writes a batch's N rows in TransferQueue: columns are nested, (N, tokens of each row)."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta


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
