"""Make the tables and figures of docs/evidence/, and README's figure, from packed runs.

The same runs give the same bytes. A task of the plan without a page gets one.

python benchmarks/evidence/tables.py            # tuned.json, the tables in the pages, the figures beside them
python benchmarks/evidence/tables.py --check    # exit status 1 if one of them would change
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from archive import read, read_scores, run_names
from front import draw_front
from plan import MISTAKES, TUNED, TUNING, all_arms, credit_arms, load_plan, tuned_arms
from prediction import PANELS, Course, by_thirds, draw, measured, predicted
from scipy.stats import ttest_1samp

from seele.data.storage.files import write_atomically
from seele.maths.bootstrap import t_interval
from seele.maths.tables import markdown_table
from seele.report.comparison.analysis import compare
from seele.report.comparison.curves import COSTS
from seele.report.comparison.figures import draw_figures
from seele.report.comparison.results import Comparison, Difference, Estimate, Result, compare_arms
from seele.report.comparison.tables import amount, points, share
from seele.report.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
TASK_PAGES = ROOT / "docs" / "evidence"
PAGES = (ROOT / "docs" / "evidence.md",)
# Heading of a new task's page -> the blocks below it.
SECTIONS = {
    "At equal generated tokens": ["{}"],
    "On average over the generated tokens": ["{}-average"],
    "At equal trained tokens": ["{}-trained"],
    "Final accuracy and cost": ["{}-final"],
    "What the hints did": ["{}-training"],
    "Runs": ["{}-where", "{}-runs"],
}
FIGURE = ROOT / "docs" / "figures" / "evidence-mixed.png"
PREDICTION = FIGURE.with_name("evidence-prediction.png")
FRONT, FRONT_TASK = FIGURE.with_name("front.png"), "own"
PREDICTED_ARMS = ("seele", "seele-imitation", "seele_paper")
REFERENCE, OURS = "grpo", "seele"
PAPER, HALF = "seele_paper", "seele-n8"
UFT, LATE = "uft-n8", "seele-n8-late"
# Hint controllers under which the rollouts of a round have one prompt; a prefix is in the response.
ONE_PROMPT = ("none", "uft", "prefix_rft")
# Tasks that differ only in their seeds, so that their runs belong to the same arm.
TEN_SEEDS = "mixed+replication"
CONTROLLERS = (PAPER, "seele-m2", OURS)
# Tasks with worked solutions on which something is learnt: a teacher's, the model's own, another base model.
CHAINS = ("easy", "mixed", "hard", "easy_own", "own", "hard_own", "again")
HEADLINE_ARMS = (
    *(REFERENCE, "grpo-n8", "uft", UFT, "prefix_rft", PAPER),
    *("seele-imitation", "seele-m2", OURS, HALF, LATE),
)
# Methods as in their authors' released code -> our earlier version, or what they build on.
RELEASED = {
    "luffy-released": "luffy",
    "rl_sft_loss-released": "rl_sft_loss",
    "uft-released": "uft",
    "uft-n8-released": UFT,
    "exgrpo-released": "drgrpo",
}
# Arms that train on a part of what they generate, and what they are compared with.
SPARING_ARMS = (REFERENCE, "dapo", "grpo+lze", UFT, OURS, "seele+lze", HALF)
COST, TRAINED = "tokens_generated", "tokens_trained"
# docs/evidence/milestones.md: what is claimed, and at which cost.
CLAIMED, CLAIM_TASKS = ("milestones", "milestones-spread"), ("milestones_mixed", "milestones_again")
CLAIM_BUDGETS = {COST: 600_000.0, TRAINED: 900_000.0}
# The share of what GRPO spent that an arm must have spent to be compared; UFT ends with its plan.
ENOUGH = {COST: 0.85}
ELSEWHERE = 0.9
GREEDY = ("heldout", "harder")
SAMPLED = ("avg@32", "pass@32")
MAX_LINE = 100  # characters of a line in Markdown
_BLOCK = re.compile(r"<!-- table (?P<name>[\w-]+) -->\n.*?<!-- end -->\n", re.S)


def tuning_trials() -> dict[str, dict[float, float]]:
    """Arm -> learning rate -> mean accuracy of the last two validations."""
    trials: dict[str, dict[float, float]] = {}
    for name in run_names(TUNING):
        arm, _, rate = name.partition("/lr_")
        values = validations(read(Path(TUNING, name)), load_plan()["tuning"]["task"], "tune")
        trials.setdefault(arm, {})[float(rate)] = fmean(values[-2:])
    return trials


def tuned_rates(trials: Mapping[str, Mapping[float, float]], rates: Sequence[float]) -> dict[str, float]:
    """Arm -> the rate with the best trial, or the lowest of equals; only arms with all their trials."""
    return {
        arm: max(sorted(of_arm), key=lambda rate: of_arm[rate])
        for arm, of_arm in sorted(trials.items())
        if set(of_arm) == set(rates)
    }


def tuning_table(plan: Mapping[str, Any]) -> str:
    """Return a table with a row per arm and a column per learning rate, the best one in bold."""
    rates, trials = plan["tuning"]["learning_rates"], tuning_trials()
    chosen = tuned_rates(trials, rates)
    rows = []
    for arm in [name for name in all_arms(plan) if name in trials]:
        cells = [share(trials[arm][rate]) if rate in trials[arm] else "" for rate in rates]
        rows.append(
            [
                f"`{arm}`",
                *(
                    f"**{cell}**" if rate == chosen.get(arm) else cell
                    for rate, cell in zip(rates, cells, strict=True)
                ),
            ]
        )
    return markdown_table(["arm", *(f"{rate:g}" for rate in rates)], rows)


def stored_runs(task: str, arms: Sequence[str]) -> dict[str, list[Path]]:
    """Arm -> its finished runs, ``TASK/ARM/seed_N`` each, in the order of the arms; ``+`` joins tasks."""
    paths = [Path(name, run) for name in task.split("+") for run in run_names(name)]
    runs = {arm: [path for path in paths if path.parent.name == arm] for arm in arms}
    return {arm: found for arm, found in runs.items() if found}


def with_lenders(task: str, plan: Mapping[str, Any]) -> str:
    """The task and those that lend it arms, joined as ``stored_runs`` reads them."""
    return "+".join([task, *plan["tasks"][task].get("beside", ())])


@cache
def compare_task(
    task: str,
    arms: tuple[str, ...],
    cost: str = COST,
    splits: tuple[str, ...] = GREEDY,
    enough: float | None = None,
) -> Comparison | None:
    """Compare the arms at equal cost, as ``compare_runs``."""
    names = tuple(split_of(task, split) for split in splits)
    return compare_runs(stored_runs(task, arms), cost, splits=names, enough=enough)


def compare_runs(
    stored: Mapping[str, Sequence[Path]],
    cost: str,
    *,
    splits: Sequence[str],
    enough: float | None = None,
    reader: Callable[[Path], RunFolder] = read,
    reference: str | None = None,
) -> Comparison | None:
    """Compare arms by their runs, at equal cost; None without two arms, or without the reference.

    A comparison ends with its shortest run, so arms that spent far less than GRPO are skipped: supervised
    ones generate nothing, and DAPO trains on little of what it generates. So are arms whose first stage
    spends as much as another arm in all, because their curves begin behind its end. Without ``reference``, a
    task without the arm ``grpo`` skips only arms that spent nothing. ``enough`` replaces ``ENOUGH``, and
    ``reference`` takes GRPO's place.
    """

    def counted(line: int, folder: Path) -> float:
        return reader(folder).metrics[line].get(COSTS[cost].metric, 0.0)

    spent = {arm: min(counted(-1, each) for each in folders) for arm, folders in stored.items()}
    share_of_it = ENOUGH.get(cost, ELSEWHERE) if enough is None else enough
    least = share_of_it * spent.get(reference or REFERENCE, 0.0)
    runs = {arm: folders for arm, folders in stored.items() if spent[arm] > least}
    shortest = min((spent[arm] for arm in runs), default=0.0)
    runs = {arm: each for arm, each in runs.items() if max(counted(0, run) for run in each) < shortest}
    if len(runs) < 2 or (reference is not None and reference not in runs):
        return None
    folders = [folder for found in runs.values() for folder in found]
    labels = [f"{folder.as_posix()}={arm}" for arm, found in runs.items() for folder in found]
    return compare(folders, labels=labels, splits=splits, costs=[cost], read=reader, reference=reference)


def results_on(
    split: str,
    task: str,
    arms: Sequence[str],
    cost: str,
    references: Sequence[str],
    enough: float | None = None,
) -> dict[str, Result]:
    """Reference -> all arms at equal cost on one split; omits references that cannot be compared."""
    comparison = compare_task(task, tuple(arms), cost, enough=enough)
    if comparison is None:
        return {}
    name = split_of(task, split)
    curves, result = comparison.curves[name][cost], comparison.results[name][cost]
    return {
        reference: compare_arms(
            curves,
            budget=result.budget,
            budget_set_by=result.budget_set_by,
            accuracy=None,
            reference=reference,
        )
        for reference in references
        if reference in curves
    }


def equal_cost_table(
    task: str,
    arms: Sequence[str],
    cost: str = COST,
    references: Sequence[str] = (REFERENCE, OURS, HALF),
    enough: float | None = None,
) -> str:
    """Un-hinted accuracy at equal cost, its differences from the references, and what the first reference's
    final accuracy cost.
    """
    results = results_on("heldout", task, arms, cost, references, enough)
    if references[0] not in results:
        return "No runs yet.\n"
    heldout, (harder,) = (
        results[references[0]],
        results_on("harder", task, arms, cost, references[:1], enough).values(),
    )
    rows, named = [], all_arms(load_plan())
    for arm in [name for name in arms if name in heldout.arms]:
        found, reach = heldout.arms[arm], heldout.arms[arm].cost_of_accuracy
        differences = [result.arms[arm].difference for result in results.values()]
        rows.append(
            [
                f"`{arm}`",
                named[arm]["what"],
                str(len(found.accuracy.by_seed)),
                estimate_cell(found.accuracy),
                *map(difference_cell, differences),
                share(harder.arms[arm].accuracy.mean),
                "not reached" if reach.of_mean_curve is None else amount(reach.of_mean_curve),
                f"{reach.num_reached} of {len(reach.by_seed)}",
            ]
        )
    heads = ["arm", "what it is", "seeds", "held-out"]
    heads += [*(f"minus `{name}`, points" for name in results), "harder"]
    what = "tokens" if cost.startswith("tokens") else COSTS[cost].title
    heads += [f"{what} to {share(heldout.accuracy)}", "seeds that reach it"]
    table = markdown_table(heads, rows, num_names=2)
    return f"{table}\nAt {amount(heldout.budget)} {COSTS[cost].title}.\n"


def released_table(task: str, cost: str) -> str:
    """The methods of ``RELEASED`` against those that they are compared with, GRPO and SEELE, by seed."""
    others = (REFERENCE, OURS, HALF, LATE)
    arms = [*dict.fromkeys([*others, *RELEASED.values(), *RELEASED])]
    results = results_on("heldout", task, arms, cost, [*others, *RELEASED.values()])
    if not any(arm in result.arms for result in results.values() for arm in RELEASED):
        return "No runs yet.\n"
    of_all = results[REFERENCE]
    rows = []
    for arm, beside in RELEASED.items():
        if arm not in of_all.arms:
            continue
        differences = [
            results[reference].arms[arm].difference if reference in results else None
            for reference in (beside, *others)
        ]
        rows.append(
            [
                f"`{arm}`",
                f"`{beside}`",
                str(len(of_all.arms[arm].accuracy.by_seed)),
                estimate_cell(of_all.arms[arm].accuracy),
                *map(difference_cell, differences),
            ]
        )
    heads = ["arm", "beside", "seeds", "held-out", "minus that, points"]
    heads += [f"minus `{other}`, points" for other in others]
    return f"{markdown_table(heads, rows, num_names=2)}\nAt {amount(of_all.budget)} {COSTS[cost].title}.\n"


def average_table(
    task: str, arms: Sequence[str], cost: str, references: Sequence[str] = (REFERENCE, OURS, HALF)
) -> str:
    """Accuracy averaged over the cost up to where all arms are compared, and its differences."""
    results = results_on("heldout", task, arms, cost, references)
    if references[0] not in results:
        return "No runs yet.\n"
    first = results[references[0]]
    rows = [
        [
            f"`{arm}`",
            str(len(first.arms[arm].average.by_seed)),
            estimate_cell(first.arms[arm].average),
            *(difference_cell(result.arms[arm].average_difference) for result in results.values()),
        ]
        for arm in arms
        if arm in first.arms
    ]
    heads = ["arm", "seeds", "average", *(f"minus `{name}`, points" for name in results)]
    return f"{markdown_table(heads, rows)}\nUp to {amount(first.budget)} {COSTS[cost].title}.\n"


def claim_table(arms: Sequence[str]) -> str:
    """Compare milestones with the best of ``arms``, by task and cost: paired t tests, Holm (1979).

    This waits until all planned runs are stored, so that no claim is looked at on the way.
    """
    rows, p_values = [], []
    for task, (cost, budget) in product(CLAIM_TASKS, CLAIM_BUDGETS.items()):
        planned = load_plan()["tasks"][task]
        stored = stored_runs(task, [*arms, *CLAIMED])
        wanted = planned.get("arms", stored)
        if not stored or any(len(stored.get(arm, ())) < len(planned["seeds"]) for arm in wanted):
            return "Not all of the runs are done.\n"
        metric = COSTS[cost].metric
        folders = [folder for found in stored.values() for folder in found]
        budget = min(budget, *(read(folder).metrics[-1][metric] for folder in folders))
        labels = [f"{folder.as_posix()}={folder.parent.name}" for folder in folders]
        split = split_of(task, "heldout")
        compared = compare(
            folders,
            labels=labels,
            splits=[split],
            costs=[cost],
            reference=CLAIMED[0],
            budget=budget,
            read=read,
        )
        of_split = compared.results[split][cost]
        accuracies = {arm: found.accuracy for arm, found in of_split.arms.items()}
        best = max((arm for arm in arms if arm in accuracies), key=lambda arm: accuracies[arm].mean)
        pairs = of_split.arms[best].difference
        assert pairs is not None
        gains = -np.array(list(pairs.by_seed.values()))
        p_values.append(float(ttest_1samp(gains, 0.0).pvalue))
        rows.append(
            [
                f"`{task}`",
                f"{amount(budget)} {COSTS[cost].title}",
                *(share(accuracies[arm].mean) if arm in accuracies else "" for arm in CLAIMED),
                f"`{best}` {share(accuracies[best].mean)}",
                points(gains.mean()) + _ends(t_interval(gains), points),
            ]
        )
    for row, p_value in zip(rows, holm_adjusted(p_values), strict=True):
        row.append(f"{p_value:.2g}")
    heads = ["task", "at", *(f"`{arm}`" for arm in CLAIMED), "best other"]
    return markdown_table([*heads, f"`{CLAIMED[0]}` minus it, points", "p, Holm"], rows, num_names=2)


def holm_adjusted(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values of several tests, any of which may be claimed if below 0.05 (Holm, 1979)."""
    adjusted, least = [0.0] * len(p_values), 0.0
    for rank, at in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[at]))
        adjusted[at] = least
    return adjusted


