"""Every job that a benchmark times can start: its settings compose and are not refused."""

from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

from seele_verl.checks.compositions import check_composition
from seele_verl.settings import read_settings
from seele_verl.train import compose

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_every_job_composes_and_is_allowed(load_from):
    load = partial(load_from, BENCHMARKS)
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
