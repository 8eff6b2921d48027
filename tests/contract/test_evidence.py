"""The plan of docs/evidence.md can be run, and its tables are what the stored runs give."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

from seele_verl.settings import read_settings
from seele_verl.train import compose

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "benchmarks" / "evidence"


@pytest.fixture
def evidence(monkeypatch):
    """Its modules import each other by name, as scripts do."""
    monkeypatch.syspath_prepend(str(EVIDENCE))
    yield import_module("plan"), import_module("tables")
    for name in ("plan", "tables"):
        del sys.modules[name]


def test_every_arm_composes_with_its_budget(evidence, monkeypatch):
    plan, _ = evidence
    contents = plan.load_plan()
    monkeypatch.setattr(plan, "_tuned", lambda: dict.fromkeys(plan.tuned_arms(contents), 3e-4))
    jobs = [*plan.task_jobs(contents, "mixed", [*plan.all_arms(contents)], [3])]
    assert len(jobs) == len(plan.all_arms(contents)) and len({job.name for job in jobs}) == len(jobs)
    for job in jobs:
        config = compose(job.overrides)
        settings = read_settings(config)
        assert (settings.seed, config.actor_rollout_ref.actor.optim.lr) == (3, 3e-4)
        budget = contents["tasks"]["mixed"]["generated_tokens"]
        plans_ahead = settings.method in ("uft", "prefix_rft", "sft")
        assert settings.max_generated_tokens == (None if plans_ahead else budget), job.name


def test_every_method_has_as_many_trials_of_its_learning_rate(evidence, monkeypatch):
    plan, _ = evidence
    contents = plan.load_plan()
    monkeypatch.setattr(plan, "_tuned", lambda: {"sft": 1e-4})
    arms = plan.tuned_arms(contents)
    jobs = [job.name for job in plan.tuning_jobs(contents, arms)]
    assert len(jobs) == len(arms) * len(contents["tuning"]["learning_rates"])
    assert {arm.get("tuned_as", name) for name, arm in plan.all_arms(contents).items()} == set(arms)


def test_the_best_trial_wins_once_there_are_all(evidence):
    _, tables = evidence
    trials = {"grpo": {1e-4: 0.2, 3e-4: 0.3, 6e-4: 0.3}, "uft": {1e-4: 0.2}}
    assert tables.tuned_rates(trials, [1e-4, 3e-4, 6e-4]) == {"grpo": 3e-4}


def test_the_page_and_the_learning_rates_are_what_the_stored_runs_give():
    command = [sys.executable, str(EVIDENCE / "tables.py"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert checked.returncode == 0, checked.stderr
