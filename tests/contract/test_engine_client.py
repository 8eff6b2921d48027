"""The way to the engine: requests, stop strings, weights."""

import asyncio
import copy
import dataclasses
import inspect
import json
import re
import sys
import uuid
from types import SimpleNamespace

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")
pytest.importorskip("vllm", reason="vLLM is not installed")

import ray
import torch
import transfer_queue.interface
import zmq
from verl.workers.rollout.vllm_rollout import bucketed_weight_transfer, utils, vllm_rollout
from vllm.v1.sample import logits_processor

from seele.config import SeeleConfig
from seele.config.settings import HintConfig, RewardConfig
from seele.config.training import CreditConfig
from seele.errors import ConfigError
from seele.methods.sources import build_source
from seele.records import Completion, Finish, Grade, GradeReason, Instance
from seele.reward.milestones import find_milestones
from seele.reward.walks import ErrorWatch
from seele.rollout.solutions import EncodedProblem
from seele.rollout.templates import STOP_STRINGS
from seele_eval.generation import EngineSettings, _sampling_params
from seele_eval.prompts import Prompt
from seele_models.tokenizer import byte_tokenizer
from seele_verl import rounds_worker
from seele_verl.checks import cluster
from seele_verl.checks.cluster import refuse_a_second_run, refuse_a_small_cluster, refuse_unfit_gpus
from seele_verl.engine import completions, weight_socket
from seele_verl.engine.client import WATCH, generate_round
from seele_verl.engine.completions import MAX_ATTEMPTS, CompletionClient
from seele_verl.engine.replica import RoundServer
from seele_verl.engine.stopping import StopAtError
from seele_verl.response_grader import ResponseGrader
from seele_verl.rounds_worker import RoundsWorker
from seele_verl.runs.stopping import ASKED, RunStopped, has_stopped
from seele_verl.runs.watchdog import LIFE
from seele_verl.train import compose

# --- A round's way from the rollout worker to the engine and back, through Ray; only the engine is a double


PROMPT = [1, 2, 3]


class Engine:
    """``RoundServer`` whose ``generate`` ends on request, with the seed as its only token."""

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
            stop_reason="completed",
            extra_fields={"global_steps": 7},
        )

    async def let(self, *seeds):
        for seed in seeds:
            self.may_end.setdefault(seed, asyncio.Event()).set()

    async def begin(self, failures):
        self.__init__()
        self.failures = failures

    async def told(self):
        """Return requests without the random part of their names, and the seeds of the aborted ones."""
        return [re.sub("-[0-9a-f]{32}", "", each) for each in self.began], self.aborted


class Client:
    """verl's load balancer with one server."""

    def __init__(self, server):
        self.server, self.in_use = server, 0

    async def _acquire_server(self, session_id, **_):
        self.in_use += 1
        return "server", self.server

    def _release_server(self, server_id, *, request_id):
        self.in_use -= 1


def test_a_server_dies_with_the_process_that_computes_for_it(monkeypatch):
    from vllm.v1.engine.exceptions import EngineDeadError

    from seele_verl.engine import replica

    def exit_process(status):
        raise SystemExit(status)

    async def generate(self, **_):
        raise EngineDeadError

    monkeypatch.setattr(replica.os, "_exit", exit_process)
    monkeypatch.setattr(RoundServer.__base__, "generate", generate)
    dead, elsewhere = object.__new__(RoundServer), object.__new__(RoundServer)
    dead.engine = SimpleNamespace(errored=True)
    for what in (dead.live(), dead.generate(prompt_ids=PROMPT)):
        with pytest.raises(SystemExit, match="1"):
            asyncio.run(what)
    # A server without an engine, as on the later nodes of a replica, lives on.
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(elsewhere.live(), timeout=0.1))


@pytest.fixture(scope="module")
def server():
    ray.init("local", num_cpus=1, num_gpus=1, include_dashboard=False, log_to_driver=False)
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


@pytest.mark.parametrize(
    "death", [ray.exceptions.ActorDiedError(), ray.exceptions.OutOfMemoryError("killed")]
)
def test_the_balancer_forgets_a_dead_engine(death):
    forgotten = []

    class Dead:
        _load_balancer = SimpleNamespace(remove_servers=SimpleNamespace(remote=forgotten.extend))
        generate_round = SimpleNamespace(remote=lambda *_: Dead.answer())

        @staticmethod
        async def answer():
            raise death

        async def _acquire_server(self, *_, **__):
            return "engine", self

        def _release_server(self, *_, **__): ...

    async def run():
        with pytest.raises(type(death)):
            await anext(parts_of(Dead(), [10], 1))

    asyncio.run(run())
    assert forgotten == ["engine"]


