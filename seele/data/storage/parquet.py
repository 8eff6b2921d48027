"""Parquet files written row by row in bounded memory: the same rows give the same bytes, complete or absent.

This module is independent of the meaning of the columns; see ``seele.data.storage.schema``.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from seele.data.storage.files import PartialFile

# A row group is encoded in one piece: it ends at whichever limit comes first, and depends only on the rows.
MAX_GROUP_ROWS = 10_000
MAX_GROUP_CHARS = 32_000_000
_BATCH_ROWS = 1024


class ParquetSink:
    """A writer for a parquet file of one schema that takes rows one by one.

    With one version of pyarrow, the same rows in the same order give the same bytes. As a context manager, it
    removes a file that was not committed.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        """Open a temporary file beside ``path``; ``commit`` renames it.

        Raises:
            OSError: If the folder cannot be written.
        """
        self._file = PartialFile(path)
        self._schema = schema
        self._writer = pq.ParquetWriter(
            self._file.stream, schema, version="2.6", compression="zstd", compression_level=3
        )
        self._rows: list[Mapping[str, Any]] = []
        self._chars = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def add(self, row: Mapping[str, Any], *, num_chars: int) -> None:
        """Append a row.

        Args:
            row: Value by column; a missing one is null.
            num_chars: Approximate number of characters in the row, which bounds the memory of a row group.
        """
        self._rows.append(row)
        self._chars += num_chars
        if len(self._rows) >= MAX_GROUP_ROWS or self._chars >= MAX_GROUP_CHARS:
            self._end_group()

    def add_group(self, group: pa.Table) -> None:
        """Append rows as a row group of their own."""
        self._end_group()
        self._writer.write_table(group, row_group_size=group.num_rows)

    def finish(self) -> None:
        """Write the remaining rows and the footer. The file keeps its temporary name."""
        self._end_group()
        self._writer.close()

    def commit(self) -> None:
        """Move the finished file to its path."""
        self._file.commit()

    def discard(self) -> None:
        """Remove a file that was not committed."""
        try:
            if self._writer.is_open:
                self._writer.close()
        finally:
            self._file.discard()

    def _end_group(self) -> None:
        if self._rows:
            table = pa.Table.from_pylist(self._rows, schema=self._schema)
            self._writer.write_table(table, row_group_size=len(self._rows))
            self._rows, self._chars = [], 0


def copy_rows(source: Path, target: Path, keep: Iterable[bool]) -> None:
    """Copy the rows for which ``keep``, one value per row in the file's order, is true, with all columns.

    Raises:
        OSError: If a file cannot be read or written.
    """
    rest = iter(keep)
    file = pq.ParquetFile(source)
    kept = (batch.filter(_take(rest, batch, pa.bool_())) for batch in file.iter_batches(_BATCH_ROWS))
    _write(target, file.schema_arrow, kept)


def set_column(source: Path, target: Path, field: pa.Field, values: Iterable[Any]) -> None:
    """Copy a file, adding or replacing one column; the other columns are unchanged.

    Args:
        source: The file.
        target: Path of the copy; may be ``source``.
        field: Name and type of the column.
        values: One value per row, in the file's order.

    Raises:
        OSError: If a file cannot be read or written.
    """
    rest = iter(values)
    file = pq.ParquetFile(source)
    schema = file.schema_arrow
    index = schema.get_field_index(field.name)
    schema = schema.append(field) if index < 0 else schema.set(index, field)

    def changed(batch: pa.RecordBatch) -> pa.RecordBatch:
        column = _take(rest, batch, field.type)
        columns = [column if name == field.name else batch[name] for name in schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    _write(target, schema, map(changed, file.iter_batches(_BATCH_ROWS)))


def _take(values: Iterator[Any], batch: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
    return pa.array(itertools.islice(values, batch.num_rows), kind)


def _write(target: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write rows without making Python's values of them: it has none for a date after the year 9999."""
    group: list[pa.RecordBatch] = []
    with ParquetSink(target, schema) as sink:
        for batch in batches:
            group.append(batch)
            rows, size = sum(each.num_rows for each in group), sum(each.nbytes for each in group)
            if rows >= MAX_GROUP_ROWS or size >= MAX_GROUP_CHARS:
                sink.add_group(pa.Table.from_batches(group, schema))
                group = []
        if any(each.num_rows for each in group):
            sink.add_group(pa.Table.from_batches(group, schema))
        sink.finish()
        sink.commit()
