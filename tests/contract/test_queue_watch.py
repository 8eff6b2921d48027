"""If a process of verl's queue dies, calls that wait for it end."""

import re
import signal

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

import psutil
import ray
import torch
import transfer_queue as tq
from tensordict import TensorDict

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
