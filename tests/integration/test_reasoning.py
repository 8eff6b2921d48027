"""SEC's three reasoning tasks in one file, trained for two steps on the real stack."""

import dataclasses
import json
from pathlib import Path

import pytest

from seele.data.storage.files import read_json_lines

pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")

STEPS = 2
ARMS = {f"data_source={task},level={level}" for task in ("countdown", "zebra", "arc_1d") for level in (1, 2)}


def small_splits(task: str, num_train: int) -> dict:
    from seele.config.build import from_mapping
    from seele.data.tasks.reasoning import CONFIGS, PRESETS, generate_splits

    few = {"num_heldout": 1, "num_harder": 1, "train_levels": (1, 2), "harder_levels": (3,)}
    settings = {**PRESETS["small"][task], **few, "num_train": num_train}
    return generate_splits(task, from_mapping(CONFIGS[task], settings, task))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory) -> Path:
    """Folder with a training and a held-out file that hold problems of all three tasks."""
    from seele.data.storage.schema import write_problems

    by_task = [small_splits(task, 8) for task in ("countdown", "zebra", "arc_1d")]
    folder = tmp_path_factory.mktemp("mixed")
    for split in ("train", "heldout"):
        together = [instance for splits in by_task for instance in splits[split]]
        write_problems(folder / f"{split}.parquet", together, split=split)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A base model trained only on worked Countdown, enough to box an expression; made in seconds."""
    from seele.data.storage.schema import write_problems
    from seele_models.recipes import RECIPES
    from seele_models.training import make_base_model

    folder = tmp_path_factory.mktemp("worked")
    write_problems(folder / "train.parquet", small_splits("countdown", 64)["train"], split="train")
    recipe = dataclasses.replace(RECIPES["problems"], data_folder=str(folder), epochs=15, batch_size=16)
    return make_base_model(tmp_path_factory.mktemp("models"), recipe)


@pytest.fixture(scope="module")
def run(mixed, model, tmp_path_factory, finish, python) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "sec_2d"
    command = [
        *(python, "-m", "seele_verl.train", "method=grpo", "data=sec_2d", "curriculum=sec_2d"),
        *(
            "hardware=cpu",
            "job=tiny",
            f"actor_rollout_ref.model.path={model}",
            f"trainer.default_local_dir={folder}",
        ),
        f"data.train_files=[{mixed}/train.parquet]",
        f"data.val_files=[{mixed}/heldout.parquet]",
        *("data.max_prompt_length=720", "data.max_response_length=48"),
        *("actor_rollout_ref.rollout.max_model_len=768", "data.train_batch_size=8"),
        *("actor_rollout_ref.actor.ppo_mini_batch_size=4", "seele.hints.rollouts_per_prompt=4"),
        *(f"trainer.total_training_steps={STEPS}", f"trainer.test_freq={STEPS}", "trainer.save_freq=-1"),
        "trainer.val_before_train=false",
    ]
    finish(command, log=folder / "logs" / "train.log")
    return folder


def rows_of(path: Path) -> list[dict]:
    return [row for _, row in read_json_lines(path)]


def test_a_mixed_file_trains_with_an_arm_for_each_task_and_level(run):
    metrics = rows_of(run / "metrics.jsonl")
    assert [line["step"] for line in metrics] == list(range(1, STEPS + 1))
    for line in metrics:
        arms = {name.removeprefix("curriculum/q/") for name in line if name.startswith("curriculum/q/")}
        assert arms == ARMS
        assert sum(line[f"curriculum/drawn/{arm}"] for arm in arms) == 8
        assert line["actor/grad_norm"] > 0
    # An arm with uniform outcomes has nothing to learn from, but that cannot hold for all arms.
    assert max(metrics[-1][f"curriculum/q/{arm}"] for arm in ARMS) > 0


def test_the_form_of_a_wrong_answer_is_rewarded_and_accuracy_does_not_know(run):
    num_wrong = num_cut = 0
    for line in rows_of(run / "metrics.jsonl"):
        rollouts = rows_of(run / "rollouts" / f"step_{line['step']}.jsonl")
        rewards = {row["reason"]: set() for row in rollouts}
        for row in rollouts:
            rewards[row["reason"]].add(row["reward"])
        expected = {reason: {{"correct": 1.0, "wrong": 0.1}.get(reason, 0.0)} for reason in rewards}
        assert rewards == expected
        wrong = sum(row["reason"] == "wrong" for row in rollouts)
        correct = sum(row["reason"] == "correct" for row in rollouts)
        num_wrong += wrong
        cut = [row for row in rollouts if row["finish"] == "length"]
        assert all(row["reason"] == "truncated" for row in cut), "a rollout without an end counts as wrong"
        num_cut += len(cut)
        assert line["reward/format_share"] == pytest.approx(wrong / len(rollouts))
        assert line["accuracy/mean"] == pytest.approx(correct / len(rollouts))
        assert line["reward/mean"] == pytest.approx((correct + 0.1 * wrong) / len(rollouts))
    assert num_wrong > 0 and num_cut > 0
    assert {row["data_source"] for row in rollouts} <= {"countdown", "zebra", "arc_1d"}


def test_validation_tells_the_tasks_apart_and_reports_accuracy(run):
    last = rows_of(run / "metrics.jsonl")[-1]
    accuracies = {name: value for name, value in last.items() if name.startswith("val/accuracy/")}
    assert set(accuracies) == {f"val/accuracy/{task}/heldout" for task in ("countdown", "zebra", "arc_1d")}
    # With two problems per task, these are the only shares; a reward for the form would lie between them.
    assert set(accuracies.values()) <= {0.0, 0.5, 1.0}
    assert json.loads((run / "run_card.json").read_text())["method"] == "grpo"