def test_a_request_that_fails_aborts_the_others_of_its_round():
    engine = Engine()
    engine.failures = {10: ["fails"]}

    async def run():
        await engine.let(10)
        with pytest.raises(RuntimeError, match="restarted"):
            await engine.generate_round(PROMPT, [{"seed": 10}, {"seed": 11}], "r")
        return [*engine.aborted]

    assert asyncio.run(run()) == [11]


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


async def first_aborted(client) -> list[int]:
    """Return the aborted requests once there are any: Ray tells the engine after the consumer continues."""
    while not (aborted := (await client.server.told.remote())[1]):
        await asyncio.sleep(0.01)
    return aborted


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
        return await first_aborted(client)

    assert asyncio.run(run()) == [10]
    assert client.in_use == 0


def test_closing_the_stream_aborts_the_stragglers(client):
    async def run():
        await client.server.let.remote(11)
        parts = parts_of(client, [10, 11], 1)
        await anext(parts)
        await parts.aclose()
        return await first_aborted(client)

    assert asyncio.run(run()) == [10]
    assert client.in_use == 0


# The rollout worker's retries


async def sampled(client, failures, quorum):
    await client.server.begin.remote(failures)
    request = {"prompt_ids": PROMPT, "sampling_params": {}, "max_tokens": 9, "seeds": [10, 11, 12]}
    tokenizer = SimpleNamespace(decode=lambda ids, **_: str(ids), eos_token_id=0)
    parts = CompletionClient(client, tokenizer).complete(request, session_id="problem", quorum=quorum)
    found = []
    await client.server.let.remote(11, 12)
    async for found_now, version in parts:
        assert version == 7
        found.append({position: each.token_ids[-1] for position, each in found_now.items()})
        await client.server.let.remote(10)
    return found


@pytest.mark.parametrize("what", ["fails", "empty"])
def test_a_straggler_that_fails_is_tried_again_alone(client, what):
    assert asyncio.run(sampled(client, {10: [what]}, 2)) == [{1: 11, 2: 12}, {0: 10}]
    began, _ = ray.get(client.server.told.remote())
    assert began == [*(f"problem-10-1-{index}" for index in range(3)), "problem-10-2-0"]


def test_of_a_quorum_only_the_empty_completion_is_generated_again(client):
    assert asyncio.run(sampled(client, {11: ["empty"]}, 2)) == [{1: 11, 2: 12}, {0: 10}]
    began, _ = ray.get(client.server.told.remote())
    assert began == [*(f"problem-10-1-{index}" for index in range(3)), "problem-10-2-0", "problem-10-2-1"]


@pytest.mark.parametrize(("what", "error"), [("fails", ray.exceptions.RayError), ("empty", RuntimeError)])
def test_after_the_last_try_the_problem_is_given_up(client, what, error):
    with pytest.raises(error):
        asyncio.run(sampled(client, {11: [what] * MAX_ATTEMPTS}, 2))
    assert client.in_use == 0


def test_prompts_are_cancelled_once_the_controller_knows_of_the_ends_of_their_visits():
    worker, told = object.__new__(RoundsWorker), []

    class Controller:
        async def has_been_told(self):
            told.append("waited")

    async def visit():
        try:
            await asyncio.Event().wait()
        finally:
            told.append("ended")

    async def cancel():
        task = asyncio.create_task(visit())
        await asyncio.sleep(0)
        worker._prompts, worker.controller = {"u": task}, Controller()
        await worker.cancel_prompts(["u", "of another worker"])

    asyncio.run(cancel())
    assert told == ["ended", "waited"]


def test_a_cluster_that_is_too_small_is_refused(server):
    """This cluster has a single CPU, and a GPU that only Ray knows of."""
    config = compose(["method=seele", "hardware=gpu1", "job=small"])
    with pytest.raises(ConfigError, match=r"1 nodes with 1 GPUs and 5 CPUs each, .* offer 1 GPUs and 1 CPU"):
        refuse_a_small_cluster(config)