def headline_table(task: str, arms: Mapping[str, Sequence[str]]) -> str:
    """The main results of a task: a few arms, as compared with all of ``arms``, cost by cost."""
    results = {cost: results_on("heldout", task, arms[cost], cost, [REFERENCE]) for cost in (COST, TRAINED)}
    if not all(results.values()):
        return "No runs yet.\n"
    rows = []
    for arm in HEADLINE_ARMS:
        generated, trained = (result[REFERENCE].arms[arm] for result in results.values())
        seeds = str(len(generated.accuracy.by_seed))
        differences = (generated.difference, generated.average_difference, trained.difference)
        rows.append(
            [f"`{arm}`", seeds, estimate_cell(generated.accuracy), *map(difference_cell, differences)]
        )
    where = [f"at {amount(of[REFERENCE].budget)} {COSTS[cost].title}" for cost, of in results.items()]
    minus = [f"minus `{REFERENCE}`", "on average up to there", where[1]]
    return markdown_table(["arm", "seeds", where[0], *minus], rows)


def tasks_table(tasks: Sequence[str], arms: Mapping[str, Sequence[str]]) -> str:
    """The gain of SEELE with half of the rollouts, by task, among all of ``arms``, by cost."""
    references, rows = (REFERENCE, UFT), []
    for task in tasks:
        found = [results_on("heldout", task, arms[cost], cost, references) for cost in (COST, TRAINED)]
        if not all(found):
            return "No runs yet.\n"
        accuracies = [found[0][REFERENCE].arms[arm].accuracy for arm in (REFERENCE, HALF)]
        differences = [
            results[reference].arms[HALF].difference if reference in results else None
            for results in found
            for reference in references
        ]
        rows.append(
            [
                f"`{task}`",
                str(len(accuracies[0].by_seed)),
                *(share(accuracy.mean) for accuracy in accuracies),
                *map(difference_cell, differences),
            ]
        )
    heads = [
        f"minus `{reference}` at equal {COSTS[cost].title}"
        for cost in (COST, TRAINED)
        for reference in references
    ]
    return markdown_table(["task", "seeds", f"`{REFERENCE}`", f"`{HALF}`", *heads], rows)


