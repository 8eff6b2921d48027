"""Keeps what a start replaces in its run folder until training begins. A command that is refused before, by
verl, the cluster or a checkpoint's states, or that Ctrl-C ends, leaves the folder as it was.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from seele.errors import CheckpointError, ConfigError, DataError
from seele.report.run_folder import FIRST_STAGE, TRACKER
from seele_verl.plan import RESOLVED
from seele_verl.runs.card import RUN_CARD
from seele_verl.runs.checkpoints import models_after
from seele_verl.runs.log import METRICS, WANDB_RUN, dumps_after
from seele_verl.runs.overlong import RECORD
from seele_verl.runs.resume import find_start, goes_back

KEPT, COMES_BACK = ".before", ".comes_back"
BOTH_STAGES = ".before_both_stages"
"""Folder of what a run of two stages removes where it does not resume."""
PROBLEMS = "problems"
"""Folder of the problems of two stages."""
_REPLACED = (METRICS, RESOLVED, RECORD, RUN_CARD, TRACKER, str(WANDB_RUN))
_REFUSED = (CheckpointError, ConfigError, DataError, OSError, KeyboardInterrupt)


@contextmanager
def kept_until_training(config: DictConfig) -> Iterator[None]:
    """Start a run while this is open. What it removes goes to a hidden folder, with copies of what it
    replaces, and comes back if the run is refused before ``let_go``.

    Raises:
        ConfigError: As ``find_start``; nothing is changed.
    """
    run = Path(config.trainer.default_local_dir).resolve()
    _put_back(run)
    step = find_start(config)
    _drop(run / KEPT)  # of a killed start
    models = models_after(run, step) if goes_back(config) else []
    # A checkpoint of another run gives the number of its step, but removes all of this one's.
    is_own = config.trainer.resume_mode == "auto" or goes_back(config)
    removed = [*models, *dumps_after(run, (step or 0) if is_own else 0)]
    replaced = [run / name for name in _REPLACED if (run / name).is_file()]
    _keep(shutil.copy2, replaced, run, run / KEPT)  # copies first: a disk may be full
    _keep(Path.rename, removed, run, run / KEPT)
    try:
        yield
    except _REFUSED:
        with suppress(FileNotFoundError):  # training has begun
            # Also where the network shows a folder a while longer than it is there.
            (run / KEPT).rename(run / COMES_BACK)
            for name in _REPLACED:
                (run / name).unlink(missing_ok=True)
            _put_back(run)
        raise
    finally:
        _drop(run / KEPT)


@contextmanager
def both_stages_kept(run: Path) -> Iterator[None]:
    """Start a run of two stages that does not resume while this is open. What either would resume from goes
    to a hidden folder, and comes back if the first stage is refused before ``let_go``.
    """
    _put_back(run)
    _drop(run / BOTH_STAGES)  # of a killed start
    folders = (run, run / FIRST_STAGE)
    # The cards are removed first, because they say which stages have finished.
    paths = [folder / name for name in (RUN_CARD, *_REPLACED) for folder in folders[::-1]]
    paths += [path for folder in folders for path in (*models_after(folder, None), *dumps_after(folder, 0))]
    paths.append(run / PROBLEMS)
    new: list[Path] = []
    try:
        _keep(Path.rename, paths, run, run / BOTH_STAGES)
        new = paths
        yield
    except _REFUSED:
        if (run / BOTH_STAGES).exists():  # else training has begun
            for path in new:
                _drop(path)
            (run / BOTH_STAGES).rename(run / COMES_BACK)
            _put_back(run)
        raise
    finally:
        _drop(run / BOTH_STAGES)


def _keep(keep: Callable[[Path, Path], Any], paths: Sequence[Path], run: Path, folder: Path) -> None:
    """Copy or move what exists of these paths of the run to the folder."""
    for path in paths:
        if path.exists():
            there = folder / path.relative_to(run)
            there.parent.mkdir(parents=True, exist_ok=True)
            keep(path, there)


def _drop(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _put_back(run: Path) -> None:
    """Put back what a refused start moved away. If that is interrupted, the next start goes on with it."""

    def put(kept: Path, place: Path) -> None:
        if not (kept.is_dir() and place.is_dir()):
            kept.replace(place)
            return
        for each in [*kept.iterdir()]:
            put(each, place / each.name)

    if (run / COMES_BACK).is_dir():
        put(run / COMES_BACK, run)
        shutil.rmtree(run / COMES_BACK)


def let_go(run: Path) -> None:
    """Training begins in a run, or in the first stage of one: from now on nothing comes back."""
    _drop(run / KEPT)
    _drop(run.parent / BOTH_STAGES if run.name == FIRST_STAGE else run / BOTH_STAGES)
