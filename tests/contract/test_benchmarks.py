"""Every job that a benchmark times can start: its settings compose and are not refused."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

from seele_verl.compositions import check_composition
from seele_verl.settings import read_settings
from seele_verl.train import compose

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def load(monkeypatch):
    """Imports a benchmark as running it would: they import each other by name."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield import_module
    for name in set(sys.modules) - before:
        if (BENCHMARKS / f"{name}.py").exists():
            del sys.modules[name]


def test_every_job_composes_and_is_allowed(load):
    runs, reference = load("runs"), load("reference")
    jobs = {
        "rounds": load("rounds").JOB,
        **load("growth").SIZES,
        **{name: ("method=seele", *overrides) for name, overrides in load("start").VARIANTS.items()},
        **{name: job for name, (program, job) in reference.VARIANTS.items() if program == runs.OURS},
    }
    assert len(jobs) >= 10
    for name, overrides in jobs.items():
        config = compose([*runs.JOB, *overrides])
        settings = read_settings(config)
        check_composition(config, settings)
        prompts, rollouts = config.data.train_batch_size, settings.hints.rollouts_per_prompt
        assert prompts % config.actor_rollout_ref.actor.ppo_mini_batch_size == 0, name
        assert rollouts % settings.hints.rounds == 0, name
