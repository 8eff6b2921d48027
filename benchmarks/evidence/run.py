"""Run what docs/evidence.md compares: killed runs resume, finished ones are stored and skipped.

    python benchmarks/evidence/run.py tuning                                  # the learning rates
    python benchmarks/evidence/run.py mixed --arms grpo,seele --seeds 0,1 --jobs 2
    python benchmarks/evidence/run.py mixed --prepare                         # problems and base model only

A run is an ordinary run of ``seele_verl.train`` in runs/evidence/. When it has finished, its model is sampled
on the held-out problems for pass@k; run card, settings, metrics and scores are packed into
benchmarks/evidence/runs/TASK.parquet, and the rest is removed. The base model is sampled once per task; the
model itself is kept in benchmarks/evidence/base_models/.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from archive import add, run_names
from base_models import pack_model, packed_model, unpack_model
from plan import (
    TUNING,
    Job,
    all_arms,
    default_arms,
    heldout_of,
    load_plan,
    problems_of,
    response_tokens,
    task_jobs,
    tuning_jobs,
)

from seele.config.build import from_mapping
from seele.data.storage.schema import write_problems
from seele.data.tasks import chains, reasoning
from seele.data.tasks.chains import ChainsConfig
from seele.records import Instance
from seele_models.recipes import RECIPES
from seele_models.training import make_base_model

WORK = Path("runs/evidence")
BASE = "base"
"""Name of the row with the base model's scores, among the runs of a task."""
SAMPLED = ("--temperature", "1", "--samples", "32")


def prepare(task: str) -> None:
    """Write the task's problems and those for tuning learning rates; make its base model."""
    plan = load_plan()
    source, settings = plan["tasks"][task]["source"], plan["tasks"][task]["settings"]
    splits = draw(source, settings)
    seen = {instance.question for instances in splits.values() for instance in instances}
    others = draw(source, settings | {"seed": plan["tuning"]["problems_seed"]})
    splits["tune"] = [instance for instance in others["heldout"] if instance.question not in seen]
    folder = Path(problems_of(task))
    for split, instances in splits.items():
        write_problems(folder / f"{split}.parquet", instances, split=split)

    name = plan["tasks"][task]["base_model"]
    if not packed_model(name).exists():
        began = [other for other, size in plan["tasks"].items() if size["base_model"] == name]
        if stored := [other for other in began if run_names(other)]:
            sys.exit(
                f"{packed_model(name)} is missing, and runs of {', '.join(stored)} began with it. "
                "Another CPU makes another model of the same recipe, so new runs could not be compared."
            )
        seen |= {instance.question for instance in splits["tune"]}
        pack_model(make_model(plan["base_models"][name], source, settings, seen, folder / "base_text"), name)
    unpack_model(name, Path("models") / name)


def make_model(
    base: Mapping[str, Any], source: str, settings: Mapping[str, Any], seen: Set[str], text_folder: Path
) -> Path:
    """Make a base model of the plan and return its folder; its text has no question in ``seen``."""
    changes = dict(base.get("changes", {}))
    if text := base.get("text"):
        instances = [each for each in draw(source, settings | text)["train"] if each.question not in seen]
        changes["data_folder"] = str(text_folder)
        write_problems(text_folder / "train.parquet", instances, split="train")
    return make_base_model(Path("models"), replace(RECIPES[base["recipe"]], **changes))


def draw(source: str, settings: Mapping[str, Any]) -> dict[str, list[Instance]]:
    """The splits of ``seele data prepare SOURCE``."""
    if source == "chains":
        return chains.generate_splits(from_mapping(ChainsConfig, settings, source))
    config = from_mapping(reasoning.CONFIGS[source], settings, source)
    return reasoning.generate_splits(source, config, workers=os.cpu_count() or 1)


def is_stored(job: Job) -> bool:
    """Return True if the job's run has finished and is packed."""
    task, _, name = job.name.partition("/")
    return name in run_names(task)


def do(job: Job) -> str:
    """Run or resume one job, and return its outcome."""
    work = WORK / job.name
    if is_stored(job):
        return "stored already"
    began = time.monotonic()
    commands = [["seele_verl.train", *job.overrides, f"trainer.default_local_dir={work}"]]
    if job.sampled:
        problems = f"heldout={job.sampled}"
        commands += [
            ["seele_verl.merge", str(work)],
            ["seele_eval.run", "--run", str(work), "--problems", problems, "--out", f"{work}/eval", *SAMPLED],
        ]
    if status := run_modules(commands, work):
        return f"failed with status {status}, see {work}/launcher.log"
    store(job.name)
    return f"finished in {time.monotonic() - began:.0f} s"


def sample_base(task: str, model: str) -> None:
    """Sample the base model on the task's held-out problems, like the trained ones."""
    work = WORK / task / BASE
    if BASE in run_names(task):
        return
    problems, folder = f"heldout={heldout_of(task)}", f"models/{model}"
    where = ["--model", folder, "--problems", problems, "--out", f"{work}/eval"]
    # A run's folder states these itself.
    settings = ["--template", "plain", "--max-tokens", str(response_tokens(load_plan()))]
    if status := run_modules([["seele_eval.run", *where, *settings, *SAMPLED]], work):
        sys.exit(f"sampling the base model failed with status {status}, see {work}/launcher.log")
    store(f"{task}/{BASE}")


def run_modules(commands: Sequence[Sequence[str]], work: Path, *, threads: int = 1) -> int:
    """Run modules one after the other, and return the first exit status that is not 0.

    Args:
        commands: Module and arguments of each.
        work: Folder of the run, for the log.
        threads: Threads for sampling; training has its own settings.
    """
    work.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    with (work / "launcher.log").open("a") as log:
        for module, *arguments in commands:
            command = [sys.executable, "-m", module, *arguments]
            done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
            if done.returncode:
                return done.returncode
    return 0


def store(name: str) -> None:
    """Pack what the tables need of the finished run ``TASK/ARM/seed_N``, and remove its folder."""
    task, _, run = name.partition("/")
    add(task, run, WORK / name)
    shutil.rmtree(WORK / name)


def main() -> None:
    """Run the command."""
    plan = load_plan()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("task", choices=[TUNING, *plan["tasks"]])
    parser.add_argument("--arms", default="", help="comma-separated; default: all of the task")
    parser.add_argument("--seeds", default="", help="comma-separated; default: the plan's")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument(
        "--prepare", action="store_true", help="make problems and base model, and run nothing"
    )
    arguments = parser.parse_args()
    arms = arguments.arms.split(",") if arguments.arms else default_arms(plan, arguments.task)
    if unknown := sorted(set(arms) - set(all_arms(plan))):
        parser.error(f"unknown arms {unknown}; allowed are {sorted(all_arms(plan))}")
    if arguments.task == TUNING:
        task, jobs = plan["tuning"]["task"], [*tuning_jobs(plan, arms)]
    else:
        task, seeds = arguments.task, [int(seed) for seed in arguments.seeds.split(",") if seed]
        jobs = [*task_jobs(plan, task, arms, seeds)]
    if arguments.prepare:
        prepare(task)
        sys.exit(0)
    # A task that is done needs no base model, and two base models were not kept.
    if not all(map(is_stored, jobs)):
        prepare(task)
        if arguments.task != TUNING:
            sample_base(task, plan["tasks"][task]["base_model"])
    with ThreadPoolExecutor(arguments.jobs) as pool:
        outcomes = pool.map(lambda job: (job, do(job)), jobs)
        failed = 0
        for job, outcome in outcomes:
            print(f"{job.name}: {outcome}", flush=True)  # noqa: T201
            failed += outcome.startswith("failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
