"""A run has one plan: every change to the configuration stands in ``resolved.yaml``, and nothing changes it
afterwards.
"""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

from omegaconf import OmegaConf
from omegaconf.errors import ReadonlyConfigError

import seele_verl
from seele.config import SeeleConfig
from seele.data.overlong import Fits
from seele_verl import runner, train
from seele_verl.changes import with_changes
from seele_verl.checks.preflight import Preflight
from seele_verl.plan import RESOLVED
from seele_verl.runs.log import RunLog
from seele_verl.runs.resume import missed_validation
from seele_verl.settings import read_settings

PACKAGE = Path(seele_verl.__file__).parent
WRITES = re.compile(
    r"open_dict\(|OmegaConf\.(update|set_\w+)\(|"
    r"^\s*(self\.)?(config|stage|sft|plan|first|second|section)(\.\w+|\[[^\]]+\])+ = ",
    re.MULTILINE,
)


def test_one_place_writes_to_a_configuration():
    found = {
        str(path.relative_to(PACKAGE)): len(WRITES.findall(path.read_text()))
        for path in PACKAGE.rglob("*.py")
        if WRITES.search(path.read_text())
    }
    # The plan is set read-only where it is made.
    assert found == {"changes.py": 3, "plan.py": 1}


def test_a_change_leaves_the_configuration_it_begins_with():
    config = OmegaConf.create({"a": {"b": 1, "c": 2}, "d": "${a.b}"})
    OmegaConf.set_struct(config, True)
    OmegaConf.set_readonly(config, True)
    changed = with_changes(config, {"a.b": 3, "a.new": {"x": 1}})
    assert changed == {"a": {"b": 3, "c": 2, "new": {"x": 1}}, "d": 3}
    assert with_changes(changed, {"a": {"b": 4}}) == {"a": {"b": 4}, "d": 4}
    assert config == {"a": {"b": 1, "c": 2}, "d": 1}
    changed.a.b = 5
    with pytest.raises(ReadonlyConfigError):
        config.a.b = 5


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """Runs a command up to its training, and gives the plan that would be trained by."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train.os, "environ", train.os.environ.copy())
    seen = []

    def check_run(config, overrides):
        fits = (Fits(left_out={"a": "is long"}), Fits())
        counts = {"num_unhintable": 0, "num_validation": 1, "num_validation_trained_on": 0}
        return Preflight(seele=read_settings(config), num_problems=40, fits=fits, **counts)

    def go(config, folder, preflight, resumed_at):
        seen.append((config, (folder / RESOLVED).read_text()))
        # What verl gets it may write to; the plan it may not.
        verls = with_changes(config, {})
        verls.trainer.total_epochs = 77

    monkeypatch.setattr("seele_verl.runs.stages.check_run", check_run)
    monkeypatch.setattr(train, "_train", go)
    monkeypatch.setattr(train, "count_parameters", lambda path: 1)

    def run(*overrides):
        typed = ["hardware=cpu", "job=tiny", "trainer.default_local_dir=runs/x", *overrides]
        train.run(train.compose(typed), typed)
        config, written = seen.pop()
        assert OmegaConf.to_yaml(config) == written == Path("runs/x", RESOLVED).read_text()
        return config

    return run


def test_nothing_changes_after_the_plan_is_written(planned, tmp_path):
    plan = planned("method=seele", "seele.prompt.template=mine.txt", "seele.rollout_cache=cache")
    with pytest.raises(ReadonlyConfigError):
        plan.trainer.total_epochs = 1
    assert "${" not in OmegaConf.to_yaml(plan)
    assert plan.trainer.default_local_dir == f"{tmp_path}/runs/x"
    assert plan.seele.prompt.template == f"{tmp_path}/mine.txt"
    assert plan.seele.rollout_cache == f"{tmp_path}/cache"
    assert plan.data.train_files == [f"{tmp_path}/data/prepared/chains/train.parquet"]
    assert plan.data.overlong_record == f"{tmp_path}/runs/x/too_long.json"
    # 40 problems, 16 a step: 30 steps end in epoch 15.
    assert (plan.trainer.total_training_steps, plan.trainer.total_epochs) == (30, 16)
    variables = plan.ray_kwargs.ray_init.runtime_env.env_vars
    assert f"{tmp_path}/runs/x/tensorboard" == variables.TENSORBOARD_DIR
    assert variables.VERL_PLATFORM == "cpu"


def test_files_of_parts_of_ones_own_are_absolute(planned, tmp_path):
    plan = planned("seele.hints.controller=own/c.py:Mine", "+seele.hints.settings.other=[x.py:Y,z]")
    assert plan.seele.hints.controller == f"{tmp_path}/own/c.py:Mine"
    assert plan.seele.hints.settings.other == [f"{tmp_path}/x.py:Y", "z"]
    assert (
        planned("seele.hints.controller=package.module:Mine").seele.hints.controller == "package.module:Mine"
    )


def test_what_verl_is_told_follows_from_the_settings(planned):
    correction = planned("method=seele", "seele.curriculum.spare_problems=4").algorithm.rollout_correction
    assert (correction.bypass_mode, correction.rollout_is) == (True, None)
    assert planned("method=prefix_rft").algorithm.rollout_correction.bypass_mode is False
    spare = planned("method=seele", "seele.curriculum.spare_problems=4").trainer.v1.sampler.custom_sampler
    assert spare == {"path": "pkg://seele_verl.replay_buffer", "name": "SpareProblemsBuffer"}
    off = "algorithm.rollout_correction.bypass_mode=false"
    weighed = planned("method=seele", "seele.rollout_correction=mis", off).algorithm.rollout_correction
    assert (weighed.rollout_is, weighed.rollout_is_threshold) == ("token", "1e-9_2.0")


def test_verl_gets_a_copy_and_the_interpreter_of_the_run(monkeypatch):
    config = OmegaConf.create({"ray_kwargs": {"ray_init": {"runtime_env": {"py_executable": None}}}})
    OmegaConf.set_readonly(config, True)
    told = []
    monkeypatch.setattr(runner, "validate_config", lambda **_: None)
    monkeypatch.setattr(runner, "need_reference_policy", lambda _: False)
    monkeypatch.setattr(runner, "need_critic", lambda _: False)
    monkeypatch.setattr(runner, "run_ppo", lambda config, task_runner_class: told.append(config))
    monkeypatch.setattr(runner, "ray", SimpleNamespace(remote=lambda cls: cls, shutdown=lambda: None))
    runner.run_training(config, python="/forked/python")
    (verls,) = told
    assert verls.ray_kwargs.ray_init.runtime_env.py_executable == "/forked/python"
    verls.ray_kwargs.ray_init.runtime_env.py_executable = None
    assert config.ray_kwargs.ray_init.runtime_env.py_executable is None


@pytest.mark.parametrize(
    ("step", "line", "budget", "missed"),
    [
        (10, {}, None, True),
        (10, {"val/accuracy/x": 0.5}, None, False),
        (12, {}, None, False),
        (30, {}, None, True),  # the last step
        (12, {}, 100, True),  # the last step by the budget: the one before reached it
    ],
)
def test_a_validation_that_a_killed_run_missed_is_made_up_for(tmp_path, step, line, budget, missed):
    trainer = {"test_freq": 10 if step != 30 else 100}
    config = OmegaConf.create({"trainer": trainer, "seele": {"max_generated_tokens": budget}})
    log = RunLog(tmp_path)
    for number in range(1, step + 1):
        log.append(number, {"tokens/generated": 100 if number == step - 1 else 0})
    found = log.rewind(step) | line
    assert missed_validation(config, log, found, total_steps=30) is missed


def test_settings_are_read_from_a_plan_as_from_what_was_composed(planned):
    plan = planned("method=seele")
    assert read_settings(plan) == read_settings(train.compose(["hardware=cpu", "job=tiny"]))
    assert isinstance(read_settings(plan), SeeleConfig)
