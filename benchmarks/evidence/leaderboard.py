"""The leaderboard: every arm on every task, at equal cost; and each method's numbers on its page. The same
runs give the same pages.

    python benchmarks/evidence/leaderboard.py                        # the pages
    python benchmarks/evidence/leaderboard.py --check                # exit status 1 if one would change
    python benchmarks/evidence/leaderboard.py --out mine.md \\
        --add mixed/mine=runs/mine_0 --add mixed/mine=runs/mine_1    # with your own run folders

Your own run has the base model and the held-out problems of the task, which ``python
benchmarks/evidence/run.py TASK --prepare`` makes; a run with others is refused. Differences are paired by
seed. What the page does not say of your runs is printed to stderr.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean

from archive import read
from plan import TUNING, all_arms, heldout_of, load_plan
from tables import (
    CHAINS,
    COST,
    REFERENCE,
    TASK_PAGES,
    compare_runs,
    difference_cell,
    estimate_cell,
    split_of,
    stored_runs,
    with_lenders,
    with_tables,
    write_changed,
)

from seele.errors import ConfigError, SeeleError
from seele.maths.tables import markdown_table
from seele.report.comparison.analysis import caveats
from seele.report.comparison.curves import COSTS
from seele.report.comparison.results import Comparison, Result
from seele.report.comparison.runs import read_compared
from seele.report.comparison.tables import amount, points, share
from seele.report.run_folder import RunFolder

PAGE = TASK_PAGES / "leaderboard.md"
METHOD_PAGES = TASK_PAGES.parent / "methods"
# Method -> the arms on its page, if they are not the one with its name.
ARMS_OF = {
    "grpo": ["grpo", "grpo-n8"],
    "seele": ["seele", "seele-n8-late"],
    "uft": ["uft-released", "uft-n8-released"],
    **{method: [f"{method}-released"] for method in ("luffy", "rl_sft_loss", "exgrpo")},
}
BY = (
    *(COST, "tokens_trained", "tokens_trained_packed"),
    *("tokens_trained_informative", "flops"),
)
HEAD = """# Leaderboard

