"""Problems of the chosen benchmarks, from files below a data folder or from the Hugging Face hub.

All errors in them are found here, before a model is loaded: missing files, wrong numbers of rows, rows that
break their schema.
"""

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from seele.data.sources.local import iterate_file
from seele.data.storage.files import file_sha256
from seele.data.storage.hub import read_hub_rows
from seele.data.storage.schema import read_problems
from seele.errors import DataError, SeeleError
from seele.plugins import where, where_in
from seele.rollout.templates import QUESTION
from seele_eval.benchmarks import Benchmark
from seele_eval.grading import Extract, Judge, extract_boxed, judge_one
from seele_eval.problems import Problem, columns_of, from_instance, groupable, number_twins


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The problems of one benchmark or file, with the rules for drawing and grading."""

    name: str
    problems: tuple[Problem, ...]
    source: Mapping[str, Any]
    """Source of the problems, for the conditions of the result."""
    extract: Extract = extract_boxed
    judge: Judge = judge_one
    temperature: float = 0.0
    samples: int = 1
    may_be_published: bool = True
    columns: tuple[str, ...] = ()
    """Columns by which scores can be split; searched only if some are requested."""


def load_benchmark(
    name: str,
    benchmark: Benchmark,
    *,
    data_dir: Path | None,
    limit: int | None = None,
    any_row_count: bool = False,
    by: Sequence[str] = (),
) -> Task:
    """Load the benchmark's problems, at most the first ``limit``.

    Args:
        name: The benchmark's name in results.
        benchmark: The benchmark's definition.
        data_dir: Folder that holds the benchmark's file; the hub is used if it is None or the benchmark has
            no file.
        limit: Largest number of problems to keep. The source must still be complete.
        any_row_count: Accept a source whose number of rows differs from the benchmark's.
        by: Columns whose values the problems keep.

    Raises:
        DataError: If the source is missing, holds a wrong number of rows, or a row breaks the schema.
        DependencyError: If the hub is needed and ``datasets`` is not installed.
    """
    expected = benchmark.rows
    if benchmark.open is not None:
        opened = benchmark.open()
        rows, source = list(opened.rows), dict(opened.origin)
    elif data_dir is None or not benchmark.files:
        rows, source = _hub_rows(name, benchmark)
        expected = benchmark.hub_rows or benchmark.rows
    else:
        path = _find_file(name, benchmark, data_dir)
        rows = read_rows(path)
        source = {"file": str(path), "sha256": file_sha256(path)}
    if not rows:
        raise DataError(f"{' '.join(map(str, source.values()))}: no rows, needed for benchmark {name!r}")
    if expected is not None and len(rows) != expected and not any_row_count:
        raise DataError(
            f"{' '.join(map(str, source.values()))}: {len(rows)} rows, but {name} has {expected}; "
            "fetch the whole set, or pass --any-row-count to measure on these rows anyway"
        )
    problems = number_twins(_problem(benchmark, row, at) for at, row in rows)
    problems, columns = _with_columns(problems, [row for _, row in rows], by)
    return Task(
        name=name,
        problems=tuple(problems[:limit]),
        columns=columns,
        source=source | {"rows": len(rows)},
        extract=benchmark.extract,
        judge=benchmark.judge,
        temperature=benchmark.temperature,
        samples=benchmark.samples,
        may_be_published=benchmark.may_be_published,
    )


def load_problem_file(name: str, path: Path, *, limit: int | None = None, by: Sequence[str] = ()) -> Task:
    """Load all problems of a parquet file in our schema, or the first ``limit``, with the columns ``by``.

    Raises:
        DataError: As ``seele.data.storage.schema.read_problems``.
    """
    rows = [row for _, row in read_rows(path)] if by and path.is_file() else []
    problems, columns = _with_columns(list(map(from_instance, read_problems(path))), rows, by)
    source = {"file": str(path), "sha256": file_sha256(path), "rows": len(problems)}
    return Task(name=name, problems=tuple(problems[:limit]), source=source, columns=columns)


def _problem(benchmark: Benchmark, row: Any, at: str) -> Problem:
    """The problem of a row in the benchmark's wording."""
    try:
        problem = benchmark.read(row, at)
    except SeeleError:
        raise
    except Exception as error:
        raise DataError(
            f"{where_in(benchmark.read, error)}: {at}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(problem, Problem):
        raise DataError(
            f"{where(benchmark.read)}: {at}: read must return a seele_eval.problems.Problem, got "
            f"{reprlib.repr(problem)}"
        )
    question = benchmark.prompt.replace(QUESTION, problem.question)
    version = benchmark.version and f"-{benchmark.version[:8]}"
    if not benchmark.may_be_published and benchmark.prompt != QUESTION:
        # Samples without their question do not show that they answer another prompt.
        version += f"-{sha256(benchmark.prompt.encode()).hexdigest()[:8]}"
    return replace(problem, question=question, instance_id=f"{problem.instance_id}{version}")


def _with_columns(
    problems: list[Problem], rows: Sequence[Mapping[str, Any]], by: Sequence[str]
) -> tuple[list[Problem], tuple[str, ...]]:
    """The problems with their rows' values of the columns ``by``, and all available columns."""
    if not by:
        return problems, ()
    columns = [columns_of(row) for row in rows]
    there = groupable(columns)
    wanted = [name for name in by if name in there]
    kept = [
        replace(problem, columns={name: row.get(name) for name in wanted})
        for problem, row in zip(problems, columns, strict=True)
    ]
    return kept, tuple(there)


def read_rows(path: Path) -> list[tuple[str, Any]]:
    """The rows of a file with all columns, each with its location for messages (``iterate_file``)."""
    return list(iterate_file(path, choose=list))


def _find_file(name: str, benchmark: Benchmark, data_dir: Path) -> Path:
    candidates = [data_dir / file for file in benchmark.files]
    found = next((path for path in candidates if path.is_file()), None)
    if found is None:
        where = f"from the hub ({benchmark.hub})" if benchmark.hub else "from its author"
        raise DataError(
            f"{' or '.join(map(str, candidates))}: no such file, needed for benchmark {name!r}; "
            f"get it {where}" + (", or omit --data-dir to read it there" if benchmark.hub else "")
        )
    return found


def _hub_rows(name: str, benchmark: Benchmark) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
    if benchmark.hub is None:
        raise DataError(
            f"benchmark {name!r} is not on the hub; "
            + (
                "name the folder that holds it with --data-dir"
                if benchmark.files
                else "its definition needs one of files, hub and open"
            )
        )
    gated = (
        ""
        if benchmark.may_be_published
        else (
            f"It is gated: accept its terms at https://huggingface.co/datasets/{benchmark.hub.name} and set "
            "HF_TOKEN. "
        )
    )
    instead = (
        f"{gated}Without a network, put {benchmark.files[0]} below a folder and pass that as --data-dir"
        if benchmark.files
        else f"{gated}It has no file that could be below --data-dir"
    )
    rows = read_hub_rows(benchmark.hub, instead=instead)
    return rows, {"hub": benchmark.hub.name, "revision": benchmark.hub.revision}
