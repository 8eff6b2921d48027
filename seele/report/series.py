"""Turn a list of each step's numbers into the series that figures and tables show. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

from seele.report.run_folder import Metrics

Value = TypeVar("Value")
VALIDATION = "val/accuracy/"
ROUND = "accuracy/round_"
PHASE = "timing_s/"
PRACTICE = {
    "hints/reliance": "hint reliance, nats a token",
    "starts/question": "rollouts without a hint",
    "starts/first_third": "rollouts from the first third",
    "starts/middle_third": "rollouts from the middle third",
    "starts/last_third": "rollouts from the last third",
    "practised/first_third": "first third practised",
    "practised/middle_third": "middle third practised",
    "practised/last_third": "last third practised",
}
"""Titles of the metrics of what the policy practises under hints; all but the first are shares."""


@dataclass(frozen=True, slots=True)
class Series:
    """Values of one metric at the steps that have it."""

    x: tuple[float, ...]
    """Step numbers or token counts."""
    y: tuple[float, ...]

    def __bool__(self) -> bool:
        return bool(self.x)


def by_step(metrics: Sequence[Metrics], key: str) -> Series:
    """The metric against the step."""
    rows = [row for row in metrics if key in row]
    return Series(tuple(row["step"] for row in rows), tuple(row[key] for row in rows))


def by_tokens(metrics: Sequence[Metrics], key: str) -> Series:
    """The metric against the tokens generated until the end of its step."""
    totals = token_totals(metrics, "generated")
    rows = [(total, row[key]) for total, row in zip(totals, metrics, strict=True) if key in row]
    return Series(tuple(total for total, _ in rows), tuple(value for _, value in rows))


def token_totals(metrics: Sequence[Metrics], name: str) -> list[float]:
    """(steps,) tokens ``generated``, ``prefilled``, ``trained`` and so on up to the end of each step, from
    the run's own count if it keeps one.
    """
    totals = []
    total = 0.0
    for row in metrics:
        total = row.get(f"tokens/{name}_total", total + row.get(f"tokens/{name}", 0.0))
        totals.append(total)
    return totals


def has_totals(metrics: Sequence[Metrics], name: str) -> bool:
    """Return True if every training step has the run's count of these tokens; older releases lack some."""
    key = f"tokens/{name}_total"
    return any(key in row for row in metrics) and all(key in row for row in metrics if row["step"] > 0)


def names_after(metrics: Sequence[Metrics], prefix: str) -> list[str]:
    """Sorted names of metrics after ``prefix``, without those that contain another slash."""
    rest = {key.removeprefix(prefix) for row in metrics for key in row if key.startswith(prefix)}
    return sorted(name for name in rest if "/" not in name)


def is_validated(row: Metrics) -> bool:
    """Return True if the step's line has an un-hinted accuracy."""
    return any(name.startswith(VALIDATION) for name in row)


def validation_splits(metrics: Sequence[Metrics], files: Sequence[str] = ()) -> list[str]:
    """Names of the un-hinted validation splits, in the order of their ``files`` as in
    ``RunFolder.validation_files``; then those of no known file, in the order in which they were logged.
    """
    names = [key.removeprefix(VALIDATION) for row in metrics for key in row if key.startswith(VALIDATION)]

    def place(name: str) -> int:
        file = name.rpartition("/")[2]  # a split is <data set>/<file>
        return files.index(file) if file in files else len(files)

    return sorted(dict.fromkeys(names), key=place)


def num_rounds(metrics: Sequence[Metrics]) -> int:
    """Number of rollout rounds per problem in the logged steps."""
    return 1 + max((int(name) for name in names_after(metrics, ROUND) if name.isdecimal()), default=-1)


def phases(metrics: Sequence[Metrics]) -> list[str]:
    """Timed phases of a step, the costliest first, without the whole step."""
    totals = {
        name: sum(by_step(metrics, PHASE + name).y) for name in names_after(metrics, PHASE) if name != "step"
    }
    return sorted((name for name in totals if totals[name] > 0), key=lambda name: -totals[name])


def last_third(metrics: Sequence[Metrics]) -> Sequence[Metrics]:
    """The last third of the training steps, rounded up."""
    trained = [row for row in metrics if row["step"] > 0]
    return trained[len(trained) - -(-len(trained) // 3) :]


def practice(metrics: Sequence[Metrics]) -> dict[str, float]:
    """Means of the metrics in ``PRACTICE`` over the last third of the training steps, each over the steps
    that have it; without those that none has.
    """
    rows = last_third(metrics)
    return {name: fmean(series.y) for name in PRACTICE if (series := by_step(rows, name))}


def moving_mean(series: Series, *, window: int) -> Series:
    """Centred mean over ``window`` neighbours, or over fewer at the ends."""
    before, after = (window - 1) // 2, window // 2
    return Series(
        series.x,
        tuple(fmean(series.y[max(0, i - before) : i + after + 1]) for i in range(len(series.y))),
    )


def courses(metrics: Sequence[Metrics], files: Sequence[str] = ()) -> Iterator[tuple[str, str, Series]]:
    """Yield kind, name and series of each curve of a run: hints, rounds, and each validation split, in the
    order of ``validation_splits``.

    A kind is ``hint``, ``first``, ``late`` or ``unhinted``; the name of the last is its split. A series may
    be empty.
    """
    yield "hint", "hint ratio", by_step(metrics, "hint_ratio/mean")
    yield "first", "accuracy, first round", by_step(metrics, f"{ROUND}0")
    late = [f"{ROUND}{number}" for number in range(1, num_rounds(metrics))]
    rows = [(row["step"], [row[name] for name in late if name in row]) for row in metrics]
    seen = [(step, fmean(values)) for step, values in rows if values]
    yield "late", "accuracy, later rounds", Series(tuple(x for x, _ in seen), tuple(y for _, y in seen))
    for split in validation_splits(metrics, files):
        yield "unhinted", split, by_step(metrics, VALIDATION + split)


def spread_evenly(values: Sequence[Value], count: int) -> list[Value]:
    """At most ``count`` of the values, including the first and the last, in their order."""
    if len(values) <= count:
        return list(values)
    return [values[round(index * (len(values) - 1) / (count - 1))] for index in range(count)]
