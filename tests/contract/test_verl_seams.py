"""The places of the released verl that we depend on."""

import ast
import asyncio
import inspect
import math
import re
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import nullcontext
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

import numpy as np
import torch
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.protocol import DataProto
from verl.trainer.ppo.ray_trainer import compute_advantage

from seele.config import HintConfig, ImitationConfig, OffPolicyConfig, SeeleConfig
from seele.errors import DependencyError
from seele.methods import METHODS
from seele.methods.advantage import group_advantages
from seele.methods.baselines import build_baseline, group_of
from seele.methods.loss_terms import LossTerms
from seele.methods.sources import build_source
from seele.records import Completion, Finish, Grade, GradeReason, HintShare, Instance, Rollout, Visit
from seele.rollout.solutions import EncodedProblem
from seele_verl import columns, off_policy
from seele_verl.checks.verl_settings import LOSSES
from seele_verl.compat import VERL, require_verl, undecorated
from seele_verl.engine.model_runner import V2_ARCHITECTURES
from seele_verl.engine_watch import EngineWatch
from seele_verl.protocol import training_rows
from seele_verl.runs.checkpoints import saved_steps
from seele_verl.runs.stopping import ASKED, has_stopped
from seele_verl.solutions import Solution
from seele_verl.step_record import StepRecord

ROOT = Path(__file__).parents[2]

# --- The places of the released verl that we depend on. A failure shows which seam an upgrade has moved


def parameters(function):
    return list(inspect.signature(function).parameters)


def test_the_release_is_the_one_that_was_read():
    assert version("verl") == VERL


def test_the_models_of_vllms_second_runner_are_those_that_it_names():
    pytest.importorskip("vllm.config.vllm")
    import vllm

    if not vllm.__version__.startswith("0.24."):
        pytest.skip("the list is that of vLLM 0.24, the GPU stack's (scripts/test.sh --stack parity)")
    from vllm.config.vllm import DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES

    assert set(V2_ARCHITECTURES) == DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES


@pytest.mark.parametrize(
    ("installed", "error"),
    [
        (VERL, None),
        ("0.10.0", f"verl 0.10.0 is installed, but .* runs on verl {VERL}"),
        (None, "not installed"),
    ],
)
def test_another_verl_or_none_is_refused_with_the_command_that_installs_it(monkeypatch, installed, error):
    def version_of(name):
        if installed is None:
            raise PackageNotFoundError(name)
        return installed

    monkeypatch.setattr("seele_verl.compat.version", version_of)
    refuses = (
        pytest.raises(DependencyError, match=f"{error}.*bash scripts/setup.sh") if error else nullcontext()
    )
    with refuses:
        require_verl()


def test_a_prompt_is_one_coroutine_of_the_rollout_worker():
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

    worker = undecorated(AgentLoopWorkerTQ)
    expected = ["self", "prompt", "sampling_params", "trajectory", "trace"]
    assert parameters(worker._run_prompt)[:5] == expected
    assert inspect.iscoroutinefunction(worker._run_prompt)
    assert "self.agent_loop_workers_class" in inspect.getsource(AgentLoopManagerTQ.__init__)


def test_a_rollout_worker_can_be_replaced():
    """The new worker is made like verl's own, and receives what the lost one had."""
    from verl.experimental.agent_loop.agent_loop import AgentLoopManager, AgentLoopWorker
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ

    given = ["config", "llm_client", "teacher_client", "reward_loop_worker_handles"]
    assert parameters(AgentLoopWorker.__init__)[1:] == given
    made = "".join(inspect.getsource(AgentLoopManager._init_agent_loop_workers).split())
    assert f".remote({','.join(f'self.{name}' for name in given)},)" in made
    handed_over = inspect.getsource(AgentLoopManagerTQ.generate_sequences)
    assert "prompts.chunk(len(self.agent_loop_workers))" in handed_over
    assert "zip(self.agent_loop_workers, chunkes, strict=False)" in handed_over


def test_rows_carry_the_fields_that_verl_writes_itself():
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

    source = inspect.getsource(undecorated(AgentLoopWorkerTQ)._agent_loop_postprocess)
    for name in ("loss_mask", "input_ids", "position_ids"):
        assert f'field["{name}"]' in source
    for tag in ("status", "prompt_len", "response_len", "seq_len", "global_steps", "min_global_steps"):
        assert f'"{tag}"' in source
    assert 'f"{uid}_{session_id}_{i}"' in source


def test_the_trainer_calls_what_we_override():
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY, PPOTrainer
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    fit = inspect.getsource(PPOTrainer.fit)
    for call in (
        "self.on_train_begin()",
        "self._validate()",
        "self._save_checkpoint()",
        "self._compute_metrics(",
    ):
        assert call in fit
    assert fit.index("self.on_validate_end()") < fit.index("self.on_train_begin()")
    assert "self._fetch_one_gen_batch()" in inspect.getsource(PPOTrainer._next_train_batch)
    assert "self._balance_batch(batch" in inspect.getsource(PPOTrainer._step_once)
    assert parameters(PPOTrainer._balance_batch)[:3] == ["self", "batch", "metrics"]
    assert parameters(PPOTrainer._compute_metrics)[1:] == [
        "batch",
        "metrics",
        "timing_raw",
        "global_steps",
        "epoch",
    ]
    assert TRAINER_REGISTRY["sync"] is PPOTrainerSync


def test_trackers_are_where_our_tables_look():
    from verl.utils.tracking import Tracking, _TensorboardAdapter

    assert list(Tracking("project", "run", ["console"]).logger) == ["console"]
    source = inspect.getsource(Tracking)
    assert 'self.logger["wandb"] = wandb' in source
    assert 'self.logger["tensorboard"] = _TensorboardAdapter(' in source
    assert "self.writer = SummaryWriter(" in inspect.getsource(_TensorboardAdapter)


def test_the_tracker_is_written_after_everything_else():
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    source = inspect.getsource(PPOTrainer._save_checkpoint)
    written = [
        source.index(mark)
        for mark in ("wg.save_checkpoint(", "torch.save(", 'latest_checkpointed_iteration.txt"')
    ]
    assert written == sorted(written)


def test_the_loss_is_replaceable_and_sees_whole_sequences():
    from verl.workers.engine_workers import ActorRolloutRefWorker
    from verl.workers.utils.losses import ppo_loss

    assert parameters(ppo_loss) == ["config", "model_output", "data", "dp_group"]
    assert parameters(ActorRolloutRefWorker.set_loss_fn) == ["self", "loss_fn"]


def test_one_batch_is_one_step_of_the_optimizer_and_none_of_the_learning_rates_schedule():
    """A supervised update between steps relies on this (``seele_verl.solutions``)."""
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer
    from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker

    mappings = inspect.getsource(PPOTrainer._init_resource_pool_mgr)
    assert "self.role_worker_mapping[role] = ray.remote(ActorRolloutRefWorker)" in mappings
    assert ActorRolloutRefWorker.actor_worker_cls is TrainingWorker
    source = inspect.getsource(TrainingWorker.train_batch)
    assert 'tu.get(data, key="update_lr_scheduler", default=False)' in source
    assert "self.engine.train_batch(data, loss_function=self.loss_fn)" in source


def test_the_policy_losses_are_those_that_verl_registers():
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY

    assert set(LOSSES) == set(POLICY_LOSS_REGISTRY)


def test_the_engine_replica_is_chosen_by_name():
    from verl.workers.rollout.replica import RolloutReplicaRegistry
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica

    assert RolloutReplicaRegistry.get("vllm") is vLLMReplica
    assert "self.server_class" in inspect.getsource(vLLMReplica.launch_servers)
    assert parameters(vLLMHttpServer.generate)[1:4] == ["prompt_ids", "sampling_params", "request_id"]
    # The length limit is reported as a normal end, so we check the length ourselves.
    assert 'finish_reason in ("stop", "length")' in inspect.getsource(vLLMHttpServer.generate)


