"""Two FSDP ranks on the real stack; apart from the one-rank runs so that both can run side by side."""

import sys
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
    finish(train_command(run, *overrides), log=run / "logs" / "train.log")
    metrics = rows_of(run / "metrics.jsonl")
    assert [line["step"] for line in metrics] == [0, 1, 2]
    assert all(line["actor/grad_norm"] > 0 for line in metrics[1:])
    assert len(list((run / "global_step_2" / "actor").glob("model_world_size_2_rank_*.pt"))) == 2
    finish([sys.executable, "-m", "seele_verl.merge", str(run)])
    assert (run / "merged" / "config.json").is_file()
    assert list((run / "wandb").glob("offline-run-*")), "without a key, wandb logs offline"
