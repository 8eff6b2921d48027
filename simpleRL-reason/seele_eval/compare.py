"""Compare two models on the same problems: ``python -m seele_eval.compare A B [--out DIR]``.

A and B are output folders of ``seele_eval.run``. Problems are paired by id, so that a problem's own
difficulty does not blur the difference; unpaired problems are skipped and counted. The p-values are not
corrected for several benchmarks.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from seele.data.storage.files import check_writable, write_atomically
from seele.errors import CheckpointError, ConfigError, DataError
from seele.maths.irt import Array
from seele.report.charts import shortened
from seele_eval.command import run_command
from seele_eval.conditions import OF_THE_MODEL, differing
from seele_eval.estimates import (
    Estimate,
    attempts,
    estimate,
    generator_for,
    mean_of,
    pass_at_k,
    random_flips_p_value,
)
from seele_eval.predictions import PASS_FIGURE, PREDICTIONS, SCORES, Prediction, read_predictions
from seele_eval.scores import (
    AVERAGES,
    accuracy_of,
    group_by_decoding,
    group_by_problem,
    is_partial,
    num_correct,
)
from seele_eval.tables import PassCurve, conditions_list, difference, draw_panels, percent, table

Group = Mapping[str, Sequence[Prediction]]
"""Samples by problem."""

Groups = Mapping[tuple[str, float], Group]
"""Samples of each benchmark at each temperature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Second model minus the first on one benchmark at one temperature."""

    benchmark: str
    temperature: float
    problems: int
    """Number of problems for which both models have all samples."""
    first: float
    second: float
    difference: Estimate
    better: int
    """Number of problems on which the second model is right more often."""
    worse: int
    p_value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """pass@k of both models on one benchmark, on the problems for which both have all samples."""

    benchmark: str
    temperature: float
    k: int
    first: Estimate
    second: Estimate
    difference: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All differences of two evaluations."""

    names: tuple[str, str]
    differences: tuple[Difference, ...]
    attempts: tuple[Attempts, ...]
    """pass@k for each k up to the smaller number of samples, if both models have several."""
    averages: Mapping[str, Estimate]
    notes: tuple[str, ...]
    """Other conditions that differ, unfinished evaluations, and problems left out, one sentence each."""
    conditions: tuple[Mapping[str, Any], Mapping[str, Any]]

    def text(self) -> str:
        """Markdown tables, then averages and notes."""
        lines = [f"A: {self.names[0]}; B: {self.names[1]}. Accuracies in percent, 95 % intervals.\n"]
        lines.append(table([_cells(each) for each in self.differences], num_names=1))
        lines += [f"Average of {name}, B - A: {difference(each)}\n" for name, each in self.averages.items()]
        if self.attempts:
            lines.append(table([_attempt_cells(each) for each in self.attempts], num_names=1))
        return "\n".join([*lines, *(f"- {note}" for note in self.notes)]).rstrip("\n") + "\n"


def compare(first: Path, second: Path) -> Comparison:
    """Pair the problems of two evaluations.

    Raises:
        CheckpointError: If a folder holds no predictions, or its scores are damaged.
        DataError: If they have no problem in common.
    """
    file_a, file_b = read_predictions(first), read_predictions(second)
    order, left_out_a = _read_scores(first)
    groups_a = _by_benchmark(file_a.predictions, order, left_out_a)
    groups_b = _by_benchmark(file_b.predictions, *_read_scores(second))
    notes = differing(file_a.conditions, file_b.conditions, ignoring=OF_THE_MODEL)
    notes += [
        f"{folder}: unfinished: it has no {SCORES[0]}"
        for folder in dict.fromkeys((first, second))
        if not (folder / SCORES[0]).is_file()
    ]
    differences: dict[str, Estimate] = {}
    rows, attempted, left_out = [], [], []
    # A benchmark's first temperature counts in the averages, as in A's scores.
    first_of_each = {key[0]: key for key in reversed([*(order or sorted(groups_a))])}
    common = sorted(groups_a.keys() & groups_b.keys())
    for key in [each for each in order if each in common] if order else common:
        whole, amiss = _pair(groups_a[key], groups_b[key])
        left_out += [f"{key[0]}: {each}" for each in amiss]
        if whole:
            pairs = [(groups_a[key][name], groups_b[key][name]) for name in whole]
            accuracies_N2 = np.array([(accuracy_of(a), accuracy_of(b)) for a, b in pairs])
            rows.append(_difference(*key, accuracies_N2))
            attempted += _attempts(*key, pairs)
            if key == first_of_each[key[0]]:
                differences[key[0]] = rows[-1].difference
    partial = [
        f"{each.benchmark}: {each.problems} of its problems, as in every average with it"
        for each in rows
        if is_partial(each.benchmark, each.problems)
    ]
    if not rows:
        raise DataError(
            f"{first} and {second} have no problem at the same temperature in common; they hold (benchmark, "
            f"temperature) {list(groups_a)} and {list(groups_b)}" + "".join(f"; {note}" for note in left_out)
        )
    return Comparison(
        names=(str(first), str(second)),
        differences=tuple(rows),
        attempts=tuple(attempted),
        averages=_averages(differences),
        notes=(*notes, *left_out, *dict.fromkeys(partial)),
        conditions=(file_a.conditions, file_b.conditions),
    )


