"""Finished runs, packed into one parquet file per task: runs/TASK.parquet, one row per run.

    python benchmarks/evidence/archive.py list mixed
    python benchmarks/evidence/archive.py unpack mixed grpo/seed_0 --out runs/grpo_0

An unpacked run is a run folder: ``seele report`` and ``seele compare`` read it. A row holds the name of the
run, the text of the files in ``FILES``, and for each metric a list with one value per step, null if the
step lacks the metric. Only the metrics in ``KEPT`` are packed, with their exact values. With the same
pyarrow, the same runs give the same bytes, in whatever order they were added.
"""

import argparse
import fcntl
import io
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from plan import STORED

from seele.data.storage.files import write_atomically
from seele.report.run_folder import RunFolder, read_run

METRICS = "metrics.jsonl"
FILES = {"run_card": "run_card.json", "settings": "resolved.yaml", "scores": "eval/scores.json"}
"""Column -> file of the run folder whose text it holds. The base model's row has scores only."""

KEPT = re.compile(
    r"step"
    r"|val/accuracy/.+"
    r"|(tokens/\w+|flops)_total"
    r"|timing_s/(step|gen|ref|update_actor|testing)"
    r"|accuracy/(mean|round_\d+|off_policy|probes)"
    r"|hint_ratio/(mean|p10|p90)"
    r"|rounds/(mean_a_1_minus_a|all_same_share)"
    r"|reward/mean"
    r"|controller/(failed_fits|unlearnable_share)"
    r"|curriculum/probability/.+"
    r"|replay/.+"
    r"|milestones/(false_alarms|flagged_share|passed_share|right_and_unstopped|stops)"
    r"|hints/reliance"
    r"|(starts|practised)/\w+"
    r"|rollout/thrown_away_share"
)
"""Metrics that tables, pages, ``seele compare`` and ``seele report`` read, and those that tell what hints and
checks did. Phases that take 3 % of a step's time or less are skipped: their bars are missing from the
report's figure.
"""