def checker_table(plan: Mapping[str, Any], arms: Sequence[str]) -> str:
    """What hints add to credit by milestones, by the checker's quality and by cost."""
    without, hinted = "milestones", "milestones-spread"
    qualities = ["", *(f"-{change}" for change in plan["credit_changes"] if change.startswith("v"))]
    checkers = [without + quality for quality in qualities]
    task = with_lenders("milestones_checker", plan)
    by_cost = [results_on("heldout", task, arms, cost, checkers) for cost in (COST, TRAINED)]
    if any(checker not in results for results in by_cost for checker in checkers):
        return "No runs yet.\n"
    rows = [
        [
            f"`{checker}`",
            *(difference_cell(results[checker].arms[hinted + quality].difference) for results in by_cost),
        ]
        for checker, quality in zip(checkers, qualities, strict=True)
    ]
    heads = [f"hints (spread) add at equal {COSTS[cost].title}" for cost in (COST, TRAINED)]
    return markdown_table(["checker", *heads], rows)


def final_table(task: str, arms: Sequence[str]) -> str:
    """Every arm at the end of its runs, with their cost; the base model comes first."""
    rows = []
    for arm, folders in stored_runs(task, arms).items():
        runs = [read(folder) for folder in folders]
        totals = [run.metrics[-1] for run in runs]
        rows.append(
            [
                f"`{arm}`",
                str(len(runs)),
                *_greedy(runs, task, at=-1),
                *_sampled(folders),
                f"{fmean(total['step'] for total in totals):.0f}",
                *(
                    amount(fmean(total.get(f"{name}_total", 0.0) for total in totals))
                    for name in ("tokens/generated", "tokens/trained")
                ),
                *(_mean_amount([count(run) for run in runs]) for count in (packed_total, informative_total)),
                amount(fmean(total.get("flops_total", 0.0) for total in totals)),
                f"{fmean(times) / 60:.0f}" if (times := _unbroken_times(runs)) else "",
            ]
        )
    heads = ["arm", "seeds", "held-out", "harder", *SAMPLED, "steps"]
    costs = ["tokens generated", "trained", "packed", "informative", "FLOPs", "minutes"]
    if not rows:
        return "No runs yet.\n"
    base = ["base", "", *_greedy_of_base(task, arms), *_sampled([Path(task, "base")]), *["0"] * 6, ""]
    columns = zip([*heads, *costs], base, *rows, strict=True)
    # Leave out columns in which no arm has a value; the first two cells are the head and the base model's.
    heads, *rows = zip(*(column for column in columns if any(column[2:])), strict=True)
    return markdown_table(heads, rows)


