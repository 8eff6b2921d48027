"""Start here: Hydra -> settings -> checks -> Ray -> trainer.

    python -m seele_verl.train method=seele hardware=cpu job=tiny [overrides]

The loop is verl's (``seele_verl.trainer`` says what we change); the rounds of a problem are
``seele.rollout.rounds``.
"""

import importlib.util
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict

import seele_verl.options
import seele_verl.resolvers  # noqa: F401  what hardware files compute
from seele.data.storage.files import write_atomically
from seele.errors import ConfigError, SeeleError
from seele.rollout.templates import absolute_template
from seele_verl.checks.job import check_job
from seele_verl.checks.override_hints import explain
from seele_verl.checks.preflight import Preflight, check_settings
from seele_verl.compat import require_verl
from seele_verl.cpu.fork_server import forked_workers
from seele_verl.engine.model_runner import runner_variables
from seele_verl.runs.card import count_parameters, describe_cost, describe_environment, write_run_card
from seele_verl.runs.log import RunLog
from seele_verl.runs.overlong import count_fits, describe_fits, write_fits
from seele_verl.runs.progress import follow_metrics, terminal_apart_from
from seele_verl.runs.references import has_references, prepare_references
from seele_verl.runs.resume import find_start
from seele_verl.runs.stages import describe_stages, stages
from seele_verl.sft.run import supervised_steps, train_supervised

LOG = Path("logs") / "train.log"


class TrainingFailed(SeeleError):
    """A run that passed all checks and stopped all the same."""


def verl_config_folder() -> Path:
    """The released verl's configuration, found without importing verl: its import reads the environment of
    the run.
    """
    require_verl()
    spec = importlib.util.find_spec("verl")
    assert spec is not None and spec.submodule_search_locations is not None, (
        "an installed package has a location"
    )
    folders = [Path(location) / "trainer" / "config" for location in spec.submodule_search_locations]
    return next(folder for folder in folders if folder.is_dir())


def compose(overrides: list[str]) -> DictConfig:
    """The configuration that these overrides stand for on the command line."""
    os.environ["VERL_CONFIG_FOLDER"] = str(verl_config_folder())
    with hydra.initialize_config_dir(str(Path(__file__).parent / "config"), version_base=None):
        return hydra.compose("seele", overrides=overrides)


def run(config: DictConfig, overrides: list[str]) -> None:
    """Check everything, then train, stage by stage."""
    check_job(overrides)
    if has_references(config):
        check_settings(config, overrides)
        # Before the environment is the run's: on the CPU that has no hub.
        prepare_references(config)
    set_environment(config)
    with closing(stages(config, overrides)) as walk:
        for stage, preflight in walk:
            _run_stage(stage, overrides, preflight)


def set_environment(config: DictConfig) -> None:
    """Give this process the variables of the run's workers. First of all: OpenMP reads its own when torch is
    imported, which the checks do.
    """
    ray_init = config.ray_kwargs.ray_init
    runtime_env = ray_init.runtime_env
    with open_dict(config):
        # What the user names stands.
        runtime_env.env_vars = {**runner_variables(config), **(runtime_env.get("env_vars") or {})}
    os.environ.update(runtime_env.env_vars)
    if config.trainer.device == "cpu":
        # GPUs are hidden, and yet there is a name for each of Ray's logical ones, which it counts.
        names = ["-1"] * (ray_init.num_gpus or config.trainer.n_gpus_per_node)
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(names)


def _run_stage(config: DictConfig, overrides: list[str], preflight: Preflight) -> None:
    """Train, from where the run goes on."""
    folder = Path(config.trainer.default_local_dir).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    resumed_at = find_start(config)
    RunLog(folder).rewind(-1 if resumed_at is None else resumed_at)
    with open_dict(config):
        # Workers run in other folders.
        config.trainer.default_local_dir = str(folder)
        if config.trainer.resume_from_path:
            config.trainer.resume_from_path = str(Path(config.trainer.resume_from_path).resolve())
        config.seele.prompt.template = absolute_template(config.seele.prompt.template)
        if config.seele.rollout_cache is not None:
            config.seele.rollout_cache = str(Path(config.seele.rollout_cache).resolve())
        for key in ("train_files", "val_files"):
            files = config.data[key]
            config.data[key] = [
                str(Path(file).resolve()) for file in ([files] if isinstance(files, str) else files)
            ]
        model = Path(config.actor_rollout_ref.model.path)
        if model.is_dir():
            config.actor_rollout_ref.model.path = str(model.resolve())
        if resumed_at and not preflight.is_supervised and not config.trainer.val_only:
            config.trainer.val_before_train = False
    write_fits(folder, config, preflight.fits)
    write_atomically(folder / "resolved.yaml", OmegaConf.to_yaml(config, resolve=True))
    card = describe_environment() | {
        "arguments": overrides,
        "method": preflight.seele.method,
        "seed": preflight.seele.seed,
        "num_problems": preflight.num_problems,
        "num_unhintable_problems": preflight.num_unhintable,
        "num_validation_problems": preflight.num_validation,
        "num_validation_problems_trained_on": preflight.num_validation_trained_on,
        **count_fits(preflight.fits),
        "data_references": dict(config.data.get("references") or {}),
        "planned_steps": (
            supervised_steps(config, preflight)
            if preflight.is_supervised
            else planned_steps(config, preflight)
        ),
        "resumed_at_step": resumed_at,
        "status": "running",
    }
    write_run_card(folder, card)
    _announce(folder, config, preflight, resumed_at)
    parameters = count_parameters(config.actor_rollout_ref.model.path)
    started = time.monotonic()
    try:
        _train(config, folder, preflight, resumed_at)
        card["status"] = "finished"
    except BaseException:
        card["status"] = "failed"
        raise
    finally:
        card["wall_s"] = round(time.monotonic() - started, 1)
        card |= describe_cost(folder, parameters)
        card |= describe_stages(folder, card)
        write_run_card(folder, card)


