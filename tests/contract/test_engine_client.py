"""A round's way from the rollout worker to the engine and back, through Ray; only the engine is made up."""

import asyncio
import inspect
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")
pytest.importorskip("vllm", reason="vLLM is not installed")

import ray
import torch
import transfer_queue.interface

from seele.errors import ConfigError
from seele_verl.checks import cluster
from seele_verl.checks.cluster import refuse_a_second_run, refuse_a_small_cluster, refuse_unfit_gpus
from seele_verl.engine.client import generate_round
from seele_verl.engine.replica import RoundServer
from seele_verl.rounds_worker import MAX_ATTEMPTS, RoundsWorker
from seele_verl.train import compose

PROMPT = [1, 2, 3]


class Engine:
    """``RoundServer`` with a ``generate`` that ends when it is let, with the seed as its only token."""

    generate_round = RoundServer.generate_round
    generate_round_in_parts = RoundServer.generate_round_in_parts
    _requests = RoundServer._requests

    def __init__(self):
        self.began, self.aborted = [], []
        self.may_end, self.failures = {}, {}

    async def generate(self, *, prompt_ids, sampling_params, request_id):
        seed = sampling_params["seed"]
        self.began.append(request_id)
        try:
            await self.may_end.setdefault(seed, asyncio.Event()).wait()
        except asyncio.CancelledError:
            self.aborted.append(seed)
            raise
        what = self.failures.get(seed, []).pop(0) if self.failures.get(seed) else ""
        if what == "fails":
            raise RuntimeError("a replica was restarted")
        return SimpleNamespace(
            token_ids=[] if what == "empty" else [*prompt_ids, seed],
            log_probs=None,
            extra_fields={"global_steps": 7},
        )

    async def let(self, *seeds):
        for seed in seeds:
            self.may_end.setdefault(seed, asyncio.Event()).set()

    async def begin(self, failures):
        self.__init__()
        self.failures = failures

    async def told(self):
        return self.began, self.aborted


class Client:
    """verl's load balancer of one server."""

    def __init__(self, server):
        self.server, self.in_use = server, 0

    async def _acquire_server(self, session_id, **_):
        self.in_use += 1
        return "server", self.server

    def _release_server(self, server_id, *, request_id):
        self.in_use -= 1


@pytest.fixture(scope="module")
def server():
    ray.init(num_cpus=1, num_gpus=1, include_dashboard=False, log_to_driver=False)
    # Ray's workers cannot import a test.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield ray.remote(Engine).options(max_concurrency=100).remote()
    ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    ray.shutdown()


@pytest.fixture
def client(server):
    ray.get(server.begin.remote({}))
    return Client(server)


def parts_of(client, seeds, quorum):
    return generate_round(
        client,
        session_id="problem",
        request_id="problem-1",
        prompt_ids=PROMPT,
        sampling_params=[{"seed": seed} for seed in seeds],
        quorum=quorum,
    )


def seeds_in(part):
    return {position: output.token_ids[-1] for position, output in part.items()}


def test_a_whole_round_comes_in_one_part(client):
    async def run():
        await client.server.let.remote(10, 11, 12)
        return [seeds_in(part) async for part in parts_of(client, [10, 11, 12], 3)]

    assert asyncio.run(run()) == [{0: 10, 1: 11, 2: 12}]
    assert client.in_use == 0


def test_a_quorum_comes_first_and_the_stragglers_after_it(client):
    async def run():
        await client.server.let.remote(11, 12)
        parts = parts_of(client, [10, 11, 12], 2)
        first = seeds_in(await anext(parts))
        await client.server.let.remote(10)
        return [first, *[seeds_in(part) async for part in parts]]

    assert asyncio.run(run()) == [{1: 11, 2: 12}, {0: 10}]
    assert client.in_use == 0


@pytest.mark.parametrize("quorum", [2, 3])
def test_who_is_cancelled_aborts_what_still_runs(client, quorum):
    async def run():
        await client.server.let.remote(11, 12)
        got = asyncio.Event()

        async def consume():
            async for _ in parts_of(client, [10, 11, 12], quorum):
                got.set()

        task = asyncio.create_task(consume())
        if quorum == 2:
            await got.wait()
        while len((await client.server.told.remote())[0]) < 3:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await client.server.told.remote()

    assert asyncio.run(run())[1] == [10]
    assert client.in_use == 0