COUNTS = re.compile(r"step|(tokens/\w+|flops)_total")
"""Metrics that are stored as integers, provided that all their values are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRun:
    """The stored part of a run."""

    texts: Mapping[str, str]
    """Column in ``FILES`` -> text; omits files that the run does not have."""
    metrics: Sequence[Mapping[str, float]] = ()
    """One entry per step."""


def task_file(task: str) -> Path:
    """Path of the packed runs of ``task``."""
    return STORED / f"{task}.parquet"


def run_names(task: str) -> list[str]:
    """Sorted names of the packed runs, usually ``ARM/seed_N``; empty before the first is packed."""
    file = task_file(task)
    return pq.read_table(file, columns=["run"])["run"].to_pylist() if file.exists() else []


def read_task(task: str) -> dict[str, PackedRun]:
    """Name -> run, in order of names; empty before the first is packed."""
    file = task_file(task)
    if not file.exists():
        return {}
    table = pq.read_table(file)
    columns = {name: table[name].to_pylist() for name in table.column_names}
    names = columns.pop("run")
    texts = {column: columns.pop(column) for column in FILES}
    return {
        name: PackedRun(
            texts={column: values[row] for column, values in texts.items() if values[row] is not None},
            metrics=_by_step({metric: values[row] for metric, values in columns.items() if values[row]}),
        )
        for row, name in enumerate(names)
    }


def _by_step(columns: Mapping[str, Sequence[float | None]]) -> list[dict[str, float]]:
    return [
        {name: value for name, value in zip(columns, row, strict=True) if value is not None}
        for row in zip(*columns.values(), strict=True)
    ]


def write_task(task: str, runs: Mapping[str, PackedRun]) -> None:
    """Pack ``runs``, by name, into the file of ``task``, replacing the runs in it."""
    names = sorted(runs)
    columns: dict[str, pa.Array] = {"run": pa.array(names, pa.string())}
    for column in FILES:
        columns[column] = pa.array([runs[name].texts.get(column) for name in names], pa.string())
    encodings, dictionaries = dict.fromkeys(columns, "PLAIN"), []
    metrics = dict.fromkeys(metric for name in names for row in runs[name].metrics for metric in row)
    for metric in filter(KEPT.fullmatch, metrics):
        lists = [_values(runs[name].metrics, metric) for name in names]
        numbers = [value for values in lists if values for value in values if value is not None]
        is_count = COUNTS.fullmatch(metric) and all(float(value).is_integer() for value in numbers)
        columns[metric] = pa.array(lists, pa.list_(pa.float64())).cast(
            pa.list_(pa.int64() if is_count else pa.float64())
        )
        leaf = f"{metric}.list.element"
        if is_count:
            encodings[leaf] = "DELTA_BINARY_PACKED"
        elif 2 * len(set(numbers)) > len(numbers):
            encodings[leaf] = "BYTE_STREAM_SPLIT"
        else:
            dictionaries.append(leaf)
    write_atomically(task_file(task), compressed(pa.table(columns), encodings, dictionaries))


def _values(rows: Sequence[Mapping[str, float]], metric: str) -> list[float | None] | None:
    values = [row.get(metric) for row in rows]
    return values if any(value is not None for value in values) else None


def compressed(table: pa.Table, encodings: Mapping[str, str], dictionaries: Sequence[str] = ()) -> bytes:
    """Return a parquet file with one page per column, which compresses best, and nothing time-dependent."""
    stream = io.BytesIO()
    pq.write_table(
        table,
        stream,
        compression="zstd",
        compression_level=19,
        column_encoding=dict(encodings),
        use_dictionary=list(dictionaries),
        dictionary_pagesize_limit=1 << 26,
        data_page_size=1 << 30,
        write_batch_size=1 << 20,
        write_statistics=False,
        store_schema=False,
    )
    return stream.getvalue()


def add(task: str, name: str, folder: Path) -> None:
    """Pack the run folder ``folder`` as the run ``name``, in addition to the runs of ``task``."""
    run = read_folder(folder)
    with _locked():
        write_task(task, read_task(task) | {name: run})


def read_folder(folder: Path) -> PackedRun:
    """Return the stored part of the run folder ``folder``, without the path of this checkout."""

    def text(file: str) -> str:
        return (folder / file).read_text(encoding="utf-8").replace(f"{Path.cwd()}/", "")

    has_metrics = (folder / METRICS).exists()
    return PackedRun(
        texts={column: text(file) for column, file in FILES.items() if (folder / file).exists()},
        metrics=[json.loads(line) for line in text(METRICS).splitlines()] if has_metrics else (),
    )


@contextmanager
def _locked() -> Iterator[None]:
    """Allow one writer at a time among threads and processes."""
    STORED.mkdir(exist_ok=True)
    descriptor = os.open(STORED, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def unpack(run: PackedRun, folder: Path) -> None:
    """Write the run's files into ``folder``, which is created if needed."""
    for column, text in run.texts.items():
        write_atomically(folder / FILES[column], text)
    if run.metrics:
        lines = "".join(f"{json.dumps(row)}\n" for row in run.metrics)
        write_atomically(folder / METRICS, lines)


@cache
def _packed(task: str) -> dict[str, PackedRun]:
    return read_task(task)


@cache
def read(path: Path) -> RunFolder:
    """Return the packed run ``TASK/ARM/seed_N`` as ``seele.report`` reads a run folder; cached."""
    task, _, name = path.as_posix().partition("/")
    with tempfile.TemporaryDirectory() as scratch:
        unpack(_packed(task)[name], Path(scratch) / path.name)
        return read_run(Path(scratch) / path.name)


def read_scores(path: Path) -> dict[str, Any]:
    """Return eval/scores.json of the packed run ``TASK/ARM/seed_N``, or of the base model, ``TASK/base``."""
    task, _, name = path.as_posix().partition("/")
    scores: dict[str, Any] = json.loads(_packed(task)[name].texts["scores"])
    return scores


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list", help="print the names of a task's runs")
    unpacking = commands.add_parser("unpack", help="write one run into a folder")
    tasks = sorted(file.stem for file in STORED.glob("*.parquet"))
    for each in (listing, unpacking):
        each.add_argument("task", choices=tasks)
    unpacking.add_argument("run", help="as `list` prints it, such as grpo/seed_0")
    unpacking.add_argument("--out", type=Path, required=True, help="folder that does not exist yet")
    arguments = parser.parse_args()
    if arguments.command == "list":
        print("\n".join(run_names(arguments.task)))  # noqa: T201
        return
    runs = read_task(arguments.task)
    if arguments.run not in runs:
        parser.error(f"{arguments.task} has no run {arguments.run!r}; its runs are {', '.join(runs)}")
    if arguments.out.exists():
        parser.error(f"--out {arguments.out} exists; name a folder that does not")
    unpack(runs[arguments.run], arguments.out)


if __name__ == "__main__":
    main()