def test_the_runner_is_replaceable():
    from verl.trainer.main_ppo import TaskRunnerV1, run_ppo

    assert parameters(run_ppo) == ["config", "task_runner_class"]
    assert callable(undecorated(TaskRunnerV1).run)


def test_the_replay_buffer_polls_at_an_interval_that_can_be_set():
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

    assert "time.sleep(self.poll_interval)" in inspect.getsource(ReplayBuffer)


def test_padding_copies_a_row_and_is_tagged():
    from verl.trainer.ppo.padding_utils import construct_minimal_padding_template

    assert "is_padding=True" in inspect.getsource(inspect.getmodule(construct_minimal_padding_template))


def test_a_step_ends_when_enough_groups_are_done_with_the_awaited_ones_among_them(monkeypatch):
    from collections import Counter

    from seele_verl.replay_buffer import SpareProblemsBuffer

    buffer = SpareProblemsBuffer(
        trainer_mode="sync",
        trainer_config=None,
        max_off_policy_threshold=None,
        max_off_policy_strategy="drop",
        sampler_kwargs=None,
    )
    nothing = set(), set(), set(), Counter()

    def select(finished, running=(), failed=()):
        buffer.finished_keys["train"], buffer.running_keys["train"] = set(finished), set(running)
        buffer.failure_keys["train"] = set(failed)
        done = buffer._sampleable_terminal_keys("train", nothing)
        return sorted(buffer._select_prompt_uids("train", done, 2)[0])

    assert select({"a", "b", "c"}) == ["a", "b"]
    buffer.awaited = frozenset({"c"})
    assert select({"a", "b"}, running={"c"}) == []
    assert select({"a", "b", "c"}) == ["a", "c"]
    assert select({"a", "b"}, running={"d"}, failed={"c"}) == ["a", "c"], "an awaited one may fail"
    buffer.awaited = frozenset()
    assert select({"b"}, running={"c"}, failed={"a", "d"}) == ["b"], "failed ones do not make a batch"
    assert select({"b", "c"}, failed={"a"}) == ["b", "c"]
    assert select({"b"}, failed={"a"}) == ["a", "b"]
    # Validation waits for everything anyway.
    buffer.finished_keys["val"] = {"v"}
    assert buffer._sampleable_terminal_keys("val", nothing) == {"v"}
    monkeypatch.setattr(buffer, "_sync_metadata_from_transfer_queue", lambda: None)
    buffer.finished_keys["train"], buffer.pending_keys["train"] = {"b"}, {"d"}
    buffer.running_keys["train"], buffer.failure_keys["train"] = {"a"}, {"c"}
    assert buffer.left_behind() == ["a", "b", "c", "d"]


def test_the_replay_buffer_is_replaceable_and_asks_where_ours_answers():
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    assert "load_extern_type(custom_sampler.path, custom_sampler.name)" in inspect.getsource(
        PPOTrainer._build_replay_buffer
    )
    source = inspect.getsource(ReplayBuffer.sample)
    assert "has_enough_samples = len(sampleable_keys) >= batch_size" in source
    assert "self._select_prompt_uids(\n" in source
    assert source.index("while") < source.index("self._sync_metadata_from_transfer_queue()")


def test_a_group_that_was_left_behind_and_ended_all_the_same_belongs_to_no_step(monkeypatch):
    from seele_verl import trainer as module

    def answers(value):
        return SimpleNamespace(remote=lambda *_: value)

    monkeypatch.setattr(module.ray, "get", lambda answer: answer)
    monkeypatch.setattr(module.SeeleTrainer.__base__, "on_sample_end", lambda self: None)
    trainer = object.__new__(module.SeeleTrainer)
    trainer.seele = SimpleNamespace(curriculum=SimpleNamespace(spare_problems=1))
    trainer.agent_loop_manager = SimpleNamespace(agent_loop_workers=[])
    trainer.engines, trainer.global_steps = SimpleNamespace(let_go_of_dead=lambda step: None), 2
    trainer.replay_buffer = SimpleNamespace(left_behind=lambda: ["step2-000001"], forget=lambda uids: None)
    problem_of_uid = {"step2-000000": 7, "step2-000001": 8, "step2-000002": 9}
    trainer.current = StepRecord(problem_of_uid=problem_of_uid)
    # One is of step 1, after that step had ended, and one of this step, just before it is cancelled.
    visits = dict.fromkeys(["step1-000009", "step2-000000", "step2-000001", "step2-000002"], "visit")
    trainer.controller = SimpleNamespace(take_step=answers((visits, {})))
    trainer.on_sample_end()
    assert trainer.current.visits.keys() == {"step2-000000", "step2-000002"}
    assert trainer._carried == [8]


def test_a_worker_that_is_dead_when_spare_problems_are_cut_does_not_end_the_run(monkeypatch):
    from ray.exceptions import ActorDiedError, ActorUnavailableError

    from seele_verl import trainer as module

    def raise_or_return(answer):
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(module.ray, "get", raise_or_return)
    ended = []
    trainer = object.__new__(module.SeeleTrainer)
    trainer.current = StepRecord(problem_of_uid={"a": 1, "b": 0})
    trainer.train_dataset = SimpleNamespace(instance_ids=["zero", "one"])
    trainer.controller = SimpleNamespace(end_visit=SimpleNamespace(remote=ended.append))

    def workers(*answers):
        stops = [SimpleNamespace(remote=lambda uids, answer=answer: answer) for answer in answers]
        calls = [SimpleNamespace(cancel_prompts=stop) for stop in stops]
        trainer.agent_loop_manager = SimpleNamespace(agent_loop_workers=calls)

    workers(None, None)
    trainer._cancel(["a", "b"])
    assert ended == [], "living workers end the visits themselves"
    workers(ActorDiedError(), None)
    trainer._cancel(["a", "b"])
    assert ended == ["one", "zero"]
    workers(ActorUnavailableError("out of reach", b"0" * 16))
    with pytest.raises(ActorUnavailableError):
        trainer._cancel(["a"])


def test_a_step_without_a_group_to_learn_from_makes_no_update(monkeypatch):
    from seele_verl import trainer as module

    def update(*_):
        raise AssertionError("the policy would move by KL and entropy")

    monkeypatch.setattr(module.SeeleTrainer.__base__, "_update_actor", update)
    for name in ("omega_conf_to_dataclass", "weight_columns", "informative_columns", "keys_with_weight"):
        monkeypatch.setattr(module, name, lambda *_: [])
    trainer, learnt, metrics = object.__new__(module.SeeleTrainer), [], {}
    trainer.config = SimpleNamespace(
        actor_rollout_ref=SimpleNamespace(actor=None), trainer=SimpleNamespace(device="cuda")
    )
    trainer.run, trainer.terms, trainer.failed = None, (), None
    trainer.current = StepRecord(updates=False)
    monkeypatch.setattr(module, "show_life", lambda run: None)
    trainer._learn = learnt.append
    batch = SimpleNamespace()
    assert trainer._update_actor(batch, metrics) is batch
    assert (metrics, learnt) == ({}, [batch])


def test_that_stopping_ended_is_said_once():
    from seele_verl import trainer as module

    class Credit:
        stops, false_alarms = True, 0.05

        def take_step(self, visits):
            self.stops = False
            return {"u": {0: ["span"]}}

    trainer, said, credit = object.__new__(module.SeeleTrainer), [], Credit()
    trainer.log, trainer.global_steps = SimpleNamespace(warn=said.append), 4
    trainer.current = StepRecord()
    for _ in range(2):
        assert trainer._take_credit(credit) == {"u_0_0": ["span"]}
    [warning] = said
    assert warning.startswith("warning: step 4: 5.0 % ") and "no longer stopped early" in warning