def _read_scores(folder: Path) -> tuple[Mapping[tuple[str, float], int], Mapping[str, Sequence[str]]]:
    """Samples per problem of each benchmark and temperature that was scored, in order, and the problems that
    the scores leave out, by benchmark. Both are empty for an unfinished evaluation.
    """
    path = folder / SCORES[0]
    if not path.is_file():
        return {}, {}
    try:
        written = json.loads(path.read_bytes())
        scored = {(each["benchmark"], each["temperature"]): each["samples"] for each in written["scores"]}
        # Older files do not record it.
        return scored, written.get("left_out", {})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{path}: is damaged ({error!r}); run the evaluation again to rewrite it"
        ) from error


def _by_benchmark(
    predictions: Sequence[Prediction],
    samples_scored: Mapping[tuple[str, float], int],
    left_out: Mapping[str, Sequence[str]],
) -> Groups:
    """Samples that were scored, or all of an unfinished evaluation."""
    skipped = {(benchmark, name) for benchmark, names in left_out.items() for name in names}
    scored = [
        each
        for each in predictions
        if (each.benchmark, each.instance_id) not in skipped
        and (not samples_scored or each.sample < samples_scored.get(each.key[:2], 0))
    ]
    return {
        key: {samples[0].instance_id: samples for samples in group_by_problem(group)}
        for key, group in group_by_decoding(scored).items()
    }


def _pair(group_a: Group, group_b: Group) -> tuple[list[str], list[str]]:
    """The problems that both models answered in full, and notes on the others."""
    common = sorted(group_a.keys() & group_b.keys())
    same = [name for name in common if _asked(group_a[name]) == _asked(group_b[name])]
    all_a, all_b = _samples_of_each(group_a), _samples_of_each(group_b)
    # Short responses come back first and are right more often, so incomplete problems would bias the result.
    whole = [name for name in same if (len(group_a[name]), len(group_b[name])) == (all_a, all_b)]
    left_out = {
        "were answered by only one of the two": len(group_a.keys() ^ group_b.keys()),
        "have another question or reference answer in B": len(common) - len(same),
        "lack samples": len(same) - len(whole),
    }
    notes = [f"{count} problems {why} and are left out" for why, count in left_out.items() if count]
    if all_a != all_b:
        notes.append(f"A has {all_a} samples of each problem, B {all_b}")
    return whole, notes


def _asked(samples: Sequence[Prediction]) -> tuple[str, str]:
    return samples[0].question, samples[0].answer


def _samples_of_each(group: Group) -> int:
    """Number of samples of a complete problem."""
    return 1 + max(sample.sample for samples in group.values() for sample in samples)


def _difference(benchmark: str, temperature: float, accuracies_N2: Array) -> Difference:
    differences = accuracies_N2[:, 1] - accuracies_N2[:, 0]
    return Difference(
        benchmark=benchmark,
        temperature=temperature,
        problems=len(differences),
        first=fmean(accuracies_N2[:, 0]),
        second=fmean(accuracies_N2[:, 1]),
        difference=estimate(differences, generator_for(benchmark), is_share=False),
        better=int(np.sum(differences > 0)),
        worse=int(np.sum(differences < 0)),
        p_value=random_flips_p_value(differences, generator_for(benchmark)),
    )


