"""Every YAML composes, builds, and says what the paper says."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

from omegaconf import OmegaConf

from seele.methods import METHODS, check_method
from seele_verl.cpu.environment import ENVIRONMENT
from seele_verl.preflight import check_batches
from seele_verl.settings import read_settings
from seele_verl.train import compose

CONFIGS = Path(__file__).parents[2] / "verl" / "seele_verl" / "config"
GROUPS = {
    group: sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))
    for group in ("method", "model", "data", "hardware")
}


def composed(*overrides):
    config = compose(list(overrides))
    OmegaConf.resolve(config)
    return config


@pytest.mark.parametrize(
    "choice", [f"{group}={name}" for group, names in GROUPS.items() for name in names if name != "problems"]
)
def test_every_choice_composes_and_builds(choice):
    config = composed(choice)
    check_method(read_settings(config))


def test_every_method_has_a_file_of_its_name():
    assert GROUPS["method"] == sorted(METHODS)


def test_the_paper_is_the_default():
    # arXiv:2509.06923v1, section 5.1.
    config = composed("method=seele", "hardware=gpu8")
    assert config.data.train_batch_size == 256
    assert config.data.max_response_length == 2048
    assert config.trainer.total_training_steps == 400
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    assert actor.ppo_mini_batch_size == 64
    assert (actor.use_kl_loss, actor.kl_loss_coef) == (True, 0.001)
    assert (rollout.n, rollout.temperature) == (32, 1.0)
    assert actor.loss_agg_mode == "seq-mean-token-sum-norm"
    assert actor.loss_scale_factor == 2048
    assert (config.algorithm.adv_estimator, config.algorithm.norm_adv_by_std_in_grpo) == ("grpo", False)
    seele = read_settings(config)
    assert (seele.hints.controller, seele.hints.rounds, seele.hints.target_accuracy) == ("paper", 4, 0.5)
    assert seele.imitation.coefficient == 0.001


def test_grpo_takes_as_many_rollouts_as_seele():
    seele, grpo = (composed(f"method={method}", "hardware=cpu") for method in ("seele", "grpo"))
    assert seele.actor_rollout_ref.rollout.n == grpo.actor_rollout_ref.rollout.n
    assert read_settings(grpo).hints.rounds == 1


def test_only_the_cpu_file_names_the_cpu_stack():
    cpu, gpu = composed("hardware=cpu"), composed("hardware=gpu8")
    variables = cpu.ray_kwargs.ray_init.runtime_env.env_vars
    assert ENVIRONMENT.items() <= variables.items()
    assert "env_vars" not in gpu.ray_kwargs.ray_init.runtime_env


def test_the_command_prints_a_configuration_without_starting_anything():
    command = [sys.executable, "-m", "seele_verl.train", "method=seele", "hardware=cpu", "--cfg", "job"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert OmegaConf.create(result.stdout).seele.method == "seele"


def test_the_papers_script_composes_to_the_papers_run():
    root = CONFIGS.parents[2]
    script = subprocess.run(
        ["bash", str(root / "scripts" / "train_qwen2.5-7b.sh"), "seele.seed=3"],
        capture_output=True,
        text=True,
        env=os.environ | {"DRY_RUN": "1"},
        check=True,
    )
    arguments = shlex.split(script.stdout.splitlines()[-1].removeprefix("+ "))
    assert arguments[:3] == ["python", "-m", "seele_verl.train"]
    config = composed(*arguments[3:])
    assert config.actor_rollout_ref.model.path == "Qwen/Qwen2.5-7B"
    assert (config.trainer.nnodes, config.trainer.n_gpus_per_node, config.trainer.device) == (1, 8, "cuda")
    assert (config.data.train_batch_size, config.actor_rollout_ref.actor.ppo_mini_batch_size) == (256, 64)
    assert read_settings(config).seed == 3
    rollout = config.actor_rollout_ref.rollout
    assert config.trainer.n_gpus_per_node % rollout.tensor_model_parallel_size == 0
    assert rollout.max_model_len >= config.data.max_prompt_length + config.data.max_response_length
    check_batches(config, read_settings(config))
