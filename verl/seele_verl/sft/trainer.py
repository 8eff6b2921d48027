"""verl's SFT trainer with our parts plugged in: one process of a supervised run.

    torchrun --standalone --nproc-per-node N -m seele_verl.sft.trainer RUN --steps S [--resume-from FOLDER]

It changes where rows and their order come from, the names under which a step is logged, and what is left to
the driver (``seele_verl.sft.run``): un-hinted accuracy, and the removal of old checkpoints. The loop and the
loss are verl's: the negative log-likelihood of the response's tokens, divided by their number in the whole
batch, over all micro-batches and ranks.
"""

import argparse
import importlib
import math
import os
import threading
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from verl.trainer import sft_trainer
from verl.utils.dataset.dataset_utils import SFTTensorCollator
from verl.utils.distributed import destroy_global_process_group, initialize_global_process_group
from verl.utils.tracking import Tracking

from seele.maths.model_shapes import model_flops
from seele_verl.compat import verl_config_folder
from seele_verl.cpu.resources import prepare_rank, return_free_memory, share_cores
from seele_verl.data_only import reading_data_only
from seele_verl.runs.card import count_parameters
from seele_verl.runs.checkpoints import (
    drop_passing_checkpoints,
    mark_passing,
    recording_files,
    save_part,
    step_folder,
    step_of,
)
from seele_verl.runs.log import TRAINED, RunLog
from seele_verl.runs.stopping import is_asked_to_stop, note_stop
from seele_verl.runs.undo import let_go
from seele_verl.sft.config import verl_sft_config
from seele_verl.sft.dataset import StepBatches

NAMES = {
    "train/loss": "actor/sft_loss",
    "train/grad_norm": "actor/grad_norm",
    "train/lr": "actor/lr",
    "train/mfu": "perf/mfu/actor",
    "train/global_tokens": "tokens/trained",
}
"""Metrics of verl's SFT trainer -> the names that its RL trainer and docs/metrics.md use."""

PARENT_POLL_S = 1.0


class SupervisedTrainer(sft_trainer.SFTTrainer):  # type: ignore[misc]
    """One process of a supervised run."""

    save_freq: int
    total_training_steps: int
    """verl's attribute: the step after which it stops."""

    def __init__(self, config: DictConfig) -> None:
        self._run = Path(config.trainer.default_local_dir)
        super().__init__(config)
        self._last_step = self.total_training_steps
        if config.trainer.resume_from_path is not None:
            # verl takes the first step that the path names, which may be that of a folder above.
            self.resume_global_step = step_of(Path(config.trainer.resume_from_path)) or 0
        self.train_dataloader.steps_done = self.resume_global_step
        self._save_freq = self.save_freq
        self._save_every_minutes: float | None = config.trainer.save_every_minutes
        self._saved_at = time.monotonic()
        self._steps_begun = self.resume_global_step

    def _build_ckpt_handler(self) -> None:
        super()._build_ckpt_handler()
        save = self.ckpt_handler.save_checkpoint

        def save_and_record(step: int) -> None:
            folder = step_folder(self._run, step)
            # verl ends with a barrier, so that all ranks have written.
            with recording_files(folder) if self.rank == 0 else nullcontext():
                if self.rank == 0:
                    save_part(folder, "problems", {"sha256": self.train_dataset.problems_sha256})
                save(step)
            if self.rank == 0:
                drop_passing_checkpoints(self._run, newest=step)
                on_schedule = self._save_freq > 0 and step % self._save_freq == 0
                if not on_schedule and step < self._last_step:
                    mark_passing(folder)
            self._saved_at = time.monotonic()

        self.ckpt_handler.save_checkpoint = save_and_record

    def _build_dataloader(self) -> None:
        data = self.config.data
        self.global_batch_size = data.train_batch_size
        self.train_dataloader = self.train_sampler = StepBatches(
            self.train_dataset,
            batch_size=data.train_batch_size,
            seed=data.seed,
            rank=self.engine.get_data_parallel_rank(),
            ranks=self.engine.get_data_parallel_size(),
            collate=SFTTensorCollator(data.pad_mode),
        )
        self.val_dataloader = None

    def _get_batch_seqlens(self, data: Any) -> Any:
        # verl calls this on every rank before each update.
        if self._steps_begun == self.resume_global_step and self.rank == 0:
            let_go(self._run)
        if self.device_name == "cpu":
            return_free_memory()
        age_s, limit_s = time.monotonic() - self._saved_at, 60 * (self._save_every_minutes or math.inf)
        # Ranks of one sequence hold the same tokens.
        tokens = torch.tensor(int(data["loss_mask"].sum()), dtype=torch.long, device=self.device_name)
        torch.distributed.all_reduce(tokens, group=self.engine.get_data_parallel_group())
        self.response_tokens = tokens.item()
        # Ranks may see the file and the time differently: [ranks that should stop, ranks that should save].
        own = [is_asked_to_stop(self._run), age_s >= limit_s]
        orders = torch.tensor(own, dtype=torch.long, device=self.device_name)
        torch.distributed.all_reduce(orders)
        stop, save = orders.tolist()
        self._steps_begun += 1
        if stop and self._steps_begun < self.total_training_steps:
            note_stop(self._run)
            self.total_training_steps = self._steps_begun
        # verl's loop saves at each multiple of ``save_freq``.
        self.save_freq = 1 if save else self._save_freq
        return super()._get_batch_seqlens(data)

    def fit(self) -> None:
        # verl creates its tracking under this name, on the one rank that logs.
        sft_trainer.Tracking = lambda **settings: StepLog(self, Tracking(**settings))
        super().fit()


