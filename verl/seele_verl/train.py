"""Start here: Hydra -> settings -> checks -> Ray -> trainer.

    python -m seele_verl.train method=seele hardware=cpu job=tiny [overrides]

The loop is verl's (``seele_verl.trainer`` says what we change); the rounds of a problem are in
``seele.rollout.rounds``.
"""

import os
import re
import shutil
import signal
import sys
import textwrap
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

import seele_verl.options
import seele_verl.settings  # noqa: F401  what hardware files compute
from seele.errors import CheckpointError, ConfigError, SeeleError
from seele.report.run_folder import FIRST_STAGE
from seele_verl.checks.command_line import check_job, check_names, check_options, check_places, explain
from seele_verl.checks.preflight import Preflight, check_settings
from seele_verl.checks.verl_settings import check_verl_settings
from seele_verl.compat import NOT_STARTED, verl_config_folder
from seele_verl.cpu.fork_server import forked_workers
from seele_verl.plan import plan_run, worker_variables
from seele_verl.reward_function import adopt_reward_function
from seele_verl.runs.card import (
    count_parameters,
    describe_changes,
    describe_command,
    describe_cost,
    describe_environment,
    read_run_card,
    write_run_card,
)
from seele_verl.runs.checkpoints import damaged_checkpoints, last_complete_step
from seele_verl.runs.log import RunLog, last_step, tracking, tracking_variables
from seele_verl.runs.overlong import count_fits, describe_fits
from seele_verl.runs.progress import follow_metrics
from seele_verl.runs.references import has_references, prepare_references
from seele_verl.runs.resume import (
    checkpoint_to_resume,
    final_step,
    missed_validation,
    prepare_start,
    saved_line,
)
from seele_verl.runs.scratch import scratch_folder
from seele_verl.runs.stages import describe_stages, stages
from seele_verl.runs.stopping import STOPPED, RunStopped, has_stopped, is_asked_to_stop, sigterm_stops
from seele_verl.runs.supervision import (
    FAULT,
    FROM_LAST_CHECKPOINT,
    gone_on,
    has_parent,
    has_saved,
    num_restarts,
    supervise,
)
from seele_verl.runs.terminal import outlive_terminal, terminal_apart_from
from seele_verl.runs.undo import kept_until_training
from seele_verl.settings import planned_steps, supervised_steps
from seele_verl.sft.run import train_supervised

LOG = Path("logs") / "train.log"
REASON_CHARS = 300
"""Maximum length of a fault's message on the terminal; Ray's continue with guesses at the cause."""
FULL_BYTES = 64 << 20
"""A disk with less free space is reported as full when a run has failed."""
NODE_IS_FULL = "node running low on memory"
"""What Ray says of processes that its memory monitor killed."""
TRUSTS = (
    "actor_rollout_ref.model.trust_remote_code",
    "actor_rollout_ref.rollout.engine_kwargs.vllm.trust_remote_code",
    "critic.model.trust_remote_code",
)
_DEAD_ACTOR = re.compile(r"class_name: (\S+).*?\bpid: (\d+).*?\bip: (\S+)", re.DOTALL)
"""What Ray says of an actor whose process died."""


class TrainingFailed(SeeleError):
    """A run that passed all checks but failed."""


def compose(overrides: list[str], *, config_dir: str | None = None) -> DictConfig:
    """Return the configuration that these command-line overrides compose.

    Args:
        overrides: The overrides.
        config_dir: What ``--config-dir`` names: a folder of compositions of the user's own.

    Raises:
        ConfigError: If ``config_dir`` is not a folder, or its files set what does not exist.
    """
    folders, typed = [verl_config_folder()], overrides
    os.environ["VERL_CONFIG_FOLDER"] = str(folders[0])
    if config_dir is not None:
        if not Path(config_dir).is_dir():
            raise ConfigError(f"--config-dir: {config_dir} is not a folder")
        folders.append(Path(config_dir).resolve())
        quoted = ["'file://" + str(folder).replace("'", r"\'") + "'" for folder in folders]
        overrides = [*overrides, f"hydra.searchpath=[{','.join(quoted)}]"]
    with hydra.initialize_config_dir(str(Path(__file__).parent / "config"), version_base=None):
        config = hydra.compose("seele", overrides=overrides)
        if config_dir is not None:
            _check_own_files(config, typed, config_dir)
        return config