Un-hinted accuracy on held-out problems at equal cost: the rank of an arm on the task, its accuracy,
and in points its paired difference from `grpo` (`grpo-n8` on the tasks of milestones) with a 95 %
interval over seeds.
Arms are ranked by that difference; one with fewer than three seeds in common with `grpo` has no
rank.
Arms are sorted by the number of tasks on which that interval lies above zero, of those that have
one, then by the mean difference.
An arm that a task takes over from another one counts there only, and has the seeds of this task
here.
An empty cell has no runs, runs that spent far less than GRPO's, or runs whose first stage spent as
much as another arm in all.
Arms have 16 rollouts per problem unless the table says 8.
[The protocol](protocol.md#arms) says more, and `benchmarks/evidence/plan.yaml` has their settings.
Each task's page says where its runs are and how they were made.

```bash
python benchmarks/evidence/leaderboard.py --out mine.md --add mixed/mine=runs/mine_0
```

adds your own runs of a task.
"""

Added = Mapping[str, Mapping[str, Sequence[Path]]]
"""Task -> arm -> the user's run folders."""
ByCost = Mapping[str, Mapping[str, Result]]
"""Cost -> task -> its arms at equal cost."""


read_own = cache(read_compared)
"""Reads a user's run."""


def tasks_shown() -> list[str]:
    """Return the chains tasks that differ in what is learnt, then the others."""
    return [*CHAINS, *(task for task in load_plan()["tasks"] if task not in (*CHAINS, TUNING))]


def compare_all(tasks: Sequence[str], added: Added) -> ByCost:
    """Compare the arms of all tasks, without costs that too few of the runs have counted."""
    by_cost = {
        cost: {task: found for task in tasks if (found := result(task, cost, added.get(task, {})))}
        for cost in BY
    }
    return {cost: results for cost, results in by_cost.items() if results}


def leaderboard(by_cost: ByCost) -> str:
    """Return the page."""
    tables = (f"\n## At equal {COSTS[cost].title}\n\n{table(results)}" for cost, results in by_cost.items())
    return HEAD + "".join(tables)


def method_pages(by_cost: ByCost) -> dict[Path, str]:
    """Return the methods' pages, each with its table of numbers updated."""
    results = by_cost.get(COST, {})
    lent = {task: lent_arms(task, of_task) for task, of_task in results.items()}
    return {
        page: with_tables(page.read_text(encoding="utf-8"), {"number": numbers(page.stem, results, lent)})
        for page in sorted(METHOD_PAGES.glob("*.md"))
    }


def numbers(method: str, results: Mapping[str, Result], lent: Mapping[str, set[str]]) -> str:
    """Return a table with a row per task and arm of the method, without arms that are lent to the task."""
    rows = [
        [
            f"[`{task}`](../evidence/{task}.md)",
            f"`{arm}`",
            str(len(found.accuracy.by_seed)),
            estimate_cell(found.accuracy),
            difference_cell(found.difference),
            amount(of_task.budget),
        ]
        for task, of_task in results.items()
        for arm in ARMS_OF.get(method, [method])
        if (found := of_task.arms.get(arm)) and arm not in lent[task]
    ]
    if not rows:
        return "None yet.\n"
    heads = ["task", "arm", "seeds", "held-out", "minus GRPO, points", "tokens generated"]
    return (
        "Un-hinted accuracy on held-out problems at equal generated tokens, with 95 % intervals over "
        f"seeds:\n\n{markdown_table(heads, rows, num_names=2)}"
    )


def lent_arms(task: str, of_task: Result) -> set[str]:
    """Return the arms that other tasks lend the task."""
    lenders = load_plan()["tasks"][task].get("beside", ())
    return {arm for lender in lenders for arm in stored_runs(lender, [*of_task.arms])}


def result(task: str, cost: str, added: Mapping[str, Sequence[Path]]) -> Result | None:
    """Return a task's arms at equal cost, with those that other tasks lend it and without ablations; None
    without runs of its own, without GRPO on all of the plan's seeds, or with fewer than two. Prints
    remarks on ``added`` to stderr.
    """
    split = split_of(task, "heldout")
    plan = load_plan()
    arms = [*plan["arms"], *plan["credit"], *plan["published"], *plan["released"]]
    # Arms that other tasks lend have more seeds there: ranks need the same seeds for all arms.
    seeds = {f"seed_{seed}" for seed in plan["tasks"][task]["seeds"]}
    stored = stored_runs(with_lenders(task, plan), arms)
    runs = {
        arm: compared
        for arm, found in stored.items()
        if (compared := [each for each in found if each.parts[0] == task or each.name in seeds])
    } | added
    reference = reference_of(task)
    is_finished = len(runs.get(reference, ())) >= len(plan["tasks"][task]["seeds"])
    if not is_finished or not (added or stored_runs(task, arms)):
        return None
    own = {folder for folders in added.values() for folder in folders}

    def reader(folder: Path) -> RunFolder:
        return read_own(folder) if folder in own else read(folder)

    comparison = compare_runs(runs, cost, splits=[split], reader=reader, reference=reference)
    if comparison is None or reference not in comparison.curves[split][cost]:
        return None
    found = comparison.results[split][cost]
    remark(task, cost, added, comparison, found)
    return found


def reference_of(task: str) -> str:
    """Return the arm that the task's others are compared with."""
    reference: str = load_plan()["tasks"][task].get("references", [REFERENCE])[0]
    return reference


def remark(
    task: str, cost: str, added: Mapping[str, Sequence[Path]], comparison: Comparison, found: Result
) -> None:
    """Print what the column does not say of the added arms: those that it lacks, a budget that they set, and
    how their conditions and seeds differ from those of the reference.
    """
    own = [folder.as_posix() for folders in added.values() for folder in folders]
    lines = [
        f"{arm} is not compared, because a run of it spent too little or does not count it"
        for arm in added
        if arm not in found.arms
    ]
    if found.budget_set_by in own:
        lines.append(f"{found.budget_set_by} ends first, so all arms are compared at {amount(found.budget)}")
    lines += [
        f"{arm} has no seed in common with {comparison.reference}, so there is no difference and no rank"
        for arm in added
        if arm in found.arms and found.arms[arm].difference is None
    ]
    lines = [f"{task}, equal {COSTS[cost].title}: {line}." for line in lines]
    if cost == BY[0]:
        shown = {
            arm: comparison.arms[arm] for arm in (comparison.reference, *added) if arm in comparison.arms
        }
        named = [*own, *added]
        lines += [f"{task}: {note}" for note in caveats(shown) if any(name in note for name in named)]
    for line in lines:
        print(line, file=sys.stderr)  # noqa: T201


def check_added(task: str, added: Mapping[str, Sequence[Path]]) -> None:
    """Raise ``ConfigError`` for a name that a stored arm has, or a run that the page cannot show or that has
    other problems or another base model.
    """
    plan, split = load_plan(), split_of(task, "heldout")
    stored = stored_runs(with_lenders(task, plan), [*all_arms(plan)])
    if reference_of(task) not in stored:
        raise ConfigError(
            f"--add {task}/...: the task has no stored run of {reference_of(task)}; choose another"
        )
    # Tasks that differ in arms and seeds have the same problems.
    problems = {
        heldout_of(other)
        for other, size in plan["tasks"].items()
        if all(size[key] == plan["tasks"][task][key] for key in ("source", "settings"))
    }
    model = plan["tasks"][task]["base_model"]
    models = {
        model,
        *(Path(start).name for found in stored.values() for each in found if (start := start_of(read(each)))),
    }
    prepare = f"'python benchmarks/evidence/run.py {task} --prepare' makes it"
    for arm, folders in added.items():
        if any(arm in plan[group] for group in ("arms", "credit", "published", "released")):
            raise ConfigError(f"--add {task}/{arm}: a stored arm has this name; choose another")
        for folder in folders:
            run, where = read_own(folder), f"--add {task}/{arm}={folder}"
            if not any(f"val/accuracy/{split}" in line for line in run.metrics):
                raise ConfigError(
                    f"{where}: its metrics have no val/accuracy/{split}; train with the "
                    "task's held-out problems in data.val_files"
                )
            files = run.setting("data.val_files") or []
            files = files if isinstance(files, list) else [files]
            most = run.setting("data.val_max_samples")
            if most not in (None, -1) or not any(
                f"/{file}".endswith(f"/{each}") for file in files for each in problems
            ):
                raise ConfigError(
                    f"{where}: data.val_files={files} with data.val_max_samples={most}; expected all of "
                    f"{heldout_of(task)}, and {prepare}"
                )
            start = start_of(run)
            if start is not None and Path(start).name not in models:
                raise ConfigError(
                    f"{where}: it began with the model {start}, and the task's runs with {model}; train with "
                    f"actor_rollout_ref.model.path=models/{model}, and {prepare}"
                )


def start_of(run: RunFolder) -> str | None:
    """Return the model that the run began with; None if unknown, as of a packed run in two stages."""
    if run.setting("seele.method") == "sft_rl" and not run.first_stage:
        return None
    return None if run.base_model is None else str(run.base_model)


def table(results: Mapping[str, Result]) -> str:
    """Return a table with a row per arm and a column per task."""
    cells: dict[str, dict[str, str]] = defaultdict(dict)
    gains: dict[str, list[tuple[bool, float]]] = defaultdict(list)
    for task, of_task in results.items():
        lent = lent_arms(task, of_task)
        gains_of_task = {reference_of(task): 0.0} | {
            arm: found.difference.mean
            for arm, found in of_task.arms.items()
            if found.difference is not None and found.difference.t_interval_95 is not None
        }
        ranked = sorted(gains_of_task, key=lambda arm: -gains_of_task[arm])
        ranks = {arm: rank for rank, arm in enumerate(ranked, start=1)} if len(ranked) > 1 else {}
        for arm, found in of_task.arms.items():
            rank = f"{ranks[arm]}: " if arm in ranks else ""
            cells[arm][task] = f"{rank}{share(found.accuracy.mean)}"
            if (difference := found.difference) is None:
                continue
            interval = ""
            if ends := difference.t_interval_95:
                if arm not in lent:
                    gains[arm].append((ends[0] > 0, difference.mean))
                interval = f", {points(ends[0])} to {points(ends[1])}"
            cells[arm][task] += f" ({points(difference.mean)}{interval})"

    def standing(arm: str) -> tuple[int, float]:
        won = sum(is_ahead for is_ahead, _ in gains[arm])
        return -won, -fmean(gain for _, gain in gains[arm]) if gains[arm] else 0.0

    named = all_arms(load_plan())
    rows = [
        [
            f"`{arm}`",
            named[arm]["what"] if arm in named else "your own",
            *(cells[arm].get(task, "") for task in results),
            f"{-standing(arm)[0]} of {len(gains[arm])}" if gains[arm] else "",
        ]
        for arm in sorted(cells, key=lambda arm: (standing(arm), arm))
    ]
    heads = [f"`{task}` at {amount(each.budget)}" for task, each in results.items()]
    return markdown_table(["arm", "what it is", *heads, "clearly ahead"], rows, num_names=2)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if it would change")
    parser.add_argument("--add", action="append", default=[], metavar="TASK/ARM=RUN")
    parser.add_argument("--out", type=Path, help="file to write; needed with --add")
    arguments = parser.parse_args()
    tasks = tasks_shown()
    added: dict[str, dict[str, list[Path]]] = {}
    for each in arguments.add:
        name, _, folder = each.partition("=")
        task, _, arm = name.partition("/")
        if task not in tasks or not arm or not Path(folder, "metrics.jsonl").is_file():
            parser.error(
                f"--add {each}: expected TASK/ARM=RUN with a task of {', '.join(tasks)} and a run folder"
            )
        added.setdefault(task, {}).setdefault(arm, []).append(Path(folder))
    if added and arguments.out is None:
        parser.error("--add needs --out FILE: the repository's page has only the stored runs")
    out = arguments.out or PAGE
    try:
        for task, arms in added.items():
            check_added(task, arms)
        by_cost = compare_all(tasks, added)
    except SeeleError as error:
        sys.exit(f"error: {error}")
    pages = {out: leaderboard(by_cost), **(method_pages(by_cost) if out == PAGE else {})}
    write_changed({path: text.encode() for path, text in pages.items()}, check=arguments.check)


if __name__ == "__main__":
    main()
