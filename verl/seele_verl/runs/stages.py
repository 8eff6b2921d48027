"""The runs that a method consists of: one, except for ``sft_rl``, whose first stage has its own folder.

    RUN/problems/{sft,rl}/    the problems that each stage trains on
    RUN/sft/                  the first stage, a run folder like any other
    RUN/                      the second stage, whose costs include the first's

A killed run resumes in the stage where it stopped. Only one run at a time holds a folder's lock: a second one
would undo the first one's lines and checkpoints.
"""

import fcntl
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from omegaconf import DictConfig, OmegaConf

from seele.config import OffPolicyConfig, SeeleConfig
from seele.data.split import divide_file
from seele.data.storage.files import as_paths, file_sha256, how_to_make, write_atomically
from seele.data.storage.schema import read_problem_files
from seele.errors import ConfigError, DataError
from seele.methods import METHODS, check_method
from seele.methods.method import SETTINGS_OF_ROLLOUTS
from seele.report.run_folder import FIRST_STAGE, MERGED
from seele_verl.changes import with_changes
from seele_verl.checks.preflight import Machine, Preflight, check_run
from seele_verl.checks.verl_settings import PROFILED, check_verl_settings
from seele_verl.merge import merge_checkpoint
from seele_verl.runs.card import read_run_card
from seele_verl.runs.checkpoints import check_not_among_later
from seele_verl.runs.resume import check_not_finished, check_same_run, check_validation_alone
from seele_verl.runs.undo import PROBLEMS, both_stages_kept
from seele_verl.settings import read_settings
from seele_verl.sft.preflight import VERL_SETTINGS_OF_ROLLOUTS

LOCK, LOCK_TRIES = ".lock", 10
"""`seele runs` and `seele check` hold the lock for a moment, in which a run tries again."""


@contextmanager
def only_run_in(folder: Path) -> Iterator[None]:
    """Keep other processes from training in this folder.

    The lock ends with this process, even if it is killed; its child processes do not inherit it.

    Raises:
        ConfigError: If another process trains there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+") as file:  # not inherited by child processes
        _lock(file, folder, tries=LOCK_TRIES)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def refuse_a_second_run_in(folder: Path) -> None:
    """Raise ``ConfigError`` if another process trains in this folder, and write nothing."""
    if (folder / LOCK).is_file():
        with (folder / LOCK).open("r+") as file:  # NFS refuses an exclusive lock of a file that is only read
            _lock(file, folder)


def _lock(file: IO[str], folder: Path, *, tries: int = 1) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if tries > 1:
            time.sleep(0.1)
            return _lock(file, folder, tries=tries - 1)
        file.seek(0)
        raise ConfigError(
            f"trainer.default_local_dir: {file.read() or 'another process'} trains in {folder}; wait for its "
            "end, or use another folder"
        ) from None
    except OSError as error:
        sys.stderr.write(
            f"warning: trainer.default_local_dir: the file system of {folder} has no locks "
            f"({error.strerror}), so a second run there would not be noticed; do not start one\n"
        )


SFT, RL = FIRST_STAGE, "rl"
DIVISION = "division.json"


def has_two_stages(config: DictConfig) -> bool:
    """True if the run's method is one of two stages; an unknown method has one."""
    method = METHODS.get(str(OmegaConf.select(config, "seele.method")))
    return method is not None and method.has_two_stages