def _check_own_files(config: DictConfig, overrides: Sequence[str], config_dir: str) -> None:
    """Raise ``ConfigError`` where the files of ``--config-dir`` set what does not exist. Hydra must be
    initialized, as it is while a command runs.
    """
    check_places(config, Path(config_dir))
    # On a CPU our files set keys that verl reads but does not list.
    known = hydra.compose("seele", overrides=["hardware=cpu"])
    check_names(config, known, Path(config_dir), overrides)


def prepare(config: DictConfig, overrides: list[str]) -> DictConfig:
    """Return the configuration whose stages are checked: with its problems as files, and this process with
    the run's environment.
    """
    check_job(overrides)
    config = adopt_reward_function(config, overrides)
    if has_references(config):
        check_settings(config, overrides)
        # Before the run's environment is set: on a CPU it has no access to the hub.
        config = prepare_references(config)
    check_verl_settings(config)
    set_environment(config)
    return config


def run(config: DictConfig, overrides: list[str], *, config_dir: str | None = None) -> None:
    """Check everything, then train stage by stage. ``config_dir`` is the command's ``--config-dir``."""
    config = prepare(config, overrides)
    with scratch_folder(), closing(stages(config, overrides)) as walk, ExitStack() as opened:
        # All stages share it: after the first, this process has imported Ray and could not fork another.
        python = cache(lambda: opened.enter_context(forked_workers(config)))
        for stage, preflight in walk:
            try:
                with kept_until_training(stage):
                    _run_stage(stage, overrides, preflight, python, config_dir=config_dir)
            except BaseException as error:
                walk.throw(error)  # an earlier run of two stages may come back
                raise
            folder, last = (Path(each.trainer.default_local_dir).resolve() for each in (stage, config))
            if folder != last and is_asked_to_stop(folder):
                again = f"the same command{_to_resume(overrides)} goes on"
                raise RunStopped(f"stopped on request after the stage in {folder}; {again}")


def set_environment(config: DictConfig) -> None:
    """Give this process the variables of the run's workers. It must come first: OpenMP reads its variables
    when torch is imported, which the checks do.
    """
    os.environ.update(worker_variables(config))
    # Ray's GCS keeps a record of each task, 100,000 by default: a small run's first 1,000 steps took 0.3 GB.
    os.environ.setdefault("RAY_task_events_max_num_task_in_gcs", "10000")
    # Ray would start a worker for each core without the run's variables, which is never used.
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    if config.trainer.device == "cpu":
        # GPUs are hidden, but Ray counts the names here, so there is one for each of its logical GPUs.
        names = ["-1"] * (config.ray_kwargs.ray_init.num_gpus or config.trainer.n_gpus_per_node)
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(names)


@dataclass(frozen=True, slots=True)
class _Start:
    """Where a run begins in its folder."""

    resumed_at: int | None
    """The step of the checkpoint that it goes on from; None at the start."""
    validates_first: bool
    is_done: bool
    """True if no step and no validation is left."""
    removed: int
    """Steps of an earlier run whose metrics and rollouts were removed."""


def _prepare_folder(config: DictConfig, folder: Path, num_problems: int) -> _Start:
    """Rewind the folder's records to the run's start, or to the checkpoint to resume."""
    resumed_at, log, removed = prepare_start(config), RunLog(folder), 0
    checkpoint = None if resumed_at is None else checkpoint_to_resume(config, resumed_at)
    if checkpoint is None or checkpoint.parent != folder:
        removed = last_step(folder)
        log.rewind(-1)
    validates_first: bool = config.trainer.val_before_train
    if resumed_at is None or checkpoint is None:
        return _Start(resumed_at, validates_first, is_done=False, removed=removed)
    line = log.rewind(resumed_at, saved_line(checkpoint))
    ends_at = final_step(config, log.generated, total_steps=planned_steps(config, num_problems))
    if not config.trainer.val_only:
        validates_first = missed_validation(config, line, ends_at=ends_at)
    is_done = resumed_at >= ends_at and not validates_first
    return _Start(resumed_at, validates_first, is_done=is_done, removed=removed)


