"""The plan of docs/evidence.md can be run, and its tables are what the stored runs give."""

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

from seele.data.storage.files import file_sha256
from seele.records import Instance
from seele_verl.settings import read_settings
from seele_verl.train import compose

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "benchmarks" / "evidence"


@pytest.fixture
def evidence(load_from):
    return load_from(EVIDENCE, "plan"), load_from(EVIDENCE, "tables")


def test_every_arm_composes_with_its_budget(evidence, monkeypatch):
    plan, _ = evidence
    contents = plan.load_plan()
    monkeypatch.setattr(plan, "_tuned", lambda: dict.fromkeys(plan.tuned_arms(contents), 3e-4))
    jobs = [*plan.task_jobs(contents, "mixed", plan.default_arms(contents, "mixed"), [3])]
    assert len(jobs) == len(contents["arms"]) + len(contents["ablations"]) and len(
        {job.name for job in jobs}
    ) == len(jobs)
    for job in jobs:
        config = compose(job.overrides)
        settings = read_settings(config)
        assert (settings.seed, config.actor_rollout_ref.actor.optim.lr) == (3, 3e-4)
        name = job.name.split("/")[1]
        is_ablation, arm = name in contents["ablations"], plan.all_arms(contents)[name]
        size = contents["ablation_size"] if is_ablation else contents["tasks"]["mixed"]
        plans_ahead = "schedule" in arm or "supervised" in arm
        assert settings.max_generated_tokens == (None if plans_ahead else size["generated_tokens"]), job.name


def test_the_command_knows_every_task_of_the_plan(evidence):
    plan, _ = evidence
    script = (ROOT / "scripts" / "evidence.sh").read_text()
    (tasks,) = re.findall(r"echo (tuning [\w ]+) \|\|", script)
    assert {*tasks.split()} == {"tuning", *plan.load_plan()["tasks"]}


def test_a_task_whose_runs_are_all_stored_needs_no_base_model(load_from, monkeypatch, capsys):
    run = load_from(EVIDENCE, "run")
    monkeypatch.setattr(run, "prepare", lambda task: pytest.fail(f"{task} is prepared"))
    monkeypatch.setattr(sys, "argv", ["run.py", "arc_1d"])
    with pytest.raises(SystemExit) as ended:
        run.main()
    assert ended.value.code == 0
    assert capsys.readouterr().out == "arc_1d/grpo/seed_0: is there\narc_1d/grpo+sec/seed_0: is there\n"


def test_hints_that_end_do_so_after_60_percent_of_the_planned_steps(evidence, monkeypatch):
    plan, _ = evidence
    contents = plan.load_plan()
    monkeypatch.setattr(plan, "_tuned", dict)
    job = next(plan.tuning_jobs(contents, ["seele-std-n8-withdrawn"]))
    config = compose(job.overrides)
    assert config.trainer.total_training_steps == 48
    assert read_settings(config).hints.settings["withdraw_by"] == 29


def test_the_main_task_has_the_ablations_too_with_fewer_seeds(evidence, monkeypatch):
    plan, _ = evidence
    contents = plan.load_plan()
    monkeypatch.setattr(plan, "_tuned", lambda: dict.fromkeys(plan.tuned_arms(contents), 3e-4))
    arms = plan.default_arms(contents, "mixed")
    names = [job.name for job in plan.task_jobs(contents, "mixed", arms, [])]
    seeds = {arm: [name.split("_")[-1] for name in names if f"/{arm}/" in name] for arm in arms}
    assert seeds["seele"] == ["0", "1", "2", "3", "4"] and seeds["seele-m1"] == ["0", "1", "2"]
    assert plan.default_arms(contents, "own") == contents["tasks"]["own"]["arms"]
    for settings in contents["tasks"].values():
        assert set(settings.get("arms", [])) <= {*contents["arms"], *contents["released"]}


def test_every_task_composes_with_its_own_problems_and_base_model(evidence, monkeypatch):
    plan, tables = evidence
    contents = plan.load_plan()
    monkeypatch.setattr(plan, "_tuned", lambda: {"grpo": 3e-4})
    for task, settings in contents["tasks"].items():
        (job,) = plan.task_jobs(contents, task, ["grpo"], [0])
        config = compose(job.overrides)
        assert config.data.train_files == [f"{plan.problems_of(task)}/train.parquet"]
        assert config.actor_rollout_ref.model.path == f"models/{settings['base_model']}"
        assert tables.split_of(task, "heldout") == f"{settings['source']}/heldout"
        assert read_settings(config).reward.format_score == (0.0 if settings["source"] == "chains" else 0.1)


def test_every_method_has_as_many_trials_of_its_learning_rate(evidence, monkeypatch):
    plan, _ = evidence
    contents = plan.load_plan()
    monkeypatch.setattr(plan, "_tuned", lambda: {"sft": 1e-4})
    arms = plan.tuned_arms(contents)
    jobs = [job.name for job in plan.tuning_jobs(contents, arms)]
    assert len(jobs) == len(arms) * len(contents["tuning"]["learning_rates"])
    planned = contents["arms"] | contents["released"] | contents["ablations"]
    assert {arm.get("tuned_as", name) for name, arm in planned.items()} == set(arms)
    tried = plan.tuning_jobs(contents, ["seele-no-imitation"])
    rates = [compose(job.overrides).actor_rollout_ref.actor.optim.lr for job in tried]
    assert rates == contents["tuning"]["learning_rates"]


