"""The comparison as one JSON object, and its tables for Markdown and for the HTML page."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from seele.maths.bootstrap import RESAMPLES
from seele.maths.tables import markdown_table
from seele.report.comparison.curves import COSTS, spent
from seele.report.comparison.results import (
    BOOTSTRAP_SEED,
    MIN_SEEDS,
    ArmResult,
    Comparison,
    Difference,
    Estimate,
    Reach,
)
from seele.report.comparison.runs import ComparedRun
from seele.report.comparison.verdicts import verdicts
from seele.report.series import PRACTICE, is_validated, practice


def summarise(comparison: Comparison) -> dict[str, Any]:
    """Summarise a comparison. Seeds are JSON keys, hence text; unknown values are None."""
    return {
        "reference": comparison.reference,
        "interval": {
            "level": 0.95,
            "kind": "percentile bootstrap over seeds",
            "resamples": RESAMPLES,
            "seed": BOOTSTRAP_SEED,
            "min_seeds": MIN_SEEDS,
        },
        "runs": [describe_run(run) for by_seed in comparison.arms.values() for run in by_seed.values()],
        "results": {
            split: {cost: asdict(result) for cost, result in by_cost.items()}
            for split, by_cost in comparison.results.items()
        },
        "practice": _practice_by_arm(comparison),
        "notes": list(comparison.notes),
    }


def _practice_by_arm(comparison: Comparison) -> dict[str, dict[str, float]]:
    """Arm -> metric -> mean over the seeds that have it; without metrics that no seed has."""
    found: dict[str, dict[str, float]] = {}
    for arm, by_seed in comparison.arms.items():
        seeds = [practice(run.contents.metrics) for run in by_seed.values()]
        values = {name: [means[name] for means in seeds if name in means] for name in PRACTICE}
        found[arm] = {name: fmean(each) for name, each in values.items() if each}
    return found


def describe_run(compared: ComparedRun) -> dict[str, Any]:
    """Origin, last step and total costs of a run."""
    run = compared.contents
    validated = [row["step"] for row in run.metrics if is_validated(row)]
    return {
        "run": compared.folder,
        "arm": compared.arm,
        "seed": compared.seed,
        "method": run.card.get("method", run.setting("seele.method")),
        "status": run.card.get("status"),
        "resumed_at_step": run.card.get("resumed_at_step"),
        "commit": run.card.get("commit"),
        "versions": run.card.get("versions"),
        "hardware": run.card.get("hardware"),
        "model": run.base_model,
        "parameters": run.card.get("parameters"),
        "train_files": run.setting("data.train_files"),
        "val_files": run.setting("data.val_files"),
        "last_step": int(run.metrics[-1]["step"]),
        "last_validated_step": int(validated[-1]),
        "spent": {name: _spent_in_all(compared, name) for name in COSTS},
    }


def _spent_in_all(compared: ComparedRun, cost: str) -> float | None:
    totals_S = spent(compared.contents.metrics, COSTS[cost])
    total = None if totals_S is None else float(totals_S[-1])
    if total or cost != "flops":
        return total
    # If the metrics count no FLOPs, a finished run's card may; a total of 0 means that they were not counted.
    flops = compared.contents.card.get("flops")
    return float(flops) if isinstance(flops, int | float) else None


UNITS = ((1e21, "Z"), (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))

INTERVAL = "95 % interval"
T_INTERVAL = "by Student's t"
BOOTSTRAP_NOTE = "Bootstrap intervals are too short for few seeds."
DIFFERENCES_NOTE = (
    "Differences are taken seed by seed. Bootstrap intervals are too short for few seeds; Student's t "
    "intervals are not. p: exact sign-flip test; n seeds cannot give less than 2 / 2^n."
)
UNEQUAL_NOTE = (
    " Arms have different seeds: accuracies are means over all seeds of an arm, differences over the common "
    "ones alone, so a difference need not be that of the accuracies."
)
SECONDS_NOTE = " Seconds compare only runs that had the machine to themselves."

PRACTICE_TITLE = "Practice under hints"

_BLANK = ("reference", "", "", "", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells as text, with the explanation that a reader needs."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    num_names: int
    """Number of leading text columns; all later columns hold numbers."""
    explanation: str


def result_tables(comparison: Comparison, split: str) -> list[Table]:
    """Tables of accuracy at equal cost and up to it, and of the cost of equal accuracy, on one split."""
    return [
        _by_arm(
            comparison,
            split,
            lambda found: (found.accuracy, found.difference),
            title="Accuracy at equal cost",
            explanation="Un-hinted accuracy at the budget, which every run reached: mean over seeds, "
            "interpolated between validations. "
            + (DIFFERENCES_NOTE if len(comparison.arms) > 1 else BOOTSTRAP_NOTE)
            + SECONDS_NOTE * ("seconds" in comparison.results[split]),
        ),
        _by_arm(
            comparison,
            split,
            lambda found: (found.average, found.average_difference),
            title="Average accuracy up to equal cost",
            explanation="The area under the same lines up to the budget, divided by its width: how fast an "
            "arm learns.",
        ),
        _of_equal_accuracy(comparison, split),
    ]


def run_table(comparison: Comparison) -> Table:
    """Table of the runs, their last validated steps and their costs."""
    rows = []
    for by_seed in comparison.arms.values():
        for compared in by_seed.values():
            facts = describe_run(compared)
            names = [
                facts["run"],
                facts["arm"],
                facts["status"] or "unknown",
                (facts["commit"] or "unknown")[:7],
            ]
            places = [str(facts["seed"]), str(facts["last_validated_step"])]
            costs = ["unknown" if spent is None else amount(spent) for spent in facts["spent"].values()]
            rows.append((*names, *places, *costs))
    return Table(
        title="Cost of the runs",
        heads=(
            *("run", "arm", "status", "commit", "seed", "validated until step"),
            *(cost.title for cost in COSTS.values()),
        ),
        rows=tuple(rows),
        num_names=4,
        explanation="Costs are those of the whole run; a comparison ends where the shortest run ends.",
    )


def practice_tables(comparison: Comparison) -> list[Table]:
    """Table of what each arm practised under hints; none if no run has such metrics."""
    by_arm = _practice_by_arm(comparison)
    names = [name for name in PRACTICE if any(name in means for means in by_arm.values())]
    table = Table(
        title="Last third of the steps",
        heads=("arm", *(PRACTICE[name] for name in names)),
        rows=tuple(
            (arm, *(practice_cell(name, means.get(name)) for name in names)) for arm, means in by_arm.items()
        ),
        num_names=1,
        explanation="Means over seeds of each run's mean over those of these steps that log the metric: "
        "reliance on hints at validations, the others in steps with hints (docs/metrics.md).",
    )
    return [table] if names else []


def practice_cell(name: str, value: float | None) -> str:
    """Value of a metric in ``PRACTICE``; a dash for None."""
    if value is None:
        return "-"
    return f"{value:.3f}" if name == "hints/reliance" else share(value)


def markdown(comparison: Comparison) -> str:
    """The verdicts, all notes and all tables as Markdown."""
    parts = [f"# {title(comparison)}\n", *(f"{verdict}\n" for verdict in verdicts(comparison))]
    parts.append("".join(f"- {note}\n" for note in comparison.notes))
    for split in comparison.results:
        parts += [f"## {split}\n", *(_section(table) for table in result_tables(comparison, split))]
    if practised := practice_tables(comparison):
        parts += [f"## {PRACTICE_TITLE}\n", *map(_section, practised)]
    parts += ["## Runs\n", _section(run_table(comparison))]
    return "\n".join(part for part in parts if part)


def title(comparison: Comparison) -> str:
    """Title of the comparison, in one line."""
    return f"Comparison: {', '.join(comparison.arms)}"


def amount(value: float) -> str:
    """A cost in four digits: ``1250``, ``12.5 k``, ``1.25 M``."""
    rounded = float(f"{value:.4g}")
    # Small amounts, such as step numbers, are easier to read in full.
    unit, name = next((each for each in UNITS if rounded >= max(each[0], 1e4)), (1.0, ""))
    return f"{rounded / unit:.4g} {name}".rstrip()


def share(value: float) -> str:
    """A share in [0, 1] as a percentage with one decimal."""
    return f"{_rounded(100.0 * value):.1f} %"


def points(value: float) -> str:
    """A difference of shares in percentage points."""
    return f"{_rounded(100.0 * value):+.1f}"


def _rounded(value: float) -> float:
    return round(value, 1) + 0.0  # not -0.0


def _section(table: Table) -> str:
    cells = markdown_table(table.heads, table.rows, num_names=table.num_names)
    return f"### {table.title}\n\n{cells}\n{table.explanation}\n"


def _by_arm(
    comparison: Comparison,
    split: str,
    read: Callable[[ArmResult], tuple[Estimate, Difference | None]],
    *,
    title: str,
    explanation: str,
) -> Table:
    # A single arm has no differences.
    heads = (f"minus {comparison.reference}, points", INTERVAL, T_INTERVAL, "common seeds", "p")
    num_heads = len(heads) if len(comparison.arms) > 1 else 0
    rows = [
        (
            COSTS[cost].title,
            arm,
            amount(result.budget),
            str(len(estimate.by_seed)),
            share(estimate.mean),
            _interval(estimate.interval_95, share),
            *(_BLANK[:num_heads] if arm == comparison.reference else _difference_cells(difference)),
        )
        for cost, result in comparison.results[split].items()
        for arm, (estimate, difference) in ((arm, read(found)) for arm, found in result.arms.items())
    ]
    return Table(
        title=title,
        heads=(
            *("cost", "arm", "budget", "seeds", "accuracy", INTERVAL),
            *heads[:num_heads],
        ),
        rows=tuple(rows),
        num_names=2,
        explanation=explanation + UNEQUAL_NOTE * (len(set(map(frozenset, comparison.arms.values()))) > 1),
    )


def _of_equal_accuracy(comparison: Comparison, split: str) -> Table:
    return Table(
        title="Cost of equal accuracy",
        heads=("cost", "arm", "accuracy", "mean curve", "seeds that reach it", "mean of seeds", INTERVAL),
        rows=tuple(
            (COSTS[cost].title, arm, share(result.accuracy), *_reach_cells(found.cost_of_accuracy))
            for cost, result in comparison.results[split].items()
            for arm, found in result.arms.items()
        ),
        num_names=2,
        explanation="First cost at which the curve reaches the accuracy; the mean of seeds only if every "
        "seed reaches it. A run that ends earlier than others may not get there.",
    )


def _difference_cells(difference: Difference | None) -> tuple[str, ...]:
    if difference is None:
        return ("none", "", "", "0", "-")
    return (
        points(difference.mean),
        _interval(difference.interval_95, points),
        _interval(difference.t_interval_95, points),
        str(len(difference.by_seed)),
        # With one seed, p is 1 whatever the difference.
        f"{difference.p_value:.2g}" if len(difference.by_seed) > 1 else "-",
    )


def _reach_cells(reach: Reach) -> tuple[str, ...]:
    return (
        "not reached" if reach.of_mean_curve is None else amount(reach.of_mean_curve),
        f"{reach.num_reached} of {len(reach.by_seed)}",
        "not by all" if reach.mean is None else amount(reach.mean),
        _interval(reach.interval_95, amount),
    )


def _interval(interval: tuple[float, float] | None, show: Callable[[float], str]) -> str:
    return "none" if interval is None else f"{show(interval[0])} to {show(interval[1])}"
