"""The driver's side of verl: Ray, the task runner, and what verl looks up by name. Imported only once a run
has passed its checks.
"""

import sys
import threading
from contextlib import nullcontext, suppress
from typing import Any

import ray
from omegaconf import DictConfig, OmegaConf
from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY
from verl.utils.config import validate_config
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry

import seele_verl.settings  # noqa: F401  verl resolves the configuration in this process
from seele.errors import ConfigError
from seele_verl.changes import with_changes
from seele_verl.checks.cluster import (
    WAIT_S,
    files_to_share,
    refuse_unfit_gpus,
    refuse_unshared_files,
    wait_for_room,
)
from seele_verl.compat import (
    NOT_STARTED,
    RAY_STARTS,
    kept_sigterm_handler,
    patient_ray,
    patient_raylet,
    undecorated,
)
from seele_verl.runs.stopping import RunStopped

PY_EXECUTABLE = "ray_kwargs.ray_init.runtime_env.py_executable"
PATIENCE = "trainer.cluster_patience_s"
"""Our setting: how long a start waits until the cluster has room for the run."""
SHARED = "trainer.shared_files"
"""Our setting: the files that all nodes of the cluster must see."""


def load_replica() -> type[RolloutReplica]:
    """Return our engine replica, which replaces verl's under ``rollout.name=vllm``."""
    from seele_verl.engine.replica import RoundReplica

    return RoundReplica


class SeeleTaskRunner(undecorated(TaskRunnerV1)):  # type: ignore[misc]
    """verl's task runner, with our trainer and our engine replica."""

    def run(self, config: DictConfig) -> None:
        """Run the training, unless it is asked to stop first; verl calls this in the runner's own process."""
        with suppress(RunStopped):  # the driver reads the note
            self._run(config)

    def _run(self, config: DictConfig) -> None:
        from seele_verl.trainer import SeeleTrainer

        wait_for_room(config, seconds=OmegaConf.select(config, PATIENCE))
        refuse_unshared_files(OmegaConf.select(config, SHARED))
        refuse_unfit_gpus(config)
        # Importing vLLM takes as long as starting the FSDP workers: do both at once.
        threading.Thread(target=load_replica, name="import vllm", daemon=True).start()
        RolloutReplicaRegistry.register("vllm", load_replica)
        # Any mode name but "sync" is treated as asynchronous in several places, so ours takes its place.
        TRAINER_REGISTRY["sync"] = SeeleTrainer
        super().run(config)


def run_training(
    config: DictConfig, *, python: str, is_restart: bool = False, task_runner: type = SeeleTaskRunner
) -> None:
    """Check verl's part of the configuration, start Ray and train.

    Args:
        config: The run's plan, which is not changed: verl writes to a copy.
        python: The executable that starts Ray's workers.
        is_restart: True to wait until a cluster has room: the run's earlier resources may not be free yet,
            and a lost node may come back.
        task_runner: ``SeeleTaskRunner``, or a class derived from it.

    Raises:
        ConfigError: verl refuses the configuration.
    """
    executable = {} if python == sys.executable else {PY_EXECUTABLE: python}
    patience = WAIT_S if is_restart else 0
    config = with_changes(config, executable | {PATIENCE: patience, SHARED: files_to_share(config)})
    try:
        validate_config(
            config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config)
        )
    except Exception as error:
        raise ConfigError(f"verl refuses these settings: {error}") from error
    runner: Any = ray.remote(task_runner)
    for start in range(RAY_STARTS):
        patient_agents = patient_raylet if start else nullcontext
        try:
            with patient_ray(), patient_agents(), kept_sigterm_handler():
                run_ppo(config, task_runner_class=runner)
            return
        except Exception as error:
            if start == RAY_STARTS - 1 or NOT_STARTED not in str(error):
                raise
        finally:
            ray.shutdown()
