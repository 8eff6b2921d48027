"""``seele cost --measure``: what a run would take on this machine, from its second step.

    python -m seele_verl.measured_cost recipe=smollm2_gsm8k hardware=cpu

Two steps are a run of their own in a folder that is removed, with a validation of a few problems behind
them. The first one warms engine and trainer up. Nothing is modelled: what the second does not have is not in
the sum.
"""

import math
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig

from seele.data.storage.files import read_json_lines
from seele.data.storage.schema import read_problem_files
from seele.errors import ConfigError, SeeleError
from seele.maths.tables import markdown_table
from seele.methods import METHODS
from seele_verl.checks.command_line import explain
from seele_verl.train import compose

VALIDATED = 32
"""Problems of the measured validation."""

PHASES = {
    "gen": "rollouts",
    "values": "critic's values",
    "old_log_prob": "old log-probabilities",
    "ref": "reference",
    "update_critic": "critic's update",
    "update_actor": "update",
    "update_weights": "weights to the engine",
}
"""verl's names (``timing_s/NAME``) of what a step is made of."""


def measure(overrides: Sequence[str]) -> dict[str, Any]:
    """The metrics of the second step, and of a validation behind it."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        others = (
            *("trainer.total_training_steps=2", "trainer.test_freq=2", "trainer.save_freq=-1"),
            *("trainer.val_before_train=false", f"data.val_max_samples={VALIDATED}"),
            *(
                f"trainer.default_local_dir={run}",
                "trainer.logger=[console]",
                "seele.rollout_cache=null",
                "seele.max_generated_tokens=null",
            ),
        )
        command = [sys.executable, "-m", "seele_verl.train", *overrides, *others]
        if status := subprocess.run(command, stdout=sys.stderr).returncode:
            raise SystemExit(status)
        *_, (_, step) = read_json_lines(run / "metrics.jsonl")
        return step


def planned_steps(config: DictConfig, generated: float, problems: int) -> int:
    """Steps of the run: as many as it names, or its passes over the problems have, or its budget allows."""
    passes = config.trainer.total_epochs * (problems // config.data.train_batch_size)
    steps = config.trainer.total_training_steps or passes
    if budget := config.seele.max_generated_tokens:
        steps = min(steps, math.ceil(budget / generated))
    return int(steps)


def cost_table(config: DictConfig, step: Mapping[str, Any], *, problems: int, validated: int) -> str:
    """Seconds of the step by phase, of a validation, and minutes of the whole run.

    Args:
        config: The run's.
        step: The metrics of one step, and of a validation of ``VALIDATED`` problems or fewer.
        problems: Training problems.
        validated: Validation problems of the run.
    """
    generated, trained = step["tokens/generated"], step["tokens/trained"]
    seconds = {name: step.get(f"timing_s/{key}", 0.0) for key, name in PHASES.items()}
    whole = step["timing_s/step"]
    remarks = {
        "rollouts": f"{generated:,.0f} tokens, {generated / seconds['rollouts']:,.0f} a second",
        "update": f"{trained:,.0f} tokens, {trained / seconds['update']:,.0f} a second",
    }
    # Phases of a few milliseconds only pass numbers on.
    table = [[name, f"{took:.1f}", remarks.get(name, "")] for name, took in seconds.items() if took > 0.1]
    table.append(["the rest", f"{whole - sum(seconds.values()):.1f}", ""])
    table.append(["**step**", f"{whole:.1f}", ""])
    steps, frequency = planned_steps(config, generated, problems), config.trainer.test_freq
    passes = int(config.trainer.val_before_train) + (math.ceil(steps / frequency) if frequency > 0 else 0)
    measured = min(VALIDATED, validated)
    testing = step["timing_s/testing"] * validated / measured
    table.append(["a validation", f"{testing:.1f}", f"{validated} problems, from {measured}"])
    minutes = (steps * whole + passes * testing) / 60
    plan = f"{minutes:.0f} minutes: {steps} steps, {passes} validations"
    table.append(["**run**", f"{60 * minutes:.0f}", plan])
    return markdown_table(["phase", "seconds", "from"], table)


def main() -> int:
    """Print the table. Exit status: 0, or that of a run that cannot be."""
    overrides = sys.argv[1:]
    try:
        config = compose(overrides)
        if METHODS[config.seele.method].stages != ("rl",):
            raise ConfigError(
                f"--measure: method={config.seele.method} trains without rollouts in some stage"
            )
        step = measure(overrides)
        problems, validated = (
            len(read_problem_files(config.data[f"{name}_files"], config.data[f"{name}_max_samples"]))
            for name in ("train", "val")
        )
    except (SeeleError, HydraException) as error:
        said = explain(str(error), compose([])) if isinstance(error, HydraException) else error
        sys.stderr.write(f"error: {said}\n")
        return 2
    sys.stdout.write(cost_table(config, step, problems=problems, validated=validated) + "\n")
    sys.stdout.write(
        "From the second step, whose length others don't share. Not counted: the start, and checkpoints.\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
