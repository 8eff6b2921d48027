"""Supervised fine-tuning, then GRPO on the problems that it left: both stages on the real stack."""

import json
from pathlib import Path

import pytest

from seele.data.storage.files import read_json_lines
from seele.data.storage.schema import read_problems


def rows_of(path: Path) -> list[dict]:
    return [row for _, row in read_json_lines(path)]


@pytest.mark.timeout(1200)
def test_two_stages_share_no_problem_and_count_what_both_cost(tmp_path, supervised_command, finish, problems):
    run = tmp_path / "sft_rl"
    sft = ("seele.sft.epochs=1", "seele.sft.batch_size=4", "seele.sft.share=0.6")
    rl = ("trainer.total_training_steps=1", "seele.hints.rollouts_per_prompt=4")
    printed = finish(supervised_command("sft_rl", run, *sft, *rl), log=run / "logs" / "train.log")
    assert f"sft starts in {run / 'sft'}" in printed and f"sft_rl starts in {run}\n" in printed
    parts = [
        {instance.instance_id for instance in read_problems(run / "problems" / stage / "0-train.parquet")}
        for stage in ("sft", "rl")
    ]
    every = {instance.instance_id for instance in read_problems(problems / "train.parquet")}
    assert not parts[0] & parts[1] and parts[0] | parts[1] == every
    rolled_out = {row["instance_id"] for row in rows_of(run / "rollouts" / "step_1.jsonl")}
    assert len(rolled_out) == 8 and rolled_out < parts[1]
    # The same weights, measured by seele_eval after the first stage and by verl before the second.
    after_sft, before_rl = rows_of(run / "sft" / "metrics.jsonl")[-1], rows_of(run / "metrics.jsonl")[0]
    for split in ("heldout", "harder"):
        name = f"val/accuracy/chains/{split}"
        assert after_sft[name] == before_rl[name]
    for stage in (run / "sft", run):
        assert list((stage / "tensorboard").rglob("events*"))
    card = json.loads((run / "run_card.json").read_text())
    first, second = card["stages"]["sft"], card["stages"]["rl"]
    assert (first["steps"], second["steps"]) == (len(parts[0]) // 4, 1)
    assert first["tokens"]["generated"] == 0 < second["tokens"]["generated"]
    assert first["flops"] > 0 and first["flops"] + second["flops"] == card["flops"]
    assert before_rl["flops_total"] == first["flops"]
    assert f"path: {run / 'sft' / 'merged'}" in (run / "resolved.yaml").read_text()
