"""Two runs on one machine hand their weights over on sockets of their own."""

import inspect

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")
pytest.importorskip("vllm", reason="vLLM is not installed")

from verl.workers.rollout.vllm_rollout import bucketed_weight_transfer, utils, vllm_rollout

from seele_verl.engine import weight_socket

NAME = "rl-colocate-zmq-{job_id}-replica-{"


class Cluster:
    """What Ray says in a process of one run."""

    def __init__(self, node: str) -> None:
        self.node = node

    def get_job_id(self) -> str:
        return "01000000"  # every cluster's first

    def get_node_id(self) -> str:
        return self.node


@pytest.fixture
def cluster(monkeypatch):
    def begin(node):
        monkeypatch.setattr(weight_socket.ray, "get_runtime_context", lambda: Cluster(node))

    return begin


def test_verl_still_names_both_ends_after_the_job_alone():
    assert NAME in inspect.getsource(vllm_rollout.ServerAdapter.__init__)
    assert NAME in inspect.getsource(utils.vLLMColocateWorkerExtension._get_zmq_handle)
    assert weight_socket.JOB_VARIABLE in inspect.getsource(utils.vLLMColocateWorkerExtension._get_zmq_handle)


def test_both_ends_of_a_run_agree_and_no_two_runs_do(cluster, monkeypatch):
    monkeypatch.setenv(weight_socket.JOB_VARIABLE, "01000000")
    init = bucketed_weight_transfer.BucketedWeightSender.__init__
    monkeypatch.setattr(bucketed_weight_transfer.BucketedWeightSender, "__init__", init)
    weight_socket.send_on_own_socket()
    names = []
    for node in ("a" * 56, "b" * 56):
        cluster(node)
        weight_socket.receive_on_own_socket()
        engine = type("Engine", (utils.vLLMColocateWorkerExtension,), {"model_runner": None, "local_rank": 1})
        received_on = engine.__new__(engine)._get_zmq_handle()
        verls = "ipc:///tmp/rl-colocate-zmq-01000000-replica-0-rank-1.sock"
        sender = bucketed_weight_transfer.BucketedWeightSender(verls, bucket_size_mb=1, use_shm=True)
        assert sender.zmq_handle == received_on != verls
        assert len(received_on.removeprefix("ipc://")) <= 107
        names.append(received_on)
    assert names[0] != names[1]


def test_another_name_is_refused(cluster):
    with pytest.raises(ValueError, match="not named after the job"):
        weight_socket.own_socket("ipc:///tmp/weights.sock", "01000000", "01000000-a")