def _attempts(
    benchmark: str, temperature: float, pairs: Sequence[tuple[Sequence[Prediction], Sequence[Prediction]]]
) -> list[Attempts]:
    most = min(len(samples) for samples in pairs[0])
    if most == 1:
        return []
    rows = []
    for k in attempts(most):
        values_N2 = np.array(
            [[pass_at_k(num_correct(each), len(each), k) for each in pair] for pair in pairs]
        )
        first, second = (estimate(values_N2[:, side], generator_for(benchmark)) for side in (0, 1))
        gain = estimate(values_N2[:, 1] - values_N2[:, 0], generator_for(benchmark), is_share=False)
        rows.append(
            Attempts(
                benchmark=benchmark,
                temperature=temperature,
                k=k,
                first=first,
                second=second,
                difference=gain,
            )
        )
    return rows


def _panels(comparison: Comparison) -> dict[str, dict[str, PassCurve]]:
    """Both curves of each benchmark and temperature, for the figure."""
    rows: dict[str, list[Attempts]] = {}
    for each in comparison.attempts:
        rows.setdefault(f"{each.benchmark}, T={each.temperature:g}", []).append(each)
    a, b = (f"{letter}: {shortened(name)}" for letter, name in zip("AB", comparison.names, strict=True))
    return {
        title: {a: {each.k: each.first for each in group}, b: {each.k: each.second for each in group}}
        for title, group in rows.items()
    }


def _averages(differences: Mapping[str, Estimate]) -> dict[str, Estimate]:
    return {
        average: mean_of([differences[name] for name in members])
        for average, members in AVERAGES.items()
        if all(name in differences for name in members)
    }


def _cells(row: Difference) -> dict[str, str]:
    return {
        "benchmark": row.benchmark,
        "T": f"{row.temperature:g}",
        "problems": str(row.problems),
        "A": f"{100 * row.first:.1f}",
        "B": f"{100 * row.second:.1f}",
        "B - A": difference(row.difference),
        "better": str(row.better),
        "worse": str(row.worse),
        "p": f"{row.p_value:.4f}",
    }


def _attempt_cells(row: Attempts) -> dict[str, str]:
    return {
        "benchmark": row.benchmark,
        "T": f"{row.temperature:g}",
        "k": str(row.k),
        "A pass@k %": percent(row.first),
        "B pass@k %": percent(row.second),
        "B - A": difference(row.difference),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Exit status: 0, or 2 for an error that the user can fix."""
    parser = argparse.ArgumentParser(prog="seele_eval.compare", description="Compare two evaluations.")
    parser.add_argument("first", type=Path, help="output folder of an evaluation")
    parser.add_argument("second", type=Path, help="another, of the same benchmarks")
    parser.add_argument(
        "--out", type=Path, help="folder for comparison.md, comparison.json and pass_at_k.png"
    )
    options = parser.parse_args(argv)
    return run_command(lambda: _write(compare(options.first, options.second), options.out))


def _write(comparison: Comparison, out: Path | None) -> str:
    if out is not None:
        check_writable(out, is_folder=True)
        if (out / PREDICTIONS).is_file():
            raise ConfigError(
                f"--out {out}: has an evaluation, whose {PASS_FIGURE} is its own; name another folder"
            )
        conditions = zip("AB", comparison.conditions, strict=True)
        stated = "".join(
            conditions_list(each).replace("Conditions", f"Conditions of {name}") for name, each in conditions
        )
        if comparison.attempts:
            write_atomically(out / PASS_FIGURE, draw_panels(_panels(comparison)))
        else:
            (out / PASS_FIGURE).unlink(missing_ok=True)
        write_atomically(out / "comparison.md", comparison.text() + stated)
        write_atomically(out / "comparison.json", json.dumps(asdict(comparison), indent=2) + "\n")
    return comparison.text()


if __name__ == "__main__":
    raise SystemExit(main())
