"""How a run starts Ray: on a node under load, and with the GPUs hidden."""

import inspect
import os

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