@pytest.mark.parametrize("trained", ["step2-000000", "step2-000002"])
def test_of_a_problem_that_a_step_began_twice_the_group_that_was_trained_on_counts(monkeypatch, trained):
    from seele_verl import trainer as module

    heard, failed = [], []
    trainer = object.__new__(module.SeeleTrainer)
    problem_of_uid = {"step2-000000": 7, "step2-000001": 8, "step2-000002": 7}
    visits = {uid: f"visit of {uid}" for uid in ("step2-000002", "step2-000000", "step2-000001")}
    trainer.current = StepRecord(problem_of_uid=problem_of_uid, visits=visits)
    trainer.seele = SeeleConfig(method="grpo")
    trainer.planner = SimpleNamespace(learn=lambda *step: heard.append(step))
    batch = SimpleNamespace(keys=[f"{trained}_0_0", "step2-000001_0_0"], tags=[{}, {}])
    advantages = torch.nested.as_nested_tensor([torch.ones(2), torch.zeros(2)], layout=torch.jagged)
    monkeypatch.setattr(module, "read_columns", lambda *_: {"advantages": advantages})
    trainer._learn(batch)
    of_problems = {7: f"visit of {trained}", 8: "visit of step2-000001"}
    assert heard == [(of_problems, {7: {0: 1.0}, 8: {0: 0.0}})]
    assert trainer.current.advantages == {trained: {0: 1.0}, "step2-000001": {0: 0.0}}
    trainer._learn_solutions(
        SimpleNamespace(take_step=lambda step: failed.append(step) or []), trainer._uids_by_problem(batch)
    )
    assert failed == [of_problems]
    trainer.current = StepRecord(problem_of_uid=problem_of_uid, visits=visits, updates=False)
    trainer._learn(batch)
    assert (heard[-1], trainer.current.advantages) == ((of_problems, {}), {}), "no group was trained on"


def test_a_step_begins_with_an_empty_record_to_which_further_problems_are_added(monkeypatch):
    from seele_verl import trainer as module

    monkeypatch.setattr(module.ray, "get", lambda answer: answer)
    trainer, in_flights = object.__new__(module.SeeleTrainer), []

    def begin_more(count, *, in_flight):
        in_flights.append(in_flight)
        return [9, 7][:count], {}

    trainer.controller = SimpleNamespace(begin_step=SimpleNamespace(remote=lambda step: None))
    trainer.planner = SimpleNamespace(begin=lambda step, carried: ([7, 8], {}), begin_more=begin_more)
    trainer.train_dataset = [{"problem": index} for index in range(10)]
    trainer.seele, trainer.credit, trainer._carried = SeeleConfig(method="grpo"), None, []
    trainer.replay_buffer = SimpleNamespace(
        pending_keys={"train": {"step2-000001"}}, running_keys={"train": set()}
    )
    trainer.current = of_step_1 = StepRecord(
        problem_of_uid={"step1-000000": 5}, visits={"step1-000000": "visit"}, updates=False
    )
    trainer.current.advantages["step1-000000"][0] = 1.0
    trainer.global_steps = 2
    batch = trainer._next_train_batch()
    problem_of_uid = {"step2-000000": 7, "step2-000001": 8}
    assert [*batch["uid"]] == [*problem_of_uid]
    assert trainer.current == StepRecord(problem_of_uid=problem_of_uid) != of_step_1
    batch = trainer._next_train_batch(2)
    problem_of_uid |= {"step2-000002": 9, "step2-000003": 7}
    assert ([*batch["uid"]], [*batch["repeat"]]) == (["step2-000002", "step2-000003"], [0, 1])
    assert trainer.current == StepRecord(problem_of_uid=problem_of_uid)
    assert in_flights == [[8]]


class Replica:
    """An engine of one server, whose death ``ray.wait`` tells by ``life of NAME``."""

    def __init__(self, name):
        self.servers = [SimpleNamespace(live=SimpleNamespace(remote=lambda: f"life of {name}"))]


@pytest.mark.parametrize(
    ("others", "dead", "said"),
    [
        ({}, [], "the rollouts of all problems of step 3 failed, the first with ValueError: no judge"),
        ({}, ["life of engine"], "the engine died in step 3"),
        ({"running_keys": {"b"}}, ["life of engine"], "the engine died in step 3"),
        ({"running_keys": {"b"}}, [], ""),
        ({"finished_keys": {"b"}}, [], ""),
    ],
)
def test_a_step_whose_rollouts_all_failed_ends_with_their_cause(monkeypatch, others, dead, said):
    """verl's own message advises a setting that would begin further problems."""
    from seele_verl import trainer as module

    monkeypatch.setattr(module.ray, "get", lambda answer: answer)
    monkeypatch.setattr(module.ray, "wait", lambda refs, **_: (dead, []))
    trainer = object.__new__(module.SeeleTrainer)
    engines = SimpleNamespace(replicas=[Replica("engine")])
    trainer.engines, trainer.global_steps = EngineWatch(engines, warn=None), 3
    trainer.controller = SimpleNamespace(first_reason=SimpleNamespace(remote=lambda: "ValueError: no judge"))
    sets = {"failure_keys": {"a"}} | others
    names = ("pending_keys", "running_keys", "finished_keys", "failure_keys")
    trainer.replay_buffer = SimpleNamespace(**{name: {"train": sets.get(name, set())} for name in names})
    assert trainer._why_nothing_is_generated() == said


DRIVER = """
import os, signal, threading, time
heard = []
signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
import ray
from seele_verl.compat import kept_sigterm_handler
with kept_sigterm_handler():
    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    # Ray's own abort comes three seconds after the signal.
    threading.Timer(1, os.kill, (os.getpid(), signal.SIGTERM)).start()
    done = ray.remote(lambda: time.sleep(6)).remote()
    ray.get(done)
print("heard", heard, flush=True)
"""


def test_a_driver_that_handles_sigterm_goes_on_for_as_long_as_its_step_takes():
    ended = subprocess.run([sys.executable, "-c", DRIVER], capture_output=True, text=True)
    assert ended.stdout.strip() == "heard [15]" and ended.returncode == 0, ended.stderr[-2000:]


def test_requests_leave_an_engine_that_the_balancer_is_told_to_remove():
    from verl.workers.rollout.router import GlobalRequestLoadBalancer

    balancer = GlobalRequestLoadBalancer(servers={"dead": 1, "alive": 2})
    first = {balancer.acquire_server(f"problem {number}")[0] for number in range(20)}
    balancer.remove_servers(["dead"])
    again = {balancer.acquire_server(f"problem {number}")[0] for number in range(20)}
    assert (first, again) == ({"dead", "alive"}, {"alive"})


