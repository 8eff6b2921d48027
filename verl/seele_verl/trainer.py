"""verl's synchronous trainer with SEELE's parts plugged in.

It changes which problems a step fetches and which of their groups it learns from, the old log-probabilities
of off-policy tokens, the actor's loss, what a checkpoint holds, and what is logged; and it adds supervised
updates.
The loop itself, log-probabilities, update and weight transfer are verl's. Advantages are computed in the
prompt's coroutine and put into the batch here.
"""

import dataclasses
import math
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
import transfer_queue as tq
from omegaconf import DictConfig
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.dataset.rl_dataset import collate_fn
from verl.utils.debug import marked_timer

from seele.callbacks import Callbacks
from seele.curriculum import columns_needed
from seele.curriculum.planner import StepPlanner
from seele.errors import CheckpointError
from seele.methods.credit import MilestoneCredit, Span
from seele.methods.interleave import FailedProblems
from seele.methods.loss_terms import LossTerms
from seele.methods.sources import build_source
from seele.records import Finish, GradeReason
from seele.rollout.metrics import rollout_rows, step_metrics, unanswered_of
from seele.rollout.solutions import encode_problem
from seele.rollout.templates import encode_prompt
from seele.rollout.unanswered import (
    Graded,
    Unanswered,
    advise_run,
    find_unanswered,
    share_metrics,
    warn_of_unanswered,
)
from seele_verl.advantages import (
    exchange_log_probs,
    weigh_on_policy_tokens_only,
    write_advantages,
    write_spans,
)
from seele_verl.changes import with_changes
from seele_verl.columns import (
    count_tokens,
    keys_marked_whole,
    keys_with_weight,
    read_columns,
    real_rows,
)
from seele_verl.compat import call_on_every_rank
from seele_verl.controller_actor import start_controller
from seele_verl.cost_meter import CostMeter
from seele_verl.cpu.resources import prepare_ranks, return_free_memory, share_cores
from seele_verl.critic import CriticWorker
from seele_verl.data_only import reading_data_only
from seele_verl.engine.weight_socket import send_on_own_socket
from seele_verl.engine_watch import EngineWatch
from seele_verl.faults import DEATHS, plugin_fault, watch_for_faults
from seele_verl.hint_reliance import measure_hint_reliance
from seele_verl.losses import informative_columns, means_over_computed, seele_loss, weight_columns
from seele_verl.protocol import (
    CRITIC_COLUMNS,
    FINISH,
    LENGTH_TAGS,
    LOG_PROB_COLUMNS,
    REASON,
    UPDATE_COLUMNS,
    WEIGHT_COLUMNS,
    count_of,
    parse_row_key,
    row_key,
)
from seele_verl.queue_watch import watched_queue
from seele_verl.runs.checkpoints import (
    drop_old_checkpoints,
    drop_passing_checkpoints,
    load_part,
    mark_passing,
    recording_files,
    save_part,
    step_folder,
)
from seele_verl.runs.log import RunLog
from seele_verl.runs.resume import checkpoint_to_resume, final_step, is_validation_due, saved_line
from seele_verl.runs.stopping import heed_before_training, is_asked_to_stop, note_stop
from seele_verl.runs.tracker_tables import log_rollouts
from seele_verl.runs.undo import let_go
from seele_verl.runs.watchdog import show_life
from seele_verl.self_distillation import ask_teacher, teacher_prompts, write_divergence
from seele_verl.settings import read_settings
from seele_verl.solutions import ActorWorker, Solution, learn_solutions
from seele_verl.step_record import StepRecord
from seele_verl.token_dump import token_columns

# verl polls its replay buffer every 2 s by default, which is as long as a whole step of a tiny model. A poll
# lists every key.
POLL_INTERVAL_S = {"cpu": 0.05, "cuda": 0.1}


