"""Real runs on the real stack: killed and resumed, on one and two ranks, merged, evaluated, reported."""

import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import fmean

import psutil
import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from seele.data.storage.files import read_json_lines
from seele.data.storage.schema import read_problems
from seele.hints.contract import nearest_legal
from seele.metrics import explain
from seele.rollout.solutions import encode_problem
from seele_verl.runs import log

SETTINGS = (
    # Each round moves its problem's hint, unless half of the round is right.
    "seele.hints.controller=robbins_monro",
    # Step 3 visits problems again.
    "data.train_max_samples=16",
    # A step's problems depend on the results of earlier steps.
    "curriculum=sec",
    "seele.selection.prune_after=1",
    "trainer.save_freq=2",
    # Compute the trainer's own log-probabilities too, to compare them with the engine's.
    "algorithm.rollout_correction.bypass_mode=false",
)


def rows_of(path: Path) -> list[dict]:
    return [row for _, row in read_json_lines(path)]


SECRETS = {name: f"a-secret-{name}" for name in ("HF_TOKEN", "WANDB_API_KEY", "OPENAI_API_KEY")}
"""Variables of all runs here."""


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SECRETS.items():
            patch.setenv(name, value)
        yield tmp_path_factory.mktemp("runs") / "seele"


def has_come_to_step_4(run: Path, supervisor: psutil.Process, *, lost: list[int]) -> bool:
    """Return True at step 4; kill the first rollout worker seen after step 1 on the way."""
    if not lost and (run / "rollouts" / "step_1.jsonl").exists():
        titles = set()
        for process in supervisor.children(recursive=True):
            with suppress(psutil.Error):
                title = process.cmdline()[0]
                titles.add(title.partition(".")[0])
                if not lost and title.startswith("ray::RoundsWorker"):
                    process.kill()
                    lost.append(process.pid)
        assert lost and {"ray::WorkerDict", "VLLM::EngineCore"} <= titles, "`ps` names processes"
    return any(line["step"] == 3 for line in log.rows_of(run))


def rolls_out_again(run: Path, said: str) -> bool:
    """Return True once the resumed run has its first responses."""
    started, lives = run / "resolved.yaml", run / "logs" / "alive"
    return "resumes after step 2" in said and lives.stat().st_mtime > started.stat().st_mtime


def stop_the_engine(supervisor: psutil.Process, *, note: Path) -> None:
    """Stop the process that computes for vLLM, and hasten the watchdog."""
    for process in supervisor.children(recursive=True):
        with suppress(psutil.Error):
            if process.cmdline()[0].startswith("VLLM::EngineCore"):
                process.suspend()
                note.touch()
    assert note.exists()


@pytest.fixture(scope="module")
def restarted(run, train_command, kill_and_stop) -> tuple[tuple[dict[int, list[dict]], dict], str]:
    """A run that loses a rollout worker in the second step, whose engine hangs in the fourth, after the
    checkpoint of step 2, and which is then told to stop. Return the rollouts that it had dumped when it hung,
    with the line of step 3, and the output.
    """
    settings = ("trainer.total_training_steps=6", "trainer.test_freq=3", "trainer.max_restarts=1")
    command = train_command(run, *settings, *SETTINGS, "trainer.watchdog_minutes=10")
    hangs, note = Path(__file__).with_name("hangs_in_seconds.py"), run.parent / "hangs"

    def read() -> tuple[dict[int, list[dict]], dict]:
        rollouts = {step: rows_of(run / "rollouts" / f"step_{step}.jsonl") for step in (1, 2, 3)}
        return rollouts, rows_of(run / "metrics.jsonl")[-1]

    return kill_and_stop(
        [command[0], str(hangs), str(note), *command[2:]],
        run.parent / "said",
        until=partial(has_come_to_step_4, run, lost=[]),
        fault=partial(stop_the_engine, note=note),
        read=read,
        goes_on=partial(rolls_out_again, run),
    )


@pytest.fixture(scope="module")
def killed(restarted) -> dict[int, list[dict]]:
    return restarted[0][0]


@pytest.fixture(scope="module")
def lost(run, killed) -> dict:
    """The line of step 3, removed as if the run had been killed before it wrote the line. As it was told to
    stop, it had not validated.
    """
    path = run / "metrics.jsonl"
    *others, line = rows_of(path)
    path.write_text("".join(json.dumps(each) + "\n" for each in others))
    return line


@pytest.fixture(scope="module")
def resumed(run, lost, train_command, finish, python) -> str:
    """Return the resumed run's output."""
    command = train_command(run, "trainer.total_training_steps=4", "trainer.test_freq=3", *SETTINGS)
    return finish([python, *command[1:]], log=run / "logs" / "train.log")