def _run_stage(
    config: DictConfig,
    overrides: list[str],
    preflight: Preflight,
    python: Callable[[], str],
    *,
    config_dir: str | None,
) -> None:
    """Train, from the start or the checkpoint to resume. ``python`` returns the executable that starts the
    run's processes.
    """
    folder = Path(config.trainer.default_local_dir).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    # Before anything in the folder changes, because it reads all of the data.
    card = describe_command(config, overrides, config_dir=config_dir)
    damaged = damaged_checkpoints(folder) if config.trainer.resume_mode == "auto" else {}
    start, last_card = _prepare_folder(config, folder, preflight.num_problems), read_run_card(folder)
    changes = describe_changes(last_card, card) if last_card else ""
    has_finished = start.is_done and last_card.get("status") == "finished"
    if start.resumed_at is not None and has_finished and not preflight.is_supervised:
        # The card and the plan stay those of the run.
        sys.stdout.write(describe_finished(preflight, folder, start.resumed_at, changes))
        return
    config = plan_run(
        config,
        preflight,
        folder,
        variables=tracking_variables(folder, resumes=start.resumed_at is not None),
        validates_first=start.validates_first,
    )
    card |= _describe_run(config, preflight) | {"resumed_at_step": start.resumed_at, "status": "running"}
    with _recorded(folder, card, config):
        with sigterm_stops(folder):
            for folder_of_step, damage in damaged.items():
                sys.stdout.write(f"{folder_of_step.name} is damaged: {damage}; an earlier one is used\n")
            _announce(folder, config, preflight, start.resumed_at)
            if start.removed:
                sys.stdout.write(
                    "this run does not resume the last one in this folder; the metrics and rollouts of its "
                    f"{start.removed} steps are removed\n"
                )
            sys.stdout.write(changes)
            _train(config, folder, preflight, start.resumed_at, python, overrides)
        ended = last_card.get("status", "finished") if config.trainer.val_only else "finished"
        card["status"] = "stopped" if has_stopped(folder) else ended
    if card["status"] == "stopped":
        saved, again = last_complete_step(folder), f"the same command{_to_resume(overrides)}"
        raise RunStopped(
            "stopped on request before anything was saved; the same command starts again"
            if saved is None
            else f"stopped on request; saved after step {saved}, where {again} resumes"
        )


def _describe_run(config: DictConfig, preflight: Preflight) -> dict[str, Any]:
    """Return what the run's card says before the first step."""
    return describe_environment() | {
        "method": preflight.seele.method,
        "seed": preflight.seele.seed,
        "num_problems": preflight.num_problems,
        "num_unhintable_problems": preflight.num_unhintable,
        "num_validation_problems": preflight.num_validation,
        "num_validation_problems_trained_on": preflight.num_validation_trained_on,
        **count_fits(preflight.fits),
        "data_references": dict(config.data.get("references") or {}),
        "planned_steps": (
            supervised_steps(config, preflight.num_problems)
            if preflight.is_supervised
            else planned_steps(config, preflight.num_problems)
        ),
    }


@contextmanager
def _recorded(folder: Path, card: dict[str, Any], config: DictConfig) -> Iterator[None]:
    """Write the card before the block, and again after it, with the run's cost and its error if it failed.
    The block sets the status.
    """
    write_run_card(folder, card)
    model = config.actor_rollout_ref.model
    parameters = count_parameters(model.path, trust_remote_code=model.trust_remote_code)
    started = time.monotonic()
    try:
        yield
    except KeyboardInterrupt:
        raise  # a run without an end and without a process is interrupted
    except BaseException as error:
        card |= {"status": "failed", "error": str(error)}
        raise
    finally:
        card["wall_s"] = round(time.monotonic() - started, 1)
        # On a full or lost disk the card stays as it was, and the error that ended the run is reported.
        is_failing = card["status"] == "failed"
        with suppress(OSError, CheckpointError) if is_failing else nullcontext():
            card |= describe_cost(folder, parameters)
            card |= describe_stages(folder, card)
            write_run_card(folder, card)


