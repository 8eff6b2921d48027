"""How a run starts Ray: on a node under load, and with the GPUs hidden."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray.actor", reason="Ray is not installed")

from ray._private import node, services
from ray._private.accelerators import NvidiaGPUAcceleratorManager
from ray._private.resource_and_label_spec import ResourceAndLabelSpec

from seele_verl.compat import answered_later, patient_ray
from seele_verl.train import compose, set_environment


class Slow:
    """Ray's table of nodes, in which this one stands only when it is asked a third time."""

    def __init__(self) -> None:
        self.questions = 0

    def __call__(self, *asked: str) -> tuple[str, ...]:
        self.questions += 1
        if self.questions < 3:
            raise RuntimeError("not there yet")
        return asked


def test_a_node_that_needs_longer_is_waited_for():
    waits: list[float] = []
    assert answered_later(Slow(), attempts=3, sleep=waits.append)("address", "node") == ("address", "node")
    assert waits == [1.0, 1.0]
    with pytest.raises(RuntimeError, match="not there yet"):
        answered_later(Slow(), attempts=2, sleep=waits.append)("address", "node")


def test_ray_asks_for_its_node_where_the_answer_can_wait():
    """And has no setting of its own for how long it does."""
    source = inspect.getsource(node.Node.__init__)
    assert "raylet_start_wait_time_s = 30\n" in source and "ray._private.services.get_node(" in source
    asked = services.get_node
    with patient_ray():
        assert services.get_node is not asked
    assert services.get_node is asked


@pytest.mark.parametrize("visible", ["", "0", None], ids=["hidden", "one", "not set"])
def test_a_run_on_a_cpu_starts_ray_whatever_gpus_are_visible(monkeypatch, visible):
    # Whatever the run sets, the test takes back.
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
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
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
    # A stand-in for the trainer, that starts Ray alone.
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
