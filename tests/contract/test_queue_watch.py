"""If a process of verl's queue dies, calls that wait for it end."""

import re
import signal
from types import SimpleNamespace

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

import psutil
import ray
import torch
import transfer_queue as tq
from ray.exceptions import ActorDiedError, ActorUnavailableError, OutOfMemoryError
from tensordict import NonTensorData, NonTensorStack, TensorDict

from seele_verl import queue_watch, rollout_workers
from seele_verl.queue_watch import watched_queue

ONE_ROW = TensorDict({"x": torch.ones(1, 1)}, batch_size=1)


@pytest.fixture(scope="module")
def local_ray():
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def queue(local_ray):
    tq.init({"backend": {"SimpleStorage": {"num_data_storage_units": 1}}})
    yield
    tq.close()


def put(key):
    tq.kv_batch_put(keys=[key], partition_id="train", fields=ONE_ROW, tags=[{}])


@pytest.mark.parametrize(
    "process, name",
    [("SimpleStorageUnit", "storage unit"), ("TransferQueueController", "controller")],
)
def test_a_lost_process_of_the_queue_ends_a_call_that_waits_for_it(queue, process, name):
    before = signal.getsignal(signal.SIGUSR2)
    with pytest.raises(RuntimeError, match=rf"^the queue's {name}.* died$"), watched_queue(0.2):
        put("a")
        each = next(
            each
            for each in psutil.Process().children(recursive=True)
            if re.match(f"ray::{process}", " ".join(each.cmdline()))
        )
        each.kill()
        while True:
            put("b")
    assert signal.getsignal(signal.SIGUSR2) is before


def test_without_a_loss_other_errors_and_interrupts_stay_what_they_are():
    for error in (KeyError("other"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as raised, watched_queue(60):
            raise error
        assert raised.value is error


def fails(error):
    def fail(*_, **__):
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "has_died"),
    [
        (ActorDiedError(), True),
        (OutOfMemoryError("killed"), True),
        (ActorUnavailableError("for the moment", None), False),
    ],
)
def test_a_process_that_cannot_be_reached_for_a_moment_has_not_died(monkeypatch, error, has_died):
    answer = SimpleNamespace(get_zmq_server_info=SimpleNamespace(remote=lambda: "answer"))
    monkeypatch.setattr(queue_watch.ray, "wait", lambda answers, timeout: (answers, []))
    monkeypatch.setattr(queue_watch.ray, "get", fails(error))
    assert queue_watch._has_died(answer, 1.0) is has_died


def test_problems_that_may_not_have_reached_their_worker_end_the_run(monkeypatch):
    manager = object.__new__(rollout_workers.RoundsManager)
    manager._step, manager._lives = 1, ["life"]
    problems = TensorDict({"x": torch.ones(1, 1)}, batch_size=1)
    problems["global_steps"] = NonTensorData(2)
    base = rollout_workers.AgentLoopManagerTQ
    for death in (ActorDiedError(), OutOfMemoryError("killed")):
        monkeypatch.setattr(base, "generate_sequences", fails(death))
        manager.generate_sequences(problems)  # another worker will begin them again
    monkeypatch.setattr(base, "generate_sequences", fails(ActorUnavailableError("for the moment", None)))
    monkeypatch.setattr(rollout_workers.ray, "wait", lambda lives, timeout: ([], lives))
    with pytest.raises(ActorUnavailableError):
        manager.generate_sequences(problems)
    # Ray may say the same of a worker that has died, until it notices.
    monkeypatch.setattr(rollout_workers.ray, "wait", lambda lives, timeout: (lives, []))
    manager.generate_sequences(problems)


def test_a_dead_workers_successor_begins_what_is_unfinished_and_a_step_has_few_successors(monkeypatch):
    given, begun, ended = [], [], []

    def worker(*_):
        assert len(ended) == manager._losses, "one that is only out of reach must not go on"
        return SimpleNamespace(
            live=SimpleNamespace(remote=lambda: "new life"),
            generate_sequences=SimpleNamespace(remote=lambda chunk: given.append([*chunk["uid"]])),
        )

    problems = TensorDict({"x": torch.ones(3, 1)}, batch_size=3)
    problems["uid"] = NonTensorStack("a", "b", "c")
    manager = object.__new__(rollout_workers.RoundsManager)
    manager._step, manager._losses, manager._lives = 7, 0, ["old life", "another"]
    manager._sent = [[problems], []]
    manager.agent_loop_workers = ["lost worker", "other worker"]
    manager.agent_loop_workers_class = SimpleNamespace(remote=worker)
    manager.config = manager.llm_client = manager.teacher_client = manager.reward_loop_worker_handles = None
    controller = SimpleNamespace(begin_again=SimpleNamespace(remote=begun.append))
    monkeypatch.setattr(rollout_workers, "connect_controller", lambda: controller)
    ray = SimpleNamespace(get=lambda value: value, wait=lambda lives, **_: ([lives[0]], lives[1:]))
    ray.kill = ended.append
    monkeypatch.setattr(rollout_workers, "ray", ray)
    assert manager.replace_lost_workers({"a", "c", "of another worker"}) == [2]
    assert (given, begun, ended) == ([["a", "c"]], [["a", "c"]], ["lost worker"])
    assert manager._lives == ["new life", "another"] and manager.agent_loop_workers[1] == "other worker"
    assert manager.replace_lost_workers(()) == [0]
    assert manager.replace_lost_workers(()) == [0]
    with pytest.raises(RuntimeError, match="4 rollout workers died in step 7"):
        manager.replace_lost_workers(())