def describe_finished(preflight: Preflight, folder: Path, step: int, changes: str) -> str:
    """Return the lines on a run that has nothing left to do. ``changes`` is what ``describe_changes``
    returns.
    """
    return (
        f"{preflight.seele.method} has finished in {folder}; nothing is left to do after step {step}\n"
        f"{changes}for a new run, choose another trainer.default_local_dir; to train on, raise "
        "trainer.total_training_steps or seele.max_generated_tokens\n"
    )


def _announce(folder: Path, config: DictConfig, preflight: Preflight, resumed_at: int | None) -> None:
    begin = f"resumes after step {resumed_at}" if resumed_at else "starts"
    plan = describe_plan(config, preflight)
    sys.stdout.write(f"{preflight.seele.method} {begin} in {folder}\n{plan}; log in {folder / LOG}\n")
    if not preflight.is_supervised:
        sys.stdout.write("models and engine are loaded; this may take minutes, and the log has the details\n")
    sys.stdout.write(describe_notes(config, preflight))


def describe_plan(config: DictConfig, preflight: Preflight) -> str:
    """Return the numbers of problems and of rollouts a step."""
    seele, problems = preflight.seele, f"{preflight.num_problems} problems"
    if preflight.is_supervised:
        steps = supervised_steps(config, preflight.num_problems)
        return f"{problems}, {seele.sft.batch_size} a step, {steps} steps"
    return (
        f"{problems} ({preflight.num_unhintable} cannot be hinted), "
        f"{config.data.train_batch_size} x {seele.hints.rollouts_per_prompt} rollouts a step"
    )


def describe_notes(config: DictConfig, preflight: Preflight) -> str:
    """Return what a user should know of a run before it starts, a line each; mostly empty."""
    notes = describe_fits(preflight.fits, preflight)
    if budget := preflight.seele.max_generated_tokens:
        notes = f"one step after generated tokens reach {budget:,}, the run ends\n{notes}"
    if any(OmegaConf.select(config, key) for key in TRUSTS):
        notes += "trust_remote_code: every process of the run executes code that ships with the model\n"
    validates = config.trainer.val_before_train or config.trainer.test_freq > 0
    if validates and preflight.num_validation_trained_on:
        notes += (
            f"{preflight.num_validation_trained_on} of {preflight.num_validation} validation problems are "
            "training problems, word for word: their accuracy says little about unseen problems\n"
        )
    return notes


def _train(
    config: DictConfig,
    folder: Path,
    preflight: Preflight,
    resumed_at: int | None,
    python: Callable[[], str],
    overrides: Sequence[str],
) -> None:
    variables = config.ray_kwargs.ray_init.runtime_env.env_vars
    with tracking(variables), terminal_apart_from(folder / LOG) as terminal:
        try:
            if preflight.is_supervised:
                train_supervised(
                    config,
                    folder,
                    python=python(),
                    total_steps=supervised_steps(config, preflight.num_problems),
                    resumed_at=resumed_at,
                    terminal=terminal,
                )
                return
            executable = python()
            with follow_metrics(
                folder,
                total_steps=planned_steps(config, preflight.num_problems),
                after_step=-1 if resumed_at is None else resumed_at,
                max_generated_tokens=preflight.seele.max_generated_tokens,
                terminal=terminal,
            ):
                # Only now: importing verl takes seconds and reads the environment that was set.
                from seele_verl.runner import run_training

                run_training(config, python=executable, is_restart=num_restarts() > 0)
        except Exception as error:
            with suppress(OSError):
                traceback.print_exc()  # into the log
            cause: BaseException = error
            while isinstance(inner := getattr(cause, "cause", None), BaseException):
                cause = inner  # Ray wraps what a worker raised, once per process.
            if isinstance(cause, SeeleError):
                raise cause from error
            raise TrainingFailed(describe_failure(cause, folder, overrides)) from error