def packed_total(run: RunFolder) -> float | None:
    """Tokens trained on over the run, with what a group's rows have in common at their start counted once.

    If a run did not count them, they are known if it trained on all of its groups and a group's n rows have
    one prompt: all tokens but the responses are then divided by n. None for other runs.
    """
    first, last = run.metrics[0], run.metrics[-1]
    if "tokens/trained_packed_total" in last:
        return float(last["tokens/trained_packed_total"])
    if run.setting("seele.method") == "sft":  # one row per problem
        return float(last["tokens/trained_total"])
    if (
        run.setting("seele.hints.controller") not in ONE_PROMPT
        or run.setting("seele.hints.rounds") != 1
        or run.setting("seele.selection.name") != "none"
        or run.setting("algorithm.filter_groups.enable")
    ):
        return None
    # An earlier stage trained on one row per problem.
    before = first.get("tokens/trained_total", 0.0)
    trained, generated, forced = (
        last.get(f"tokens/{name}_total", 0.0) - first.get(f"tokens/{name}_total", 0.0)
        for name in ("trained", "generated", "teacher_forced")
    )
    responses = generated + (forced if run.setting("seele.off_policy.source") != "none" else 0.0)
    prompts, rest = divmod(trained - responses, run.setting("seele.hints.rollouts_per_prompt"))
    return None if rest else before + responses + prompts


