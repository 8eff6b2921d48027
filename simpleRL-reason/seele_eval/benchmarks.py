"""What can be evaluated: the table of benchmarks, and problem files in our own schema.

A benchmark is a name, a place below the data folder, a reader, and the conditions it is usually measured
under. Generation and grading live elsewhere. Conditions follow SEELE (arXiv:2509.06923, section 5.1): R1-Zero
template, greedy decoding.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from seele.data.gsm8k import read_gsm8k
from seele.data.schema import read_problems
from seele.errors import ConfigError, DataError
from seele.records import Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One set of problems and the conditions it is measured under unless the caller asks for others."""

    name: str
    source: Path
    """Folder or file that ``read`` reads."""
    read: Callable[[Path], Sequence[Instance]]
    template: str
    temperature: float = 0.0
    """Sampling temperature; 0 is greedy."""
    samples: int = 1
    """Completions per problem at a temperature above 0; greedy decoding draws one."""


def _read_math500(folder: Path) -> list[Instance]:
    path = folder / "test.jsonl"
    # Not splitlines(): a text may hold U+2028, which JSON allows inside a string.
    lines = [line for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    return [_math500_instance(line, index, f"{path}, line {index + 1}") for index, line in enumerate(lines)]


def _math500_instance(line: str, index: int, at: str) -> Instance:
    try:
        row = json.loads(line)
        texts = row["problem"], row["answer"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise DataError(f"{at}: expected an object with 'problem' and 'answer', got {line[:60]!r}") from error
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise DataError(f"{at}: 'problem' and 'answer' must be texts that are not blank, got {texts!r}")
    question, answer = texts
    return Instance(
        instance_id=f"math500/test/{index}", data_source="math500", question=question, steps=(), answer=answer
    )


BENCHMARKS: dict[str, Callable[[Path], Benchmark]] = {
    "gsm8k": lambda data_dir: Benchmark(
        name="gsm8k",
        source=data_dir / "gsm8k",
        read=lambda folder: read_gsm8k("test", folder=folder),
        template="r1_zero",
    ),
    "math500": lambda data_dir: Benchmark(
        name="math500", source=data_dir / "math500", read=_read_math500, template="r1_zero"
    ),
}
"""Benchmark by name, as a function of the data folder."""


def find_benchmarks(names: Sequence[str], data_dir: Path | None) -> list[Benchmark]:
    """The named benchmarks under ``data_dir``.

    Raises:
        ConfigError: For an unknown name, or when benchmarks are named and no data folder is.
    """
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        raise ConfigError(f"--benchmarks: unknown {unknown}; known benchmarks are {sorted(BENCHMARKS)}")
    if names and data_dir is None:
        raise ConfigError(f"--benchmarks {','.join(names)} needs --data-dir, the folder that holds them")
    return [BENCHMARKS[name](data_dir) for name in names if data_dir is not None]


def problem_file(name: str, path: Path) -> Benchmark:
    """A parquet file in our schema as a benchmark."""
    return Benchmark(name=name, source=path, read=read_problems, template="r1_zero")


def load_problems(benchmark: Benchmark, *, limit: int | None = None) -> list[Instance]:
    """The benchmark's problems, at most the first ``limit`` of them.

    Raises:
        DataError: If the source is missing or holds no problem, or a row of it is not what its reader
        expects.
    """
    if not benchmark.source.exists():
        raise DataError(
            f"{benchmark.source}: no such file or folder, needed for benchmark {benchmark.name!r}"
        )
    try:
        problems = list(benchmark.read(benchmark.source))[:limit]
    except FileNotFoundError as error:
        raise DataError(f"{error.filename}: no such file, needed for benchmark {benchmark.name!r}") from error
    if not problems:
        raise DataError(
            f"{benchmark.source}: holds no problem; benchmark {benchmark.name!r} needs at least one"
        )
    return problems
