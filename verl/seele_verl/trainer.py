"""verl's synchronous trainer with SEELE's parts in its seams.

What differs: which problems a step fetches, the actor's loss, what a checkpoint holds, and what is logged.
The loop itself, old and reference log-probabilities, advantages, update and weight transfer are verl's.
"""

import dataclasses
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
import transfer_queue as tq
from omegaconf import DictConfig, open_dict
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.dataset.rl_dataset import collate_fn

from seele.curriculum import UniformCurriculum
from seele.rollout.metrics import rollout_rows, step_metrics
from seele_verl.checkpoints import (
    drop_old_checkpoints,
    load_carried,
    load_controller,
    save_carried,
    save_controller,
    step_folder,
)
from seele_verl.controller_actor import start_controller
from seele_verl.cpu.threads import use_all_cores
from seele_verl.losses import seele_loss
from seele_verl.protocol import (
    ADVANTAGE,
    HINT_WEIGHTS,
    LOG_PROB_COLUMNS,
    UPDATE_COLUMNS,
    parse_row_key,
)
from seele_verl.run_log import RunLog
from seele_verl.settings import read_settings

# verl polls its replay buffer every 2 s by default, as long as a whole step of a tiny model.
POLL_INTERVAL_S = 0.05


class SeeleTrainer(PPOTrainerSync):
    """One SEELE run."""

    def __init__(self, config: DictConfig) -> None:
        # Retention is ours: verl would remove an old checkpoint before its tracker names the new one.
        self._checkpoints_to_keep: int | None = config.trainer.max_actor_ckpt_to_keep
        with open_dict(config):
            config.trainer.max_actor_ckpt_to_keep = None
        # Before verl's part, which builds the replay buffer by it.
        self.seele = read_settings(config)
        super().__init__(config)
        self.replay_buffer.poll_interval = POLL_INTERVAL_S
        self.controller = start_controller(self.seele)
        self.run = Path(config.trainer.default_local_dir)
        self.log = RunLog(self.run)
        self._training = False
        self._carried: list[int] = []
        """Problems that the step before left behind."""
        self._problem_of_uid: dict[str, int] = {}

    def _build_replay_buffer(self) -> ReplayBuffer:
        if self.seele.curriculum.spare_problems:
            with open_dict(self.config):
                self.config.trainer.v1.sampler.custom_sampler = {
                    "path": "pkg://seele_verl.replay_buffer",
                    "name": "SpareProblemsBuffer",
                }
        return super()._build_replay_buffer()

    # ---------------------------------------------------------------- problems

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        self.curriculum = UniformCurriculum(
            len(self.train_dataset),
            batch_size=self.config.data.train_batch_size,
            seed=self.seele.seed,
            spare_problems=self.seele.curriculum.spare_problems,
        )
        if self.config.trainer.total_training_steps is not None:
            # verl stops at whichever of epochs and steps comes first; steps that were asked for win.
            with open_dict(self.config):
                self.config.trainer.total_epochs = self.total_training_steps // self.steps_per_epoch + 1

    def _fetch_one_gen_batch(self) -> TensorDict:
        ray.get(self.controller.begin_step.remote(self.global_steps))
        problems = [*self._carried, *self.curriculum.problems_of_step(self.global_steps)]
        uids = [f"step{self.global_steps}-{index:06d}" for index in range(len(problems))]
        self._problem_of_uid = dict(zip(uids, problems, strict=True))
        if self.seele.curriculum.spare_problems:
            self.replay_buffer.awaited = frozenset(uids[: len(self._carried)])
        batch = collate_fn([self.train_dataset[problem] for problem in problems])
        batch["uid"] = np.array(uids, dtype=object)
        return tu.get_tensordict(batch)

    def on_sample_end(self) -> None:
        if self.seele.curriculum.spare_problems:
            left_behind = self.replay_buffer.left_behind()
            workers = self.agent_loop_manager.agent_loop_workers
            ray.get([worker.cancel_prompts.remote(left_behind) for worker in workers])
            self.replay_buffer.forget(left_behind)
            self._carried = [self._problem_of_uid[uid] for uid in left_behind]
        super().on_sample_end()

    # -------------------------------------------------------- advantage and loss

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        batch = super()._compute_advantage(batch, metrics)
        if self.seele.advantage.baseline == "pooled":
            return batch
        data = tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask"]
        )
        advantages = torch.nested.as_nested_tensor(
            [
                mask_T * (0.0 if tag.get("is_padding") else tag[ADVANTAGE])
                for mask_T, tag in zip(data["response_mask"].unbind(), batch.tags, strict=True)
            ],
            layout=torch.jagged,
        )
        fields = TensorDict({"advantages": advantages, "returns": advantages}, batch_size=len(batch))
        return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        super()._compute_old_log_prob(_columns(batch, LOG_PROB_COLUMNS), metrics)
        return batch

    def _compute_ref_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        super()._compute_ref_log_prob(_columns(batch, LOG_PROB_COLUMNS), metrics)
        return batch

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        present = set(batch.fields or ())
        super()._update_actor(_columns(batch, present.intersection(UPDATE_COLUMNS)), metrics)
        return batch

    def on_init_end(self) -> None:
        if self.seele.imitation.coefficient:
            actor = omega_conf_to_dataclass(self.config.actor_rollout_ref.actor)
            self.actor_rollout_wg.set_loss_fn(
                partial(seele_loss, config=actor, imitation=self.seele.imitation)
            )
        if self.config.trainer.device == "cpu":
            use_all_cores(self.actor_rollout_wg, ranks=self.config.trainer.n_gpus_per_node)
        super().on_init_end()

    def _balance_batch(
        self, batch: KVBatchMeta, metrics: dict[str, Any], *args: Any, **kwargs: Any
    ) -> KVBatchMeta:
        # Rows arrive in the order in which prompts finished; sorted, the mini-batches do not depend on it.
        batch.reorder(sorted(range(len(batch.keys)), key=batch.keys.__getitem__))
        batch = super()._balance_batch(batch, metrics, *args, **kwargs)
        padding = [
            (key, tag["seq_len"])
            for key, tag in zip(batch.keys, batch.tags, strict=True)
            if tag.get("is_padding")
        ]
        if padding and self.seele.imitation.coefficient:
            # verl fills a batch that lost a prompt with copies of its first row, of another length.
            weights = torch.nested.as_nested_tensor(
                [torch.zeros(length) for _, length in padding], layout=torch.jagged
            )
            fields = TensorDict({HINT_WEIGHTS: weights}, batch_size=len(padding))
            tq.kv_batch_put(keys=[key for key, _ in padding], partition_id=batch.partition_id, fields=fields)
        return batch

    # ------------------------------------------------------------- checkpoints

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        self.log.rewind(self.global_steps)
        if self.global_steps:
            resume_from = self.config.trainer.resume_from_path
            resume_path = self.config.trainer.resume_mode == "resume_path"
            folder = Path(resume_from) if resume_path else step_folder(self.run, self.global_steps)
            self._carried = load_carried(folder)
            state = load_controller(folder)
            ray.get(self.controller.load_state_dict.remote(state))
            assert ray.get(self.controller.state_dict.remote()) == state, "a restart is no restart"

    def _save_checkpoint(self) -> None:
        # Before verl's part, which ends with the tracker: a checkpoint that the tracker names is complete.
        state = ray.get(self.controller.state_dict.remote())
        save_controller(step_folder(self.run, self.global_steps), state)
        save_carried(step_folder(self.run, self.global_steps), self._carried)
        super()._save_checkpoint()
        if self._checkpoints_to_keep:
            drop_old_checkpoints(self.run, newest=self.global_steps, keep=self._checkpoints_to_keep)

    # ----------------------------------------------------------------- logging

    def on_train_begin(self) -> None:
        super().on_train_begin()
        self._training = True

    def _validate(self) -> dict[str, float]:
        metrics: dict[str, float] = super()._validate()
        for name, value in list(metrics.items()):
            if name.startswith("val-core/") and "/reward/mean@" in name:
                split = name.removeprefix("val-core/").split("/reward/")[0]
                metrics[f"val/accuracy/{split}"] = value
        if not self._training:
            self.log.append(self.global_steps, _scalars(metrics))
        return metrics

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict[str, Any], timing_raw: Any, global_steps: int, epoch: int
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        rolled_out, controller_metrics = ray.get(self.controller.take_step.remote())
        trained_uids = {parse_row_key(key)[0] for key in batch.keys}
        visits = {uid: visit for uid, visit in rolled_out.items() if uid in trained_uids}
        metrics["rollout/left_behind_problems"] = float(len(self._carried))
        trained = sum(tag["seq_len"] for tag in batch.tags if not tag.get("is_padding"))
        metrics |= step_metrics(list(visits.values())) | controller_metrics
        metrics["tokens/trained"] = trained * self.config.actor_rollout_ref.actor.ppo_epochs
        advantages = self._advantages(batch)
        self.log.write_rollouts(
            global_steps,
            (row for uid, visit in visits.items() for row in rollout_rows(visit, advantages.get(uid, {}))),
        )
        metrics |= self.log.append(global_steps, _scalars(metrics))

    @staticmethod
    def _advantages(batch: KVBatchMeta) -> dict[str, dict[int, float]]:
        """uid -> rollout index -> the advantage that the update gave to each of the rollout's tokens."""
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["advantages"])
        advantages: dict[str, dict[int, float]] = {}
        for key, tag, advantage_T in zip(batch.keys, batch.tags, data["advantages"].unbind(), strict=True):
            if not tag.get("is_padding"):
                uid, rollout_index = parse_row_key(key)
                advantages.setdefault(uid, {})[rollout_index] = float(advantage_T[0])
        return advantages


def _columns(batch: KVBatchMeta, names: Collection[str]) -> KVBatchMeta:
    """The same rows with these fields only."""
    return dataclasses.replace(batch, fields=sorted(names))


def _scalars(metrics: dict[str, Any]) -> dict[str, float]:
    """The metrics that are single numbers, as plain floats."""
    return {
        name: float(value)
        for name, value in metrics.items()
        if isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    }