def test_closing_the_stream_aborts_the_stragglers(client):
    async def run():
        await client.server.let.remote(11)
        parts = parts_of(client, [10, 11], 1)
        await anext(parts)
        await parts.aclose()
        return await client.server.told.remote()

    assert asyncio.run(run())[1] == [10]
    assert client.in_use == 0


# The rollout worker's tries


class Worker:
    """The part of ``RoundsWorker`` that samples."""

    _sample = RoundsWorker._sample
    _completion = RoundsWorker._completion
    _finish = RoundsWorker._finish

    def __init__(self, client):
        self.llm_client = client
        self.tokenizer = SimpleNamespace(decode=lambda ids, **_: str(ids), eos_token_id=0)


async def sampled(client, failures, quorum):
    await client.server.begin.remote(failures)
    parts = Worker(client)._sample(
        PROMPT, {}, max_tokens=9, session_id="problem", seeds=[10, 11, 12], quorum=quorum
    )
    found = []
    await client.server.let.remote(11, 12)
    async for completions, version in parts:
        assert version == 7
        found.append({position: each.token_ids[-1] for position, each in completions.items()})
        await client.server.let.remote(10)
    return found


@pytest.mark.parametrize("what", ["fails", "empty"])
def test_a_straggler_that_fails_is_tried_again_alone(client, what):
    assert asyncio.run(sampled(client, {10: [what]}, 2)) == [{1: 11, 2: 12}, {0: 10}]
    began, _ = ray.get(client.server.told.remote())
    assert began == [*(f"problem-10-1-{index}" for index in range(3)), "problem-10-2-0"]


def test_a_quorum_that_fails_is_tried_again_whole(client):
    assert asyncio.run(sampled(client, {11: ["empty"]}, 2)) == [{1: 11, 2: 12}, {0: 10}]
    began, _ = ray.get(client.server.told.remote())
    assert began == [f"problem-10-{attempt}-{index}" for attempt in (1, 2) for index in range(3)]


@pytest.mark.parametrize(("what", "error"), [("fails", ray.exceptions.RayError), ("empty", RuntimeError)])
def test_after_the_last_try_the_problem_is_given_up(client, what, error):
    with pytest.raises(error):
        asyncio.run(sampled(client, {11: [what] * MAX_ATTEMPTS}, 2))
    assert client.in_use == 0


def test_a_cluster_that_is_too_small_is_refused(server):
    """This one has a single CPU, and a GPU of which only Ray knows."""
    config = compose(["method=seele", "hardware=gpu1", "job=small"])
    with pytest.raises(ConfigError, match=r"1 nodes with 1 GPUs and 3 CPUs each, .* offer 1 GPUs and 1 CPU"):
        refuse_a_small_cluster(config)


def test_gpus_that_others_hold_are_not_waited_for(server, monkeypatch):
    monkeypatch.setattr("seele_verl.checks.cluster.check_nodes", lambda *_: None)
    config = compose(["method=seele", "hardware=gpu1", "job=small"])
    refuse_a_small_cluster(config)
    config.trainer.nnodes = 2
    with pytest.raises(ConfigError, match="2 GPUs are needed, but 1 of the Ray cluster's are free"):
        refuse_a_small_cluster(config)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine's GPU can be used")
def test_a_node_where_torch_sees_no_gpu_is_named(server, monkeypatch):
    assert cluster.capability() is None
    monkeypatch.setattr(cluster, "capability", lambda: None)  # a worker imports torch for seconds
    address = ray.nodes()[0]["NodeManagerAddress"]
    with pytest.raises(ConfigError, match=f"torch sees no GPU on the node {address}, or one"):
        refuse_unfit_gpus(compose(["method=seele", "hardware=gpu1", "job=small"]))
    refuse_unfit_gpus(compose(["method=seele", "hardware=cpu", "job=tiny"]))


def test_a_ray_cluster_takes_one_run(server):
    """TransferQueue attaches to the one that is there, whosever it is."""
    name, namespace = "TransferQueueController", "transfer_queue"
    assert f'name="{name}", namespace="{namespace}"' in inspect.getsource(transfer_queue.interface)
    refuse_a_second_run()
    others = ray.remote(Engine).options(name=name, namespace=namespace, num_cpus=0).remote()
    ray.get(others.begin.remote({}))
    with pytest.raises(ConfigError, match="another run trains on this Ray cluster"):
        refuse_a_second_run()
    ray.kill(others)
