"""The command line of ``seele_eval.run`` as a frozen record. Parsing only: nothing is opened here."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seele_eval.benchmarks import BENCHMARKS

# The paper's response limit (arXiv:2509.06923, section 5.1), for a model that comes without a run.
MAX_TOKENS = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What to evaluate and how; ``None`` and ``()`` mean: as the run or the benchmark says."""

    model: Path | None = None
    run: Path | None = None
    benchmarks: tuple[str, ...] = ()
    data_dir: Path | None = None
    problems: tuple[tuple[str, Path], ...] = ()
    limit: int | None = None
    out: Path | None = None
    template: str | None = None
    temperature: tuple[float, ...] = ()
    samples: int | None = None
    max_tokens: int | None = None
    seed: int = 0
    tensor_parallel: int = 1
    gpu_memory_share: float = 0.9


def parse_arguments(argv: Sequence[str] | None) -> Arguments:
    """The arguments of this process, or ``argv``. Exits with status 2 when they do not parse."""
    parser = argparse.ArgumentParser(prog="seele_eval", description="Evaluate a model without hints.")
    what = parser.add_argument_group("what")
    what.add_argument("--model", type=Path, help="Hugging Face folder (default with --run: RUN/merged)")
    what.add_argument(
        "--run", type=Path, help="run folder: its template, response limit and validation files"
    )
    what.add_argument(
        "--benchmarks", type=_names, default=(), help=f"of {', '.join(BENCHMARKS)}; with commas"
    )
    what.add_argument("--data-dir", type=Path, help="folder that holds a folder per benchmark")
    what.add_argument(
        "--problems",
        type=_named_file,
        nargs="+",
        default=(),
        metavar="NAME=FILE",
        help="parquet in our schema",
    )
    what.add_argument("--limit", type=_positive, help="only the first LIMIT problems of each")
    what.add_argument("--out", type=Path, help="folder to write (default with --run: RUN/eval)")
    how = parser.add_argument_group("how (default: as the run or the benchmark says)")
    how.add_argument("--template", help="prompt template")
    how.add_argument(
        "--temperature",
        type=_temperature,
        nargs="+",
        default=(),
        help="0 is greedy; several give several scores",
    )
    how.add_argument("--samples", type=_positive, help="completions per problem at temperatures above 0")
    how.add_argument(
        "--max-tokens", type=_positive, help=f"longest response (default without --run: {MAX_TOKENS})"
    )
    how.add_argument("--seed", type=int, default=0)
    how.add_argument("--tensor-parallel", type=_positive, default=1, help="GPUs per model")
    how.add_argument("--gpu-memory-share", type=float, default=0.9, help="of each GPU, for weights and cache")
    values = vars(parser.parse_args(argv))
    for key in ("benchmarks", "problems", "temperature"):
        values[key] = tuple(values[key])
    return Arguments(**values)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _named_file(text: str) -> tuple[str, Path]:
    name, separator, path = text.partition("=")
    if not (name and separator and path):
        raise argparse.ArgumentTypeError(f"expected NAME=FILE.parquet, got {text!r}")
    return name, Path(path)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def _temperature(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be 0 (greedy) or above, got {text}")
    return value
