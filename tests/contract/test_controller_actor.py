"""The controller's actor: what goes wrong where no worker waits for the answer ends the step all the same."""

import pytest

pytest.importorskip("ray", reason="Ray is not installed")

from seele.config import HintConfig, SeeleConfig
from seele.errors import PluginError
from seele.records import RoundRequest
from seele_verl.controller_actor import ControllerActor

FAULTY = """
from seele.hints import SequentialController


class Faulty(SequentialController):
    def next_hint_ratio(self, instance_id, *, round_index, legal_ratios):
        return legal_ratios[-1]

    def observe(self, instance_id, *, hint_ratio, num_correct, num_rollouts):
        if instance_id == "bad":
            raise RuntimeError("no")
"""


def test_a_fault_that_no_worker_waited_for_ends_the_step(tmp_path):
    (tmp_path / "own.py").write_text(FAULTY)
    hints = HintConfig(controller=f"{tmp_path}/own.py:Faulty", rounds=1, rollouts_per_prompt=4)
    actor = ControllerActor(SeeleConfig(method="seele", hints=hints))
    for problem in ("good", "bad", "good"):
        actor.plan_round(RoundRequest(problem, 0, (0.0, 0.5)), num_rollouts=4)
        if problem == "bad":
            with pytest.raises(PluginError):
                actor.observe(problem, hint_ratio=0.5, num_correct=1, num_rollouts=4)
        else:
            actor.observe(problem, hint_ratio=0.5, num_correct=1, num_rollouts=4)
    with pytest.raises(
        PluginError, match=r"own.py:5: observe, problem 'bad': RuntimeError: no \(.*own.py:11\)"
    ):
        actor.take_step()