def test_gpus_that_others_hold_are_not_waited_for(server, monkeypatch):
    monkeypatch.setattr("seele_verl.checks.cluster.check_nodes", lambda *_: None)
    config = compose(["method=seele", "hardware=gpu1", "job=small"])
    refuse_a_small_cluster(config)
    config.trainer.nnodes = 2
    with pytest.raises(
        ConfigError, match="2 nodes with 1 free GPUs each are needed, but the nodes' free GPUs are 1;"
    ):
        refuse_a_small_cluster(config)


def test_a_start_that_waits_for_a_lost_node_shows_life(monkeypatch, tmp_path):
    (tmp_path / LIFE).parent.mkdir()
    looks, seen = 0, []

    def look(config):
        nonlocal looks
        looks += 1
        if looks < 3:
            raise ConfigError("a node is lost")

    def sleep(seconds):
        seen.append((tmp_path / LIFE).exists())
        (tmp_path / LIFE).unlink()

    monkeypatch.setattr(cluster, "refuse_a_second_run", lambda: None)
    monkeypatch.setattr(cluster, "refuse_a_small_cluster", look)
    monkeypatch.setattr(cluster.time, "sleep", sleep)
    trainer = SimpleNamespace(default_local_dir=str(tmp_path))
    cluster.wait_for_room(SimpleNamespace(trainer=trainer), seconds=900)
    assert (looks, seen) == (3, [True, True])
    (tmp_path / ASKED).touch()
    with pytest.raises(RunStopped):
        cluster.wait_for_room(SimpleNamespace(trainer=trainer), seconds=900)
    assert has_stopped(tmp_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine's GPU can be used")
def test_a_node_where_torch_sees_no_gpu_is_named(server, monkeypatch):
    assert cluster.capability() is None
    monkeypatch.setattr(cluster, "capability", lambda: None)  # importing torch takes a worker seconds
    address = ray.nodes()[0]["NodeManagerAddress"]
    with pytest.raises(ConfigError, match=f"torch sees no GPU on the node {address}, or one"):
        refuse_unfit_gpus(compose(["method=seele", "hardware=gpu1", "job=small"]))
    refuse_unfit_gpus(compose(["method=seele", "hardware=cpu", "job=tiny"]))


def test_a_ray_cluster_takes_one_run(server):
    """TransferQueue attaches to an existing cluster, regardless of its owner."""
    name, namespace = "TransferQueueController", "transfer_queue"
    assert f'name="{name}", namespace="{namespace}"' in inspect.getsource(transfer_queue.interface)
    refuse_a_second_run()

    class Controller:
        pass

    others = ray.remote(Controller).options(name=name, namespace=namespace, num_cpus=0).remote()
    ray.get(others.__ray_ready__.remote())
    with pytest.raises(ConfigError, match="another run trains on this Ray cluster"):
        refuse_a_second_run()
    ray.kill(others)


# --- Stop strings on their way to vLLM, in validation and evaluation, and their effect in vLLM


# Token ids are positions here; the last one is a special token.
PIECES = ["\\boxed{4}", " User:", " \\boxed{7}", "<end>", "<|im_end|>"]
END, MARK = 3, 4


def decode(ids, *, skip_special_tokens):
    return "".join(PIECES[i] for i in ids if not (skip_special_tokens and i in (END, MARK)))


TOKENIZER = SimpleNamespace(decode=decode, eos_token_id=END)


@pytest.mark.parametrize(
    ("token_ids", "stop", "text", "finish"),
    [
        pytest.param([0, 1, 2, 2], STOP_STRINGS["r1_zero"], "\\boxed{4} ", Finish.STOP, id="runs on"),
        pytest.param([0, MARK, 2, 2], STOP_STRINGS["qwen"], "\\boxed{4}", Finish.STOP, id="a special token"),
        pytest.param([0, 2, END], STOP_STRINGS["qwen"], "\\boxed{4} \\boxed{7}", Finish.STOP, id="ends"),
        pytest.param([0, MARK, 2, 2], (), "\\boxed{4} \\boxed{7} \\boxed{7}", Finish.LENGTH, id="training"),
    ],
)
def test_nothing_behind_a_stop_string_is_graded_in_validation(token_ids, stop, text, finish):
    output = SimpleNamespace(token_ids=token_ids, log_probs=None, stop_reason="completed", extra_fields={})
    completion = CompletionClient(None, TOKENIZER).completion(output, 4, stop, None)
    assert (completion.text, completion.finish) == (text, finish)
    assert completion.token_ids == tuple(token_ids)


@pytest.mark.parametrize(
    ("text", "begins", "graded"),
    [
        ("\\boxed{1}</think> so \\boxed{2}", True, " so \\boxed{2}"),
        ("\\boxed{1}, and on", True, ""),
        ("\\boxed{1}, and on", False, "\\boxed{1}, and on"),
    ],
)
def test_only_what_stands_behind_the_thoughts_is_graded_where_asked_for(text, begins, graded):
    asked = []

    async def grade_rollout(text, instance, *, hint_steps):
        asked.append(text)
        return Grade(False, GradeReason.NO_ANSWER)

    answers = SimpleNamespace(grade_rollout=grade_rollout)
    for after_thinking in (True, False):
        seele = SeeleConfig(method="luffy", reward=RewardConfig(after_thinking=after_thinking))
        grade = ResponseGrader(seele, answers, TOKENIZER, begins_thinking=begins)
        completion = Completion(text=text, token_ids=(1,), log_probs=(0.0,), finish=Finish.STOP)
        asyncio.run(grade(completion, None, hint_steps=0))
    assert asked == [graded, text]


@pytest.mark.parametrize("placement", ["assistant", "user"])
@pytest.mark.parametrize("correct", [True, False])
def test_a_response_is_walked_behind_the_hint_that_it_continues(placement, correct):
    steps = ("Natalia sold 20 +", " 12 + 16 = 48 clips.\n", "48 / 2 = 24 clips.\n", "\\boxed{24}")
    milestones = find_milestones("How many clips?", "".join(steps).splitlines(keepends=True), "24")
    instance = Instance(
        instance_id="1", data_source="", question="", steps=steps, answer="24", milestones=milestones
    )
    seele = SeeleConfig(method="grpo", credit=CreditConfig(stop=True), hints=HintConfig(placement=placement))
    tokenizer = byte_tokenizer()

    async def grade_rollout(text, instance, *, hint_steps):
        return Grade(correct, GradeReason.CORRECT if correct else GradeReason.WRONG)

    def graded(completion, seele, *, hint_steps):
        answers = SimpleNamespace(grade_rollout=grade_rollout)
        grade = ResponseGrader(seele, answers, tokenizer, begins_thinking=False)
        return asyncio.run(grade(completion, instance, hint_steps=hint_steps))

    text = " 12 + 16 = 48 clips.\n"
    token_ids = tuple(tokenizer.encode(text))
    completion = Completion(text=text, token_ids=token_ids, log_probs=(), finish=Finish.STOP)
    for hint_steps, is_flagged in ((0, True), (1, placement == "user")):
        grade = graded(completion, seele, hint_steps=hint_steps)
        assert grade.is_flagged == is_flagged
        assert (grade.walk.first_error is not None) == (is_flagged and not correct)
    # Stopping does not wait for the line that takes it back, so a right response would have been stopped.
    text += "Wait, that is 28.\n"
    token_ids = tuple(tokenizer.encode(text))
    completion = dataclasses.replace(completion, text=text, token_ids=token_ids)
    for stop in (True, False):
        credited = dataclasses.replace(seele, credit=CreditConfig(name="milestones", stop=stop))
        grade = graded(completion, credited, hint_steps=0)
        assert (grade.walk.first_error, grade.is_flagged) == (None, correct and stop)


@pytest.mark.parametrize("stop", [(), ("User:",)])
def test_the_engine_is_told_where_a_validated_response_ends(monkeypatch, stop):
    told = []

    async def generate_round(client, *, sampling_params, **_):
        told.extend(sampling_params)
        output = {"log_probs": None, "stop_reason": "completed", "extra_fields": {"global_steps": 1}}
        yield {0: SimpleNamespace(token_ids=[0, END], **output)}

    async def sample():
        request = {
            "prompt_ids": [1],
            "sampling_params": {"temperature": 0},
            "max_tokens": 9,
            "seeds": [5],
        }
        parts = CompletionClient(None, TOKENIZER).complete(request, session_id="s", quorum=1, stop=stop)
        return [part async for part in parts]

    monkeypatch.setattr(completions, "generate_round", generate_round)
    asyncio.run(sample())
    ends = {"stop": ["User:"], "skip_special_tokens": False} if stop else {}
    assert told == [{"temperature": 0, "max_tokens": 9, "seed": 5, **ends}]


def test_only_validation_stops(monkeypatch):
    """The published methods train on whole rollouts."""
    asked = []

    async def run_rounds(visit, round_sizes, **_):
        parts = visit.sample(hint_steps=0, round_index=0, first_rollout=0, num_rollouts=1, quorum=1)
        return [part async for part in parts]

    async def complete(*_, stop=(), **__):
        asked.append(stop)
        raise RuntimeError("seen enough")
        yield

    monkeypatch.setattr(rounds_worker, "run_rounds", run_rounds)
    encoded = EncodedProblem(prompt_ids=[1], step_ids=[], moved_cuts=0)
    monkeypatch.setattr(rounds_worker, "encode_problem", lambda *_, **__: encoded)
    made = object.__new__(RoundsWorker)
    made.seele, made.stop, made.engine = (
        SeeleConfig(method="grpo"),
        ("User:",),
        SimpleNamespace(complete=complete),
    )
    made.source = build_source(made.seele.off_policy)
    made.rollout_config = SimpleNamespace(response_length=9, val_kwargs=SimpleNamespace(n=1))
    made.grade = SimpleNamespace(walks=False)
    made.tokenizer = made.run = made.cache = None
    made.controller = SimpleNamespace(of_visit=lambda uid: None)
    instance = Instance(instance_id="i", data_source="d", question="q", steps=(), answer="1")
    problem = {"uid": "u", "instance": instance, "global_steps": 1}
    for roll_out in (made._validate_prompt, made._train_prompt):
        with pytest.raises(RuntimeError, match="seen enough"):
            asyncio.run(roll_out(problem, {}))
    assert asked == [("User:",), ()]


class Server:
    """``RoundServer`` that records requests to its engine."""

    _requests = RoundServer._requests

    async def generate(self, *, prompt_ids, sampling_params, request_id):
        return sampling_params


def test_vllm_makes_text_only_where_a_stop_string_is_searched_in_it():
    from vllm import SamplingParams

    rounds = [{"seed": 1}, {"seed": 2, "stop": ["User:"], "skip_special_tokens": False}]

    async def ask():
        return await asyncio.gather(*Server()._requests([1], copy.deepcopy(rounds), "r"))

    params = asyncio.run(ask())
    assert [each["detokenize"] for each in params] == [False, True]
    # vLLM refuses a stop string without text.
    assert [SamplingParams(**each).stop for each in params] == [[], ["User:"]]


# Responses that end at their first error: vLLM's batch updates and the watch are real

CHAIN = find_milestones("3 a+2 b+3 c+8", ("3a+2b+3=8\n", "8c+8=6\n", "\\boxed{6}"), "6")
WRONG_LINE = "3a+2b+3=8\n8c+8=5\n"


@pytest.fixture
def stop_at_error(tmp_path):
    byte_tokenizer().save_pretrained(tmp_path)
    model = SimpleNamespace(tokenizer=str(tmp_path), tokenizer_mode="auto", trust_remote_code=False)
    return StopAtError(SimpleNamespace(model_config=model), torch.device("cpu"), False)


def requests_come(processor, *requests, removed=(), moved=()):
    """Return vLLM's update of a batch: (row, tokens that the request has written, its watch) of each."""
    from vllm import SamplingParams

    added = [
        (row, SamplingParams(extra_args=watch and {WATCH: json.loads(json.dumps(watch.to_json()))}), [1], ids)
        for row, ids, watch in requests
    ]
    processor.update_state(
        logits_processor.BatchUpdate(batch_size=4, removed=removed, added=added, moved=moved)
    )


def ended(processor, rows=3):
    """Return the rows whose next token can only be the end of the text."""
    eos = byte_tokenizer().eos_token_id
    logits = processor.apply(torch.zeros(rows, len(byte_tokenizer())))
    only_eos = [bool((row == -torch.inf).sum() == len(row) - 1 and row[eos] == 0) for row in logits]
    untouched = [not row.any() for row in logits]
    assert [one != other for one, other in zip(only_eos, untouched, strict=True)] == [True] * rows
    return [row for row, is_ended in enumerate(only_eos) if is_ended]


def test_a_watched_response_ends_behind_the_line_with_its_error(stop_at_error):
    watched, unwatched, right = [], [], []
    requests_come(
        stop_at_error,
        (0, unwatched, None),
        (1, watched, ErrorWatch(CHAIN, shown=0)),
        (2, right, ErrorWatch(CHAIN, shown=0)),
    )
    encode = byte_tokenizer().encode
    for written, token in enumerate(encode(WRONG_LINE), start=1):
        stop_at_error.update_state(None)
        assert ended(stop_at_error) == []
        watched.append(token)
        unwatched.append(token)
        right.append(encode(WRONG_LINE.replace("5", "6"))[written - 1])
    assert ended(stop_at_error) == [1], "as soon as the line has ended"
    assert ended(stop_at_error) == [1], "and for good"
    moved = [(1, 0, logits_processor.MoveDirectionality.UNIDIRECTIONAL)]
    requests_come(stop_at_error, removed=[0], moved=moved)
    assert ended(stop_at_error) == [0]
    requests_come(stop_at_error, (0, [], None))
    assert ended(stop_at_error) == []


def test_lines_are_decoded_once(stop_at_error):
    tokenizer, decoded = byte_tokenizer(), []

    def decode(ids, **options):
        decoded.append(len(ids))
        return tokenizer.decode(ids, **options)

    stop_at_error._tokenizer = SimpleNamespace(decode=decode, eos_token_id=tokenizer.eos_token_id)
    stop_at_error._line_ends = frozenset(tokenizer.encode("\n"))
    tokens = []
    requests_come(stop_at_error, (1, tokens, ErrorWatch(CHAIN, shown=0)))
    for line in ["Schön, ☃!\n"] * 20:
        tokens += tokenizer.encode(line)
        assert ended(stop_at_error) == []
    tokens += tokenizer.encode(WRONG_LINE)
    assert ended(stop_at_error) == [1]
    assert max(decoded) <= len(tokenizer.encode(WRONG_LINE)) + 8


def test_tokens_that_are_still_being_drawn_are_waited_for(stop_at_error):
    """With asynchronous scheduling, vLLM's list ends with -1 until they are drawn."""
    *line, end = byte_tokenizer().encode(WRONG_LINE)
    tokens = [*line, -1]
    requests_come(stop_at_error, (1, tokens, ErrorWatch(CHAIN, shown=0)))
    assert ended(stop_at_error) == []
    tokens[-1:] = [end, -1]
    assert ended(stop_at_error) == [1]


def test_a_request_that_comes_back_is_read_from_its_beginning(stop_at_error):
    """This happens after a preemption."""
    requests_come(stop_at_error, (1, byte_tokenizer().encode(WRONG_LINE + "7d"), ErrorWatch(CHAIN, shown=0)))
    assert ended(stop_at_error) == [1]
    requests_come(stop_at_error, (1, byte_tokenizer().encode("8c+8=5\n"), ErrorWatch(CHAIN, shown=1)))
    assert ended(stop_at_error) == [1]
    requests_come(stop_at_error, (1, byte_tokenizer().encode("8c+8=5"), ErrorWatch(CHAIN, shown=1)))
    assert ended(stop_at_error) == []


def test_what_the_engine_wrote_behind_the_line_is_thrown_away():
    tokenizer = byte_tokenizer()
    text = "3a+2b+3=8\n8c+8=5\n\\bo"
    output = SimpleNamespace(
        token_ids=tokenizer.encode(text),
        log_probs=[*range(len(text))],
        stop_reason="completed",
        extra_fields={},
    )
    completion = CompletionClient(None, tokenizer).completion(output, 99, (), ErrorWatch(CHAIN, shown=0))
    assert (completion.text, completion.finish) == (text[:17], Finish.FLAGGED)
    assert len(completion.token_ids) == len(completion.log_probs) == 17


def sampled_with(text, stop):
    """Return vLLM's text for generated tokens and the end of a sequence, and the first stop string found."""
    from vllm.v1.engine.detokenizer import IncrementalDetokenizer

    tokenizer = byte_tokenizer()
    prompt = Prompt(token_ids=[1], temperature=0.0, seed=0, stop=stop)
    params = _sampling_params(prompt, EngineSettings(max_tokens=99))
    request = SimpleNamespace(
        sampling_params=params, prompt_token_ids=[1], prompt_embeds=None, request_id="r", external_req_id="r"
    )
    detokenizer = IncrementalDetokenizer.from_new_request(tokenizer, request)
    token_ids = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
    found = (detokenizer.update([token], False) for token in token_ids)
    first = next(filter(None, found), None)
    return detokenizer.get_next_output_text(finished=True, delta=False), first


def test_vllm_ends_an_evaluated_response_before_the_string():
    assert sampled_with("\\boxed{4}. User:", STOP_STRINGS["prime"]) == ("\\boxed{4}. ", "User:")


def test_vllm_finds_a_stop_string_that_is_a_special_token():
    mark = byte_tokenizer().eos_token
    assert sampled_with("\\boxed{4}", (mark,)) == ("\\boxed{4}", mark)
    # Without stop strings the text is unchanged.
    assert sampled_with("\\boxed{4}", ()) == ("\\boxed{4}", None)


# --- Two runs on one machine transfer their weights over separate sockets


NAME = "rl-colocate-zmq-{job_id}-replica-{"


class Cluster:
    """Ray's answers in a process of one run."""

    def __init__(self, node: str) -> None:
        self.node = node

    def get_job_id(self) -> str:
        return "01000000"  # every cluster's first

    def get_node_id(self) -> str:
        return self.node


@pytest.fixture
def ray_cluster(monkeypatch):
    def begin(node):
        monkeypatch.setattr(weight_socket.ray, "get_runtime_context", lambda: Cluster(node))

    return begin


def test_verl_still_names_both_ends_after_the_job_alone():
    assert NAME in inspect.getsource(vllm_rollout.ServerAdapter.__init__)
    assert NAME in inspect.getsource(utils.vLLMColocateWorkerExtension._get_zmq_handle)
    assert weight_socket.JOB_VARIABLE in inspect.getsource(utils.vLLMColocateWorkerExtension._get_zmq_handle)


@pytest.fixture
def sender_class(monkeypatch):
    """verl's class as changed in a process of the trainer."""
    sender = bucketed_weight_transfer.BucketedWeightSender
    for name in ("__init__", "_init_socket", "async_send_weights"):
        monkeypatch.setattr(sender, name, getattr(sender, name))  # restored afterwards
    weight_socket.send_on_own_socket()
    return sender


@pytest.mark.timeout(60)
@pytest.mark.parametrize("takes", [0, 1], ids=["died before", "died within"])
def test_an_engine_that_does_not_answer_is_not_waited_for(ray_cluster, sender_class, monkeypatch, takes):
    monkeypatch.setattr(weight_socket, "ANSWER_S", 0.5)
    ray_cluster(uuid.uuid4().hex)
    sender = sender_class("ipc:///tmp/rl-colocate-zmq-01000000-replica-0-rank-0.sock", 1, use_shm=True)
    with zmq.Context() as context, context.socket(zmq.REP) as engine:
        if takes:
            engine.connect(sender.zmq_handle)
        with pytest.raises(TimeoutError, match=r"took no weights for 0\.5 s"):
            asyncio.run(sender.async_send_weights(iter([("a", torch.zeros(2))])))
        assert engine.poll(0) == takes and sender.socket is None


def test_both_ends_of_a_run_agree_and_no_two_runs_do(ray_cluster, sender_class, monkeypatch):
    monkeypatch.setenv(weight_socket.JOB_VARIABLE, "01000000")
    names = []
    for node in ("a" * 56, "b" * 56):
        ray_cluster(node)
        weight_socket.receive_on_own_socket()
        engine = type("Engine", (utils.vLLMColocateWorkerExtension,), {"model_runner": None, "local_rank": 1})
        received_on = engine.__new__(engine)._get_zmq_handle()
        verls = "ipc:///tmp/rl-colocate-zmq-01000000-replica-0-rank-1.sock"
        sender = sender_class(verls, bucket_size_mb=1, use_shm=True)
        assert sender.zmq_handle == received_on != verls
        assert len(received_on.removeprefix("ipc://")) <= 107
        names.append(received_on)
    assert names[0] != names[1]


def test_another_name_is_refused(ray_cluster):
    with pytest.raises(ValueError, match="not named after the job"):
        weight_socket.own_socket("ipc:///tmp/weights.sock", "01000000", "01000000-a")
