"""Compare two methods over seeds: ``python -m seele_eval.compare_seeds --a DIR... --b DIR... [--out DIR]``.

Each folder is the output of ``seele_eval.run`` for the model of one seed. A's first folder is paired with B's
first, and so on, and each pair is compared problem by problem (``seele_eval.compare``). An interval is
Student's over the seeds, so it also covers how much training differs from seed to seed; that of a single pair
covers only the problems.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from seele.data.storage.files import check_writable, write_atomically
from seele.errors import ConfigError
from seele.report.comparison.results import MIN_SEEDS, interval_over_seeds
from seele_eval.command import exit_quietly, run_command
from seele_eval.compare import Comparison, Difference, compare
from seele_eval.conditions import OF_THE_MODEL, differing
from seele_eval.estimates import Estimate
from seele_eval.tables import difference, percent, table


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedDifference:
    """B minus A on one benchmark at one temperature, or in an average."""

    benchmark: str
    temperature: float | None
    """None for an average."""
    differences: tuple[float, ...]
    """B minus A of each pair."""
    difference: Estimate
    """Mean over the pairs; without an interval if all pairs agree, or there are fewer than three."""
    problems: int | None
    """Problems of the smallest pair; None for an average, as are the two accuracies."""
    first: Estimate | None
    """Mean accuracy of A over the seeds."""
    second: Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedComparison:
    """The comparison of two methods over seeds."""

    pairs: tuple[tuple[str, str], ...]
    """Folders of A and B, seed by seed."""
    rows: tuple[SeedDifference, ...]
    notes: tuple[str, ...]
    """What differs within pairs and between them, and benchmarks that a pair lacks."""

    def text(self) -> str:
        """A Markdown table, then the pairs and notes."""
        lines = [
            f"{len(self.pairs)} seeds. Accuracies in percent, 95 % intervals over the seeds.\n",
            table([_cells(row) for row in self.rows], num_names=1),
            *(f"- {number}. A: {a}; B: {b}" for number, (a, b) in enumerate(self.pairs, start=1)),
            *(f"- {note}" for note in self.notes),
        ]
        return "\n".join(lines) + "\n"


def compare_seeds(first: Sequence[Path], second: Sequence[Path]) -> SeedComparison:
    """Compare the evaluations of two methods, seed by seed.

    Raises:
        ConfigError: If the methods have different numbers of seeds, or a folder or a model is given twice.
        CheckpointError, DataError: As ``seele_eval.compare.compare``, for a pair.
    """
    if len(first) != len(second):
        raise ConfigError(
            f"--a has {len(first)} folders and --b has {len(second)}; give one of each per seed"
        )
    resolved = [folder.resolve() for folder in (*first, *second)]
    if twice := sorted({str(folder) for folder in resolved if resolved.count(folder) > 1}):
        raise ConfigError(f"{', '.join(twice)}: is given twice; each seed has its own evaluation")
    compared = [compare(a, b) for a, b in zip(first, second, strict=True)]
    for side in (0, 1):
        _check_models([each.conditions[side] for each in compared], [each.names[side] for each in compared])
    notes = [f"{' and '.join(each.names)}: {note}" for each in compared for note in each.notes]
    begin = compared[0]
    notes += [
        f"{each.names[0]}, beside {begin.names[0]}: {note}"
        for each in compared[1:]
        for note in differing(begin.conditions[0], each.conditions[0], ignoring=OF_THE_MODEL)
    ]
    rows, amiss = _rows(compared)
    if len(compared) < MIN_SEEDS:
        notes.append(f"fewer than {MIN_SEEDS} seeds, so no interval")
    return SeedComparison(
        pairs=tuple(each.names for each in compared), rows=tuple(rows), notes=(*notes, *amiss)
    )


def _check_models(conditions: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    """Raise ``ConfigError`` if two evaluations of a method are of the same weights."""
    seen: dict[str, str] = {}
    for condition, name in zip(conditions, names, strict=True):
        if not (digests := condition.get("weights_sha256")):
            continue
        weights = json.dumps(digests, sort_keys=True)
        if weights in seen:
            raise ConfigError(f"{seen[weights]} and {name} evaluate the same weights; give one for each seed")
        seen[weights] = name


def _rows(compared: Sequence[Comparison]) -> tuple[list[SeedDifference], list[str]]:
    """The rows of what every pair has, and notes on what some pairs lack or have fewer problems of."""
    of_pairs: dict[tuple[str, float | None], list[Difference | Estimate]] = defaultdict(list)
    for pair in compared:
        for row in pair.differences:
            of_pairs[row.benchmark, row.temperature].append(row)
    for pair in compared:
        for name, average in pair.averages.items():
            of_pairs[f"average of {name}", None].append(average)
    rows, amiss = [], []
    for (name, temperature), found in of_pairs.items():
        if len(found) == len(compared):
            rows.append(_row(name, temperature, found))
            sizes = [each.problems for each in found if isinstance(each, Difference)]
            if len({*sizes}) > 1:
                counts = ", ".join(map(str, sizes))
                amiss.append(f"{name}: the pairs have {counts} problems, and each pair counts the same")
        else:
            amiss.append(f"{name}: only {len(found)} of {len(compared)} pairs have it, so it is left out")
    return rows, amiss


def _row(name: str, temperature: float | None, found: Sequence[Difference | Estimate]) -> SeedDifference:
    """A row from what each pair has: a benchmark's difference, or the difference of an average."""
    measured = [each for each in found if isinstance(each, Difference)]
    gains = [each.value if isinstance(each, Estimate) else each.second - each.first for each in found]
    return SeedDifference(
        benchmark=name,
        temperature=temperature,
        differences=tuple(gains),
        difference=_over_seeds(gains),
        problems=min((each.problems for each in measured), default=None),
        first=_over_seeds([each.first for each in measured], is_share=True) if measured else None,
        second=_over_seeds([each.second for each in measured], is_share=True) if measured else None,
    )


def _over_seeds(values: Sequence[float], *, is_share: bool = False) -> Estimate:
    interval = interval_over_seeds(values)
    if interval and is_share:
        interval = max(interval[0], 0.0), min(interval[1], 1.0)
    return Estimate(value=fmean(values), interval_95=interval)


def _cells(row: SeedDifference) -> dict[str, str]:
    return {
        "benchmark": row.benchmark,
        "T": "" if row.temperature is None else f"{row.temperature:g}",
        "problems": "" if row.problems is None else str(row.problems),
        "A": percent(row.first) if row.first else "",
        "B": percent(row.second) if row.second else "",
        "B - A": difference(row.difference),
        "by seed": ", ".join(f"{100 * each:+.1f}" for each in row.differences),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Exit status: 0, or 2 for an error that the user can fix."""
    parser = argparse.ArgumentParser(
        prog="seele_eval.compare_seeds", description="Compare two methods over seeds."
    )
    for name in ("--a", "--b"):
        about = f"evaluations of method {name[-1].upper()}, one for each seed, in one order of seeds"
        parser.add_argument(name, type=Path, nargs="+", required=True, metavar="DIR", help=about)
    parser.add_argument("--out", type=Path, help="folder for comparison.md and comparison.json")
    options = parser.parse_args(argv)
    return run_command(lambda: _write(compare_seeds(options.a, options.b), options.out))


def _write(comparison: SeedComparison, out: Path | None) -> str:
    if out is not None:
        check_writable(out, is_folder=True)
        write_atomically(out / "comparison.md", comparison.text())
        write_atomically(out / "comparison.json", json.dumps(asdict(comparison), indent=2) + "\n")
    return comparison.text()


if __name__ == "__main__":
    exit_quietly(main())