def by_problem(rows: list[dict], **conditions) -> dict[str, list[dict]]:
    problems = defaultdict(list)
    for row in rows:
        if all(row[name] == value for name, value in conditions.items()):
            problems[row["instance_id"]].append(row)
    return problems


def test_a_run_goes_on_by_itself_and_saves_when_it_is_told_to_stop(run, restarted, resumed):
    _, said = restarted
    assert re.search(
        r"step 2: a rollout worker died; another one begins [1-9]\d* of its problems again", said
    )
    assert re.search(r"no sign of life for \d+ minutes; .*stacks.txt has the stack of each process", said)
    assert re.search(r"^--- process .*: VLLM::EngineCore", (run / "logs" / "stacks.txt").read_text(), re.M)
    assert "the driver ended with signal SIGKILL after step 3; restart 1 of 1" in said
    assert said.rstrip().endswith("stopped on request; saved after step 3, where the same command resumes")
    assert "resumes after step 3" in resumed


def hint_ratio_at(rate: float, row: dict) -> float:
    """Return the hint ratio that a rollout's problem gets at its controller's rate, which begins at 0.5."""
    return nearest_legal(rate, [shown / row["num_steps"] for shown in range(row["num_steps"])])


def test_a_killed_run_goes_on_with_the_same_problems_and_the_same_hints(run, killed, resumed):
    first_again = rows_of(run / "rollouts" / "step_3.jsonl")
    before, after = (
        {problem: rows[0] for problem, rows in by_problem(rows, round=0).items()}
        for rows in (killed[3], first_again)
    )
    assert len(before) == 8
    assert {problem: row["hint_ratio"] for problem, row in before.items()} == {
        problem: row["hint_ratio"] for problem, row in after.items()
    }
    assert any(row["hint_ratio"] != hint_ratio_at(0.5, row) for row in before.values()), "only new problems"


def test_the_first_step_after_resuming_samples_what_the_killed_run_sampled(run, killed, resumed):
    # Weights, hints and seeds are the same; only the engine's batches, and thus last digits, may differ.
    before, after = (
        {(row["instance_id"], row["rollout"]): row["text"] for row in rows if row["round"] == 0}
        for rows in (killed[3], rows_of(run / "rollouts" / "step_3.jsonl"))
    )
    assert before.keys() == after.keys()
    assert sum(before[place] == after[place] for place in before) / len(before) > 0.9


def test_every_step_is_logged_once_and_totals_run_on(run, resumed):
    metrics = rows_of(run / "metrics.jsonl")
    assert [line["step"] for line in metrics] == [0, 1, 2, 3, 4]
    # Validated steps are measured more closely.
    assert [line["step"] for line in metrics if "hints/reliance" in line] == [3, 4]
    generated = [line.get("tokens/generated", 0) for line in metrics]
    assert metrics[-1]["tokens/generated_total"] == sum(generated)


