"""A supervised run from its driver's side: verl's SFT trainer in separate processes, then the validation.

The trainer cannot generate, so accuracy is measured on its checkpoints after it ends, by one process of
``seele_eval`` that loads them one after the other; the results are added to the lines of their steps.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from omegaconf import DictConfig

from seele.report.series import is_validated
from seele_verl.environment import variables_set
from seele_verl.merge import whole_model
from seele_verl.runs.checkpoints import drop_old_checkpoints, saved_steps
from seele_verl.runs.log import RunLog, rows_of
from seele_verl.runs.progress import follow_metrics, format_step
from seele_verl.runs.resume import checkpoint_to_resume
from seele_verl.runs.stopping import has_stopped, is_asked_to_stop, note_stop
from seele_verl.runs.undo import let_go
from seele_verl.sft.config import steps_between_checkpoints

if TYPE_CHECKING:
    from verl.utils.tracking import Tracking


def train_supervised(
    config: DictConfig, run: Path, *, python: str, total_steps: int, resumed_at: int | None, terminal: TextIO
) -> None:
    """Train up to the last step, measure the checkpoints that are due, and drop those that are not kept.
    ``python`` is the executable that starts the processes.
    """
    done = resumed_at or 0
    if done >= total_steps:
        let_go(run)
    else:
        with follow_metrics(run, total_steps=total_steps, after_step=done, terminal=terminal):
            _train(config, run, python=python, total_steps=total_steps, resumed_at=resumed_at)
        if has_stopped(run):
            return
    last = max(done, total_steps)
    last_warning = ""
    models = due_models(config, run, last_step=last)
    if models and is_asked_to_stop(run):
        note_stop(run)
        return
    if models:
        with _trackers(config) as tracking:
            for step, metrics, warning in _measure(run, models, python):
                RunLog(run).amend(step, metrics)
                tracking.log(metrics, step)
                print(format_step({"step": step} | metrics, total_steps), file=terminal)
                last_warning = warning
    if has_stopped(run):
        # The checkpoints that are left to measure must stay.
        return
    # Warn only of the last model: the first ones have yet to learn how to answer.
    RunLog(run).warn(last_warning)
    terminal.write(last_warning)
    if keep := config.trainer.max_actor_ckpt_to_keep:
        drop_old_checkpoints(run, newest=last, keep=keep)


def _train(config: DictConfig, run: Path, *, python: str, total_steps: int, resumed_at: int | None) -> None:
    # Imported here: the driver of every other method starts without it.
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    # torchrun keeps the signals that it handles, so SIGINT and SIGHUP are not among them. On SIGTERM its
    # processes save and end by themselves.
    command = ["--standalone", "--signals-to-handle=SIGQUIT"]
    command += [f"--nproc-per-node={config.trainer.n_gpus_per_node}"]
    command += ["-m", "seele_verl.sft.trainer", str(run), f"--steps={total_steps}"]
    if resumed_at is not None:
        command += [f"--resume-from={checkpoint_to_resume(config, resumed_at)}"]
    os.environ["PYTHON_EXEC"] = python
    try:
        torchrun(command)
    except ChildFailedError as error:
        raise RuntimeError("a process of verl's SFT trainer failed") from error


def due_models(config: DictConfig, run: Path, *, last_step: int) -> dict[int, Path]:
    """Return the folders of the models whose accuracy is still to be measured, by step."""
    trainer, sft = config.trainer, config.seele.sft
    models = {0: Path(config.actor_rollout_ref.model.path)} if trainer.val_before_train else {}
    if trainer.test_freq > 0:
        # Without ``save_freq`` each epoch's checkpoint; not those that ``save_every_minutes`` caused.
        every = trainer.test_freq if sft.save_freq else steps_between_checkpoints(sft, last_step)
        models |= {
            step: model
            for step in saved_steps(run)
            if (step == last_step or (step < last_step and step % every == 0))
            and (model := whole_model(run, step))
        }
    measured = {row["step"] for row in rows_of(run) if is_validated(row)}
    return {step: model for step, model in models.items() if step not in measured}


@contextmanager
def _trackers(config: DictConfig) -> Iterator["Tracking"]:
    """Open verl's trackers for the accuracies, as a run NAME-accuracy: that of training has ended."""
    # Imported here: every driver imports this module before it checks its run.
    from verl.utils.tracking import Tracking

    trainer = config.trainer
    names = [name for name in trainer.logger if name != "console"]
    of_training = os.environ.get("WANDB_RUN_ID")
    with variables_set({"WANDB_RUN_ID": f"{of_training}-accuracy"} if of_training else {}):
        tracking = Tracking(trainer.project_name, f"{trainer.experiment_name}-accuracy", names, config={})
        try:
            yield tracking
        finally:
            tracking.finish()


def _measure(
    run: Path, models: Mapping[int, Path], python: str
) -> Iterator[tuple[int, dict[str, float], str]]:
    """Yield step, metrics and warning of each model, as soon as they are known."""
    command = [python, "-m", "seele_eval.validation", "--attached", "--run", str(run), "--models"]
    command += [f"{step}={model}" for step, model in models.items()]
    # Nothing is written to its standard input, which ends when this process does.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None, "it is a pipe"
        for line in process.stdout:
            measured = json.loads(line)
            yield measured["step"], measured["metrics"], measured["warning"]
            if is_asked_to_stop(run):
                process.terminate()
                note_stop(run)
                return
    if process.returncode:
        raise RuntimeError(f"the evaluation of {list(map(str, models.values()))} failed")