def describe_failure(cause: BaseException, folder: Path, overrides: Sequence[str]) -> str:
    """Return what ended a run, where to read more, and what the command with these overrides does next."""
    lines = str(cause).strip().splitlines() or ["no message"]
    # Most errors end with what happened; those of memory begin with it and end with general advice.
    said = lines[0] if "OutOfMemory" in type(cause).__name__ else lines[-1]
    dead = _DEAD_ACTOR.search(str(cause))
    what = "process {} (pid {}, node {}) died".format(*dead.groups()) if dead else type(cause).__name__
    reason = textwrap.shorten(f"{what}: {said}", REASON_CHARS, placeholder=" ...")
    remedies = []
    if NOT_STARTED in str(cause):
        remedies.append(
            f"The machine was too busy to start Ray (load average {os.getloadavg()[0]:.1f}, "
            f"{os.cpu_count()} cores): wait until other work is done. "
        )
    if NODE_IS_FULL in str(cause):
        remedies.append(
            "The node's memory was nearly full: end other programs there, or see docs/memory.md. "
        )
    with suppress(OSError):  # its disk is out of reach
        if (free := shutil.disk_usage(folder).free) < FULL_BYTES:
            remedies.append(f"The disk of {folder} is full ({free:,} bytes are left): free space. ")
        remedies.append(_what_next(folder, overrides))
    return f"training stopped: {reason}; see {folder / LOG} for the full traceback. {''.join(remedies)}"


def _what_next(folder: Path, overrides: Sequence[str]) -> str:
    if not has_saved(folder):
        return "No checkpoint yet: the same command starts again"
    return f"The same command{_to_resume(overrides)} resumes from the last checkpoint"


def _place(folder: Path) -> str:
    """Return how far a run has come."""
    if not (step := last_step(folder)) and (of_first := last_step(folder / FIRST_STAGE)):
        return f"step {of_first} of the first stage"
    return f"step {step}"


def _to_resume(overrides: Sequence[str]) -> str:
    """Return what a command must also say to resume from the run's last checkpoint; mostly empty."""
    modes = [
        each.partition("=")[2] for each in overrides if each.lstrip("+").startswith("trainer.resume_mode=")
    ]
    says_so = all(mode == "auto" for mode in modes)
    return "" if says_so else f" with {' '.join(FROM_LAST_CHECKPOINT)}"


# An absolute path, because Hydra takes a relative one for a module if this file is imported (`seele train`).
@hydra.main(config_path=str(Path(__file__).parent / "config"), config_name="seele", version_base=None)
def _main(config: DictConfig) -> None:
    overrides, config_dir = [*HydraConfig.get().overrides.task], _config_dir()
    try:
        if config_dir is not None:
            _check_own_files(config, overrides, config_dir)
        if (config.trainer.max_restarts or config.trainer.watchdog_minutes) and not has_parent():
            check_verl_settings(config)
            sys.exit(supervise(config, sys.argv[1:]))
        run(*gone_on(config, overrides), config_dir=config_dir)
    except RunStopped as stopped:
        sys.stderr.write(f"{stopped}\n")
        sys.exit(STOPPED)
    except KeyboardInterrupt:
        folder = Path(config.trainer.default_local_dir).resolve()
        sys.stderr.write(f"interrupted after {_place(folder)}. {_what_next(folder, overrides)}\n")
        sys.exit(128 + signal.SIGINT)
    except (SeeleError, OSError) as error:
        _fail(error)


def _config_dir() -> str | None:
    """Return the command's ``--config-dir``, as an absolute path; None if it has none."""
    sources = HydraConfig.get().runtime.config_sources
    return next((each.path for each in sources if each.provider == "command-line"), None)


def _fail(error: Exception) -> NoReturn:
    sys.stderr.write(f"error: {error}\n")
    sys.exit(FAULT if isinstance(error, TrainingFailed | OSError) else 2)


def main() -> None:
    """The command line."""
    outlive_terminal()
    try:
        check_options(sys.argv[1:])
        os.environ["VERL_CONFIG_FOLDER"] = str(verl_config_folder())
    except SeeleError as error:
        _fail(error)
    # Otherwise Hydra would print its errors itself, and advise adding a misspelt key.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        _main()
    except HydraException as error:
        _fail(ConfigError(explain(str(error), compose([]))))


if __name__ == "__main__":
    main()