def test_every_part_that_learns_is_in_a_checkpoint_and_comes_back(monkeypatch, tmp_path):
    from contextlib import contextmanager, nullcontext

    from omegaconf import OmegaConf

    from seele.errors import CheckpointError
    from seele_verl import trainer as module

    class Part:
        def __init__(self, state):
            self.state = state

        def state_dict(self):
            return self.state

        def load_state_dict(self, state):
            self.state = state

        def on_validation_end(self, step, metrics):
            self.state |= {"heard": (step, metrics)}

    class Remote:
        """The controller's process, whose calls are done at once."""

        def __init__(self, part):
            for name in ("state_dict", "load_state_dict"):
                setattr(self, name, SimpleNamespace(remote=getattr(part, name)))

    learning = ("controller", "planner", "callbacks", "credit", "own_solutions", "interleave")
    validated: dict[str, float] = {}

    def trainer_with(states):
        parts = {name: Part(states[name]) for name in learning}
        trainer = object.__new__(module.SeeleTrainer)
        trainer.run, trainer.global_steps, trainer._carried, trainer._line = tmp_path, 3, [], {"step": 3}
        trainer._checkpoints_to_keep, trainer._end_at_budget = None, lambda: None
        trainer.seele = SimpleNamespace(hints=SimpleNamespace(refresh="epoch"))
        trainer.log = SimpleNamespace(rewind=lambda step, saved: saved | validated)
        trainer.config = OmegaConf.create({"actor_rollout_ref": {"actor": {"strategy": "fsdp"}}})
        trainer.train_dataset = SimpleNamespace(own_solutions=parts["own_solutions"])
        trainer.controller, trainer.planner = Remote(parts["controller"]), parts["planner"]
        trainer.callbacks, trainer.credit = parts["callbacks"], parts["credit"]
        trainer.failed = parts["interleave"]
        trainer.callbacks.on_checkpoint_saved = lambda *_: None
        return trainer, parts

    for name in ("_save_checkpoint", "_load_checkpoint"):
        monkeypatch.setattr(module.SeeleTrainer.__base__, name, lambda self: None)
    monkeypatch.setattr(module, "ray", SimpleNamespace(get=lambda value: value))
    done, drop = [], module.drop_passing_checkpoints

    @contextmanager
    def recording_files(folder):
        yield
        done.append("is on the disk")

    def drop_passing_checkpoints(*args, **kwargs):
        done.append("others go")
        drop(*args, **kwargs)

    monkeypatch.setattr(module, "recording_files", recording_files)
    monkeypatch.setattr(module, "drop_passing_checkpoints", drop_passing_checkpoints)
    monkeypatch.setattr(module, "reading_data_only", nullcontext)
    monkeypatch.setattr(module, "checkpoint_to_resume", lambda *_: module.step_folder(tmp_path, 3))
    states = {name: {"learnt": name} for name in learning}
    trainer, _ = trainer_with(states)
    trainer._carried = [5, 3]
    for step in (1, 2):
        (module.step_folder(tmp_path, step) / "seele").mkdir(parents=True)
    module.mark_passing(module.step_folder(tmp_path, 1))
    trainer._save_checkpoint()
    assert saved_steps(tmp_path) == [2, 3], "step 1 was saved for the age of the one before"
    assert done == ["is on the disk", "others go"]
    nothing = {name: {"learnt": ""} for name in learning}
    resumed, parts = trainer_with(nothing)
    resumed._load_checkpoint()
    assert {name: part.state for name, part in parts.items()} == states
    assert resumed._carried == [5, 3]
    # The step was validated after it was saved, before the run was killed.
    validated |= {"val/accuracy/x": 0.5, "val-core/x": 0.5, "actor/lr": 1.0}
    resumed, parts = trainer_with(nothing)
    resumed._load_checkpoint()
    heard = (3, {"val/accuracy/x": 0.5, "val-core/x": 0.5})
    assert parts["callbacks"].state == {"learnt": "callbacks", "heard": heard}
    # Saved after the validation, of which the callbacks' state has heard.
    trainer._line |= validated
    trainer._save_checkpoint()
    resumed, parts = trainer_with(nothing)
    resumed._load_checkpoint()
    assert parts["callbacks"].state == {"learnt": "callbacks"}
    other, parts = trainer_with(nothing)
    other.controller.load_state_dict.remote = lambda state: None
    with pytest.raises(CheckpointError, match="another method or other settings"):
        other._load_checkpoint()


@pytest.mark.parametrize(("step", "last", "stops"), [(1, 0, True), (4, 3, True), (5, 4, False)])
def test_a_run_that_was_asked_to_stop_before_its_first_step_takes_none(tmp_path, step, last, stops):
    from seele_verl import trainer as module

    trainer = object.__new__(module.SeeleTrainer)
    trainer.run, trainer.global_steps, trainer.total_training_steps = tmp_path, step, 4
    (tmp_path / "logs").mkdir()
    trainer.on_train_begin()
    assert trainer.total_training_steps == 4
    (tmp_path / ASKED).touch()
    trainer.on_train_begin()
    assert (trainer.total_training_steps, has_stopped(tmp_path)) == (last, stops)


def test_a_request_to_stop_is_heard_before_models_are_loaded_and_before_the_first_validation(tmp_path):
    from omegaconf import OmegaConf

    from seele_verl import trainer as module
    from seele_verl.runner import SeeleTaskRunner
    from seele_verl.runs.stopping import HEEDED, RunStopped

    (tmp_path / "logs").mkdir()
    (tmp_path / ASKED).touch()
    settings = {"default_local_dir": str(tmp_path), "cluster_patience_s": 0}
    SeeleTaskRunner().run(OmegaConf.create({"trainer": settings}))
    assert has_stopped(tmp_path)
    (tmp_path / HEEDED).unlink()
    trainer = object.__new__(module.SeeleTrainer)
    trainer.run, trainer._training = tmp_path, False
    with pytest.raises(RunStopped):
        trainer._validate()
    assert has_stopped(tmp_path)


def test_a_step_ends_without_engines_that_died_and_is_saved_before_the_run_ends(monkeypatch, tmp_path):
    from verl.checkpoint_engine.base import CheckpointEngineManager

    from seele_verl import trainer as module

    dead, said, saved = [], [], []
    monkeypatch.setattr(module.ray, "wait", lambda lives, **_: (dead, []))
    monkeypatch.setattr(module.SeeleTrainer.__base__, "on_step_end", lambda self: saved.append("weights"))
    trainer = object.__new__(module.SeeleTrainer)
    trainer.run, trainer.global_steps, trainer.timing_raw = tmp_path, 3, {}
    trainer._saved_step, trainer._saved_at = 2, 0.0
    trainer.seele = SimpleNamespace(save_every_minutes=None)
    trainer.config, trainer.total_training_steps = SimpleNamespace(trainer=SimpleNamespace(save_freq=2)), 9
    trainer._save_checkpoint = lambda: saved.append(trainer.global_steps)
    first, second = Replica("first"), Replica("second")
    manager = object.__new__(CheckpointEngineManager)
    manager.replicas = [first, second]
    trainer.engines = EngineWatch(manager, warn=said.append)
    (tmp_path / "logs").mkdir()
    trainer.on_step_end()
    assert (saved, said) == (["weights"], [])
    dead.append("life of first")
    trainer.engines.let_go_of_dead(3)
    trainer.engines.let_go_of_dead(3)
    assert manager.replicas == [second]
    assert said == ["step 3: 1 of 2 engines died; the others take over, and the run ends after this step\n"]
    with pytest.raises(RuntimeError, match="an engine died in step 3, after which the run is saved"):
        trainer.on_step_end()
    assert saved == ["weights", 3]
    dead.append("life of second")
    with pytest.raises(RuntimeError, match="the engine died in step 3"):
        trainer.engines.let_go_of_dead(3)


@pytest.mark.parametrize(
    ("step", "every", "minutes", "saves", "passes"),
    [
        (3, 4, 0, True, True),
        (4, 4, 0, True, False),
        (9, 4, 0, True, False),
        (3, 4, 5, False, False),
        (9, 4, 5, False, False),  # verl saves it
        (9, -1, 5, True, False),
        (9, -1, None, False, False),
    ],
)
def test_a_checkpoint_that_only_its_age_caused_is_marked(
    monkeypatch, tmp_path, step, every, minutes, saves, passes
):
    from seele_verl import trainer as module
    from seele_verl.runs.checkpoints import PASSING

    monkeypatch.setattr(module.SeeleTrainer.__base__, "on_step_end", lambda self: None)
    trainer = object.__new__(module.SeeleTrainer)
    trainer.run, trainer.global_steps, trainer.total_training_steps = tmp_path, step, 9
    trainer.timing_raw = {}
    trainer.engines = SimpleNamespace(let_go_of_dead=lambda step: None, has_lost_some=False)
    trainer._saved_step, trainer._saved_at = 2, -math.inf if minutes == 0 else time.monotonic()
    trainer.seele = SimpleNamespace(save_every_minutes=5 if minutes is not None else None)
    trainer.config = SimpleNamespace(trainer=SimpleNamespace(save_freq=every))
    trainer._save_checkpoint = lambda: (tmp_path / f"global_step_{step}/seele").mkdir(parents=True)
    (tmp_path / "logs").mkdir()
    trainer.on_step_end()
    assert (tmp_path / f"global_step_{step}").exists() == saves
    assert (tmp_path / f"global_step_{step}" / PASSING).exists() == passes


