"""Keeps what a start replaces in its run folder until training begins. A command that is refused before, by
verl, the cluster or a checkpoint's states, or that Ctrl-C ends, leaves the folder as it was.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from omegaconf import DictConfig

from seele.errors import CheckpointError, ConfigError, DataError
from seele.report.run_folder import TRACKER
from seele_verl.plan import RESOLVED
from seele_verl.runs.card import RUN_CARD
from seele_verl.runs.checkpoints import models_after
from seele_verl.runs.log import METRICS, WANDB_RUN, dumps_after
from seele_verl.runs.overlong import RECORD
from seele_verl.runs.resume import find_start, goes_back

KEPT, COMES_BACK = ".before", ".comes_back"
_REPLACED = (METRICS, RESOLVED, RECORD, RUN_CARD, TRACKER, str(WANDB_RUN))


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
    let_go(run)  # of a killed start
    models = models_after(run, step) if goes_back(config) else []
    removed = [path for path in (*models, *dumps_after(run, step or 0)) if path.exists()]
    replaced = [run / name for name in _REPLACED if (run / name).is_file()]
    for keep, paths in ((shutil.copy2, replaced), (Path.rename, removed)):  # copies first: a disk may be full
        for path in paths:
            there = run / KEPT / path.relative_to(run)
            there.parent.mkdir(parents=True, exist_ok=True)
            keep(path, there)
    try:
        yield
    except (CheckpointError, ConfigError, DataError, OSError, KeyboardInterrupt):
        with suppress(FileNotFoundError):  # training has begun
            # Also where the network shows a folder a while longer than it is there.
            (run / KEPT).rename(run / COMES_BACK)
            for name in _REPLACED:
                (run / name).unlink(missing_ok=True)
            _put_back(run)
        raise
    finally:
        let_go(run)


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
    """Training begins: from now on nothing comes back."""
    shutil.rmtree(run / KEPT, ignore_errors=True)