def test_the_best_trial_wins_once_there_are_all(evidence):
    _, tables = evidence
    trials = {"grpo": {1e-4: 0.2, 3e-4: 0.3, 6e-4: 0.3}, "uft": {1e-4: 0.2}}
    assert tables.tuned_rates(trials, [1e-4, 3e-4, 6e-4]) == {"grpo": 3e-4}


def test_the_simulated_world_learns_as_fast_as_the_run(load_from):
    prediction = load_from(EVIDENCE, "prediction")

    names, ratio_PJ, is_legal_PJ, accuracy_PJ = prediction.base_world()
    assert len(names) == 512 and is_legal_PJ[:, 0].all() and (ratio_PJ[:, 0] == 0).all()
    base = accuracy_PJ[:, 0].mean()
    assert prediction.power_of(base / 2) == pytest.approx(1.0, abs=1e-5)
    for unhinted in (0.2, 0.6):
        assert (accuracy_PJ[:, 0] ** prediction.power_of(unhinted)).mean() == pytest.approx(
            unhinted, abs=1e-4
        )


def test_a_stored_run_is_simulated_step_by_step(evidence, load_from):
    plan, tables = evidence
    prediction = load_from(EVIDENCE, "prediction")

    run = tables.read(plan.STORED / "tuning" / "seele" / "lr_0.0003")
    measured, predicted = (
        prediction.measured(run),
        prediction.predicted(run, heldout=f"val/accuracy/{tables.split_of('mixed', 'tune')}"),
    )
    steps = run.metrics[-1]["step"]
    for field in prediction.PANELS:
        course, simulated = getattr(measured, field), getattr(predicted, field)
        assert len(course) == len(simulated) == steps
        assert simulated.min() > 0.0 and simulated.max() < 1.0
    # Before anything is known of them, problems get the same hints in both.
    assert predicted.hint_ratio_S[0] == pytest.approx(measured.hint_ratio_S[0], abs=0.1)
    worth_S = measured.worth_S
    assert prediction.by_thirds([worth_S, worth_S]) == prediction.by_thirds([worth_S])


def test_the_page_and_the_learning_rates_are_what_the_stored_runs_give():
    command = [sys.executable, str(EVIDENCE / "tables.py"), "--check"]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    checked = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert checked.returncode == 0, checked.stderr


def test_the_runs_of_a_task_began_with_one_base_model(evidence):
    plan, tables = evidence
    contents = plan.load_plan()
    for task in contents["tasks"]:
        starts = {
            (tables.validations(run, task, "heldout")[0], tables.validations(run, task, "harder")[0])
            for arm, folders in tables.stored_runs(task, [*plan.all_arms(contents)]).items()
            if "after" not in contents["arms"].get(arm, {})
            for run in map(tables.read, folders)
        }
        assert len(starts) <= 1, (task, starts)
    kept = {path.name for path in (EVIDENCE / "base_models").iterdir()}
    assert kept <= set(contents["base_models"])
    for scores in (EVIDENCE / "runs").glob("*/base/scores.json.gz"):
        conditions = json.loads(gzip.decompress(scores.read_bytes()))["conditions"]
        if conditions["name"] in kept:
            weights = EVIDENCE / "base_models" / conditions["name"] / "model.safetensors"
            assert conditions["weights_sha256"] == {weights.name: file_sha256(weights)}


def test_the_first_mistake_of_a_solution(load_from):
    mistakes = load_from(EVIDENCE, "mistakes")
    problem = Instance(instance_id="p", data_source="chains", question="7 a+5 b-3 c+4", steps=(), answer="93")
    right = "7a+5=2\n2b-3=9\n9c+4=3\n\\boxed{93}"
    expected = {
        right: None,
        "7a+5b-3=9\n9c+4=3\n\\boxed{93}": None,
        right.replace("7a+5=2", "7a+5=3"): ("value", 0),
        right.replace("7a+5=2\n2b-3=9", "7a+5b-3=8"): ("value", 1),
        right.replace("b-3", "b+3"): ("misread", 1),
        right.replace("9c+4", "8c+4"): ("other", 2),
        right.replace("9c+4=3\n", ""): ("other", 2),
        right.replace("{93}", "{23}"): ("other", 3),
        right.replace("\\boxed", "3d+1=4\n\\boxed"): ("other", 3),
        "": ("other", 0),
    }
    assert {response: mistakes.first_mistake(problem, response) for response in expected} == expected
    counted = mistakes.count([problem] * len(expected), expected)
    assert (counted["solutions"], counted["right"]) == (10, 2)
    assert counted["reached"] == [10, 8, 6, 0]
    assert counted["value"] == [1, 1, 0, 0]
    assert counted["misread"] == [0, 1, 0, 0]
    assert counted["other"] == [1, 0, 2, 2]