@pytest.mark.parametrize(
    ("saved_step", "last_step", "expected"),
    [
        (19, 99, ["line", "engines sleep", "save"]),
        (20, 99, ["line"]),  # saved before the validation
        (20, 20, ["line"]),  # the last step
    ],
)
def test_a_request_to_stop_during_a_validation_needs_no_other_step(
    monkeypatch, tmp_path, saved_step, last_step, expected
):
    from seele_verl import trainer as module
    from seele_verl.runs.stopping import ASKED, has_stopped

    monkeypatch.setattr(module.SeeleTrainer.__base__, "_compute_metrics", lambda *_, **__: None)
    trainer, done = object.__new__(module.SeeleTrainer), []
    trainer.run, trainer.global_steps, trainer._saved_step = tmp_path, 20, saved_step
    trainer.total_training_steps = last_step
    trainer.config = SimpleNamespace(seele=SimpleNamespace(max_generated_tokens=None))
    trainer.log = SimpleNamespace(generated={}, write=lambda step, row: done.append("line"))
    trainer.checkpoint_manager = SimpleNamespace(sleep_replicas=lambda: done.append("engines sleep"))
    trainer._save_checkpoint = lambda: done.append("save")
    (tmp_path / "logs").mkdir()
    trainer._line = {"accuracy/mean": 0.25}
    trainer._compute_metrics(None, {}, {}, global_steps=20, epoch=0)
    assert (done, trainer.total_training_steps) == (["line"], last_step)
    done.clear()
    (tmp_path / ASKED).touch()
    trainer._compute_metrics(None, {"val/accuracy/x": 0.5}, {}, global_steps=20, epoch=0)
    assert (done, trainer.total_training_steps) == (expected, 20)
    assert ("val/accuracy/x" in trainer._line) is ("save" in expected), "a resumed run knows what was saved"
    assert has_stopped(tmp_path) is (last_step > 20)


def test_tokens_count_although_their_problem_was_cut(monkeypatch, tmp_path):
    """The first of two rounds of two is complete; the second still runs when the problem is left behind.
    The watchdog has seen the first.
    """
    from seele.config import HintConfig, SeeleConfig
    from seele.records import Completion, Finish, Grade, GradeReason, HintShare, Instance
    from seele_verl import rounds_worker as module
    from seele_verl.controller_actor import ControllerActor
    from seele_verl.runs.watchdog import LIFE

    class Controller(ControllerActor):
        async def plan_round(self, request, *, num_rollouts):
            return (HintShare(0.0, num_rollouts),)

        async def observe(self, instance_id, **outcome):
            pass

        async def end_visit(self, instance_id):
            pass

    async def complete(request, **_):
        if worker.sampled_first_round.is_set():
            worker.waits.set()
            await asyncio.Event().wait()
        worker.sampled_first_round.set()
        each = Completion(
            text="", token_ids=(1, 2, 3), log_probs=(), finish=Finish.STOP, cached_prompt_tokens=1
        )
        yield dict.fromkeys(range(len(request["seeds"])), each), 7

    async def grade(completion, instance, *, hint_steps):
        return Grade(False, GradeReason.WRONG)

    encoded = EncodedProblem(prompt_ids=[1, 2, 3, 4], step_ids=[], moved_cuts=0)
    monkeypatch.setattr(module, "encode_problem", lambda *_, **__: encoded)
    worker = object.__new__(module.RoundsWorker)
    worker.cache, worker.run = None, tmp_path
    (tmp_path / LIFE).parent.mkdir()
    worker.seele = SeeleConfig(method="seele", hints=HintConfig(rounds=2, rollouts_per_prompt=4))
    worker.source = build_source(worker.seele.off_policy)
    worker.controller, worker.tokenizer = Controller(worker.seele), None
    worker.rollout_config = SimpleNamespace(response_length=9)
    worker.engine, worker.grade = SimpleNamespace(complete=complete), grade
    grade.walks = False
    worker.sampled_first_round, worker.waits = asyncio.Event(), asyncio.Event()
    instance = Instance(instance_id="i", data_source="d", question="q", steps=(), answer="1", level=1)

    async def cut():
        problem = {"uid": "u", "instance": instance, "global_steps": 1}
        task = asyncio.create_task(worker._train_prompt(problem, {}))
        await worker.waits.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(cut())
    assert (tmp_path / LIFE).exists()
    visits, metrics = worker.controller.take_step()
    assert not visits
    tokens = {name: value for name, value in metrics.items() if name.startswith("tokens/")}
    assert tokens == {
        f"tokens/{name}{of}": count
        for name, count in (("prompt", 8.0), ("prefilled", 6.0), ("generated", 6.0))
        for of in ("", "_round_0")
    }
    # Only the first round has ended.
    assert [name for name in metrics if "seconds" in name] == ["rollout/seconds_round_0"]
    assert metrics["rollout/seconds_round_0"] >= 0.0
    assert worker.controller.take_step()[1]["tokens/generated"] == 0.0


def test_passes_for_log_probabilities_cost_once_a_step_however_often_it_trains(monkeypatch):
    """The step has 100 tokens, two epochs over them, and one pass for old log-probabilities."""
    from dataclasses import replace

    from omegaconf import OmegaConf

    from seele_verl import cost_meter as module

    monkeypatch.setattr(module, "count_parameters", lambda *_, **__: 1)
    monkeypatch.setattr(module, "count_critic_parameters", lambda *_, **__: 3)
    model = {"path": "", "trust_remote_code": False}
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {"model": model, "actor": {"ppo_epochs": 2, "use_kl_loss": False}},
            "algorithm": {"rollout_correction": {"bypass_mode": False}},
            "critic": {"model": model, "ppo_epochs": 3},
        }
    )

    def metrics_of(step, *, has_critic=False, **hints):
        seele = SeeleConfig(method="grpo", hints=HintConfig(**hints))
        meter = module.CostMeter(config, seele, build_source(seele.off_policy), has_critic=has_critic)
        return meter.metrics(step, rows)

    visit = visit_of([(0, False), (1, True)], prompt_tokens=20)
    monkeypatch.setattr(module, "tokens_by_round", lambda visits: {0: 60} if visits == [visit] else {})
    rows = {
        "u_0_0": {"prompt_len": 20, "response_len": 40},
        "u_1_0": {"prompt_len": 25, "response_len": 15},
    }
    step = StepRecord(
        visits={"u": visit},
        controller_metrics={"tokens/prefilled": 0.0, "tokens/generated": 0.0},
        informative={"u_0_0", "of_another_step"},
    )
    metrics = metrics_of(step)
    assert metrics["flops"] == 6 * 200 + 2 * 100
    # Two epochs over the longer prompt and both responses, and over the one informative row.
    assert metrics["tokens/trained_packed"] == 2 * (25 + 40 + 15)
    assert metrics["tokens/trained_informative"] == 2 * (20 + 40)
    # A hint in the user's turn is followed by the template's tokens, so prompts have no common beginning.
    apart = metrics_of(step, placement="user", request="{question} Begin with: {hint}")
    assert apart["tokens/trained_packed"] == 2 * (20 + 40 + 25 + 15)
    # verl makes that pass even if no group is worth an update.
    without = replace(step, updates=False)
    metrics = metrics_of(without)
    assert (metrics["flops"], metrics["flops_round_0"]) == (2 * 100, 2 * 60)
    assert metrics["tokens/trained_informative"] == 0
    # A supervised update between steps, of 10 tokens with a solution of 6, is made once.
    solutions = [Solution(prompt_ids=[1] * 4, response_ids=[2] * 6)]
    metrics = metrics_of(replace(without, solutions=solutions))
    assert (metrics["flops"], metrics["tokens/teacher_forced"]) == (6 * 10 + 2 * 100, 6)
    trained = ("tokens/trained", "tokens/trained_packed", "tokens/trained_informative")
    assert [metrics[name] for name in trained] == [10, 10, 10]
    # A critic of three parameters: one pass for values, and three epochs of its own.
    metrics = metrics_of(step, has_critic=True)
    assert metrics["flops"] == 6 * 200 + 2 * 100 + 3 * (6 * 300 + 2 * 100)
    assert (metrics["tokens/trained"], metrics["tokens/critic_trained"]) == (200, 300)


