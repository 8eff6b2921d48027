"""Checks a training command without starting it: all that ``seele train`` checks before Ray starts, except
verl's own check of its settings.

    seele check method=seele hardware=gpu8 [overrides] [--config-dir FOLDER]

Nothing is written to the run folder. What only this machine lacks, such as a GPU, memory or the model, is a
warning, so that a command for a node can be checked on a laptop. Problem files that are references to the hub
are prepared, as for a run.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hydra.errors import HydraException
from omegaconf import DictConfig

from seele.errors import ConfigError, SeeleError
from seele_verl.checks.command_line import check_have_values, explain
from seele_verl.checks.preflight import Preflight
from seele_verl.runs.card import describe_changes, describe_command, read_run_card
from seele_verl.runs.log import rows_of
from seele_verl.runs.resume import final_step, find_start
from seele_verl.runs.stages import check_stages, refuse_a_second_run_in
from seele_verl.settings import planned_steps
from seele_verl.train import (
    compose,
    describe_finished,
    describe_notes,
    describe_plan,
    prepare,
)


class Warnings:
    """Turns errors that concern only this machine into warnings, each printed once."""

    def __init__(self) -> None:
        self.said: set[str] = set()

    @contextmanager
    def machine(self) -> Iterator[None]:
        """Print the block's error, if it has one."""
        try:
            yield
        except ConfigError as error:
            if str(error) not in self.said:
                self.said.add(str(error))
                sys.stderr.write(f"warning: on this machine: {error}\n")


def check_command(overrides: list[str], *, config_dir: str | None = None) -> None:
    """Print what a run would print at its start, and whether it would start.

    Args:
        overrides: The run's overrides.
        config_dir: Its ``--config-dir``.

    Raises:
        ConfigError, DataError, CheckpointError: It would not start on any machine.
    """
    config = prepare(compose(overrides, config_dir=config_dir), overrides)
    warnings = Warnings()
    stages = check_stages(config, overrides, machine=warnings.machine)
    refuse_a_second_run_in(Path(config.trainer.default_local_dir).resolve())
    trains = [_describe_stage(stage, preflight, overrides, config_dir) for stage, preflight in stages]
    but = ", but not on this machine: see the warnings" if warnings.said else ""
    what = f"{config.seele.method} would start{but}" if any(trains) else "the run would train nothing"
    sys.stdout.write(f"ok: {what}\n")


def _describe_stage(
    config: DictConfig, preflight: Preflight, overrides: list[str], config_dir: str | None
) -> bool:
    """Return False if the stage has nothing left to do."""
    folder, method = Path(config.trainer.default_local_dir).resolve(), preflight.seele.method
    step, card = find_start(config), read_run_card(folder)
    changes = ""
    if card:
        changes = describe_changes(card, describe_command(config, overrides, config_dir=config_dir))
    if step is not None and card.get("status") == "finished" and _is_done(config, preflight, folder, step):
        sys.stdout.write(describe_finished(preflight, folder, step, changes))
        return False
    begin = f"resume after step {step}" if step else "start"
    plan = f"{method} would {begin} in {folder}\n{describe_plan(config, preflight)}"
    if not preflight.is_supervised:
        plan += f", {planned_steps(config, preflight.num_problems)} steps"
    if not preflight.has_model:
        plan += (
            "\nthe model is missing: its window and the lengths of prompts, hints and solutions are unchecked"
        )
    sys.stdout.write(f"{plan}\n{describe_notes(config, preflight)}{changes}")
    return True


def _is_done(config: DictConfig, preflight: Preflight, folder: Path, step: int) -> bool:
    """True if a run that has finished after ``step`` has nothing left to do."""
    if preflight.is_supervised or config.trainer.val_only:
        return False
    generated = {row["step"]: row.get("tokens/generated_total", 0.0) for row in rows_of(folder)}
    return step >= final_step(config, generated, total_steps=planned_steps(config, preflight.num_problems))


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line. Exit status 2: the run would not start on any machine."""
    parser = argparse.ArgumentParser(
        description="Check a training command without starting it. Nothing is written to the run folder."
    )
    parser.add_argument("overrides", nargs="*", metavar="NAME=VALUE", help="the arguments of seele train")
    parser.add_argument("--config-dir", metavar="FOLDER", help="as for seele train: compositions of your own")
    given = parser.parse_intermixed_args(arguments)
    try:
        check_have_values(given.overrides)
        check_command(given.overrides, config_dir=given.config_dir)
    except HydraException as error:
        _fail(explain(str(error), compose([])))
    except (SeeleError, OSError) as error:
        _fail(str(error))


def _fail(message: str) -> None:
    sys.stderr.write(f"error: {message}\n")
    sys.exit(2)


if __name__ == "__main__":
    main()
