"""The leaderboard: every arm on every task, at equal cost. The same runs give the same page.

    python benchmarks/evidence/leaderboard.py                        # docs/evidence/leaderboard.md
    python benchmarks/evidence/leaderboard.py --check                # exit status 1 if it would change
    python benchmarks/evidence/leaderboard.py --out mine.md \\
        --add mixed/mine=runs/mine_0 --add mixed/mine=runs/mine_1    # with your own run folders

Your own run has the problems of the task (``python benchmarks/evidence/run.py`` prepares them) as its
validation file, so that it logs the accuracy that the task is judged by. Differences are paired by seed.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean

from archive import read
from plan import TUNING, load_plan
from tables import CHAINS, REFERENCE, TASK_PAGES, compare_runs, split_of, stored_runs, with_lenders

from seele.data.storage.files import write_atomically
from seele.errors import ConfigError, SeeleError
from seele.maths.tables import markdown_table
from seele.report.comparison.curves import COSTS
from seele.report.comparison.results import Result
from seele.report.comparison.tables import amount, points, share
from seele.report.run_folder import RunFolder, read_run

PAGE = TASK_PAGES / "leaderboard.md"
BY = (
    *("tokens_generated", "tokens_trained", "tokens_trained_packed"),
    *("tokens_trained_informative", "flops"),
)
HEAD = """# Leaderboard

Un-hinted accuracy on held-out problems at equal cost: the rank of an arm among those of the task,
its accuracy, and in points its paired difference from `grpo` (`grpo-n8` on the tasks of milestones)
with a 95 % interval over seeds.
Arms are sorted by the number of tasks on which that interval lies above zero, of those that have
one, then by the mean difference.
An arm that a task takes over from another one counts there only.
An empty cell has no runs, or runs that spent far less than GRPO's.
[The protocol](protocol.md#arms) says what the names of arms mean, and
`benchmarks/evidence/plan.yaml` has their settings.
Each task's page says where its runs are and how they were made.

```bash
python benchmarks/evidence/leaderboard.py --out mine.md --add mixed/mine=runs/mine_0
```

adds your own runs of a task.
"""

Added = Mapping[str, Mapping[str, Sequence[Path]]]
"""Task -> arm -> the user's run folders."""


@cache
def read_own(folder: Path) -> RunFolder:
    """Return a user's run; its rollouts and its controller's state are not needed."""
    return read_run(folder, without=("rollouts", "controller"))


def tasks_shown() -> list[str]:
    """Return the chains tasks that differ in what is learnt, then the others."""
    return [*CHAINS, *(task for task in load_plan()["tasks"] if task not in (*CHAINS, TUNING))]


def leaderboard(tasks: Sequence[str], added: Added) -> str:
    """Return the page, without costs that too few of the runs have counted."""
    tables = []
    for cost in BY:
        results = {task: found for task in tasks if (found := result(task, cost, added.get(task, {})))}
        if results:
            tables.append(f"\n## At equal {COSTS[cost].title}\n\n{table(results)}")
    return HEAD + "".join(tables)


def result(task: str, cost: str, added: Mapping[str, Sequence[Path]]) -> Result | None:
    """Return a task's arms at equal cost, with those that other tasks lend it and without ablations; None
    without runs of its own, without GRPO, or with fewer than two.
    """
    split = split_of(task, "heldout")
    plan = load_plan()
    arms = [*plan["arms"], *plan["credit"], *plan["published"], *plan["released"]]
    runs = {**stored_runs(with_lenders(task, plan), arms), **added}
    reference = plan["tasks"][task].get("references", [REFERENCE])[0]
    if reference not in runs or not (added or stored_runs(task, arms)):
        return None
    own = {folder for folders in added.values() for folder in folders}

    def reader(folder: Path) -> RunFolder:
        return read_own(folder) if folder in own else read(folder)

    comparison = compare_runs(runs, cost, splits=[split], reader=reader, reference=reference)
    if comparison is None or reference not in comparison.curves[split][cost]:
        return None
    return comparison.results[split][cost]


def check_added(task: str, added: Mapping[str, Sequence[Path]]) -> None:
    """Raise ``ConfigError`` for a name that a stored arm has, or a run that the page cannot show."""
    plan, split = load_plan(), split_of(task, "heldout")
    for arm, folders in added.items():
        if any(arm in plan[group] for group in ("arms", "credit", "published", "released")):
            raise ConfigError(f"--add {task}/{arm}: a stored arm has this name; choose another")
        for folder in folders:
            metrics = read_own(folder).metrics
            if not any(f"val/accuracy/{split}" in line for line in metrics):
                raise ConfigError(
                    f"--add {task}/{arm}={folder}: its metrics have no val/accuracy/{split}; train with the "
                    "task's held-out problems in data.val_files"
                )


def table(results: Mapping[str, Result]) -> str:
    """Return a table with a row per arm and a column per task."""
    cells: dict[str, dict[str, str]] = defaultdict(dict)
    gains: dict[str, list[tuple[bool, float]]] = defaultdict(list)
    for task, of_task in results.items():
        lenders = load_plan()["tasks"][task].get("beside", ())
        lent = {arm for lender in lenders for arm in stored_runs(lender, [*of_task.arms])}
        ranked = sorted(of_task.arms, key=lambda arm: -of_task.arms[arm].accuracy.mean)
        for rank, arm in enumerate(ranked, start=1):
            found = of_task.arms[arm]
            cells[arm][task] = f"{rank}: {share(found.accuracy.mean)}"
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

    rows = [
        [
            f"`{arm}`",
            *(cells[arm].get(task, "") for task in results),
            f"{-standing(arm)[0]} of {len(gains[arm])}" if gains[arm] else "",
        ]
        for arm in sorted(cells, key=lambda arm: (standing(arm), arm))
    ]
    heads = [f"`{task}` at {amount(each.budget)}" for task, each in results.items()]
    return markdown_table(["arm", *heads, "clearly ahead"], rows)


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
        page = leaderboard(tasks, added).encode()
    except SeeleError as error:
        sys.exit(f"error: {error}")
    if arguments.check:
        sys.exit(0 if out.exists() and out.read_bytes() == page else f"{out} does not match the runs")
    write_atomically(out, page)


if __name__ == "__main__":
    main()