def test_a_checkpoint_knows_how_long_its_step_took_before_it_was_saved(monkeypatch):
    from seele.callbacks import Callbacks
    from seele_verl import trainer as module

    def step(self, metrics, timing_raw):
        timing_raw.update(gen=2.0, update_actor=1.5)

    monkeypatch.setattr(module.SeeleTrainer.__base__, "step", step)
    trainer = object.__new__(module.SeeleTrainer)
    trainer.global_steps, trainer.current, trainer.callbacks = 1, StepRecord(), Callbacks(())
    trainer._measure, trainer._looked_at = lambda batch: {"flops": 5.0}, {"step"}
    trainer.logger = SimpleNamespace(logger={})
    trainer.log = SimpleNamespace(count=lambda metrics: {"flops_total": 6.0}, write_rollouts=lambda *_: None)
    metrics = {}
    trainer.step(metrics, {})
    counts = {"flops": 5.0, "flops_total": 6.0}
    times = {"timing_s/gen": 2.0, "timing_s/update_actor": 1.5, "timing_s/step": 3.5}
    # verl adds the times to the record itself.
    assert (metrics, trainer._line) == (counts, counts | times)


def test_validation_and_the_first_step_tell_format_from_knowledge(monkeypatch):
    """This uses verl's validation without its engine."""
    from omegaconf import OmegaConf
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    from seele.config import SeeleConfig
    from seele.records import Completion, Finish, Grade, GradeReason, HintShare, Instance, Rollout, Visit
    from seele_verl import trainer as module
    from seele_verl.protocol import validation_rows

    source = inspect.getsource(PPOTrainer._validate)
    assert source.index("self._maybe_log_val_generations(") < source.index("return self._val_metrics_update(")
    assert "outputs=sample_outputs" in source and '.get("reward_extra_info", {})' in source

    instance = Instance(instance_id="i", data_source="toy", question="?", steps=(), answer="1")
    rollouts = [
        Rollout(
            round_index=0,
            rollout_index=index,
            share=HintShare(0.0, 3),
            hint_steps=0,
            completion=Completion(text=text, token_ids=(1,), log_probs=(), finish=finish),
            grade=Grade(reason is GradeReason.CORRECT, reason),
        )
        for index, (text, reason, finish) in enumerate(
            [
                ("one", GradeReason.NO_ANSWER, Finish.STOP),
                ("one, or", GradeReason.NO_ANSWER, Finish.LENGTH),
                ("\\boxed{1}", GradeReason.CORRECT, Finish.STOP),
            ]
        )
    ]
    rows = validation_rows(
        "uid", instance, rollouts, prompt_ids=[1], data_source="toy/a", model_version=0, global_step=0
    )
    infos = {"reward": [0.0, 0.0, 1.0]}
    for extra in rows.fields["extra_fields"]:
        for key, value in extra["reward_extra_info"].items():
            infos.setdefault(key, []).append(value)

    said = []
    trainer = object.__new__(module.SeeleTrainer)
    trainer.config = OmegaConf.create(
        {"trainer": {"log_val_generations": 0}, "data": {"max_response_length": 7}}
    )
    trainer.seele, trainer._looked_at = SeeleConfig(method="grpo"), set()
    trainer.logger = SimpleNamespace(logger={})
    trainer.log = SimpleNamespace(
        warn=said.append, count=lambda metrics: {}, write_rollouts=lambda step, rows: None
    )
    texts = [rollout.completion.text for rollout in rollouts]
    for _ in range(2):
        trainer._maybe_log_val_generations(inputs=["?"] * 3, outputs=texts, scores=infos["reward"])
        metrics = trainer._val_metrics_update(["toy/a"] * 3, ["uid"] * 3, infos, [2] * 3)
    assert metrics["val-core/toy/a/reward/mean@3"] == pytest.approx(1 / 3)
    assert metrics["val/truncated_share/toy/a"] == pytest.approx(1 / 3)
    assert metrics["val/no_answer_share/toy/a"] == pytest.approx(2 / 3)
    assert not any("reason" in name or "finish" in name for name in metrics)
    [warning] = said
    assert "(validation toy/a: 66.7% of 3)" in warning and '"one, or"' in warning and "no end" not in warning

    monkeypatch.setattr(module.SeeleTrainer.__base__, "step", lambda self, metrics, timing_raw: None)
    visit = Visit(instance=instance, step=1, prompt_tokens=1, step_tokens=(), rollouts=tuple(rollouts))
    trainer.current, trainer._measure = StepRecord(visits={"uid": visit}), lambda batch: {}
    trainer.callbacks = SimpleNamespace(on_step_end=lambda step, metrics: {})
    for trainer.global_steps in (1, 2):
        trainer.step({}, {})
    assert len(said) == 2 and "(step 1: 66.7% of 3)" in said[1]


@pytest.mark.parametrize("missing", [0, 2])
def test_a_validation_without_all_of_its_responses_has_no_accuracy(monkeypatch, tmp_path, missing):
    from omegaconf import OmegaConf

    from seele_verl import trainer as module

    def validate(self):
        self._validated_texts = ["text"] * (6 - missing)
        return {"val-core/toy/reward/mean@2": 0.5}

    monkeypatch.setattr(module.SeeleTrainer.__base__, "_validate", validate)
    trainer, said, told = object.__new__(module.SeeleTrainer), [], []
    trainer.config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"val_kwargs": {"n": 2}}}})
    trainer.val_dataset, trainer._training, trainer.global_steps = ["problem"] * 3, True, 20
    trainer.run, trainer._saved_step = tmp_path, 18
    (tmp_path / "logs").mkdir()
    (tmp_path / ASKED).touch()  # the step is not saved
    trainer.log = SimpleNamespace(warn=said.append)
    trainer.callbacks = SimpleNamespace(on_validation_end=lambda step, metrics: told.append(step))
    metrics = trainer._validate()
    if missing:
        assert metrics == {"validation/missing_responses": 2.0} and not told
        assert "validation after step 20: 2 of 6 responses are missing" in said[0]
    else:
        assert metrics["val/accuracy/toy"] == 0.5 and (said, told) == ([], [20])
    trainer._saved_step = 20
    assert trainer._validate() == {} and has_stopped(tmp_path)


def test_rows_divide_into_the_micro_batches_of_a_pass():
    from omegaconf import OmegaConf

    from seele_verl import trainer as module

    trainer = object.__new__(module.SeeleTrainer)
    trainer.config = OmegaConf.create({"trainer": {"nnodes": 2, "n_gpus_per_node": 4}})
    settings = {"log_prob_use_dynamic_bsz": True, "log_prob_micro_batch_size_per_gpu": 16}
    assert trainer._multiple_of_rows(OmegaConf.create(settings)) == 8
    fixed = OmegaConf.create(settings | {"log_prob_use_dynamic_bsz": False})
    assert trainer._multiple_of_rows(fixed) == 128


def test_a_cut_trace_has_no_end_and_is_judged_as_one_that_hit_the_limit():
    from seele.config import HintConfig, OffPolicyConfig, SeeleConfig
    from seele.records import Finish, Instance
    from seele_models.tokenizer import byte_tokenizer
    from seele_verl.rounds_worker import RoundsWorker

    worker = object.__new__(RoundsWorker)
    worker.tokenizer = byte_tokenizer()
    worker.seele = SeeleConfig(
        method="luffy",
        off_policy=OffPolicyConfig(source="trace"),
        hints=HintConfig(controller="none", rounds=1),
    )
    worker.source = build_source(worker.seele.off_policy)
    worker.rollout_config = SimpleNamespace(response_length=6)
    instance = Instance(instance_id="i", data_source="x", question="?", steps=("a", "b"), answer="b")

    def encoded(*step_ids):
        return EncodedProblem(prompt_ids=[], step_ids=[*step_ids], moved_cuts=0)

    end = worker.tokenizer.eos_token_id
    [whole] = worker._given(instance, encoded([1, 2], [3, 4, 5]), None)
    assert (whole.token_ids, whole.finish) == ((1, 2, 3, 4, 5, end), Finish.STOP)
    [cut] = worker._given(instance, encoded([1, 2], [3, 4, 5, 6]), None)
    assert (cut.token_ids, cut.finish) == ((1, 2, 3, 4, 5, 6), Finish.LENGTH)
    assert len(cut.log_probs) == 6


