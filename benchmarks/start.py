"""Measure how long a run takes until its engine has answered the first problem, and in total: two steps of
8 x 8 rollouts of the quickstart's model, without validation.

    python benchmarks/start.py --repeats 3      # after scripts/quickstart.sh: with its model and data

Bytecode matters: with ``PYTHONDONTWRITEBYTECODE=1``, and none written before, each process compiles
everything that it imports.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

JOB = ("method=seele", "hardware=cpu", "job=tiny", "model=tiny", "data=chains", "data.train_batch_size=8")
JOB += ("actor_rollout_ref.actor.ppo_mini_batch_size=4", "seele.hints.rounds=2")
JOB += ("seele.hints.rollouts_per_prompt=8", "trainer.total_training_steps=2", "trainer.save_freq=-1")
JOB += ("trainer.test_freq=-1", "trainer.val_before_train=false", "trainer.logger=[console]")


def measure(run: Path) -> tuple[float, float]:
    """Return the seconds until the first rows have come from the engine, and until the run has ended."""
    command = [sys.executable, "-m", "seele_verl.train", *JOB, f"trainer.default_local_dir={run}"]
    began, first = time.monotonic(), None
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        if first is None and (run / "logs" / "alive").exists():
            first = time.monotonic() - began
        time.sleep(0.05)
    if process.returncode or first is None:
        raise SystemExit(f"the run ended with status {process.returncode}")
    return first, time.monotonic() - began


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    for repeat in range(parser.parse_args().repeats):
        with tempfile.TemporaryDirectory() as folder:
            first, whole = measure(Path(folder) / "run")
        sys.stdout.write(f"{repeat + 1}: first answer after {first:.1f} s, whole run {whole:.1f} s\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
