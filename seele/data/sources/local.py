"""Rows of local parquet, JSON, JSONL and CSV files, a few at a time."""

import csv
import json
import re
import reprlib
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from seele.data.storage.files import iterate_json_lines, not_utf8
from seele.data.storage.floats import shorten_floats
from seele.data.storage.hub import ChooseColumns
from seele.data.storage.schema import REQUIRED_COLUMNS
from seele.errors import DataError

SUFFIXES = (".parquet", ".jsonl", ".json")
"""Endings of the files that are looked for in a folder; a CSV file, often an index there, is named itself."""

Row = tuple[str, Any]
"""A row's location for messages, and its content."""


def find_files(path: Path, split: str, configs: Sequence[str]) -> list[Path]:
    """Return the files of a split: ``path`` itself if it is a file, else those in the folder, sorted by name.

    In a folder they are called ``SPLIT.*`` or ``SPLIT-*.*``, also within ``data`` and, for a data set with
    configurations, within ``CONFIG``. If a folder contains a single file, that file is used.

    Raises:
        DataError: If there are no such files, or they have different formats.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError(f"{path}: no such file or folder; check the path")
    folders = [path / config for config in configs] or [path, path / "data"]
    found = [file for folder in folders for file in _files_of_split(folder, split)]
    if not found:
        found = [file for file in sorted(path.rglob("*")) if file.suffix in SUFFIXES]
        if not found:
            raise DataError(f"{path}: a folder without a file that ends in one of {SUFFIXES}; name another")
        if configs or len(found) > 1:
            wanted = " or ".join(f"{folder.relative_to(path) / split}[-*]" for folder in folders)
            there = reprlib.repr([file.relative_to(path).as_posix() for file in found])
            raise DataError(
                f"{path}: no {wanted} with one of {SUFFIXES}, but {there}; name the file itself, or its "
                "split with --split train=NAME"
            )
    if len(kinds := {file.suffix for file in found}) > 1:
        raise DataError(f"{path}: {split!r} exists as {sorted(kinds)}; name one file")
    return found


def iterate_file(path: Path, choose: ChooseColumns | None) -> Iterator[Row]:
    """Yield each row of a file with its location for messages.

    Args:
        path: A parquet, JSONL, JSON or CSV file. A JSON file is a list of rows and is read at once; the first
            line of a CSV file names its columns.
        choose: Returns the columns of a parquet file that are read; None for all.

    Raises:
        DataError: If the file has another format, cannot be read, or is a parquet file of problems and
            ``choose`` is None.
    """
    match path.suffix:
        case ".jsonl":
            yield from iterate_json_lines(path)
        case ".json":
            yield from _rows_of_json(path)
        case ".csv":
            yield from _rows_of_csv(path)
        case ".parquet":
            yield from _rows_of_parquet(path, choose)
        case suffix:
            raise DataError(
                f"{path}: expected one of {(*SUFFIXES, '.csv')}, got {suffix!r}; convert it, such as with "
                "pandas: to_json('rows.jsonl', orient='records', lines=True)"
            )


def _files_of_split(folder: Path, split: str) -> list[Path]:
    # "train-heldout" is a split of its own.
    numbered = re.compile(rf"{re.escape(split)}(-\d.*)?")
    return [
        file
        for file in sorted(folder.glob(f"{split}*"))
        if file.suffix in SUFFIXES and numbered.fullmatch(file.stem)
    ]


def _rows_of_json(path: Path) -> Iterator[Row]:
    try:
        rows = json.loads(path.read_bytes())
    except UnicodeDecodeError as error:
        raise not_utf8(str(path), error) from error
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read as JSON ({error}); one row per line is .jsonl") from error
    if not isinstance(rows, list):
        raise DataError(f"{path}: expected a list of rows, got {type(rows).__name__}")
    for number, row in enumerate(rows):
        yield f"{path}: row {number} (counted from 0)", row


def _rows_of_csv(path: Path) -> Iterator[Row]:
    # A solution may be longer than the default of 131,072 characters.
    csv.field_size_limit(sys.maxsize)
    with path.open(encoding="utf-8-sig", newline="") as stream:
        rows = csv.DictReader(stream, strict=True)
        try:
            _check_names(names := rows.fieldnames or (), path)
            if len(names) == 1 and (between := next((sign for sign in ";\t" if sign in names[0]), "")):
                raise DataError(
                    f"{path}: the first line is one column with {between!r} in it; put commas between columns"
                )
            for row in rows:
                at = f"{path}: line {rows.line_num}"
                if None in row:
                    raise DataError(
                        f"{at}: has more values than the first line has columns; put a text with commas "
                        "between double quotes"
                    )
                if None in row.values():
                    raise DataError(
                        f"{at}: has fewer values than the first line has columns; write a comma for each "
                        "empty value, or fetch the file again if it ends in the middle of a row"
                    )
                yield at, row
        except UnicodeDecodeError as error:
            raise not_utf8(str(path), error) from error
        except csv.Error as error:
            raise DataError(
                f"{path}: line {rows.reader.line_num}: cannot be read as CSV ({error}); close every double "
                "quote, and write one within a text twice"
            ) from error


def _check_names(names: Sequence[str], path: Path) -> None:
    if twins := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(f"{path}: has several columns named {twins[0]!r}; give each a name of its own")


def _rows_of_parquet(path: Path, choose: ChooseColumns | None) -> Iterator[Row]:
    number = 0
    try:
        file = pq.ParquetFile(path, pre_buffer=False)
        names = file.schema_arrow.names
        _check_names(names, path)
        if choose is None and set(REQUIRED_COLUMNS).issubset(names):
            raise DataError(
                f"{path}: is a file of problems already; use it as it is, or map its columns (--map "
                '"question=question answer=answer steps=steps") to make other problems of it'
            )
        wanted = choose(names) if choose else names
        shorten = shorten_floats(file.schema_arrow)
        for batch in file.iter_batches(batch_size=256, columns=wanted, use_threads=False):
            for row in map(shorten, batch.to_pylist()):
                yield f"{path}: row {number} (counted from 0)", row
                number += 1
    except DataError:
        raise
    except (pa.ArrowException, OSError, OverflowError, ValueError) as error:
        raise DataError(
            f"{path}: cannot be read as parquet ({error}); fetch it again, or leave out the column"
        ) from error