class SeeleTrainer(PPOTrainerSync):
    """One SEELE run."""

    total_training_steps: int
    """verl's attribute: the step after which it stops."""

    def __init__(self, config: DictConfig) -> None:
        # We drop old checkpoints ourselves: verl would remove one before its tracker names the new one.
        self._checkpoints_to_keep: int | None = config.trainer.max_actor_ckpt_to_keep
        config = with_changes(config, {"trainer.max_actor_ckpt_to_keep": None})
        # Before verl's part, which needs it to build the replay buffer.
        self.seele = read_settings(config)
        self.source, self.terms = build_source(self.seele.off_policy), LossTerms(self.seele)
        self.credit = MilestoneCredit(self.seele.credit) if self.seele.credit.walks else None
        self.failed = FailedProblems(count) if (count := self.seele.interleave.problems) else None
        super().__init__(config)
        self.replay_buffer.poll_interval = POLL_INTERVAL_S[config.trainer.device]
        self.run = Path(config.trainer.default_local_dir)
        watch_for_faults(
            self.replay_buffer, on_news=partial(show_life, self.run), on_look=self._replace_lost_workers
        )
        self.controller = start_controller(self.seele)
        self.log = RunLog(self.run)
        self.callbacks = Callbacks(self.seele.callbacks)
        self._training = False
        self._saved_step, self._saved_at = 0, time.monotonic()
        """This process's last checkpoint, and when it was written; or when the process began."""
        self._carried: list[int] = []
        """Problems that the previous step left behind."""
        self.current = StepRecord()
        """What is known of the step; each step begins with a new record."""
        self._validated_texts: list[str] = []
        """The last validation's responses."""
        self._looked_at: set[str] = set()
        """Kinds of responses that were checked for a warning, which is given once per kind."""
        self._line: dict[str, float] = {}
        """The part of the step's metrics that is known when the step is saved."""
        self.cost_meter = CostMeter(config, self.seele, self.source, has_critic=self.use_critic)

    def fit(self, agent_loop_manager: Any) -> None:
        """Run verl's loop.

        Raises:
            PluginError: A user's own part raised or returned nonsense, in this process or another.
            RuntimeError: An engine or a process of the queue died.
        """
        try:
            with watched_queue():
                super().fit(agent_loop_manager)
        except Exception as error:
            if fault := plugin_fault(error):
                raise fault from error
            if ended := self._why_nothing_is_generated():
                raise RuntimeError(ended) from error
            raise

    def _why_nothing_is_generated(self) -> str:
        """Return why the step or its validation has no rollouts at all, for which verl's message names no
        cause; else an empty text.
        """
        if self.engines.have_all_died():
            return f"the engine died in step {self.global_steps}"
        others = (*self._unfinished, self.replay_buffer.finished_keys)
        if any(of["train"] for of in others) or not self.replay_buffer.failure_keys["train"]:
            return ""
        reason = ray.get(self.controller.first_reason.remote())
        return f"the rollouts of all problems of step {self.global_steps} failed, the first with {reason}"

    @property
    def _refreshes_solutions(self) -> bool:
        """True if right responses become solutions."""
        return self.seele.hints.refresh == "epoch"

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        for role in self.role_worker_mapping.keys() & {Role.ActorRollout, Role.ActorRolloutRef}:
            self.role_worker_mapping[role] = ray.remote(ActorWorker)
        if self.use_critic:
            self.role_worker_mapping[Role.Critic] = ray.remote(CriticWorker)

    # ---------------------------------------------------------------- problems

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        self.planner = StepPlanner(
            self.seele,
            self.train_dataset.columns(columns_needed(self.seele.curriculum)),
            instance_ids=self.train_dataset.instance_ids,
            batch_size=self.config.data.train_batch_size,
            replays=self.source.replays,
            replays_visited=self.source.replays_visited,
        )

    def _next_train_batch(self, num_prompts: int | None = None) -> TensorDict:
        """Return the problems that a step begins, or ``num_prompts`` more where verl filters groups."""
        if num_prompts is None:
            ray.get(self.controller.begin_step.remote(self.global_steps))
            self.current = StepRecord()
            problems, replayed = self.planner.begin(self.global_steps, carried=self._carried)
        else:
            in_flight = [self.current.problem_of_uid[uid] for of in self._unfinished for uid in of["train"]]
            problems, replayed = self.planner.begin_more(num_prompts, in_flight=in_flight)
        earlier = [*self.current.problem_of_uid.values()]
        uids = [f"step{self.global_steps}-{len(earlier) + index:06d}" for index in range(len(problems))]
        self.current.problem_of_uid |= zip(uids, problems, strict=True)
        if self.seele.curriculum.spare_problems:
            self.replay_buffer.awaited = frozenset(uids[: len(self._carried)])
        rows = [
            self.train_dataset[problem]
            # ``repeat`` counts how often the step has already begun the problem: its rollouts must differ.
            | {
                "replayed": replayed.get(problem),
                "repeat": earlier.count(problem),
                "stops": self.credit is not None and self.credit.stops,
            }
            for problem in problems
        ]
        batch = tu.get_tensordict(collate_fn(rows) | {"uid": np.array(uids, dtype=object)})
        tu.assign_non_tensor_data(batch, "global_steps", self.global_steps)
        return batch

    @property
    def _unfinished(self) -> tuple[Mapping[str, set[str]], Mapping[str, set[str]]]:
        """The uids of groups that have not ended, by verl's partition, for each status."""
        return self.replay_buffer.pending_keys, self.replay_buffer.running_keys

    def _replace_lost_workers(self) -> None:
        unfinished = {uid for of in self._unfinished for uids in of.values() for uid in uids}
        for problems in self.agent_loop_manager.replace_lost_workers(unfinished):
            self.log.warn(
                f"step {self.global_steps}: a rollout worker died; another one begins {problems} of its "
                "problems again\n"
            )

    def on_sample_end(self) -> None:
        self.engines.let_go_of_dead(self.global_steps)
        left_behind, self._carried = [], []
        if self.seele.curriculum.spare_problems:
            left_behind = self.replay_buffer.left_behind()
            self._cancel(left_behind)
            self.replay_buffer.forget(left_behind)
            self._carried = [self.current.problem_of_uid[uid] for uid in left_behind]
        visits, self.current.controller_metrics = ray.get(self.controller.take_step.remote())
        # A visit of an earlier step may have ended between that step's end and its own cancellation.
        of_this_step = self.current.problem_of_uid.keys() - left_behind
        self.current.visits = {uid: visit for uid, visit in visits.items() if uid in of_this_step}
        super().on_sample_end()

    def _cancel(self, uids: Sequence[str]) -> None:
        """Stop rolling these groups out, and end their visits."""
        workers, has_died = self.agent_loop_manager.agent_loop_workers, False
        for stopped in [worker.cancel_prompts.remote(uids) for worker in workers]:
            try:
                ray.get(stopped)
            except DEATHS:
                has_died = True  # the next step replaces the worker
        if has_died:
            for uid in uids:
                name = self.train_dataset.instance_ids[self.current.problem_of_uid[uid]]
                ray.get(self.controller.end_visit.remote(uid, name))

    def _drop_unselected(self, batch: KVBatchMeta) -> KVBatchMeta:
        """Return the rows of the groups that the update learns from."""
        uid_of_key = {key: parse_row_key(key)[0] for key in batch.keys}
        visits = {uid: self.current.visits[uid] for uid in dict.fromkeys(uid_of_key.values())}
        selected = self.planner.select(list(visits.values()))
        self.current.updates = bool(selected)
        kept = [key for key, uid in uid_of_key.items() if visits[uid].instance.instance_id in selected]
        if not kept or len(kept) == len(batch):
            return batch
        tq.kv_clear(keys=sorted(set(batch.keys).difference(kept)), partition_id=batch.partition_id)
        return batch.select_keys(kept)

    # -------------------------------------------------------- advantage and loss

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        # verl computes the weights between engine and trainer, and estimates, which runs with a critic keep.
        batch = super()._compute_advantage(batch, metrics)
        spans = self._take_credit(self.credit) if self.credit is not None else {}
        if self.seele.credit.by_milestones:
            batch = write_spans(batch, spans)
        elif self.seele.credit.by_distillation:
            metrics["distillation/divergence"] = write_divergence(batch, self.current.teacher_prompts)
        elif not self.use_critic:
            batch = write_advantages(batch, self.source)
        if self.source.marks_tokens:
            if "rollout_is_weights" in (batch.fields or ()):
                weigh_on_policy_tokens_only(batch)
            # verl also compares engine and trainer on tokens that the engine did not write, where weights are
            # 1.
            for name in [name for name in metrics if name.startswith(("training/rollout_", "rollout_corr/"))]:
                if not name.startswith("rollout_corr/rollout_is_"):
                    del metrics[name]
        return batch

    def _take_credit(self, credit: MilestoneCredit) -> dict[str, list[Span]]:
        """Return the advantages of the step's rollouts, by row."""
        stopped = credit.stops
        spans = credit.take_step(self.current.visits)
        if stopped and not credit.stops:
            self.log.warn(
                f"warning: step {self.global_steps}: {100 * credit.false_alarms:.1f} % of the rollouts with "
                "a right answer have what looks like a sure error, more than seele.credit.stop_below; "
                "rollouts are no longer stopped early. If the walk is more to be trusted than these answers, "
                "as on chains, start a new run with seele.credit.stop_below=1\n"
            )
        return {row_key(uid, index): of_row for uid, rows in spans.items() for index, of_row in rows.items()}

    @property
    def _uses_engines_log_probs(self) -> bool:
        """True if the rows' own log-probabilities serve as the old ones."""
        bypass: bool = self.config.algorithm.rollout_correction.bypass_mode
        return bypass

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        show_life(self.run)
        super()._compute_old_log_prob(_columns(batch, LOG_PROB_COLUMNS), metrics)
        if self.source.marks_tokens and not self._uses_engines_log_probs:
            exchange_log_probs(batch, has_log_probs=self.source.has_log_probs)
        if self._measures_reliance:
            asked = self.seele.prompt
            metrics |= measure_hint_reliance(
                batch,
                self.current.visits,
                self.actor_rollout_wg,
                ask=lambda question: encode_prompt(self.tokenizer, question, asked.template, asked.chat),
                temperature=self.config.actor_rollout_ref.rollout.temperature,
                multiple=self._multiple_of_rows(self.config.actor_rollout_ref.rollout),
            )
        return batch

    def _multiple_of_rows(self, passes: DictConfig) -> int:
        """Number that divides the rows of each pass for log-probabilities, with the ``rollout`` or ``ref``
        section's settings.
        """
        of_rank = 1 if passes.log_prob_use_dynamic_bsz else passes.log_prob_micro_batch_size_per_gpu
        ranks: int = self.config.trainer.nnodes * self.config.trainer.n_gpus_per_node
        return ranks * of_rank

    @property
    def _measures_reliance(self) -> bool:
        """True if the step is validated, and its prompts may have hints."""
        in_prompt = self.seele.hints.gives_hints and not self.source.in_response
        return in_prompt and is_validation_due(
            self.config, self.global_steps, ends_at=self.total_training_steps
        )

    def _compute_ref_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        show_life(self.run)
        if not self.seele.credit.by_distillation:
            super()._compute_ref_log_prob(_columns(batch, LOG_PROB_COLUMNS), metrics)
            return batch
        section = self.config.actor_rollout_ref
        if self.ref_in_actor:
            score, passes = self.actor_rollout_wg.compute_log_prob, section.rollout
            how = {"no_lora_adapter": True}
        else:
            score, passes, how = self.ref_policy_wg.compute_ref_log_prob, section.ref, {}
        self.current.teacher_prompts = teacher_prompts(batch, self.current.visits, self.tokenizer, self.seele)
        ask_teacher(
            batch,
            self.current.teacher_prompts,
            score,
            multiple=self._multiple_of_rows(passes),
            temperature=section.rollout.temperature,
            **how,
        )
        return batch

    def _compute_values(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        show_life(self.run)
        super()._compute_values(_columns(batch, LOG_PROB_COLUMNS), metrics)
        return batch

    def _update_critic(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        show_life(self.run)
        super()._update_critic(_columns(batch, CRITIC_COLUMNS), metrics)
        return batch

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        show_life(self.run)
        actor = omega_conf_to_dataclass(self.config.actor_rollout_ref.actor)
        columns = weight_columns(actor, self.terms)
        self.current.informative = keys_with_weight(batch, informative_columns(self.terms))
        if self.current.updates:
            num_updates = len(batch) / (actor.ppo_mini_batch_size * self.config.actor_rollout_ref.rollout.n)
            for column in (column for each in self.terms for column in each.term.counted):
                batch.extra_info[count_of(column)] = count_tokens(batch, column) / num_updates
            leaves_out = bool(columns) and self.seele.packed_updates
            if leaves_out:
                batch.extra_info[WEIGHT_COLUMNS] = columns
            of_update: dict[str, Any] = {}
            read = set(batch.fields or ()).intersection([*UPDATE_COLUMNS, *self.terms.columns])
            super()._update_actor(_columns(batch, read), of_update)
            if leaves_out:
                tokens = {key: tag["response_len"] for key, tag in real_rows(batch).items()}
                taken_over = [name for each in self.terms if (name := each.term.takes_over)]
                of_update = means_over_computed(
                    of_update,
                    rows=len(batch),
                    tokens=tokens,
                    computed=self.current.informative - keys_marked_whole(batch, taken_over),
                    loss_agg_mode=actor.loss_agg_mode,
                )
            metrics |= of_update
        if self.failed is not None:
            metrics |= self._learn_solutions(self.failed, self._uids_by_problem(batch))
        if self.config.trainer.device == "cpu":
            call_on_every_rank(self.actor_rollout_wg, return_free_memory)
        self._learn(batch)
        show_life(self.run)
        return batch

    def _uids_by_problem(self, batch: KVBatchMeta) -> dict[int, str]:
        """Return one group of each problem, in their order: that of the batch where the group filter made the
        step begin a problem more than once.
        """
        trained = {parse_row_key(key)[0] for key in batch.keys}
        uids = {
            self.current.problem_of_uid[uid]: uid
            for uid in sorted(self.current.visits, key=lambda uid: (uid in trained, uid))
        }
        return dict(sorted(uids.items(), key=lambda item: item[1]))

    def _learn_solutions(self, failed: FailedProblems, uids: Mapping[int, str]) -> dict[str, float]:
        """Note the step's failures, and make a supervised update once enough problems have failed."""
        visits = {problem: self.current.visits[uid] for problem, uid in uids.items()}
        self.current.solutions = [self._solution(problem) for problem in failed.take_step(visits)]
        if not self.current.solutions:
            return {}
        temperature = self.config.actor_rollout_ref.rollout.temperature
        found = learn_solutions(self.actor_rollout_wg, self.current.solutions, temperature=temperature)
        return {f"interleave/{name}": value for name, value in found.items()}

    def _solution(self, problem: int) -> Solution:
        instance, how = self.train_dataset[problem]["instance"], self.seele.prompt
        encoded = encode_problem(self.tokenizer, instance.question, instance.steps, how.template, how.chat)
        response = encoded.solution(self.tokenizer)[: self.config.data.max_response_length]
        return Solution(prompt_ids=encoded.prompt_ids, response_ids=response)

    def _learn(self, batch: KVBatchMeta) -> None:
        """Tell the planner the step's results, before the step is saved."""
        data = read_columns(batch, ["advantages"])
        sizes: dict[str, dict[int, float]] = defaultdict(dict)
        for key, tag, advantage_T in zip(batch.keys, batch.tags, data["advantages"].unbind(), strict=True):
            if self.current.updates and not tag.get("is_padding"):
                uid, rollout_index = parse_row_key(key)
                self.current.advantages[uid][rollout_index] = float(advantage_T[-1])
                sizes[uid][rollout_index] = float(advantage_T.abs().mean())
        if self.seele.dump_tokens and self.current.updates:
            for key, columns in token_columns(batch, self.tokenizer.batch_decode).items():
                uid, rollout_index = parse_row_key(key)
                self.current.tokens[uid][rollout_index] = columns
        uids = self._uids_by_problem(batch)
        visits = {problem: self.current.visits[uid] for problem, uid in uids.items()}
        self.planner.learn(visits, {problem: sizes[uid] for problem, uid in uids.items() if uid in sizes})
        if self._refreshes_solutions:
            self.train_dataset.own_solutions.learn(visits)

    def on_init_end(self) -> None:
        if self.terms.change_the_loss:
            actor = omega_conf_to_dataclass(self.config.actor_rollout_ref.actor)
            self.actor_rollout_wg.set_loss_fn(partial(seele_loss, config=actor, terms=self.terms))
        self.engines = EngineWatch(self.checkpoint_manager, warn=self.log.warn)
        call_on_every_rank(self.actor_rollout_wg, send_on_own_socket)
        if self.config.trainer.device == "cpu":
            prepare_ranks(self.actor_rollout_wg, ranks=self.config.trainer.n_gpus_per_node)
        elif self.config.actor_rollout_ref.actor.fsdp_config.offload_policy:
            # The optimizer runs on the host.
            call_on_every_rank(self.actor_rollout_wg, share_cores, self.config.trainer.n_gpus_per_node)
        super().on_init_end()

    def _balance_batch(
        self, batch: KVBatchMeta, metrics: dict[str, Any], *args: Any, **kwargs: Any
    ) -> KVBatchMeta:
        # Rows arrive in the order in which prompts finish; they are sorted so that mini-batches do not depend
        # on it.
        batch = self._drop_unselected(batch)
        batch.reorder(sorted(range(len(batch.keys)), key=batch.keys.__getitem__))
        batch = super()._balance_batch(batch, metrics, *args, **kwargs)
        padding = {key: tag for key, tag in zip(batch.keys, batch.tags, strict=True) if tag.get("is_padding")}
        if not padding:
            return batch
        # verl pads a batch with rows whose term columns are copied from its first row, with wrong lengths.
        fields = {
            name: torch.nested.as_nested_tensor(
                [torch.zeros(tag[LENGTH_TAGS[axis]]) for tag in padding.values()], layout=torch.jagged
            )
            for each in self.terms
            for name, axis in each.term.columns.items()
        }
        if fields:
            tq.kv_batch_put(
                keys=[*padding],
                partition_id=batch.partition_id,
                fields=TensorDict(fields, batch_size=len(padding)),
            )
        return batch

    # ------------------------------------------------------------- checkpoints

    def _stateful_parts(self) -> dict[str, Any]:
        """Return this process's stateful parts beside planner and controller, by name in a checkpoint."""
        own_solutions = self.train_dataset.own_solutions if self._refreshes_solutions else None
        parts = {
            "callbacks": self.callbacks,
            "credit": self.credit,
            "own_solutions": own_solutions,
            "interleave": self.failed,
        }
        return {name: part for name, part in parts.items() if part is not None}

    def _load_checkpoint(self) -> None:
        with reading_data_only(self.config.actor_rollout_ref.actor.strategy):
            super()._load_checkpoint()
        if not self.global_steps:
            self.log.rewind(0)
        else:
            folder = checkpoint_to_resume(self.config, self.global_steps)
            saved = saved_line(folder)
            line = self.log.rewind(self.global_steps, saved)
            self._end_at_budget()
            self._carried = load_part(folder, "carried", otherwise=[])
            if (left := len(self._carried)) > (size := self.config.data.train_batch_size):
                raise CheckpointError(
                    f"{folder}: the next step begins with {left} problems that this one left behind, but "
                    f"data.train_batch_size is {size}; resume with at least {left}"
                )
            state, planned = load_part(folder, "controller"), load_part(folder, "planner")
            ray.get(self.controller.load_state_dict.remote(state))
            self.planner.load_state_dict(planned)
            for name, part in self._stateful_parts().items():
                # Checkpoints written before callbacks existed have no state for them.
                part.load_state_dict(
                    load_part(folder, name, otherwise={} if part is self.callbacks else None)
                )
            restored, plan = ray.get(self.controller.state_dict.remote()), self.planner.state_dict()
            # An older release's checkpoint may lack a key of the plan.
            if restored != state or plan != plan | planned:
                raise CheckpointError(
                    f"{folder}: holds states of a run with another method or other settings, which this run "
                    "cannot use; resume with that run's settings, or start from scratch with "
                    "trainer.resume_mode=disable"
                )
            validation = {name: value for name, value in line.items() if name.startswith(("val/", "val-"))}
            if validation and not any(name in saved for name in validation):
                # The checkpoint was written before this validation, so its callbacks have not heard of it.
                self.callbacks.on_validation_end(self.global_steps, validation)

    def _save_checkpoint(self) -> None:
        # Before verl's part, which writes the tracker last: a checkpoint that the tracker names is complete.
        state = ray.get(self.controller.state_dict.remote())
        folder = step_folder(self.run, self.global_steps)
        with recording_files(folder):
            save_part(folder, "controller", state)
            save_part(folder, "planner", self.planner.state_dict())
            save_part(folder, "carried", self._carried)
            save_part(folder, "metrics", self._line)
            for name, part in self._stateful_parts().items():
                save_part(folder, name, part.state_dict())
            super()._save_checkpoint()
        self._saved_step, self._saved_at = self.global_steps, time.monotonic()
        if self._checkpoints_to_keep:
            drop_old_checkpoints(self.run, newest=self.global_steps, keep=self._checkpoints_to_keep)
        else:
            drop_passing_checkpoints(self.run, newest=self.global_steps)
        self.callbacks.on_checkpoint_saved(self.global_steps, folder)

    # ----------------------------------------------------------------- logging

    def on_train_begin(self) -> None:
        super().on_train_begin()
        let_go(self.run)
        self._training = True
        # verl has counted the first step already.
        if is_asked_to_stop(self.run):
            self._stop_after(self.global_steps - 1)

    def on_step_end(self) -> None:
        show_life(self.run)
        self.engines.let_go_of_dead(self.global_steps)
        stops = is_asked_to_stop(self.run)
        minutes = (time.monotonic() - self._saved_at) / 60
        ends = stops or self.engines.has_lost_some
        every, is_last = self.config.trainer.save_freq, self.global_steps >= self.total_training_steps
        allowed = self.seele.save_every_minutes or math.inf
        # Without save_freq, verl does not save the last step.
        is_left_out = is_last and every <= 0 and allowed < math.inf
        if (ends or is_left_out or allowed <= minutes) and self._saved_step != self.global_steps:
            with marked_timer("save_checkpoint", self.timing_raw):
                self._save_checkpoint()
            if not (ends or is_last or (every > 0 and self.global_steps % every == 0)):
                mark_passing(step_folder(self.run, self.global_steps))
        if stops:
            self._stop_after(self.global_steps)
        if self.engines.has_lost_some:
            raise RuntimeError(f"an engine died in step {self.global_steps}, after which the run is saved")
        super().on_step_end()

    def _stop_after(self, step: int) -> None:
        """End before the next step, on request."""
        if step < self.total_training_steps:
            note_stop(self.run)
            self.total_training_steps = step

    def _end_at_budget(self) -> None:
        """Once enough tokens are generated, make the next step the last, which verl validates and saves."""
        self.total_training_steps = final_step(
            self.config, self.log.generated, total_steps=self.total_training_steps
        )

    def _validate(self) -> dict[str, float]:
        if not self._training:
            heed_before_training(self.run)
        elif self._saved_step == self.global_steps and is_asked_to_stop(self.run):
            # A run that resumes here, after its last step too, makes up for it.
            note_stop(self.run)
            return {}
        metrics: dict[str, float] = super()._validate()
        expected = len(self.val_dataset) * self.config.actor_rollout_ref.rollout.val_kwargs.n
        if missing := expected - len(self._validated_texts):
            # verl's means are over the others. Without its metrics, a run that resumes here validates again.
            self.log.warn(
                f"warning: validation after step {self.global_steps}: {missing} of {expected} responses are "
                "missing, because the engine or a worker failed; no accuracy is recorded\n"
            )
            return {"validation/missing_responses": float(missing)}
        for name, value in list(metrics.items()):
            if name.startswith("val-core/") and "/reward/mean@" in name:
                split = name.removeprefix("val-core/").split("/reward/")[0]
                metrics[f"val/accuracy/{split}"] = value
        if not self._training:
            record = self.log.amend if self.global_steps else self.log.append
            record(self.global_steps, _scalars(metrics))
        self.callbacks.on_validation_end(self.global_steps, _scalars(metrics))
        return metrics

    def _maybe_log_val_generations(self, inputs: list[str], outputs: list[str], scores: list[float]) -> None:
        self._validated_texts = outputs
        super()._maybe_log_val_generations(inputs=inputs, outputs=outputs, scores=scores)

    def _val_metrics_update(
        self,
        data_sources: list[str],
        sample_uids: list[str],
        reward_extra_infos_dict: dict[str, list[Any]],
        *args: Any,
        **kwargs: Any,
    ) -> dict[str, float]:
        metrics: dict[str, float] = super()._val_metrics_update(
            data_sources, sample_uids, reward_extra_infos_dict, *args, **kwargs
        )
        responses: dict[str, list[Graded]] = defaultdict(list)
        reasons, finishes = reward_extra_infos_dict[REASON], reward_extra_infos_dict[FINISH]
        for split, *response in zip(data_sources, self._validated_texts, reasons, finishes, strict=True):
            text, reason, finish = response
            responses[split].append(Graded(text, GradeReason(reason), Finish(finish)))
        unanswered = {split: find_unanswered(graded) for split, graded in responses.items()}
        for split, each in unanswered.items():
            metrics |= share_metrics(each, split)
        self._warn_once("validation", unanswered)
        return metrics

    def _warn_once(self, what: str, unanswered: dict[str, Unanswered]) -> None:
        """Warn on the terminal where most responses have no answer or no end, the first time that this
        process checks this kind of response.
        """
        if what not in self._looked_at:
            self._looked_at.add(what)
            advice = advise_run(self.seele, max_tokens=self.config.data.max_response_length)
            groups = {f"{what} {name}".strip(): each for name, each in unanswered.items()}
            self.log.warn(warn_of_unanswered(groups, advice))

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, Any]) -> KVBatchMeta:
        """Run verl's step, then record it before it is saved: everything but the validation and the times of
        the phases that follow.
        """
        batch: KVBatchMeta = super().step(metrics, timing_raw)
        metrics |= self._measure(batch)
        self._warn_once("step", {str(self.global_steps): unanswered_of(self.current.visits.values())})
        metrics |= self.log.count(metrics)
        metrics |= self.callbacks.on_step_end(self.global_steps, _scalars(metrics))
        times = {f"timing_s/{phase}": seconds for phase, seconds in timing_raw.items()}
        self._line = _scalars(metrics | times | {"timing_s/step": sum(timing_raw.values())})
        rows = [
            row
            for uid, visit in self.current.visits.items()
            for row in rollout_rows(visit, self.current.advantages.get(uid, {}), self.current.tokens.get(uid))
        ]
        self.log.write_rollouts(self.global_steps, rows)
        log_rollouts(
            self.logger.logger,
            self.global_steps,
            rows,
            lambda problems: ray.get(self.controller.curves.remote(problems)),
        )
        return batch

    def _measure(self, batch: KVBatchMeta) -> dict[str, float]:
        """Return the metrics and the cost of the step's rollouts and update."""
        visits, continues_hints = [*self.current.visits.values()], self.seele.hints.user_request is None
        metrics = step_metrics(visits, continues_hints=continues_hints)
        metrics |= self.current.controller_metrics | self.planner.metrics()
        metrics["rollout/left_behind_problems"] = float(len(self._carried))
        if self.credit is not None:
            metrics |= {f"milestones/{name}": value for name, value in self.credit.metrics().items()}
        if self._refreshes_solutions:
            metrics["hints/own_solutions"] = float(len(self.train_dataset.own_solutions))
        if self.failed is not None:
            metrics |= {f"interleave/{name}": value for name, value in self.failed.metrics().items()}
        return metrics | self.cost_meter.metrics(self.current, real_rows(batch))

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict[str, Any], timing_raw: Any, global_steps: int, epoch: int
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        self.log.write(global_steps, _scalars(metrics))
        self._end_at_budget()
        # A request that came during the validation need not wait for the next step.
        if is_asked_to_stop(self.run) and global_steps < self.total_training_steps:
            if self._saved_step != global_steps:
                self.checkpoint_manager.sleep_replicas()  # saving may need the engines' memory
                self._line = _scalars(metrics)  # with the validation, of which the callbacks have heard
                self._save_checkpoint()
            self._stop_after(global_steps)


def _columns(batch: KVBatchMeta, names: Collection[str]) -> KVBatchMeta:
    """Return the same rows with these fields only."""
    return dataclasses.replace(batch, fields=sorted(names))


def _scalars(metrics: dict[str, Any]) -> dict[str, float]:
    """Return the metrics that are single numbers, as plain floats."""
    return {
        name: float(value)
        for name, value in metrics.items()
        if isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    }
