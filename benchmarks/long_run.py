"""Train a thousand small steps and measure whether step time or memory grows.

    python benchmarks/long_run.py --out runs/long    # after scripts/quickstart.sh: with its model and data

A process's memory is its private part plus its share of shared memory, sampled every ten seconds. The last
steps are compared with those of the second part, because processes warm up in the first.
"""

import argparse
import re
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import psutil

from seele.maths.tables import markdown_table
from seele_verl.runs.log import last_step, rows_of

JOB = ("method=seele", "hardware=cpu", "job=tiny", "model=tiny", "data=chains", "trainer.logger=[console]")
JOB += ("data.train_batch_size=4", "actor_rollout_ref.actor.ppo_mini_batch_size=4", "seele.hints.rounds=2")
JOB += ("seele.hints.rollouts_per_prompt=4", "trainer.test_freq=-1", "trainer.val_before_train=false")
EVERY_S = 10.0
PARTS = 10

Sample = tuple[int, Mapping[str, int]]
"""The last step, and bytes by kind of process."""


def kind_of(process: psutil.Process) -> str:
    """The kind of a process, from its command line."""
    line = " ".join(process.cmdline())
    if ray := re.match(r"ray::(\w+)", line):
        return "FSDP rank" if ray[1] == "WorkerDict" else ray[1]
    if re.search(r"^VLLM::EngineCore|/seele_verl/cpu/fork_client\.py ", line):
        return "engine core"
    if rays := re.search(r"/(gcs_server|raylet|log_monitor|monitor)(?:\.py)? ", line):
        return rays[1]
    return "driver" if "-m seele_verl.train" in line else "others"


def memory_of(process: subprocess.Popen[bytes]) -> dict[str, int]:
    """Bytes of a run's processes, by kind."""
    total: dict[str, int] = defaultdict(int)
    command = psutil.Process(process.pid)
    for each in (command, *command.children(recursive=True)):
        try:
            total[kind_of(each)] += each.memory_full_info().pss
        except psutil.Error:
            continue
    return total


def train(run: Path, *, steps: int) -> list[Sample]:
    """Train, and return the samples."""
    shutil.rmtree(run, ignore_errors=True)
    command = [sys.executable, "-m", "seele_verl.train", *JOB, f"trainer.total_training_steps={steps}"]
    command += [f"trainer.save_freq={max(steps // PARTS, 1)}", "trainer.max_actor_ckpt_to_keep=1"]
    process = subprocess.Popen([*command, f"trainer.default_local_dir={run}"], stdout=subprocess.DEVNULL)
    samples: list[Sample] = []
    while process.poll() is None:
        time.sleep(EVERY_S)
        try:
            samples.append((last_step(run), memory_of(process)))
        except psutil.NoSuchProcess:  # the run has just ended
            break
    if process.wait():
        raise SystemExit(f"the run ended with status {process.returncode}; see {run}/logs/train.log")
    return samples


def table(run: Path, samples: Sequence[Sample], *, steps: int) -> str:
    """A row for the time of a step and one for each kind of process, a column for each part of the run; then
    the last part's ratio to the second's.
    """
    size = max(steps // PARTS, 1)
    parts = [range(first, first + size) for first in range(1, steps + 1, size)]
    seconds = {row["step"]: row["timing_s/step"] for row in rows_of(run) if "timing_s/step" in row}
    seen = [[memory for step, memory in samples if step in part] for part in parts]

    def mib(kind: str) -> list[float]:
        return [median(each.get(kind, 0) for each in of_part) / 2**20 for of_part in seen]

    kinds = sorted({kind for _, memory in samples for kind in memory})
    figures = {kind: mib(kind) for kind in kinds}
    figures["sum"] = [sum(each) for each in zip(*figures.values(), strict=True)]
    times = [median(seconds[step] for step in part if step in seconds) for part in parts]
    rows = [["a step, s", *(f"{each:.2f}" for each in times), _ratio(times)]]
    rows += [
        [f"{kind}, MiB", *(f"{each:.0f}" for each in of_kind), _ratio(of_kind)]
        for kind, of_kind in figures.items()
    ]
    return markdown_table(["steps up to", *(str(part[-1]) for part in parts), "last / second"], rows)


def _ratio(values: Sequence[float]) -> str:
    return f"{values[-1] / values[1]:.2f}" if values[1] else ""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the run, emptied first")
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()
    if options.steps < 20 * PARTS:
        parser.error(f"--steps {options.steps}: at least {20 * PARTS}, as memory is seen every {EVERY_S} s")
    run = options.out.resolve()
    samples = train(run, steps=options.steps)
    sys.stdout.write(table(run, samples, steps=options.steps) + "\n")


if __name__ == "__main__":
    main()
