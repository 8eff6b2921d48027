"""Run the released verl without any of our seams, on the configuration of one of our runs.

    VERL_FILE_LOGGER_PATH=metrics.jsonl python benchmarks/plain_verl.py method=grpo hardware=cpu job=tiny ...

It keeps the CPU platform and its fixes, without which verl does not start on a CPU. It removes our rollout
worker, engine replica, data set, trainer and loss, and the settings that only make verl faster, unless
``+plain.our_settings=true`` asks for them. The problems' parquet files carry the columns that verl's own data
set reads.
"""

import os
from functools import cache
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf, open_dict

import seele_verl
from seele.reward.grader import GraderPool
from seele_verl.compat import verl_config_folder


@cache
def _pool() -> GraderPool:
    return GraderPool()


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any
) -> float:
    """Return the reward that verl requests for every rollout: MathRuler on the last box, as in our runs,
    within the same limits; 1.0 for a correct answer, else 0.0.
    """
    return float(_pool().grade(solution_str, ground_truth).correct)


def take_out_our_seams(config: DictConfig) -> None:
    """Reduce the configuration to what verl knows."""
    with open_dict(config):
        config.actor_rollout_ref.rollout.agent.agent_loop_manager_class = None
        config.data.custom_cls = {"path": None, "name": None}
        config.reward.custom_reward_function = {
            "path": str(Path(__file__).resolve()),
            "name": "compute_score",
        }
        config.actor_rollout_ref.rollout.n = config.seele.hints.rollouts_per_prompt
        config.trainer.logger = ["file"]
        for key in ("train_files", "val_files"):
            config.data[key] = [str(Path(file).resolve()) for file in config.data[key]]
        config.actor_rollout_ref.model.path = str(Path(config.actor_rollout_ref.model.path).resolve())
        config.trainer.default_local_dir = str(Path(config.trainer.default_local_dir).resolve())
        config.reward.num_workers = 1
        if not config.pop("plain", {}).get("our_settings"):
            take_out_our_settings(config)
    OmegaConf.resolve(config)
    with open_dict(config):
        del config["seele"]


def take_out_our_settings(config: DictConfig) -> None:
    """Reduce hardware/cpu.yaml to what verl needs to run on a CPU."""
    environment = config.ray_kwargs.ray_init.runtime_env.env_vars
    environment.VERL_USE_EXTERNAL_MODULES = "seele_verl.cpu.plugin"
    for key in ("VLLM_ENABLE_V1_MULTIPROCESSING", "OMP_WAIT_POLICY"):
        environment.pop(key)
    config.actor_rollout_ref.rollout.engine_kwargs.vllm = {}
    config.algorithm.rollout_correction.bypass_mode = False
    config.actor_rollout_ref.actor.calculate_entropy = False


@hydra.main(
    config_path=str(Path(seele_verl.__file__).with_name("config")), config_name="seele", version_base=None
)
def main(config: DictConfig) -> None:
    """Train as ``verl.trainer.main_ppo`` would."""
    take_out_our_seams(config)
    os.environ.update(OmegaConf.to_container(config.ray_kwargs.ray_init.runtime_env.env_vars))
    with open_dict(config):
        # The runner that writes the file is a Ray process.
        path = str(Path(os.environ["VERL_FILE_LOGGER_PATH"]).resolve())
        config.ray_kwargs.ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_PATH = path
    from verl.trainer.main_ppo import TaskRunnerV1, run_ppo

    run_ppo(config, task_runner_class=TaskRunnerV1)


if __name__ == "__main__":
    os.environ["VERL_CONFIG_FOLDER"] = str(verl_config_folder())
    main()
