"""Profiler settings that would profile nothing are refused. A profile is written in tests/integration."""

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

from seele.errors import ConfigError
from seele_verl.checks.profiling import check_profiler
from seele_verl.train import compose

STEPS, UPDATE = "global_profiler.steps=[3]", "actor_rollout_ref.actor.profiler.enable=true"


def check(*overrides, hardware="cpu", supervised=False):
    check_profiler(compose([f"hardware={hardware}", *overrides]), supervised=supervised)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ((STEPS, UPDATE), "tool: got None; allowed are .'torch', 'torch_memory', 'nsys'."),
        (("global_profiler.tool=npu", STEPS, UPDATE), "tool: got 'npu'"),
        (("global_profiler.tool=torch", UPDATE), "steps: got None, so that no step is profiled"),
        (("global_profiler.tool=torch", STEPS), "no part is profiled; set actor_rollout_ref.actor.profiler"),
        (("global_profiler.tool=torch_memory", STEPS, UPDATE), "torch_memory records the memory of GPUs"),
        (("global_profiler.tool=nsys", STEPS, UPDATE), "nsys is Nsight Systems, for GPUs"),
    ],
)
def test_a_profile_of_nothing_is_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        check(*overrides)


def test_nsight_must_be_installed(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="must be on the PATH"):
        check("global_profiler.tool=nsys", STEPS, UPDATE, hardware="gpu8")
    (tmp_path / "nsys").touch(mode=0o755)
    check("global_profiler.tool=nsys", STEPS, UPDATE, hardware="gpu8")


def test_supervised_training_is_not_profiled():
    with pytest.raises(ConfigError, match="supervised training is not profiled"):
        check("global_profiler.tool=torch", STEPS, UPDATE, supervised=True)


@pytest.mark.parametrize("hardware", ["cpu", "gpu8"])
def test_profiles_go_to_the_runs_folder(hardware):
    check(hardware=hardware)
    check("global_profiler.tool=torch", STEPS, UPDATE, hardware=hardware)
    config = compose([f"hardware={hardware}", "trainer.default_local_dir=/runs/x"])
    assert config.actor_rollout_ref.actor.profiler.save_path == "/runs/x/profile"