def check_stages(
    config: DictConfig, overrides: Sequence[str], *, machine: Machine = nullcontext
) -> list[tuple[DictConfig, Preflight]]:
    """Return the stages to run, in order, with the results of their checks; a finished first stage is left
    out. The problems of two stages are divided in a temporary folder, which is gone. Nothing else is written.

    Args:
        config: The composed configuration.
        overrides: What the user typed.
        machine: As in ``check_run``.

    Raises:
        ConfigError, DataError, CheckpointError: One of the stages could not start.
    """
    if not has_two_stages(config):
        checked = check_run(config, overrides, machine=machine)
        check_same_run(config)
        check_not_finished(config)
        check_validation_alone(config)
        return [(config, checked)]
    seele = read_settings(config)
    check_method(seele)
    check_verl_settings(config)
    run = Path(config.trainer.default_local_dir).resolve()
    is_anew = config.trainer.resume_mode == "disable"
    if not is_anew:
        _check_division(run / PROBLEMS / DIVISION, config, seele)
    trains_first = is_anew or read_run_card(run / SFT).get("status") != "finished"
    # In a temporary folder first: a run that is refused changes nothing.
    with TemporaryDirectory(prefix="seele-problems-") as drawn:
        _divide_problems(config, seele, Path(drawn))
        first = _first_stage(config, run, Path(drawn))
        second = with_changes(config, {"data.train_files": problems_of_stage(Path(drawn), RL)})
        # The typed overrides belong to the second stage, and are checked with it.
        firsts = [(first, check_run(first, [], machine=machine))] if trains_first else []
        checked = check_run(second, overrides, machine=machine)
    second = with_changes(second, {"actor_rollout_ref.model.path": str(run / SFT / MERGED)})
    for stage in (first, second):
        check_same_run(stage)
    # A first stage that has finished is left out, with or without its checkpoints.
    check_not_finished(second)
    check_validation_alone(second)
    return [*firsts, (second, checked)]


def stages(
    config: DictConfig, overrides: Sequence[str]
) -> Generator[tuple[DictConfig, Preflight], None, None]:
    """Yield ``check_stages``. Until the iteration ends, no other process can run in the folder.

    Raises:
        ConfigError, DataError, CheckpointError: One of the stages could not start; raised before the folder
            changes.
    """
    *firsts, (last, checked) = check_stages(config, overrides)
    run = Path(config.trainer.default_local_dir).resolve()
    if not has_two_stages(config):
        with only_run_in(run):
            yield last, checked
        return
    seele, is_anew = read_settings(config), config.trainer.resume_mode == "disable"
    problems = run / PROBLEMS
    with only_run_in(run), ExitStack() as opened:
        if is_anew:
            for folder in (run, run / SFT):
                check_not_among_later(folder, None, needed=Path(config.actor_rollout_ref.model.path))
            opened.enter_context(both_stages_kept(run))
        if not (problems / DIVISION).exists():
            shutil.rmtree(problems, ignore_errors=True)
            _divide_problems(config, seele, problems)
            # Written last: its presence marks a complete division.
            write_atomically(problems / DIVISION, json.dumps(_division(config, seele), indent=1) + "\n")
        resumes = {"trainer.resume_mode": "auto"} if is_anew else {}

        def divided(stage: DictConfig, name: str) -> DictConfig:
            return with_changes(stage, {"data.train_files": problems_of_stage(problems, name)} | resumes)

        for first, checked_first in firsts:
            yield divided(first, SFT), checked_first
        merge_checkpoint(run / SFT, read_run_card(run / SFT)["steps"])
        yield divided(last, RL), checked


def _division(config: DictConfig, seele: SeeleConfig) -> dict[str, Any]:
    """Return the values that decide which problems a stage gets."""
    division = {
        "share": seele.sft.share,
        "seed": seele.seed,
        "files_sha256": [file_sha256(path) for path in _files(config.data.train_files, "data.train_files")],
        "max_samples": config.data.train_max_samples,
    }
    if seele.sft.train_files:
        first = _files(seele.sft.train_files, "seele.sft.train_files")
        division["first_files_sha256"] = [file_sha256(path) for path in first]
    return division


def _check_division(record: Path, config: DictConfig, seele: SeeleConfig) -> None:
    """Raise ``ConfigError`` if a run that resumes began with other files."""
    if not record.exists():
        return
    # An older record lacks the number of problems; such runs resume as they began.
    recorded = {"max_samples": config.data.train_max_samples} | json.loads(record.read_text())
    if recorded != _division(config, seele):
        raise ConfigError(
            f"{record}: the run in this folder has divided other problems, or divided them differently; "
            "use another trainer.default_local_dir, or start from scratch with trainer.resume_mode=disable"
        )


