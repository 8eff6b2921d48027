"""A user's journey: a hint method in one file outside the repository is simulated, trained beside SEELE, and
compared with it.
"""

import json
import os
import sys
from pathlib import Path

import pytest

METHOD = '''
"""Retreat: every visit begins with the longest hint, and each round drops a step that succeeded."""

from seele.hints import SequentialController


class Retreat(SequentialController):
    aims_at_target = False

    def __init__(self, *, needed=1.0):
        self.needed, self.last = needed, {}

    def next_hint_ratio(self, instance_id, *, round_index, legal_ratios):
        hint, accuracy = self.last.get(instance_id, (max(legal_ratios), 0.0))
        if round_index == 0 or hint not in legal_ratios:
            return max(legal_ratios)
        shorter = [ratio for ratio in legal_ratios if ratio < hint]
        return max(shorter) if shorter and accuracy >= self.needed else hint

    def observe(self, instance_id, *, hint_ratio, num_correct, num_rollouts):
        self.last[instance_id] = (hint_ratio, num_correct / num_rollouts)

    def state_dict(self):
        return {**super().state_dict(), "last": {key: list(value) for key, value in self.last.items()}}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.last = {key: tuple(value) for key, value in state["last"].items()}
'''
NAME = "hint_methods.retreat:Retreat"


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """The folder with the user's package, which Python finds."""
    package = tmp_path / "mine" / "hint_methods"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "retreat.py").write_text(METHOD)
    monkeypatch.setenv("PYTHONPATH", f"{package.parent}:{os.environ.get('PYTHONPATH', '')}")
    return package


@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("package")
def test_a_new_hint_method_from_simulation_to_comparison(tmp_path, train_command, finish, python):
    seele = [python, str(Path(sys.executable).parent / "seele")]
    small = ["--problems", "40", "--visits", "2", "--rounds", "2"]
    controllers = ["--controller", "bayes", "--controller", f"{NAME}:needed=0.5"]
    said = finish([*seele, "simulate", *controllers, *small, "--out", str(tmp_path / "simulation")])
    assert NAME in said

    settings = (
        *("trainer.total_training_steps=3", "trainer.test_freq=3", "trainer.save_freq=-1"),
        "seele.data.validated_training_problems=4",
    )
    runs = {"seele": [], "retreat": [f"seele.hints.controller={NAME}", "+seele.hints.settings.needed=0.5"]}
    for run, own in runs.items():
        folder = tmp_path / run
        finish([python, *train_command(folder, *settings, *own)[1:]], log=folder / "logs" / "train.log")
    lines = [json.loads(line) for line in (tmp_path / "retreat" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    for line in lines[1:]:
        assert line["hint_ratio/round_0"] >= line["hint_ratio/round_1"] > 0
        assert line["actor/grad_norm"] > 0
    # Four of the training problems are asked without a hint, too.
    assert 4 * lines[-1]["val/accuracy/chains/train"] % 1 == 0

    folders = [str(tmp_path / run) for run in runs]
    said = finish([*seele, "compare", *folders, "--cost", "steps", "--out", str(tmp_path / "comparison")])
    assert "retreat" in (tmp_path / "comparison" / "comparison.md").read_text().lower(), said