class StepLog:
    """Replaces verl's tracking: a step's line goes to ``metrics.jsonl``, then to verl's loggers."""

    def __init__(self, trainer: SupervisedTrainer, tracking: Tracking) -> None:
        self._trainer = trainer
        self._tracking = tracking
        # The module has only this rank's shard of the parameters under actor.strategy=fsdp.
        model = trainer.config.model
        self._parameters = count_parameters(model.path, trust_remote_code=model.trust_remote_code)
        self._log = RunLog(Path(trainer.config.trainer.default_local_dir))
        self._log.rewind(trainer.resume_global_step)

    def log(self, data: Mapping[str, Any], step: int) -> None:
        """Log a step; verl calls this after each one."""
        metrics = {
            NAMES.get(name, name): float(value)
            for name, value in data.items()
            if isinstance(value, (int, float)) and (name in NAMES or not name.startswith("train/"))
        }
        metrics["tokens/teacher_forced"] = float(self._trainer.response_tokens)
        # A problem has one row, which shares no tokens and has a gradient.
        metrics |= dict.fromkeys(TRAINED, metrics["tokens/trained"])
        metrics["flops"] = model_flops(
            self._parameters,
            prefilled_tokens=0,
            generated_tokens=0,
            trained_tokens=metrics["tokens/trained"],
            scored_tokens=0,
        )
        metrics["timing_s/step"] = time.perf_counter() - self._trainer.train_dataloader.began_at
        self._tracking.log(self._log.append(step, metrics), step)


def end_with(parent: int) -> None:
    """End this process when its parent is gone: a driver that was killed must not leave a process behind that
    writes to the run folder.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_S)
        os._exit(1)

    threading.Thread(target=watch, name="end with parent", daemon=True).start()


def main() -> None:
    """Train one process's share of the run."""
    parser = argparse.ArgumentParser(description="One process of a supervised run; started by torchrun.")
    parser.add_argument("run", type=Path, help="run folder with resolved.yaml")
    parser.add_argument("--steps", type=int, required=True, help="steps of the whole run")
    parser.add_argument("--resume-from", type=Path, help="checkpoint folder")
    options = parser.parse_args()
    end_with(os.getppid())
    config: Any = OmegaConf.load(options.run / "resolved.yaml")
    if config.trainer.device == "cpu":
        prepare_rank(config.trainer.n_gpus_per_node)
    elif config.actor_rollout_ref.actor.fsdp_config.offload_policy:
        # The optimizer runs on the host, where torchrun gives each process one core.
        share_cores(config.trainer.n_gpus_per_node)
    sft_config = verl_sft_config(
        config,
        verl_folder=verl_config_folder(),
        total_steps=options.steps,
        checkpoint=options.resume_from,
    )
    if config.seele.packed_updates:
        importlib.import_module("seele_verl.packed_engine")
    initialize_global_process_group()
    with reading_data_only(config.actor_rollout_ref.actor.strategy):
        trainer = SupervisedTrainer(sft_config)
    trainer.fit()
    destroy_global_process_group()


if __name__ == "__main__":
    main()
