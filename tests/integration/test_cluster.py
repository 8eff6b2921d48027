"""Ray clusters on one machine, each node in its own network namespace: a run over two nodes while one of them
dies or is cut off and comes back, and a node that does not see the run's folder.
"""

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest

from seele.data.storage.files import read_json_lines

PORT, INTERFACE = 6379, "seele0"
STARTED = "Ray runtime started"
PATIENCE_S = 900


def ip(*arguments: str, check: bool = True) -> None:
    subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True)


class Node:
    """A network namespace with one address, and Ray in it."""

    def __init__(self, number: int, switch: str, variables: Mapping[str, str], log: Path) -> None:
        self.name, self.log = f"{switch}-{number}", log
        self._switch, self._port = switch, f"n{number}"
        self.address = f"10.86.0.{number + 1}"
        self.is_head = number == 0
        self._environment = os.environ | variables
        self._ray: subprocess.Popen[bytes] | None = None
        ip("netns", "add", self.name)
        pair = f"{INTERFACE} netns {self.name} type veth peer {self._port} netns {switch}"
        ip("link", "add", *pair.split())
        ip("-n", switch, "link", "set", self._port, "master", "bridge", "up")
        ip("-n", self.name, "addr", "add", f"{self.address}/24", "dev", INTERFACE)
        for interface in ("lo", INTERFACE):
            ip("-n", self.name, "link", "set", interface, "up")

    def command(self, *arguments: str) -> list[str]:
        """Return the command as run in the namespace."""
        return ["ip", "netns", "exec", self.name, *arguments]

    def popen(self, arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as file:
            return subprocess.Popen(
                self.command(*arguments), env=self._environment, stdout=file, stderr=subprocess.STDOUT
            )

    def start_ray(self, head: "Node", *, gpus: int = 1, before: str = "") -> None:
        """Start Ray; ``before`` runs first, in a shell with the node's own mounts."""
        where = (
            f"--head --port={PORT} --include-dashboard=false"
            if self.is_head
            else f"--address={head.address}:{PORT}"
        )
        ray = f"{Path(sys.executable).parent / 'ray'} start {where} --node-ip-address={self.address}"
        command = f"{before}exec {ray} --num-cpus=8 --num-gpus={gpus} --block"
        starts = self._said().count(STARTED)
        process = self._ray = self.popen(["unshare", "--mount", "sh", "-c", command], self.log)
        wait_until(lambda: self._said().count(STARTED) > starts or process.poll() is not None)
        assert process.poll() is None, self._said()

    def _said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def plug(self, state: str) -> None:
        """Set the switch's side of the node's link ``up`` or ``down``."""
        ip("-n", self._switch, "link", "set", self._port, state)

    def pids(self) -> list[int]:
        """Return the processes that run on the node."""
        listed = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True).stdout
        return list(map(int, listed.split()))

    def die(self) -> None:
        """Kill everything that runs on the node."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._ray is not None:
            self._ray.wait()


def wait_until(condition: Callable[[], object], *, timeout_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.2)


def lacking(reason: str) -> NoReturn:
    """Skip the test, or fail it if ``SEELE_REQUIRE`` says so."""
    is_required = "integration" in os.environ.get("SEELE_REQUIRE", "").split(",")
    (pytest.fail if is_required else pytest.skip)(reason)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Node]]:
    """Three nodes behind a switch, without Ray."""
    if os.geteuid() or shutil.which("ip") is None:
        lacking("network namespaces need root and the command `ip`")
    switch = f"seele{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", switch], capture_output=True, text=True)
    if made.returncode:
        lacking(f"this machine forbids network namespaces: {made.stderr.strip()}")
    nodes: list[Node] = []
    # Ray's files for this cluster stay separate, or other tests' Ray would join it.
    folder = tempfile.mkdtemp(prefix="seele-", dir="/tmp")
    variables = {
        "RAY_TMPDIR": folder,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_worker_register_timeout_seconds": "600",
        "RAY_ADDRESS": f"10.86.0.1:{PORT}",
        "GLOO_SOCKET_IFNAME": INTERFACE,
    }
    try:
        try:
            ip("-n", switch, "link", "add", "bridge", "type", "bridge")
            ip("-n", switch, "link", "set", "bridge", "up")
            for number in range(3):
                nodes.append(Node(number, switch, variables, tmp_path / f"node_{number}.log"))
        except subprocess.CalledProcessError as error:
            lacking(f"this machine forbids such interfaces: {error.stderr.strip()}")
        yield nodes
    finally:
        for node in reversed(nodes):
            node.die()
        for name in (*(node.name for node in nodes), switch):
            ip("netns", "del", name, check=False)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def over_both(train_command, tmp_path: Path) -> list[str]:
    """The command of a run with a rank and an engine on each node."""
    here = ("address=auto", "num_cpus=null", "num_gpus=null")
    cluster = ("trainer.nnodes=2", *(f"ray_kwargs.ray_init.{each}" for each in here))
    lengths = ("trainer.total_training_steps=4", "trainer.save_freq=1", "trainer.max_restarts=1")
    quiet = ("trainer.test_freq=-1", "trainer.val_before_train=false", "trainer.logger=[console]")
    passes = ("algorithm.rollout_correction.bypass_mode=false",)
    return train_command(tmp_path / "run", *cluster, *lengths, *quiet, *passes)


@pytest.mark.skipif("SEELE_LONG" not in os.environ, reason="takes minutes and 10 GiB; SEELE_LONG=1 runs it")
@pytest.mark.parametrize("loss", ["dies", "is cut off"])
def test_a_run_over_two_nodes_goes_on_when_one_is_lost_and_comes_back(nodes, over_both, tmp_path, loss):
    if loss == "dies":
        head, lost, gpu_nodes = nodes[0], nodes[1], nodes[:2]
    else:  # the head of three nodes, which has no GPU, stays
        head, lost, gpu_nodes = nodes[0], nodes[2], nodes[1:]
    head.start_ray(head, gpus=int(head in gpu_nodes))
    for node in gpu_nodes:
        if node is not head:
            node.start_ray(head)
    said, metrics = tmp_path / "said", tmp_path / "run" / "metrics.jsonl"
    process = head.popen(over_both, said)

    def steps() -> list[dict]:
        return [row for _, row in read_json_lines(metrics)] if metrics.exists() else []

    wait_until(lambda: len(steps()) >= 2 or process.poll() is not None)
    assert process.poll() is None, said.read_text()
    if loss == "dies":
        lost.die()
    else:
        lost.plug("down")
    wait_until(lambda: "restart 1 of 1" in said.read_text() or process.poll() is not None)
    assert process.poll() is None, said.read_text()
    lost.plug("up")
    # Ray of a node that was cut off ends by itself, and so does everything that it had started.
    wait_until(lambda: not lost.pids())
    lost.start_ray(head)
    assert process.wait(PATIENCE_S) == 0, said.read_text()
    assert re.search(r"seele resumes after step [23] in ", said.read_text())
    lines = steps()
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    # Both engines have the trainer's weights, regardless of where their rollouts went.
    assert all(line["training/rollout_probs_diff_max"] < 1e-3 for line in lines)
    assert (tmp_path / "run" / "global_step_4" / "actor" / "model_world_size_2_rank_1.pt").exists()


def test_a_node_with_another_run_folder_is_named_before_anything_starts(nodes, over_both, tmp_path):
    head, other, _ = nodes
    head.start_ray(head)
    (tmp_path / "run").mkdir()
    other.start_ray(head, before=f"mount -t tmpfs none '{tmp_path / 'run'}'; ")
    said = tmp_path / "said"
    assert head.popen(over_both, said).wait(PATIENCE_S) == 2, said.read_text()
    assert f"the node {other.address} does not see {tmp_path}/run/run_card.json" in said.read_text()
