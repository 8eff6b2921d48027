"""Supervised fine-tuning on the real stack: killed, resumed in smaller micro-batches, and measured."""

import json
import sys
import time
from pathlib import Path

import psutil
import pytest

from seele.data.storage.files import read_json_lines
from seele.data.storage.schema import read_problems
from seele.metrics import explain
from seele.report.run_folder import TRACKER
from seele_verl.runs import log

STEPS, SAVE_FREQ = 40, 20
STOPPED_AFTER = SAVE_FREQ + 1
SPLITS = ("train", "heldout", "harder")


def rows_of(path: Path) -> list[dict]:
    return [row for _, row in read_json_lines(path)]


@pytest.fixture(scope="module")
def sft_command(tmp_path_factory, supervised_command, problems) -> tuple[Path, list[str]]:
    run = tmp_path_factory.mktemp("runs") / "sft"
    rate = "actor_rollout_ref.actor.optim.lr=3e-4"
    lengths = ("seele.sft.epochs=100", f"trainer.total_training_steps={STEPS}", rate)
    frequencies = (f"trainer.save_freq={SAVE_FREQ}", f"trainer.test_freq={SAVE_FREQ}")
    # Problems that it has learnt tell a trained model from the one before.
    validated = f"data.val_files=[{','.join(f'{problems}/{split}.parquet' for split in SPLITS)}]"
    return run, supervised_command("sft", run, *lengths, *frequencies, validated)


@pytest.fixture(scope="module")
def stopped(sft_command, kill_and_stop) -> tuple[dict[int, dict], str]:
    """A run whose driver is killed after its first checkpoint, and which is told to stop when it resumes.
    Return the lines that it had written when it was killed, by step, and the output.
    """
    run, command = sft_command

    def read() -> dict[int, dict]:
        lines = {row["step"]: row for row in rows_of(run / "metrics.jsonl")}
        wait_for_the_trainer_to_end(run)
        return lines

    return kill_and_stop(
        # Not through a launcher: the driver must be its child.
        [sys.executable, *command[1:], "trainer.max_restarts=1"],
        run.parent / "said",
        until=lambda _: (run / TRACKER).exists() and len(log.rows_of(run)) > SAVE_FREQ,
        read=read,
        goes_on=lambda said: f"sft resumes after step {SAVE_FREQ}" in said,
    )


def wait_for_the_trainer_to_end(run: Path) -> None:
    def runs() -> bool:
        commands = [process.info["cmdline"] or () for process in psutil.process_iter(["cmdline"])]
        return any({"seele_verl.sft.trainer", str(run)} <= {*command} for command in commands)

    deadline = time.monotonic() + 30
    while runs():
        assert time.monotonic() < deadline, "the trainer outlives its driver"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def resumed(sft_command, stopped, finish) -> str:
    """Return the resumed run's output. A step's eight sequences are several micro-batches now."""
    run, command = sft_command
    smaller = "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=200"
    return finish([*command, smaller], log=run / "logs" / "train.log")


def test_a_run_that_was_killed_and_stopped_goes_on_as_it_would_have_also_in_other_micro_batches(
    sft_command, stopped, resumed
):
    run, _ = sft_command
    killed, said = stopped
    assert "the driver ended with signal SIGKILL" in said and "restart 1 of 1" in said
    assert said.rstrip().endswith(f"saved after step {STOPPED_AFTER}, where the same command resumes")
    assert f"sft resumes after step {STOPPED_AFTER}" in resumed
    metrics = rows_of(run / "metrics.jsonl")
    assert [line["step"] for line in metrics] == list(range(STEPS + 1))
    assert SAVE_FREQ < max(killed) < STEPS
    for step, line in killed.items():
        for name in ("actor/sft_loss", "actor/grad_norm", "actor/lr", "tokens/trained"):
            assert metrics[step][name] == pytest.approx(line[name], rel=1e-3)


