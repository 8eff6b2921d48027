"""``seele cost --measure``: the time that a run would take on this machine, from its second step.

    python -m seele_verl.measured_cost recipe=smollm2_gsm8k hardware=cpu [--config-dir FOLDER]

It runs two steps in a temporary folder, followed by a validation of a few problems. The first step warms up
engine and trainer. Nothing is modelled: what does not occur in the second step is not in the sum, and what a
step does only where the run validates, such as measuring the reliance on hints, counts for every step.
"""

import argparse
import math
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig

from seele.data.storage.files import read_json_lines
from seele.data.storage.schema import read_problem_files
from seele.errors import ConfigError, SeeleError
from seele.maths.tables import markdown_table
from seele.methods import METHODS
from seele_verl.checks.command_line import check_have_values, explain
from seele_verl.checks.verl_settings import check_verl_settings
from seele_verl.runs.references import has_references, prepare_references
from seele_verl.settings import planned_steps
from seele_verl.train import compose

VALIDATED = 32
"""Largest number of problems of the measured validation."""

PHASES = {
    "gen": "rollouts",
    "values": "critic's values",
    "old_log_prob": "old log-probabilities",
    "ref": "reference",
    "update_critic": "critic's update",
    "update_actor": "update",
    "update_weights": "weights to the engine",
}
"""verl's names (``timing_s/NAME``) for the phases of a step."""


def measure(overrides: Sequence[str], *, validated: int, config_dir: str | None = None) -> dict[str, Any]:
    """Return the metrics of the second step and of the validation that follows it.

    Args:
        overrides: The run's overrides.
        validated: Largest number of problems of that validation.
        config_dir: The run's ``--config-dir``.
    """
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        others = (
            # The run keeps its length, on which schedules depend; the budget ends it after two steps.
            *("seele.max_generated_tokens=1", "trainer.test_freq=2", "trainer.save_freq=-1"),
            *("trainer.val_before_train=false", f"data.val_max_samples={validated}"),
            "seele.save_every_minutes=null",
            "seele.data.validated_training_problems=0",
            *(
                f"trainer.default_local_dir={run}",
                "trainer.logger=[console]",
                "seele.rollout_cache=null",
            ),
        )
        command = [sys.executable, "-m", "seele_verl.train", *overrides, *others]
        command += [] if config_dir is None else [f"--config-dir={config_dir}"]
        if status := _wait_for(subprocess.Popen(command, stdout=sys.stderr)):
            raise SystemExit(status)
        *_, (_, step) = read_json_lines(run / "metrics.jsonl")
        return step


def _wait_for(process: "subprocess.Popen[bytes]") -> int:
    """Return a process's status; if this one is told to end, that one ends first."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise


def expected_steps(config: DictConfig, generated: float, problems: int) -> int:
    """Return the run's number of steps if each generates ``generated`` tokens."""
    steps = planned_steps(config, problems)
    if budget := config.seele.max_generated_tokens:
        # The step after the one that reaches the budget is the last.
        steps = min(steps, math.ceil(budget / generated) + 1)
    return steps


def cost_table(config: DictConfig, step: Mapping[str, Any], *, problems: int, validated: int) -> str:
    """Return a table of a step's seconds by phase, a validation's seconds, and the whole run's minutes.

    Args:
        config: The run's configuration.
        step: The metrics of one step and of a validation of ``VALIDATED`` problems or fewer.
        problems: Number of training problems.
        validated: Number of the run's validation problems, without training problems that it validates.
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
    steps, frequency = expected_steps(config, generated, problems), config.trainer.test_freq
    passes = int(config.trainer.val_before_train) + (math.ceil(steps / frequency) if frequency > 0 else 0)
    measured = min(VALIDATED, validated)
    validated += min(config.seele.data.validated_training_problems, problems)
    testing = step["timing_s/testing"] * validated / measured
    table.append(["a validation", f"{testing:.1f}", f"{validated} problems, from {measured}"])
    minutes = (steps * whole + passes * testing) / 60
    plan = f"{minutes:.0f} minutes: {steps} steps, {passes} validations"
    table.append(["**run**", f"{60 * minutes:.0f}", plan])
    return markdown_table(["phase", "seconds", "from"], table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table. Exit status: 0, 2 for a wrong setting, or that of the failed run."""
    parser = argparse.ArgumentParser(description="Measure a step of a run on this machine.")
    parser.add_argument("overrides", nargs="*", metavar="NAME=VALUE", help="the arguments of seele train")
    parser.add_argument("--config-dir", metavar="FOLDER", help="as for seele train: compositions of your own")
    given = parser.parse_intermixed_args(arguments)
    try:
        check_have_values(given.overrides)
        config = compose(given.overrides, config_dir=given.config_dir)
        check_verl_settings(config)
        if METHODS[config.seele.method].has_supervised_stage:
            raise ConfigError(
                f"--measure: method={config.seele.method} trains without rollouts in some stage"
            )
        limit = config.data.val_max_samples
        most = VALIDATED if limit < 0 else min(VALIDATED, limit)
        step = measure(given.overrides, validated=most, config_dir=given.config_dir)
        if has_references(config):
            with redirect_stdout(sys.stderr):  # only the table goes to stdout
                config = prepare_references(config)
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
        "Measured on the second step; others may take more or less. Startup and checkpoints not included.\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
