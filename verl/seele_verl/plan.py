"""The plan of a run: its configuration after every change, written to ``resolved.yaml`` and read-only from
then on. verl, which writes to its configuration, gets a copy (``seele_verl.runner``).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from seele.config import SeeleConfig
from seele.data.storage.files import as_paths, write_atomically
from seele.methods.sources import build_source
from seele.plugins import absolute, is_import_path
from seele.rollout.templates import absolute_template
from seele_verl.changes import with_changes
from seele_verl.checks.preflight import Preflight
from seele_verl.engine.model_runner import runner_variables
from seele_verl.rollout_correction import SECTION, verl_rollout_correction
from seele_verl.runs.overlong import write_fits
from seele_verl.settings import planned_steps

RESOLVED = "resolved.yaml"
STOP_AT_ERROR = "seele_verl.engine.stopping:StopAtError"


def plan_run(
    config: DictConfig,
    preflight: Preflight,
    folder: Path,
    *,
    variables: Mapping[str, str],
    validates_first: bool,
) -> DictConfig:
    """Decide all open settings, and write the plan.

    Args:
        config: The composed configuration, after its checks.
        preflight: The results of the checks.
        folder: The run folder.
        variables: Environment variables of the run's processes, in addition to the configuration's.
        validates_first: True if verl validates before it trains.

    Returns:
        The plan, every value resolved, read-only.
    """
    changes = absolute_paths(config, folder)
    record = write_fits(folder, changes["data.train_files"], changes["data.val_files"], preflight.fits)
    changes["data.overlong_record"] = None if record is None else str(record)
    changes["ray_kwargs.ray_init.runtime_env.env_vars"] = {**worker_variables(config), **variables}
    if not preflight.is_supervised:
        changes["trainer.val_before_train"] = validates_first
        changes |= what_verl_is_told(config, preflight.seele)
        # verl stops at whichever of epochs and steps comes first, and schedules need the number of steps.
        steps = planned_steps(config, preflight.num_problems)
        changes["trainer.total_training_steps"] = steps
        steps_per_epoch = preflight.num_problems // config.data.train_batch_size
        changes["trainer.total_epochs"] = steps // steps_per_epoch + 1
    plan = with_changes(config, changes)
    OmegaConf.resolve(plan)
    OmegaConf.set_readonly(plan, True)
    write_atomically(folder / RESOLVED, OmegaConf.to_yaml(plan))
    return plan


def worker_variables(config: DictConfig) -> dict[str, str]:
    """Return the environment of the run's workers; the user's own variables take precedence."""
    env_vars = config.ray_kwargs.ray_init.runtime_env.get("env_vars") or {}
    # Hydra reads 1 as a number.
    return {**runner_variables(config), **{name: str(value) for name, value in env_vars.items()}}


def what_verl_is_told(config: DictConfig, seele: SeeleConfig) -> dict[str, Any]:
    """Return verl's settings that follow from ours."""
    told: dict[str, Any] = {
        f"{SECTION}.{name}": value for name, value in verl_rollout_correction(seele).items()
    }
    if not build_source(seele.off_policy).has_log_probs:
        # The engine has no log-probabilities for tokens that it did not write, such as a prefix.
        told[f"{SECTION}.bypass_mode"] = False
    if seele.packed_updates:
        libraries = config.actor_rollout_ref.model.external_lib or []
        libraries = [libraries] if isinstance(libraries, str) else list(libraries)
        told["actor_rollout_ref.model.external_lib"] = [*libraries, "seele_verl.packed_engine"]
    if seele.credit.stop:
        key = "actor_rollout_ref.rollout.engine_kwargs.vllm.logits_processors"
        own = OmegaConf.select(config, key) or []
        told[key] = [*([own] if isinstance(own, str) else own), STOP_AT_ERROR]
    if seele.curriculum.spare_problems:
        told["trainer.v1.sampler.custom_sampler"] = {
            "path": "pkg://seele_verl.replay_buffer",
            "name": "SpareProblemsBuffer",
        }
    return told


def absolute_paths(config: DictConfig, folder: Path) -> dict[str, Any]:
    """Return changes that make all paths absolute, including the files of the user's own parts: workers run
    in other folders.
    """
    changes: dict[str, Any] = {"seele": _absolute_parts(OmegaConf.to_container(config.seele, resolve=True))}
    changes["trainer.default_local_dir"] = str(folder)
    for key in ("trainer.resume_from_path", "seele.rollout_cache"):
        if path := OmegaConf.select(config, key):
            changes[key] = str(Path(path).resolve())
    changes["seele.prompt.template"] = absolute_template(config.seele.prompt.template)
    for key in ("data.train_files", "data.val_files"):
        changes[key] = [str(path.resolve()) for path in as_paths(OmegaConf.select(config, key))]
    model = Path(config.actor_rollout_ref.model.path)
    if model.is_dir():
        changes["actor_rollout_ref.model.path"] = str(model.resolve())
    return changes


def _absolute_parts(value: Any) -> Any:
    """Return the same values, with every ``path/to/file.py:Name`` made absolute."""
    if isinstance(value, dict):
        return {key: _absolute_parts(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_absolute_parts(each) for each in value]
    return absolute(value) if isinstance(value, str) and is_import_path(value) else value