def _announce(folder: Path, config: DictConfig, preflight: Preflight, resumed_at: int | None) -> None:
    seele, problems = preflight.seele, f"{preflight.num_problems} problems"
    begin = f"resumes after step {resumed_at}" if resumed_at else "starts"
    if preflight.is_supervised:
        plan = f"{problems}, {seele.sft.batch_size} a step, {supervised_steps(config, preflight)} steps"
    else:
        plan = f"{problems} ({preflight.num_unhintable} cannot be hinted), "
        plan += f"{config.data.train_batch_size} x {seele.hints.rollouts_per_prompt} rollouts a step"
    sys.stdout.write(f"{seele.method} {begin} in {folder}\n{plan}; log in {LOG}\n")
    sys.stdout.write(describe_fits(preflight.fits, preflight))
    if preflight.num_validation_trained_on:
        sys.stdout.write(
            f"{preflight.num_validation_trained_on} of {preflight.num_validation} validation problems are "
            "training problems, word for word: accuracy there says little of unseen ones\n"
        )


def planned_steps(config: DictConfig, preflight: Preflight) -> int:
    """Steps of an RL run, as verl counts them; it may end earlier, by ``seele.max_generated_tokens``."""
    epochs = config.trainer.total_epochs
    by_epochs: int = preflight.num_problems // config.data.train_batch_size * epochs
    return config.trainer.total_training_steps or by_epochs


def _train(config: DictConfig, folder: Path, preflight: Preflight, resumed_at: int | None) -> None:
    progress = partial(
        follow_metrics,
        folder,
        total_steps=planned_steps(config, preflight),
        after_step=-1 if resumed_at is None else resumed_at,
    )
    with logging_into(folder, config), terminal_apart_from(folder / LOG) as terminal:
        try:
            with forked_workers(config) as python:
                if preflight.is_supervised:
                    steps = supervised_steps(config, preflight)
                    train_supervised(
                        config,
                        folder,
                        python=python,
                        total_steps=steps,
                        resumed_at=resumed_at,
                        terminal=terminal,
                    )
                    return
                with progress(terminal=terminal):
                    # Only now: importing verl takes seconds and reads the environment that was set.
                    from seele_verl.runner import run_training

                    run_training(config)
        except Exception as error:
            traceback.print_exc()  # into the log
            cause: BaseException = error
            while isinstance(inner := getattr(cause, "cause", None), BaseException):
                cause = inner  # Ray wraps what a worker raised, once a process.
            if isinstance(cause, SeeleError):
                raise cause from error
            *_, said = ("no message", *str(cause).strip().splitlines())
            reason = f"{type(cause).__name__}: {said}"
            raise TrainingFailed(
                f"training stopped: {reason}; the whole story is in {folder / LOG}. "
                "The same command resumes from the last checkpoint"
            ) from error


@contextmanager
def logging_into(folder: Path, config: DictConfig) -> Iterator[None]:
    """While open, TensorBoard and wandb write into this folder, wandb offline where there is no key; what the
    user has set stands. Ray's workers are told by name: on a cluster that was there before, they have its
    environment.
    """
    defaults = {"TENSORBOARD_DIR": str(folder / "tensorboard"), "WANDB_DIR": str(folder)}
    if not _has_wandb_key():
        defaults["WANDB_MODE"] = "offline"
    added = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(added)
    told = {name: os.environ[name] for name in (*defaults, "WANDB_MODE") if name in os.environ}
    runtime_env = config.ray_kwargs.ray_init.runtime_env
    with open_dict(config):
        runtime_env.env_vars = {**(runtime_env.get("env_vars") or {}), **told}
    try:
        yield
    finally:  # a second stage has another folder
        for name in added:
            del os.environ[name]


def _has_wandb_key() -> bool:
    """Whether wandb will find a key: in the environment, or where ``wandb login`` leaves it."""
    if "WANDB_API_KEY" in os.environ:
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).netloc
    try:
        entries = netrc(Path(os.environ.get("NETRC") or "~/.netrc").expanduser())
    except (OSError, NetrcParseError):
        return False
    return entries.authenticators(host) is not None


# The whole path, for Hydra takes a relative one to be a module where this file is imported (`seele train`).
@hydra.main(config_path=str(Path(__file__).parent / "config"), config_name="seele", version_base=None)
def _main(config: DictConfig) -> None:
    try:
        run(config, list(HydraConfig.get().overrides.task))
    except SeeleError as error:
        _fail(error)


def _fail(error: SeeleError) -> NoReturn:
    sys.stderr.write(f"error: {error}\n")
    sys.exit(1 if isinstance(error, TrainingFailed) else 2)


def main() -> None:
    """The command line."""
    try:
        os.environ["VERL_CONFIG_FOLDER"] = str(verl_config_folder())
    except SeeleError as error:
        _fail(error)
    # Or it would print its errors by itself, and advise to add a misspelt key.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        _main()
    except HydraException as error:
        _fail(ConfigError(explain(str(error), compose([]))))


if __name__ == "__main__":
    main()