def test_each_step_visits_its_problems_in_full_rounds(killed):
    for rows in killed.values():
        problems = by_problem(rows)
        assert len(problems) == 8
        for rollouts in problems.values():
            assert [(row["round"], row["rollout"]) for row in rollouts] == [(i // 4, i) for i in range(8)]
            assert all(len({row["hint_ratio"] for row in rollouts if row["round"] == r}) == 1 for r in (0, 1))


def test_a_first_visit_begins_in_the_middle_and_its_second_round_follows_the_first(killed):
    moved = 0
    for rollouts in by_problem(killed[1]).values():
        first, second = ([row for row in rollouts if row["round"] == r] for r in (0, 1))
        assert all(row["hint_ratio"] == row["hint_steps"] / row["num_steps"] for row in rollouts)
        assert first[0]["hint_ratio"] == hint_ratio_at(0.5, first[0])
        # The first gain of the controller is 0.5, and so is its target.
        rate = 0.5 - 0.5 * (fmean(row["reward"] for row in first) - 0.5)
        assert second[0]["hint_ratio"] == hint_ratio_at(rate, first[0])
        moved += second[0]["hint_ratio"] != first[0]["hint_ratio"]
    assert moved


def test_advantages_are_pooled_over_rounds_without_standard_deviation(killed):
    for rows in killed.values():
        for rollouts in by_problem(rows).values():
            mean = sum(row["reward"] for row in rollouts) / len(rollouts)
            for row in rollouts:
                assert row["advantage"] == pytest.approx(row["reward"] - mean, abs=1e-6)


def test_the_hint_stands_at_the_beginning_of_the_assistants_turn(killed, base_model):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base_model)
    for row in killed[1]:
        assert row["prompt_tokens"] == len(tokenizer.encode(row["question"] + "\n"))
        assert row["hint_tokens"] == len(tokenizer.encode(row["hint"]))


def test_training_and_rollout_agree_on_log_probabilities(run, resumed):
    # Both sides use single precision and the same weights, so only the last digits may differ.
    for line in rows_of(run / "metrics.jsonl")[1:]:
        assert line["training/rollout_probs_diff_mean"] < 1e-6
        assert line["training/rollout_probs_diff_max"] < 1e-3


def test_what_a_run_leaves(run, resumed):
    card = json.loads((run / "run_card.json").read_text())
    assert card["status"] == "finished" and card["resumed_at_step"] == 3
    assert card["versions"]["verl"] and card["tokens"]["generated"] > 0
    assert [len(digest) for digest in card["inputs"].values()] == [64, 64, 64]
    # Rows of a group share their prompt.
    tokens = card["tokens"]
    assert 0 < tokens["trained_informative"] <= tokens["trained_packed"] < tokens["trained"]
    for name in ("resolved.yaml", "logs/train.log", "global_step_4/seele/controller.json"):
        assert (run / name).is_file(), name
    assert list((run / "tensorboard").iterdir())


def test_a_run_writes_no_secret_of_its_environment(run, restarted, resumed):
    files = [path for path in run.rglob("*") if path.is_file()]
    assert {"resolved.yaml", "run_card.json", "train.log"} <= {path.name for path in files}
    written = {path: path.read_bytes() for path in files}
    written |= {"said": restarted[1].encode(), "said when it resumed": resumed.encode()}
    secrets = [secret.encode() for secret in SECRETS.values()]
    assert not [name for name, text in written.items() if any(secret in text for secret in secrets)]


def test_the_terminal_shows_progress_and_no_chatter(resumed):
    lines = resumed.splitlines()
    assert [line for line in lines if line.startswith("step")][-1].startswith("step    4/4 | rounds ")
    assert not any("pid=" in line for line in lines)


def test_a_run_stopped_before_a_validation_keeps_the_step_and_makes_up_for_it(run, restarted, lost, resumed):
    line = rows_of(run / "metrics.jsonl")[3]
    kept = [name for name in lost if name.startswith(("tokens/", "accuracy/", "hint_ratio/", "flops"))]
    assert len(kept) > 10 and all(line[name] == lost[name] for name in kept)
    # This excludes the time of saving, and of handing the weights to the engine.
    assert 0 < line["timing_s/gen"] < line["timing_s/step"] < lost["timing_s/step"]
    assert not [name for name in lost if name.startswith("val/")]
    before = {name: value for name, value in restarted[0][1].items() if name.startswith("val/accuracy/")}
    assert before
    for name, accuracy in before.items():
        # Four problems of the 32; the engine's batches may differ, in the step and in the validation.
        assert line[name] == pytest.approx(accuracy, abs=4 / 32)


def test_merge_evaluation_and_report(run, resumed, finish, python):
    merged = finish([python, "-m", "seele_verl.merge", str(run)]).splitlines()[-1]
    assert Path(merged) == run / "merged"
    out = run / "eval"
    finish([python, "-m", "seele_eval.run", "--run", str(run), "--out", str(out)])
    scores = json.loads((out / "scores.json").read_text())
    assert {"heldout", "harder"} <= {score["benchmark"].split("/")[-1] for score in scores["scores"]}
    finish([sys.executable, "-m", "seele.cli.main", "report", str(run), "--out", str(run / "report")])
    assert "<html" in (run / "report" / "index.html").read_text()[:500]
    assert list((run / "report").glob("*.png"))


def test_every_metric_is_documented(run, resumed):
    logged = {name for line in rows_of(run / "metrics.jsonl") for name in line}
    assert sorted(name for name in logged if not explain(name)) == []
    assert {"val/accuracy/chains/heldout", "accuracy/round_1", "tokens/generated_total"} <= logged


def test_a_pretrained_model_trains_a_step_and_agrees_with_the_engine(
    smollm2, tmp_path, train_command, finish
):
    # 49,152 tokens, tied embeddings, a chat template. Few of the suite's machines have the model.
    run = tmp_path / "smollm2"
    sizes = ("data.train_batch_size=2", "actor_rollout_ref.actor.ppo_mini_batch_size=2")
    sizes += ("data.max_prompt_length=256", "data.max_response_length=16", "trainer.total_training_steps=1")
    sizes += ("seele.hints.rollouts_per_prompt=2", "seele.hints.rounds=1", "seele.prompt.template=chat")
    limits = [f"actor_rollout_ref.{part}.log_prob_max_token_len_per_gpu=1024" for part in ("ref", "rollout")]
    limits += ["actor_rollout_ref.actor.ppo_max_token_len_per_gpu=1024"]
    limits += ["actor_rollout_ref.rollout.max_model_len=272"]
    others = ("trainer.val_before_train=false", "trainer.test_freq=-1", "trainer.save_freq=-1")
    others += (
        "algorithm.rollout_correction.bypass_mode=false",
        "reward.reward_kwargs.overlong_buffer_cfg.len=4",
    )
    model = f"actor_rollout_ref.model.path={smollm2}"
    finish(train_command(run, model, *sizes, *limits, *others), log=run / "logs" / "train.log")
    (line,) = rows_of(run / "metrics.jsonl")
    assert line["training/rollout_probs_diff_max"] < 1e-4
    # The hints are imitated, whatever the rollouts' rewards.
    assert line["actor/grad_norm"] > 0
    assert line["tokens/generated"] <= 2 * 2 * 16
    assert len(rows_of(run / "rollouts" / "step_1.jsonl")) == 4


RETREAT = '''
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
RETREAT_NAME = "hint_methods.retreat:Retreat"


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """The folder of the user's package, on Python's path."""
    package = tmp_path / "mine" / "hint_methods"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "retreat.py").write_text(RETREAT)
    monkeypatch.setenv("PYTHONPATH", f"{package.parent}:{os.environ.get('PYTHONPATH', '')}")
    return package


def hint_reliance(run: Path, model_folder: Path, problems: Path) -> float:
    """Return how much less likely the right hinted responses of a run's first step are without the hint, per
    token, as a mean.
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
    for row in rows_of(run / "rollouts" / "step_1.jsonl"):
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


@pytest.mark.usefixtures("package", "resumed")
def test_a_new_hint_method_from_simulation_to_comparison(
    run, tmp_path, train_command, finish, python, base_model, problems
):
    """A user's journey: a hint method in one file outside the repository is simulated, trained, and compared
    with SEELE.
    """
    seele = [python, str(Path(sys.executable).parent / "seele")]
    small = ["--problems", "40", "--visits", "2", "--rounds", "2"]
    controllers = ["--controller", "bayes", "--controller", f"{RETREAT_NAME}:needed=0.5"]
    said = finish([*seele, "simulate", *controllers, *small, "--out", str(tmp_path / "simulation")])
    assert RETREAT_NAME in said

    settings = (
        *("trainer.total_training_steps=1", "trainer.test_freq=1", "trainer.save_freq=-1"),
        *("seele.data.validated_training_problems=4", "seele.hints.rounds=4"),
        # One rollout of a round's four is right often enough to see hints shorten.
        *("seele.hints.rollouts_per_prompt=16", "+seele.hints.settings.needed=0.25"),
        f"seele.hints.controller={RETREAT_NAME}",
        f"seele.reward.grader={Path(__file__).parent / 'own_parts.py'}:answer_in_ascii",
    )
    retreat = tmp_path / "retreat"
    finish([python, *train_command(retreat, *settings)[1:]], log=retreat / "logs" / "train.log")
    before, line = rows_of(retreat / "metrics.jsonl")
    assert line["step"] == 1 and line["actor/grad_norm"] > 0
    shortened = 0
    for rollouts in by_problem(rows_of(retreat / "rollouts" / "step_1.jsonl")).values():
        shown = rollouts[0]["num_steps"] - 1
        for index in range(4):
            of_round = [row for row in rollouts if row["round"] == index]
            assert [row["hint_steps"] for row in of_round] == [shown] * 4
            succeeded = fmean(row["reward"] for row in of_round) >= 0.25
            shown, shortened = shown - succeeded, shortened + (succeeded and index < 3)
    assert shortened
    # The step's update comes later: the base model shows how much right responses rely on their hints.
    assert "hints/reliance" not in before
    expected = hint_reliance(retreat, base_model, problems)
    assert line["hints/reliance"] == pytest.approx(expected, abs=1e-4)
    assert expected < 0
    # Four of the training problems are also asked without a hint.
    assert 4 * line["val/accuracy/chains/train"] % 1 == 0

    # The other run did not ask training problems, so that split is skipped.
    options = ["--cost", "steps", "--out", str(tmp_path / "comparison")]
    said = finish([*seele, "compare", str(run), str(retreat), *options])
    assert "retreat" in (tmp_path / "comparison" / "comparison.md").read_text().lower(), said