def test_docs_verl_names_every_place_of_verl_that_we_derive_from_or_replace():
    page = (ROOT / "docs" / "verl.md").read_text()
    imported = set()
    for file in (ROOT / "verl" / "seele_verl").rglob("*.py"):
        if "gpu_check" not in file.parts:
            text = file.read_text()
            imported |= set(re.findall(r"^\s*from verl\.([\w.]+) import", text, re.M))
            # Modules that are run, or given as a setting.
            imported |= set(re.findall(r"[\"']verl\.([\w.]+)[\"']", text))
    helpers = re.compile(r"utils\b|trainer\.ppo\.(utils|core_algos)|workers\.(config|utils\.padding)")
    places = {module for module in imported if not helpers.match(module)}
    assert len(places) > 12
    missing = [module for module in places if module.rsplit(".", 1)[-1] not in page]
    assert missing == [], "add a row to docs/verl.md"
    rows = page.split("| what verl has |")[1].split("\n\n")[0].splitlines()[2:]
    assert all(len(cells) == 7 and cells[5].strip() for cells in (row.split("|") for row in rows))
    tests = [file.read_text() for file in (ROOT / "tests").rglob("test_*.py")]
    for test in re.findall(r"`(test_\w+)`", page):
        assert any(f"def {test}(" in text for text in tests), test
    for file in re.findall(r"`(?:tests/)?((?:contract/|integration/)?test_\w+\.py)`", page):
        assert list((ROOT / "tests").rglob(Path(file).name)), file


