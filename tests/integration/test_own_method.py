"""A user's journey: a hint method in one file outside the repository is simulated, trained beside SEELE, and
compared with it.
"""

import json
import os
import sys
from pathlib import Path
from statistics import fmean

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from seele.data.storage.schema import read_problems
from seele.rollout.solutions import encode_problem

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


def hint_reliance(run: Path, model_folder: Path, problems: Path) -> float:
    """Mean over the right hinted responses of a run's last step of how much less likely they are, a token,
    without the hint.
    """
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    instances = {each.instance_id: each for each in read_problems(problems / "train.parquet")}
    prompt = yaml.safe_load((run / "resolved.yaml").read_text())["seele"]["prompt"]

    def log_probs(before: list[int], response: list[int]) -> torch.Tensor:
        with torch.no_grad():
            logits = model(torch.tensor([before + response])).logits[0, len(before) - 1 : -1]
        return logits.log_softmax(-1).gather(-1, torch.tensor(response)[:, None])[:, 0]  # (R,)

    differences = []
    for row in map(json.loads, (run / "rollouts" / "step_3.jsonl").read_text().splitlines()):
        if row["hint_steps"] and row["reward"] == 1:
            instance = instances[row["instance_id"]]
            encoded = encode_problem(tokenizer, instance.question, instance.steps, prompt["template"])
            response = tokenizer.encode(row["text"], add_special_tokens=False)
            response += [tokenizer.eos_token_id] * (row["generated_tokens"] - len(response))
            alone = log_probs(encoded.prompt_ids, response)
            behind = log_probs(encoded.before_response(row["hint_steps"]), response)
            differences.append(float((alone - behind).mean()))
    assert 0 < len(differences) <= 64
    return fmean(differences)


@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("package")
def test_a_new_hint_method_from_simulation_to_comparison(
    tmp_path, train_command, finish, python, base_model, problems
):
    seele = [python, str(Path(sys.executable).parent / "seele")]
    small = ["--problems", "40", "--visits", "2", "--rounds", "2"]
    controllers = ["--controller", "bayes", "--controller", f"{NAME}:needed=0.5"]
    said = finish([*seele, "simulate", *controllers, *small, "--out", str(tmp_path / "simulation")])
    assert NAME in said

    settings = (
        *("trainer.total_training_steps=3", "trainer.test_freq=3", "trainer.save_freq=-1"),
        "seele.data.validated_training_problems=4",
    )
    own = (f"seele.hints.controller={NAME}", "+seele.hints.settings.needed=0.5")
    runs = {"seele": (), "retreat": (*own, "actor_rollout_ref.actor.optim.lr=1e-12")}
    for run, own in runs.items():
        folder = tmp_path / run
        finish([python, *train_command(folder, *settings, *own)[1:]], log=folder / "logs" / "train.log")
    lines = [json.loads(line) for line in (tmp_path / "retreat" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    for line in lines[1:]:
        assert line["hint_ratio/round_0"] >= line["hint_ratio/round_1"] > 0
        assert line["actor/grad_norm"] > 0
    # The policy has not moved: the base model itself says how much right responses rely on their hints.
    assert [line["step"] for line in lines if "hints/reliance" in line] == [3]
    expected = hint_reliance(tmp_path / "retreat", base_model, problems)
    assert lines[-1]["hints/reliance"] == pytest.approx(expected, abs=1e-4)
    assert expected < 0
    # Four of the training problems are asked without a hint, too.
    assert 4 * lines[-1]["val/accuracy/chains/train"] % 1 == 0

    folders = [str(tmp_path / run) for run in runs]
    said = finish([*seele, "compare", *folders, "--cost", "steps", "--out", str(tmp_path / "comparison")])
    assert "retreat" in (tmp_path / "comparison" / "comparison.md").read_text().lower(), said
