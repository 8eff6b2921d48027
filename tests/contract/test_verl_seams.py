"""The places of the released verl that we depend on."""

import ast
import inspect
import re
import subprocess
import sys
from contextlib import nullcontext
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

import numpy as np
import torch
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
from seele.records import Completion, Finish, Grade, GradeReason, HintShare, Instance, Rollout
from seele.rollout.solutions import EncodedProblem
from seele_verl import columns
from seele_verl.advantages import write_advantages
from seele_verl.checks.verl_settings import LOSSES
from seele_verl.compat import VERL, require_verl, undecorated
from seele_verl.engine.model_runner import V2_ARCHITECTURES
from seele_verl.protocol import training_rows

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
    write_advantages(KVBatchMeta(keys=keys, partition_id="train", tags=tags), source)
    written = store.fields["advantages"].to_padded_tensor(0.0)
    # The largest is about 4; single precision leaves 1e-7 of a reward, over a deviation that may be small.
    torch.testing.assert_close(written, verls.to(written.dtype), rtol=2e-6, atol=2e-6)
    assert written.abs().max() > 0.5 and (written[-1] == 0).all()
    torch.testing.assert_close(store.fields["returns"].values(), store.fields["advantages"].values())
