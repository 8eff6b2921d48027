"""A short run on one GPU, with what no CPU run has: flash attention, bfloat16, an engine that sleeps."""

import json
import math
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEVICE = "hardware=gpu_tiny"
# A cache for so small a model on all of a GPU would be millions of blocks, each an object in Python.
SMALL = ("--gpu-memory-share", "0.05")


@pytest.fixture(scope="module")
def run(tmp_path_factory, train_command, finish) -> Path:
    """The folder of a run of four steps that was stopped after the second."""
    run = tmp_path_factory.mktemp("runs") / "seele"
    for steps in (2, 4):
        saved = (f"trainer.total_training_steps={steps}", "trainer.save_freq=2", "trainer.test_freq=2")
        finish(train_command(run, DEVICE, *saved), log=run / "logs" / "train.log")
    return run


@pytest.fixture(scope="module")
def metrics(run) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_every_step_updates_the_policy(metrics):
    assert [line["step"] for line in metrics] == [0, 1, 2, 3, 4]
    for line in metrics[1:]:
        assert line["actor/grad_norm"] > 0 and math.isfinite(line["actor/pg_loss"])
        assert line["tokens/generated"] > 0
    assert [step for step, line in enumerate(metrics) if "val/accuracy/chains/heldout" in line] == [0, 2, 4]


def test_the_trainers_probabilities_are_nearly_the_engines(metrics):
    """Half precision tells them apart, another model or another temperature far more."""
    for line in metrics[1:]:
        assert line["training/rollout_probs_diff_mean"] < 0.02


def test_the_step_learns_from_both_rounds(metrics):
    for line in metrics[1:]:
        assert line["tokens/generated_round_0"] > 0 and line["tokens/generated_round_1"] > 0
        assert 0 <= line["hint_ratio/round_1"] < 1


def test_the_merged_model_is_evaluated(run, finish):
    finish([sys.executable, "-m", "seele_verl.merge", str(run)])
    finish([sys.executable, "-m", "seele_eval.run", "--run", str(run), "--out", str(run / "eval"), *SMALL])
    scores = json.loads((run / "eval" / "scores.json").read_text())["scores"]
    heldout = [score for score in scores if re.search("heldout$", score["benchmark"])]
    assert [score["problems"] for score in heldout] == [32]
