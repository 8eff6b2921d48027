"""Two FSDP ranks and the Bayesian controller on the real stack, with probes and hint-conditional advantages,
with spare problems, and with what only the GPU files switch on: packed sequences, fused kernels, a separate
pass for old log-probabilities, several workers and storage units. The problems are those of
examples/own_data, copied out of the repository.

Separate from the one-rank runs so that both can run in parallel.
"""

import json
import os
import shlex
import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from seele.curriculum import UniformCurriculum
from seele.data.sources import find_settings
from seele.data.sources.prepare_source import prepare_source
from seele.data.storage.files import read_json_lines

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_data"


def rows_of(path: Path) -> list[dict]:
    return [row for _, row in read_json_lines(path)]


def test_two_ranks_train_and_their_checkpoint_merges(tmp_path, train_command, finish, python, monkeypatch):
    run = tmp_path / "two"
    shutil.copytree(EXAMPLE, folder := tmp_path / "own_data")
    monkeypatch.chdir(folder)
    manifest = prepare_source(Path("prepared"), find_settings("source.yaml"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", os.devnull)
    overrides = ("trainer.n_gpus_per_node=2", "trainer.total_training_steps=9", "trainer.save_freq=9")
    # One step reaches the budget, and the next one is the last.
    overrides += ("seele.max_generated_tokens=1",)
    overrides += ("trainer.test_freq=-1", "trainer.logger=[console,tensorboard,wandb]")
    overrides += ("seele.hints.controller=bayes", "+seele.hints.settings.probes=1")
    overrides += ("seele.curriculum.spare_problems=2",)
    overrides += ("seele.advantage.baseline=hint_conditional", "seele.advantage.prior_rollouts=2")
    model = "actor_rollout_ref.model"
    overrides += (f"{model}.use_remove_padding=true", f"{model}.use_fused_kernels=true")
    overrides += ("seele.packed_updates=false",)
    overrides += (f"{model}.fused_kernel_options.impl_backend=torch",)
    overrides += ("algorithm.rollout_correction.bypass_mode=false",)
    overrides += ("actor_rollout_ref.rollout.agent.num_workers=2",)
    overrides += ("transfer_queue.backend.SimpleStorage.num_data_storage_units=2",)
    commands = (EXAMPLE.parent / "README.md").read_text().split("```")[1]
    words = shlex.split(commands.replace("\\\n", " "))
    own = [word for word in words if word.startswith(("data.train_files=", "data.val_files="))]
    assert len(own) == 2
    finish([python, *train_command(run, *overrides, *own)[1:]], log=run / "logs" / "train.log")
    metrics = rows_of(run / "metrics.jsonl")
    assert [line["step"] for line in metrics] == [0, 1, 2]
    assert all(line["actor/grad_norm"] > 0 for line in metrics[1:])
    assert "Using Torch backend for fused kernels" in (run / "logs" / "train.log").read_text()
    # The engine's log-probabilities are the trainer's, whose sequences lie end to end.
    assert all(line["training/rollout_probs_diff_max"] < 1e-4 for line in metrics[1:])
    assert len(list((run / "global_step_2" / "actor").glob("model_world_size_2_rank_*.pt"))) == 2
    finish([python, "-m", "seele_verl.merge", str(run)])
    assert (run / "merged" / "config.json").is_file()
    assert list((run / "wandb").glob("offline-run-*")), "without a key, wandb logs offline"
    check_metrics_of_the_controller(metrics)
    for step in (1, 2):
        check_rollouts(rows_of(run / "rollouts" / f"step_{step}.jsonl"))
    state = json.loads((run / "global_step_2" / "seele" / "controller.json").read_text())
    assert (state["controller"], state["visits"]) == ("bayes", {})
    check_problems(run, manifest["splits"]["train"]["problems"])


def check_problems(run: Path, num_problems: int) -> None:
    """Ten problems began and eight were trained on; the checkpoint holds those left behind."""
    trained = [
        {row["instance_id"] for row in rows_of(run / "rollouts" / f"step_{step}.jsonl")} for step in (1, 2)
    ]
    assert [len(problems) for problems in trained] == [8, 8] and not trained[0] & trained[1]
    carried = json.loads((run / "global_step_2" / "seele" / "carried.json").read_text())
    assert len(set(carried)) == 2
    curriculum = UniformCurriculum(num_problems, seed=0)
    begun = curriculum.draw(10) + curriculum.draw(8)
    assert len(begun) == 18 and set(carried) < set(begun)
    metrics = rows_of(run / "metrics.jsonl")
    assert [line["rollout/left_behind_problems"] for line in metrics[1:]] == [2.0, 2.0]


def check_metrics_of_the_controller(metrics: list[dict]) -> None:
    for step, line in enumerate(metrics[1:], start=1):
        # It also remembers problems that were left behind.
        assert 8 * step <= line["controller/problems"] <= 8 * step + 2
        assert 0.0 < line["controller/expected_unhinted_accuracy"] < 1.0
        assert 0.0 <= line["accuracy/probes"] <= 1.0
        assert 0.0 < line["controller/ms_per_proposal"] < 1000.0


def check_rollouts(rows: list[dict]) -> None:
    """Eight problems, two rounds of four, one probe in the first, and advantages against the others' mean."""
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


# Two checks of `seele doctor --gpu`, with real vLLM and verl's weight transfer.
@pytest.mark.parametrize(
    ("check", "found"),
    [
        ("bucket", "4 tensors arrived through shared memory bit for bit"),
        ("engine_tp1_v1", "log-probabilities"),
    ],
)
def test_a_check_of_seele_doctor_passes_on_a_cpu(check, found, python, finish, tmp_path):
    result = tmp_path / "result.json"
    command = [python, "-m", "seele_verl.gpu_check", "--only", check, "--device", "cpu"]
    finish([*command, "--result", str(result)])
    said = json.loads(result.read_text())
    assert said["verdict"] == "yes" and found in said["because"], said