def test_the_loss_falls_and_the_learning_rate_warms_up_and_falls(sft_command, resumed):
    run, _ = sft_command
    metrics = rows_of(run / "metrics.jsonl")[1:]
    losses = [line["actor/sft_loss"] for line in metrics]
    assert sum(losses[-4:]) < 0.8 * sum(losses[:4])  # four steps are an epoch
    rates = [line["actor/lr"] for line in metrics]
    assert max(rates) == rates[STEPS // 10 - 1] == pytest.approx(3e-4)
    assert rates[-1] == pytest.approx(3e-5)


def test_tokens_are_those_of_the_problems(sft_command, resumed, problems):
    # Each byte is a token: the question and a line break, the solution and the end of the text.
    run, _ = sft_command
    instances = read_problems(problems / "train.parquet")
    prompts = sum(len(instance.question) + 1 for instance in instances)
    responses = sum(len("".join(instance.steps)) + 1 for instance in instances)
    last = rows_of(run / "metrics.jsonl")[-1]
    assert last["tokens/teacher_forced_total"] == STEPS // 4 * responses
    for name in ("trained", "trained_packed", "trained_informative"):
        assert last[f"tokens/{name}_total"] == STEPS // 4 * (prompts + responses)


def test_accuracy_is_measured_on_each_checkpoint_and_before_training(sft_command, resumed):
    run, _ = sft_command
    metrics = rows_of(run / "metrics.jsonl")
    measured = {line["step"]: line for line in metrics if "val/accuracy/chains/heldout" in line}
    assert sorted(measured) == [0, SAVE_FREQ, STEPS]
    accuracies = [[line[f"val/accuracy/chains/{split}"] for split in SPLITS] for line in measured.values()]
    assert all(0.0 <= accuracy <= 1.0 for of_step in accuracies for accuracy in of_step)
    assert accuracies[-1] != accuracies[0]
    assert f"step   {STEPS}/{STEPS} | un-hinted harder " in resumed


def test_every_metric_of_a_supervised_run_is_documented(sft_command, resumed):
    run, _ = sft_command
    logged = {name for line in rows_of(run / "metrics.jsonl") for name in line}
    assert sorted(name for name in logged if not explain(name)) == []


def tracked(run: Path, name: str) -> dict[int, float]:
    """A metric's values by step, as TensorBoard's files have them."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    values = {}
    for file in (run / "tensorboard").rglob("events*"):
        events = reader.EventAccumulator(str(file)).Reload()
        if name in events.Tags()["scalars"]:
            values |= {event.step: event.value for event in events.Scalars(name)}
    return values


def test_what_a_supervised_run_leaves(sft_command, resumed, finish, python):
    run, _ = sft_command
    card = json.loads((run / "run_card.json").read_text())
    assert (card["status"], card["resumed_at_step"], card["steps"]) == ("finished", STOPPED_AFTER, STEPS)
    # Forward and backward, and nothing else.
    assert card["flops"] == 6 * card["parameters"] * card["tokens"]["trained"]
    assert tracked(run, "actor/sft_loss").keys() >= {1, STEPS}
    heldout = "val/accuracy/chains/heldout"
    measured = {line["step"]: line[heldout] for line in rows_of(run / "metrics.jsonl") if heldout in line}
    assert tracked(run, heldout) == pytest.approx(measured)
    merged = finish([python, "-m", "seele_verl.merge", str(run)]).splitlines()[-1]
    assert (Path(merged) / "model.safetensors").is_file()
    finish([sys.executable, "-m", "seele.cli.main", "report", str(run), "--out", str(run / "report")])
    assert "<html" in (run / "report" / "index.html").read_text()[:500]
    assert list((run / "report").glob("*.png"))


def test_a_warm_start_is_trained_once(tmp_path, problems, base_model, finish, python):
    command = [
        *(python, "-m", "seele.cli.main", "model", "warm-start", str(base_model), "--out", str(tmp_path)),
        *("--problems", str(problems / "train.parquet"), "--template", "plain", "--limit", "16"),
        *("--batch-size", "8"),
    ]
    folder = Path(finish(command).strip())
    assert {"model.safetensors", "tokenizer.json", "README.md"} <= {file.name for file in folder.iterdir()}
    assert "\n- sft\n" in (folder / "README.md").read_text()
    link = tmp_path / f"{base_model.name}-warm"
    assert link.resolve() == folder.resolve()
    # The run is removed, and nothing else is left.
    assert {path.name for path in tmp_path.iterdir()} == {folder.name, link.name}
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert Path(finish(command).strip()) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before


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
    # The same weights were measured by seele_eval after the first stage and by verl before the second.
    after_sft, before_rl = rows_of(run / "sft" / "metrics.jsonl")[-1], rows_of(run / "metrics.jsonl")[0]
    measured = {name for name in after_sft if name.startswith("val/")}
    assert len(measured) >= 6 and all(after_sft[name] == before_rl[name] for name in measured)
    for stage in (run / "sft", run):
        assert list((stage / "tensorboard").rglob("events*"))
    card = json.loads((run / "run_card.json").read_text())
    inputs = json.loads((run / "sft" / "run_card.json").read_text())["inputs"]
    assert card["inputs"] == inputs | {"train_files": None} and inputs["base_model"]
    first, second = card["stages"]["sft"], card["stages"]["rl"]
    assert (first["steps"], second["steps"]) == (len(parts[0]) // 4, 1)
    assert first["tokens"]["generated"] == 0 < second["tokens"]["generated"]
    assert first["flops"] > 0 and first["flops"] + second["flops"] == card["flops"]
    assert before_rl["flops_total"] == first["flops"]
    assert f"path: {run / 'sft' / 'merged'}" in (run / "resolved.yaml").read_text()
