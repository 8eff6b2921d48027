"""Two FSDP ranks and the Bayesian controller on the real stack, with probes and hint-conditional advantages.

Apart from the one-rank runs so that both can run side by side.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from seele.data.files import read_json_lines


def rows_of(path: Path) -> list[dict]:
    return [row for _, row in read_json_lines(path)]


@pytest.mark.timeout(1800)
def test_two_ranks_train_and_their_checkpoint_merges(tmp_path, train_command, finish):
    run = tmp_path / "two"
    overrides = ("trainer.n_gpus_per_node=2", "trainer.total_training_steps=2", "trainer.save_freq=2")
    overrides += ("trainer.test_freq=-1", "trainer.logger=[console,tensorboard,wandb]")
    overrides += ("seele.hints.controller=bayes", "+seele.hints.settings.probes=1")
    overrides += ("seele.advantage.baseline=hint_conditional", "seele.advantage.prior_rollouts=2")
    finish(train_command(run, *overrides), log=run / "logs" / "train.log")
    metrics = rows_of(run / "metrics.jsonl")
    assert [line["step"] for line in metrics] == [0, 1, 2]
    assert all(line["actor/grad_norm"] > 0 for line in metrics[1:])
    assert len(list((run / "global_step_2" / "actor").glob("model_world_size_2_rank_*.pt"))) == 2
    finish([sys.executable, "-m", "seele_verl.merge", str(run)])
    assert (run / "merged" / "config.json").is_file()
    assert list((run / "wandb").glob("offline-run-*")), "without a key, wandb logs offline"
    check_metrics_of_the_controller(metrics)
    for step in (1, 2):
        check_rollouts(rows_of(run / "rollouts" / f"step_{step}.jsonl"))
    state = json.loads((run / "global_step_2" / "seele" / "controller.json").read_text())
    assert (state["controller"], state["visits"]) == ("bayes", {})


def check_metrics_of_the_controller(metrics: list[dict]) -> None:
    for step, line in enumerate(metrics[1:], start=1):
        assert line["controller/problems"] == 8 * step
        assert 0.0 < line["controller/expected_unhinted_accuracy"] < 1.0
        assert 0.0 <= line["accuracy/probes"] <= 1.0
        assert 0.0 < line["controller/ms_per_proposal"] < 1000.0


def check_rollouts(rows: list[dict]) -> None:
    """Eight problems of two rounds of four; one probe in the first; advantages against the others' mean."""
    groups = defaultdict(list)
    for row in rows:
        groups[row["instance_id"], row["round"]].append(row)
    assert len(groups) == 16
    for (_, round_index), group in groups.items():
        assert [row["is_probe"] for row in group] == [round_index == 0, False, False, False]
        for row in group:
            others = [
                other for other in group if other["hint_ratio"] == row["hint_ratio"] and other is not row
            ]
            expected = sum(other["reward"] for other in others) + 2 * row["predicted_accuracy"]
            assert row["advantage"] == pytest.approx(row["reward"] - expected / (len(others) + 2), abs=1e-5)