def replaced_attributes(file):
    """Attributes of verl's modules, classes and their annotated instances that a file assigns to."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    verls = {
        alias.asname or alias.name: alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "verl"
        for alias in node.names
    }
    for node in nodes:
        if isinstance(node, ast.arg) and node.annotation and ast.unparse(node.annotation) in verls:
            verls[node.arg] = verls[ast.unparse(node.annotation)]
    targets = [target for node in nodes if isinstance(node, ast.Assign) for target in node.targets]
    return {
        f"{verls[target.value.id]}.{target.attr}"
        for target in targets
        if isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name)
        and target.value.id in verls
    }


def test_docs_verl_has_a_row_for_every_function_of_verl_that_we_replace():
    replaced = set().union(*map(replaced_attributes, (ROOT / "verl" / "seele_verl").rglob("*.py")))
    rows = (ROOT / "docs" / "verl.md").read_text().split("| replaced |")[1].splitlines()
    cells = [row.split(" | ") for row in rows if row.startswith("| `")]
    assert set(re.findall(r"`([^`]+)`", " ".join(row[0] for row in cells))) == replaced
    # Each names its test, and says what to do.
    assert all("`test_" in row[2] and row[3].strip(" |") for row in cells)


# --- verl's own data set takes a file of problems as it is


def test_verls_own_data_set_reads_a_file_of_problems(tmp_path):
    from omegaconf import OmegaConf
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import Qwen2Tokenizer
    from verl.utils.dataset.rl_dataset import RLHFDataset

    from seele.data.storage.schema import write_problems
    from seele.records import Instance

    problems = [
        Instance(
            instance_id=f"toy-{n}",
            data_source="toy",
            question=f"What is {n}+1?",
            steps=("Add.\n", f"\\boxed{{{n + 1}}}")[: 2 * (n % 2)],
            answer=str(n + 1),
            revealed_at=2 if n % 2 else None,
        )
        for n in range(3)
    ]
    write_problems(tmp_path / "train.parquet", problems, split="train")
    vocabulary = {symbol: index for index, symbol in enumerate([*sorted(ByteLevel.alphabet()), "<end>"])}
    tokenizer = Qwen2Tokenizer(vocab=vocabulary, merges=[], unk_token="<end>", eos_token="<end>")
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    config = OmegaConf.create({"cache_dir": str(tmp_path / "cache"), "max_prompt_length": 64})
    rows = RLHFDataset(data_files=str(tmp_path / "train.parquet"), tokenizer=tokenizer, config=config)
    assert len(rows) == 3
    for row, problem in zip(rows, problems, strict=True):
        assert list(row["raw_prompt"]) == [{"role": "user", "content": problem.question}]
        assert row["reward_model"] == {"style": "rule", "ground_truth": problem.answer}
        assert (row["data_source"], row["instance_id"]) == ("toy", problem.instance_id)


# --- The advantages that replace verl's are what verl would have computed


INSTANCE = Instance(instance_id="i", data_source="x", question="?", steps=("a", "b"), answer="c")


class Store:
    """A TransferQueue with one batch."""

    def __init__(self, fields):
        self.fields = fields

    def kv_batch_get(self, *, select_fields, **_):
        return {name: self.fields[name] for name in select_fields}

    def kv_batch_put(self, *, keys, partition_id, fields):
        self.fields |= {name: fields[name] for name in fields.keys()}  # noqa: SIM118
        return KVBatchMeta(keys=keys, partition_id=partition_id, tags=[{}] * len(keys))


def random_rollouts(rng, size):
    """Return right and wrong rollouts of several rounds and hints, some of the same length."""
    return [
        Rollout(
            round_index=index // 3,
            rollout_index=index,
            share=HintShare(float(rng.choice([0.0, 0.5])), 1),
            hint_steps=0,
            completion=Completion(
                text="", token_ids=(5,) * int(rng.integers(1, 6)), log_probs=(), finish=Finish.STOP
            ),
            grade=Grade(correct, GradeReason.CORRECT, None if correct else float(rng.choice([0.0, 0.1]))),
        )
        for index, correct in enumerate(rng.integers(0, 2, size).astype(bool).tolist())
    ]


@pytest.mark.parametrize(
    ("method", "estimator", "divide_by_std"),
    [("seele", "grpo", False), ("grpo", "grpo", True), ("drgrpo", "grpo", False), ("rloo", "rloo", True)],
)
@pytest.mark.parametrize("factor", [0.0, 1.0], ids=["no penalty", "penalties"])
def test_pooled_and_leave_one_out_advantages_are_verls(method, estimator, divide_by_std, factor, monkeypatch):
    rng = np.random.default_rng([len(method), int(factor)])
    no_hints = {"hints": HintConfig(controller="none", rounds=1), "imitation": ImitationConfig(coefficient=0)}
    settings = SeeleConfig(method=method, off_policy=OffPolicyConfig(), **no_hints)
    source = build_source(settings.off_policy)
    baseline = build_baseline(
        settings, leave_one_out=METHODS[method].leaves_one_out, divide_by_std=divide_by_std
    )
    uids, keys, tags, scores, masks = [], [], [], [], []
    # A group of one, one that agrees as far as graders and penalties allow, and larger ones.
    for number, size in enumerate([1, 2, 5, 16, 16, 9]):
        rollouts = random_rollouts(rng, size)
        penalties = (-factor * rng.random(size) * rng.integers(0, 2, size)).tolist()
        group = group_of("i", rollouts, penalties=penalties, target_accuracy=0.5)
        rows = training_rows(
            f"step1-{number}",
            INSTANCE,
            rollouts,
            encoded=EncodedProblem(prompt_ids=[1, 2], step_ids=[[3], [4]], moved_cuts=0),
            model_version=0,
            global_step=1,
            terms=LossTerms(settings),
            source=source,
            rewards=group.rewards_G.tolist(),
            advantages=group_advantages(group, source=source, baseline=baseline),
            tells_accuracy=False,
        )
        uids += [number] * size
        keys += rows.keys
        tags += rows.tags
        scores += rows.fields["rm_scores"].unbind()
        masks += rows.fields["response_mask"].unbind()
    # verl fills up batches with rows without loss, which have the first row's tags.
    uids.append(99)
    keys.append("padding_0_0")
    tags.append({"is_padding": True})
    scores.append(torch.zeros(4))
    masks.append(torch.zeros(4, dtype=masks[0].dtype))

    mask = torch.nested.as_nested_tensor(masks, layout=torch.jagged)
    rewards = torch.nested.as_nested_tensor(scores, layout=torch.jagged)
    padded = {"response_mask": mask.to_padded_tensor(0), "token_level_rewards": rewards.to_padded_tensor(0)}
    verls = compute_advantage(
        DataProto.from_dict(padded, non_tensors={"uid": np.array(uids, dtype=object)}),
        adv_estimator=estimator,
        norm_adv_by_std_in_grpo=divide_by_std,
    ).batch["advantages"]

    store = Store({"response_mask": mask})
    monkeypatch.setattr(columns, "tq", store)
    off_policy.write_advantages(KVBatchMeta(keys=keys, partition_id="train", tags=tags), source)
    written = store.fields["advantages"].to_padded_tensor(0.0)
    # The largest is about 4; single precision leaves 1e-7 of a reward, over a deviation that may be small.
    torch.testing.assert_close(written, verls.to(written.dtype), rtol=2e-6, atol=2e-6)
    assert written.abs().max() > 0.5 and (written[-1] == 0).all()
    torch.testing.assert_close(store.fields["returns"].values(), store.fields["advantages"].values())


class Queue:
    """A TransferQueue in this process: partition -> key -> column -> tensor."""

    def __init__(self):
        self.partitions = defaultdict(lambda: defaultdict(dict))

    def kv_batch_put(self, *, keys, partition_id, fields, tags=None):
        for name, column in fields.items():
            for key, values in zip(keys, column.unbind(), strict=True):
                self.partitions[partition_id][key][name] = values
        return KVBatchMeta(keys=[*keys], partition_id=partition_id, tags=tags or [{}] * len(keys))

    def kv_batch_get(self, *, keys, partition_id, select_fields):
        rows = [self.partitions[partition_id][key] for key in keys]
        return TensorDict({name: jagged([row[name] for row in rows]) for name in select_fields}, len(rows))

    def kv_clear(self, *, keys, partition_id):
        del self.partitions[partition_id]


def jagged(rows):
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


@pytest.fixture
def queue(monkeypatch):
    from seele_verl import hint_reliance, rescoring

    queue = Queue()
    for module in (rescoring, hint_reliance, columns):
        monkeypatch.setattr(module, "tq", queue)
    return queue


def visit_of(rollouts, *, prompt_tokens=2):
    """Return a visit with ``rollouts``, (steps of the hint, is right) each; a step has one token."""
    instance = Instance(instance_id="i", data_source="x", question="?", steps=("a", "b"), answer="b")
    made = tuple(
        Rollout(
            round_index=index // 2,
            rollout_index=index,
            share=HintShare(hint / 2, 1),
            hint_steps=hint,
            completion=Completion(text="", token_ids=(7, 8), log_probs=(-1.0, -2.0), finish=Finish.STOP),
            grade=Grade(right, GradeReason.CORRECT if right else GradeReason.WRONG),
        )
        for index, (hint, right) in enumerate(rollouts)
    )
    return Visit(instance=instance, step=1, prompt_tokens=prompt_tokens, step_tokens=(1, 1), rollouts=made)


def score_by_place(queue):
    """Return a pass that gives the token at place p of a row the log-probability -p."""

    def score(batch):
        for row in queue.partitions[batch.partition_id].values():
            row["log_probs"] = -torch.arange(1.0, len(row["input_ids"]) + 1)
        score.rows = len(batch.keys)

    return score


def test_hint_reliance_compares_right_hinted_rows_and_none_that_fills_a_batch_up(queue):
    from seele_verl.hint_reliance import measure_hint_reliance

    visits = {"step1-000000": visit_of([(1, True), (1, False), (0, True), (1, True)])}
    keys = [f"step1-000000_{index}_0" for index in range(4)]
    tags = [{}, {}, {}, {"is_padding": True}]
    for key in keys:
        queue.partitions["train"][key] = {
            # Wherever it states the hint.
            "prompts": torch.tensor([1, 2, 3, 4, 5]),
            "responses": torch.tensor([7, 8]),
            "old_log_probs": torch.tensor([-1.0, -2.0]),
        }
    batch = KVBatchMeta(keys=keys, partition_id="train", tags=tags)
    score = score_by_place(queue)
    workers = SimpleNamespace(compute_log_prob=score)
    how = {"ask": {"?": [1, 2]}.__getitem__, "temperature": 1.0, "multiple": 2}
    found = measure_hint_reliance(batch, visits, workers, **how)
    # Alone, the response is at places 2 and 3; after its hint the policy gave -1 and -2.
    assert found == {"hints/reliance": pytest.approx((-2 - 3) / 2 - (-1 - 2) / 2)}
    assert score.rows == 2, "the only row was repeated, for two ranks"
    assert "rescored" not in queue.partitions
    unhinted = {"step1-000000": visit_of([(0, True)] * 4)}
    assert measure_hint_reliance(batch, unhinted, workers, **how) == {}


@pytest.mark.parametrize(
    ("hints", "source", "measures"),
    [
        ({"placement": "assistant"}, {}, True),
        ({"placement": "user"}, {}, True),
        ({"controller": "prefix_rft"}, {"source": "prefix", "loss": "surrogate"}, False),
        ({"controller": "none"}, {}, False),
    ],
)
def test_hint_reliance_is_measured_wherever_the_prompt_has_hints(hints, source, measures):
    from seele_verl.trainer import SeeleTrainer

    trainer = object.__new__(SeeleTrainer)
    trainer.seele = SimpleNamespace(hints=HintConfig(**hints))
    trainer.source = build_source(OffPolicyConfig(**source))
    trainer.config = SimpleNamespace(trainer=SimpleNamespace(test_freq=2))
    trainer.global_steps, trainer.total_training_steps = 4, 9
    assert trainer._measures_reliance is measures


def test_a_tokens_advantage_is_what_the_teacher_thinks_more_of_it(queue):
    from seele_verl.self_distillation import ask_teacher, extra_teacher_tokens, write_divergence

    keys, tags = ["step1-000000_0_0", "step1-000001_0_0", "padding_0_0"], [{}, {}, {"is_padding": True}]
    for key in keys:
        queue.partitions["train"][key] = {
            "prompts": torch.tensor([1, 2]),
            "responses": torch.tensor([7, 8]),
            "old_log_probs": torch.tensor([-1.0, -2.0]),
            "response_mask": torch.tensor([1, 1]),
        }
    queue.partitions["train"]["padding_0_0"]["response_mask"] = torch.tensor([0, 0])
    batch = KVBatchMeta(keys=keys, partition_id="train", tags=tags)
    prompts = {"step1-000000": [1, 5, 5, 5, 2]}
    ask_teacher(batch, prompts, score_by_place(queue), multiple=1)
    row, unsolved, filler = (queue.partitions["train"][key] for key in keys)
    assert row["ref_log_prob"].tolist() == [-5.0, -6.0] and filler["ref_log_prob"].tolist() == [-2.0, -3.0]
    assert write_divergence(batch, prompts) == 4.0
    assert row["advantages"].tolist() == [-4.0, -4.0]
    assert not unsolved["advantages"].any() and not filler["advantages"].any()
    assert write_divergence(batch, {}) == 0.0
    visits = {"step1-000000": visit_of([(0, True), (0, True), (1, True), (0, True)])}
    assert extra_teacher_tokens(visits, prompts) == {0: 6, 1: 5}
