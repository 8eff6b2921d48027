"""A run that is killed at random times and goes on, beside the same run in one piece.

    python benchmarks/kills.py --out runs/kills recipe=smollm2_gsm8k hardware=cpu trainer.save_freq=1 \
        trainer.total_training_steps=16 trainer.test_freq=-1 trainer.val_before_train=false

Prints where each kill came and where the run went on, then step by step how many problems, first hints, all
hints and responses are those of the whole run, and whether the controller's last state is. The run is killed
ten times, each time between 60 and 240 seconds after it began or began again; a step should take less.
"""

import argparse
import random
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seele.data.storage.files import read_json_lines
from seele.maths.tables import markdown_table
from seele_verl.runs.checkpoints import last_complete_step, load_part, step_folder


def start(run: Path, overrides: list[str]) -> subprocess.Popen[str]:
    """The training of ``run``, from its last checkpoint on; what it prints is appended to RUN.log."""
    command = [sys.executable, "-m", "seele_verl.train", *overrides, f"trainer.default_local_dir={run}"]
    with run.with_suffix(".log").open("a") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, text=True)


def kill_at_random(run: Path, overrides: list[str], options: argparse.Namespace) -> list[list[str]]:
    """Kill the run as often as asked, then let it end; a row for each kill."""
    draw, rows = random.Random(options.seed), []
    for kill in range(options.kills):
        seconds = draw.uniform(*options.between)
        process = start(run, overrides)
        try:
            process.wait(seconds)
            raise SystemExit(f"the run ended, with status {process.returncode}, before kill {kill + 1}")
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        dumped = len([*run.glob("rollouts/step_*.jsonl")])
        rows.append([str(kill + 1), f"{seconds:.0f}", str(dumped), str(last_complete_step(run) or 0)])
    if start(run, overrides).wait():
        raise SystemExit(f"the run failed, see {run.with_suffix('.log')}")
    begins = re.findall(r"^seele (starts|resumes after step \d+)", run.with_suffix(".log").read_text(), re.M)
    # One line for each beginning; of a kill during the checks there is none.
    sys.stdout.write(f"begins, as logged: {', '.join(begins)}\n\n")
    return rows


def dumped(run: Path, step: int) -> dict[tuple[str, int, int], Mapping[str, Any]]:
    """The rollouts of a step by problem, round and number."""
    rows = (row for _, row in read_json_lines(run / "rollouts" / f"step_{step}.jsonl"))
    return {(row["instance_id"], row["round"], row["rollout"]): row for row in rows}


def compare(whole: Path, killed: Path) -> list[list[str]]:
    """A row for each step, with shares of the whole run's that the other has."""

    def same(column: str, rounds: range) -> str:
        equal = [
            row[column] == theirs.get(key, {}).get(column) for key, row in own.items() if key[1] in rounds
        ]
        return f"{sum(equal)} of {len(equal)}"

    rows = []
    for step in range(1, 1 + len([*whole.glob("rollouts/step_*.jsonl")])):
        own, theirs = dumped(whole, step), dumped(killed, step)
        problems = {key[0] for key in own}
        shared = f"{len(problems & {key[0] for key in theirs})} of {len(problems)}"
        every = range(1 + max(key[1] for key in own))
        rows.append([str(step), shared, same("hint", range(1)), same("hint", every), same("text", every)])
    return rows


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of both runs")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--between", type=float, nargs=2, default=(60, 240), help="seconds")
    parser.add_argument("--seed", type=int, default=0)
    options, overrides = parser.parse_known_args()
    options.out.mkdir(parents=True, exist_ok=True)
    whole, killed = options.out / "whole", options.out / "killed"
    if start(whole, overrides).wait():
        raise SystemExit(f"the run failed, see {whole.with_suffix('.log')}")
    rows = kill_at_random(killed, overrides, options)
    heads = ["kill", "seconds after the start", "steps begun", "last checkpoint"]
    sys.stdout.write(markdown_table(heads, rows) + "\n\n")
    heads = ["step", "problems", "hints of the first round", "hints", "responses"]
    sys.stdout.write(markdown_table(heads, compare(whole, killed)) + "\n\n")
    states = [
        load_part(step_folder(run, last_complete_step(run) or 0), "controller") for run in (whole, killed)
    ]
    sys.stdout.write(f"the controller's last state is the same: {states[0] == states[1]}\n")


if __name__ == "__main__":
    main()