def _divide_problems(config: DictConfig, seele: SeeleConfig, folder: Path) -> None:
    """Give each stage its own files. ``data.train_max_samples`` is the number of problems that the stages
    divide, or that the second one has if the first has its own files.
    """
    left: int = config.data.train_max_samples
    share = 0.0 if seele.sft.train_files else seele.sft.share
    files = _files(config.data.train_files, "data.train_files")
    files_of_first = _files(seele.sft.train_files, "seele.sft.train_files")
    for index, path in enumerate(files):
        first, rest = (folder / stage / f"{index}-{path.name}" for stage in (SFT, RL))
        divided = divide_file(path, first, rest, share=share, seed=seele.seed, max_samples=left)
        if left > 0:
            left -= divided
    for index, path in enumerate(files_of_first):
        first, rest = (folder / stage / f"{index}-{path.name}" for stage in (SFT, RL))
        divide_file(path, first, rest, share=1.0, seed=seele.seed)
    if seele.sft.train_files:
        _check_apart(folder)
    if not all(problems_of_stage(folder, stage) for stage in (SFT, RL)):
        raise DataError(
            f"seele.sft.share: {seele.sft.share} of these problems leaves a stage with none; add data or "
            "choose another share"
        )


def _check_apart(folder: Path) -> None:
    """Raise ``DataError`` if the stages have problems in common."""
    first, second = (
        {instance.question for instance, _ in read_problem_files(problems_of_stage(folder, stage))}
        for stage in (SFT, RL)
    )
    if both := first & second:
        raise DataError(
            f"seele.sft.train_files: {len(both)} of their {len(first)} questions are also in "
            f"data.train_files, such as {min(both)[:80]!r}; the second stage trains on problems that the "
            "first has not seen. Remove them from one, or leave seele.sft.train_files empty, which divides "
            "data.train_files"
        )


def _files(files: str | Sequence[str], key: str) -> list[Path]:
    paths = as_paths(files)
    if missing := [path for path in paths if not path.is_file()]:
        raise DataError(f"{key}: no such file: {missing[0]}; {how_to_make(missing[0])}")
    return paths


def problems_of_stage(problems: Path, stage: str) -> list[str]:
    """Return the files of the problems that a stage trains on."""
    return sorted(map(str, (problems / stage).glob("*.parquet")))


def _first_stage(config: DictConfig, run: Path, problems: Path) -> DictConfig:
    changes: dict[str, Any] = {
        "seele.method": SFT,
        "seele.sft.share": 1.0,
        "seele.sft.train_files": [],
        "data.train_files": problems_of_stage(problems, SFT),
        "data.train_max_samples": -1,  # the division has applied it
        "global_profiler.tool": None,
        "global_profiler.steps": None,
        "trainer.default_local_dir": str(run / SFT),
        "trainer.total_training_steps": None,
        "trainer.nnodes": 1,
    }
    changes |= {f"seele.{name}": off for name, off in SETTINGS_OF_ROLLOUTS.items()}
    changes["seele.off_policy"] = asdict(OffPolicyConfig())
    switches = (*VERL_SETTINGS_OF_ROLLOUTS, *PROFILED)
    changes |= {name: False for name in switches if OmegaConf.select(config, name)}
    if config.trainer.resume_mode == "resume_path":
        # The path is a checkpoint of the second stage.
        changes |= {"trainer.resume_mode": "auto", "trainer.resume_from_path": None}
    return with_changes(config, changes)


def describe_stages(run: Path, card: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cost of each stage of a two-stage run, for its card; empty for other runs."""
    first = read_run_card(run / SFT)
    if not first:
        return {}
    costs = {name: first[name] for name in ("steps", "seconds", "tokens", "flops")}
    tokens = {name: count - first["tokens"][name] for name, count in card["tokens"].items()}
    flops = card["flops"] - first["flops"]
    second = {"steps": card["steps"], "seconds": card["seconds"], "tokens": tokens, "flops": flops}
    return {"stages": {SFT: costs, RL: second}}
