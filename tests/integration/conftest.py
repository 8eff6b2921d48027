"""One tiny model and one small set of problems for all integration tests."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def problems(tmp_path_factory) -> Path:
    """Folder with train, heldout and harder problems of the chains task."""
    from seele.data.chains import ChainsConfig, generate_splits
    from seele.data.schema import write_problems

    folder = tmp_path_factory.mktemp("chains")
    for split, instances in generate_splits(ChainsConfig()).items():
        write_problems(folder / f"{split}.parquet", instances[:32], split=split)
    return folder


@pytest.fixture(scope="session")
def base_model(tmp_path_factory) -> Path:
    """A base model that has seen too little to be good: made in seconds."""
    from seele_verl.base_model import RECIPES, make_base_model

    recipe = dataclasses.replace(RECIPES["chains"], student_batches=100)
    return make_base_model(tmp_path_factory.mktemp("models"), recipe)


@pytest.fixture(scope="session")
def train_command(problems, base_model):
    """The command line of a short run, given its folder and further overrides."""

    def command(run: Path, *overrides: str) -> list[str]:
        return [
            sys.executable,
            *("-m", "seele_verl.train", "method=seele", "hardware=cpu"),
            f"actor_rollout_ref.model.path={base_model}",
            f"data.train_files=[{problems}/train.parquet]",
            f"data.val_files=[{problems}/heldout.parquet,{problems}/harder.parquet]",
            f"trainer.default_local_dir={run}",
            *("data.train_batch_size=8", "actor_rollout_ref.actor.ppo_mini_batch_size=4"),
            *("seele.hints.rounds=2", "seele.hints.rollouts_per_prompt=8"),
            *overrides,
        ]

    return command


@pytest.fixture(scope="session")
def supervised_command(problems, base_model, python):
    """The command line of a run with a supervised stage, given its method, folder and further overrides."""

    def command(method: str, run: Path, *overrides: str) -> list[str]:
        return [
            *(python, "-m", "seele_verl.train", f"method={method}", "hardware=cpu"),
            f"actor_rollout_ref.model.path={base_model}",
            f"data.train_files=[{problems}/train.parquet]",
            f"data.val_files=[{problems}/heldout.parquet,{problems}/harder.parquet]",
            *("data.train_batch_size=8", f"trainer.default_local_dir={run}"),
            *overrides,
        ]

    return command


@pytest.fixture(scope="session")
def finish():
    """Run a command to its end and return what it printed; a failure shows the run's log."""

    def run_to_end(command: list[str], *, log: Path | None = None, timeout_s: float = 1200) -> str:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, env=dict(os.environ)
        )
        chatter = log.read_text()[-5000:] if log and log.exists() else ""
        assert result.returncode == 0, result.stdout + result.stderr + chatter
        return result.stdout

    return run_to_end