def informative_total(run: RunFolder) -> float | None:
    """The same, of informative rows. None for a run of RL that did not count them."""
    if "tokens/trained_informative_total" in run.metrics[-1]:
        return float(run.metrics[-1]["tokens/trained_informative_total"])
    return packed_total(run) if run.setting("seele.method") == "sft" else None


def _mean_amount(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return amount(fmean(known)) if len(known) == len(values) else ""


def _unbroken_times(runs: Sequence[RunFolder]) -> list[float]:
    """Seconds of the runs that were never resumed: the others' run cards cover only their end."""
    return [run.card["wall_s"] for run in runs if run.card["resumed_at_step"] is None]


def _greedy(runs: Sequence[RunFolder], task: str, *, at: int) -> list[str]:
    """Mean over runs of the greedy validation at index ``at``, by split."""
    return [share(fmean(validations(run, task, split)[at] for run in runs)) for split in GREEDY]


def _greedy_of_base(task: str, arms: Sequence[str]) -> list[str]:
    """Greedy validation of the base model, by split: the first of a run that had not been trained before, as
    the second of two stages has been. Empty without such a run.
    """
    runs = (read(folder) for folders in stored_runs(task, arms).values() for folder in folders)
    untrained = (run for run in runs if not run.metrics[0].get("tokens/trained_total"))
    return next((_greedy([run], task, at=0) for run in untrained), [""] * len(GREEDY))


def _sampled(folders: Sequence[Path]) -> list[str]:
    """Means over runs of the scores from 32 samples of each held-out problem."""
    estimates = [read_scores(folder)["scores"][0]["estimates"] for folder in folders]
    return [share(fmean(each[name]["value"] for each in estimates)) for name in SAMPLED]


def validations(run: RunFolder, task: str, split: str) -> list[float]:
    """Greedy accuracies on a validation file of the task, in order of steps."""
    name = f"val/accuracy/{split_of(task, split)}"
    return [row[name] for row in run.metrics if name in row]


def split_of(task: str, split: str) -> str:
    """The name of a validation file in the metrics."""
    return f"{load_plan()['tasks'][task.split('+')[0]]['source']}/{split}"


def training_table(task: str, arms: Sequence[str]) -> str:
    """What the hints did over training: means over the first, second and last third of the steps."""
    rows = []
    for arm, folders in stored_runs(task, arms).items():
        runs = [
            [row for row in read(folder).metrics if "rounds/mean_a_1_minus_a" in row] for folder in folders
        ]
        if not all(runs):  # supervised
            continue
        cells = [
            by_thirds([np.array([row.get(key, 0.0) for row in run]) for run in runs])
            for key in (
                "rounds/mean_a_1_minus_a",
                "hint_ratio/mean",
                "accuracy/mean",
                "rounds/all_same_share",
            )
        ]
        rows.append([f"`{arm}`", str(len(runs)), *cells])
    return markdown_table(["arm", "seeds", "a(1-a)", "hint ratio", "accuracy", "rounds that agree"], rows)


def runs_table(task: str) -> str:
    """Where the runs of a task were made: a row per commit and CPU, in the order of the arms."""
    made: dict[tuple[str, str], dict[str, list[str]]] = {}
    for arm, folders in stored_runs(task, [*all_arms(load_plan())]).items():
        for folder in folders:
            card = read(folder).card
            where = card["commit"][:7], card["hardware"]["cpu"]
            made.setdefault(where, {}).setdefault(arm, []).append(folder.name.removeprefix("seed_"))
    rows = [
        [f"`{commit}`", cpu, "; ".join(f"`{arm}` {', '.join(seeds)}" for arm, seeds in arms.items())]
        for (commit, cpu), arms in made.items()
    ]
    return (
        markdown_table(["commit", "CPU", "arms and seeds"], rows, num_names=3) if rows else "No runs yet.\n"
    )


def where_text(task: str) -> str:
    """Where the runs of a task are packed, and the commands that make and unpack them."""
    file = f"benchmarks/evidence/runs/{task}.parquet"
    make = f"```bash\nbash scripts/evidence.sh --task {task}\n"
    arms = [name for name in run_names(task) if "/" in name]
    if not arms:
        return f"None of this task's own runs has been made.\nThis makes them, in `{file}`:\n\n{make}```\n"
    unpack = f"python benchmarks/evidence/archive.py unpack {task} {arms[0]}"
    out = f"--out runs/{task}_{arms[0].replace('/', '_')}"
    unpack += f" {out}" if len(f"{unpack} {out}") <= MAX_LINE else f" \\\n    {out}"
    return (
        f"The runs are in `{file}`.\n"
        "The first command makes those that are missing there, the second lists them, and the third\n"
        "unpacks one as a run folder:\n\n"
        f"{make}"
        f"python benchmarks/evidence/archive.py list {task}\n"
        f"{unpack}\n```\n"
    )


@cache
def courses(task: str) -> dict[str, tuple[list[Course], list[Course]]]:
    """Arm -> what its hints did, and what the simulator expects of them."""
    return {
        arm: (
            [measured(read(folder)) for folder in folders],
            [
                predicted(read(folder), heldout=f"val/accuracy/{split_of(task, 'heldout')}")
                for folder in folders
            ],
        )
        for arm, folders in stored_runs(task, PREDICTED_ARMS).items()
    }


def prediction_table(task: str) -> str:
    """What the hints did, and what the simulator expects of them, by thirds of the steps."""
    rows = [
        [
            f"`{arm}`",
            name,
            str(len(of_arm)),
            *(by_thirds([getattr(course, field) for course in of_arm]) for field in PANELS),
        ]
        for arm, both in courses(task).items()
        for name, of_arm in zip(("measured", "simulated"), both, strict=True)
    ]
    heads = ["arm", "", "seeds", *PANELS.values()]
    return markdown_table(heads, rows, num_names=2) if rows else "No runs yet.\n"


def mistakes_table(task: str) -> str:
    """First mistakes in un-hinted solutions, as shares of those that get as far without a mistake."""
    ranges = {"1 to 3": slice(0, 3), "4": slice(3, 4), "5 and on": slice(4, None)}
    rows = []
    for name, counts in json.loads(MISTAKES.read_text()).items():
        of_task, _, model = name.partition("/")
        if of_task == task:
            rows.append(
                [
                    f"`{model}`",
                    share(counts["right"] / counts["solutions"]),
                    *(
                        share(sum(counts[kind][part]) / sum(counts["reached"][part]))
                        for kind in ("value", "misread")
                        for part in ranges.values()
                    ),
                ]
            )
    heads = [f"{kind}, operation {part}" for kind in ("wrong value", "misread") for part in ranges]
    return markdown_table(["model", "no mistake", *heads], rows)


def estimate_cell(estimate: Estimate) -> str:
    return share(estimate.mean) + _ends(estimate.t_interval_95, share)


def difference_cell(difference: Difference | None) -> str:
    return "" if difference is None else points(difference.mean) + _ends(difference.t_interval_95, points)


def _ends(interval: tuple[float, float] | None, show: Callable[[float], str]) -> str:
    return "" if interval is None else f" ({show(interval[0])} to {show(interval[1])})"


def all_tables(plan: Mapping[str, Any]) -> dict[str, str]:
    """Every table by the name in its marker."""
    arms, ablations = [*plan["arms"]], [OURS, PAPER, "seele-m2", *plan["ablations"]]
    # Supervision has spent half of the trained tokens before RL is first validated.
    from_base = [arm for arm in arms if "after" not in plan["arms"][arm]]
    tables = {
        "tuning": tuning_table(plan),
        "tuning-where": where_text(TUNING),
        "ablations": equal_cost_table("mixed", ablations, references=[OURS]),
        "controllers": equal_cost_table("mixed", CONTROLLERS, references=[PAPER]),
        "tasks": tasks_table(CHAINS, {COST: arms, TRAINED: from_base}),
        "headline": headline_table("mixed", {COST: arms, TRAINED: from_base}),
        "mixed-trained-average": average_table("mixed", from_base, TRAINED),
        "mixed-few-trained": equal_cost_table("mixed", SPARING_ARMS, TRAINED, enough=0.0),
        "mixed-flops": equal_cost_table("mixed", from_base, "flops"),
        "mixed-uft": equal_cost_table("mixed", [UFT, HALF, LATE], references=[UFT]),
        "mixed-uft-average": average_table("mixed", [UFT, HALF, LATE], COST, references=[UFT]),
        "replication-uft": equal_cost_table("replication", [UFT, LATE], references=[UFT]),
        "replication-uft-average": average_table("replication", [UFT, LATE], COST, references=[UFT]),
        "ten-seeds": equal_cost_table(TEN_SEEDS, [UFT, LATE], references=[UFT]),
        "ten-seeds-average": average_table(TEN_SEEDS, [UFT, LATE], COST, references=[UFT]),
        "ten-seeds-trained": equal_cost_table(TEN_SEEDS, [UFT, LATE], TRAINED, references=[UFT]),
        "mixed-released": released_table("mixed+released", COST),
        "mixed-released-trained": released_table("mixed+released", TRAINED),
        "milestones-claim": claim_table(arms),
        "milestones-checker-hints": checker_table(plan, [*credit_arms(plan)]),
        "prediction": prediction_table("mixed"),
        "own-controllers": equal_cost_table("own", CONTROLLERS, references=[PAPER]),
        # UFT ends with its plan.
        "easy_own-uft": equal_cost_table("easy_own", arms, references=[REFERENCE, UFT], enough=0.8),
        "mixed-mistakes": mistakes_table("mixed"),
        "again-mistakes": mistakes_table("again"),
    }
    more = [*credit_arms(plan), *plan["published"]]
    arms, from_base = [*arms, *more], [*from_base, *more]
    for task, settings in plan["tasks"].items():
        references = settings.get("references", (REFERENCE, OURS, HALF))
        # Arms of other tasks that have runs of the same problems, seeds and size.
        beside = with_lenders(task, plan)
        tables[task] = equal_cost_table(beside, arms, references=references)
        tables[f"{task}-trained"] = equal_cost_table(beside, from_base, TRAINED, references=references)
        tables[f"{task}-average"] = average_table(beside, arms, COST, references=references)
        tables[f"{task}-final"] = final_table(task, [*arms, *RELEASED])
        tables[f"{task}-training"] = training_table(task, [*all_arms(plan)])
        tables[f"{task}-where"] = where_text(task)
        tables[f"{task}-runs"] = runs_table(task)
    return tables


def with_tables(page: str, tables: Mapping[str, str]) -> str:
    """Return the page with each block between its markers replaced."""
    return _BLOCK.sub(
        lambda block: f"<!-- table {block['name']} -->\n{tables[block['name']]}<!-- end -->\n", page
    )


def new_page(task: str) -> str:
    """The page of a task whose findings are not written yet."""
    sections = "".join(
        f"\n## {heading}\n"
        + "".join(f"\n<!-- table {block.format(task)} -->\n<!-- end -->\n" for block in blocks)
        for heading, blocks in SECTIONS.items()
    )
    return f"# Evidence: `{task}`\n{sections}"


def pages(plan: Mapping[str, Any], tables: Mapping[str, str]) -> dict[Path, bytes]:
    """Return every page with its tables updated, and a new page for each task without one."""
    texts = {TASK_PAGES / f"{task}.md": new_page(task) for task in plan["tasks"]}
    found = [page for page in (*PAGES, *sorted(TASK_PAGES.glob("*.md"))) if page.exists()]
    found = [page for page in found if page.stem != "pretrained"]  # pretrained.py makes its tables
    texts |= {page: page.read_text(encoding="utf-8") for page in found}
    return {page: with_tables(text, tables).encode() for page, text in texts.items()}


def write_changed(contents: Mapping[Path, bytes], *, check: bool) -> None:
    """Write the files whose content is new; with ``check`` exit instead, with status 1 if there are any."""
    changed = [
        path for path, content in contents.items() if not path.exists() or path.read_bytes() != content
    ]
    if check:
        sys.exit("".join(f"{path} does not match the stored runs\n" for path in changed) or 0)
    for path in changed:
        write_atomically(path, contents[path])


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if something would change")
    check = parser.parse_args().check
    plan = load_plan()
    tables = all_tables(plan)
    trials = {arm: of_arm for arm, of_arm in tuning_trials().items() if arm in tuned_arms(plan)}
    rates = tuned_rates(trials, plan["tuning"]["learning_rates"])
    contents = pages(plan, tables)
    contents[TUNED] = (json.dumps(rates, indent=1) + "\n").encode()
    if comparison := compare_task("mixed", HEADLINE_ARMS, splits=GREEDY[:1]):
        contents[FIGURE] = draw_figures(comparison)[COST]
    front = stored_runs(FRONT_TASK, (HALF, REFERENCE))
    if set(front) == {HALF, REFERENCE}:
        runs, without_hints = ([read(folder) for folder in front[arm]] for arm in (HALF, REFERENCE))
        split = f"val/accuracy/{split_of(FRONT_TASK, 'heldout')}"
        contents[FRONT] = draw_front(runs, without_hints, heldout=split)
    if pairs := courses("mixed"):
        contents[PREDICTION] = draw(pairs)
    write_changed(contents, check=check)


if __name__ == "__main__":
    main()
