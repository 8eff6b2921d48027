"""Runs on disk, and the metrics and dump of a step."""

import fcntl
import itertools
import json
import math
import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

import seele
from helpers.commands import exit_status
from seele.errors import CheckpointError, DependencyError
from seele.records import (
    Completion,
    Finish,
    Grade,
    GradeReason,
    HintShare,
    Instance,
    Origin,
    Rollout,
    Segment,
    Visit,
    Walk,
)
from seele.report.rollout_lines import TOKENS
from seele.rollout.metrics import packed_tokens, rollout_rows, step_metrics, teacher_forced_tokens
from seele.runs import RunState, list_runs, overview
from seele.runs.overview import describe_age, describe_runs

# --- Runs on disk: the list of those below a folder, and one run as pandas frames


ROOT = Path(__file__).parents[2]

NOW = 1_000_000.0
STEPS = [
    {"step": 0, "val/accuracy/chains/heldout": 0.125},
    {"step": 1, "accuracy/mean": 0.5},
    {
        "step": 2,
        "accuracy/mean": 0.75,
        "val/accuracy/chains/heldout": 0.25,
        "val/accuracy/chains/harder": 0.0,
    },
    {"step": 3, "accuracy/mean": 0.25},
]
ROLLOUTS = [
    {
        "instance_id": "a",
        "reward": 1.0,
        "hint_ratio": 0.5,
        "text": "x",
        "reason": "correct",
        "origin": "policy",
    },
    {
        "instance_id": "a",
        "reward": 0.0,
        "hint_ratio": 0.25,
        "text": "y",
        "reason": "wrong",
        "origin": "policy",
    },
]
SCORE = {
    "benchmark": "gsm8k",
    "temperature": 0.0,
    "problems": 4,
    "samples": 1,
    "accuracy": 0.5,
    "interval_95": [0.25, 0.75],
    "mean_response_tokens": 10.0,
    "truncated_share": 0.0,
    "no_answer_share": 0.0,
}


def make_run(folder, *, age_s=0.0, steps=STEPS, **card):
    """A run folder whose last line is ``age_s`` older than ``NOW``."""
    folder.mkdir(parents=True)
    card = {"method": "seele", "status": "finished", "planned_steps": 4, "commit": "c"} | card
    (folder / "run_card.json").write_text(json.dumps(card))
    (folder / "resolved.yaml").write_text(yaml.safe_dump({"seele": {"hints": {"rounds": 2}}}))
    metrics = folder / "metrics.jsonl"
    metrics.write_text("".join(f"{json.dumps(line)}\n" for line in steps))
    os.utime(metrics, (NOW - age_s, NOW - age_s))
    return folder


def states(folder):
    return {run.name: run.state for run in list_runs(folder)}


# The list


def test_runs_at_any_depth_are_listed_the_last_active_first(tmp_path):
    make_run(tmp_path / "old", age_s=7200)
    make_run(tmp_path / "task" / "arm" / "seed_0", age_s=60)
    make_run(tmp_path / "task" / "arm" / "seed_1", age_s=5)
    # A folder inside a run is none of its own: the first stage of two.
    make_run(tmp_path / "old" / "sft")
    (tmp_path / "empty").mkdir()
    # Links lead to runs on other disks, and to where one came from.
    make_run(tmp_path.parent / f"{tmp_path.name}-scratch" / "linked", age_s=9000)
    (tmp_path / "link").symlink_to(tmp_path.parent / f"{tmp_path.name}-scratch" / "linked")
    (tmp_path / "task" / "back").symlink_to(tmp_path)
    names = [run.name for run in list_runs(tmp_path)]
    assert names == ["task/arm/seed_1", "task/arm/seed_0", "old", "link"]
    assert [run.name for run in list_runs(tmp_path / "old")] == ["old"]


def test_a_run_says_where_it_stands_and_what_it_last_validated(tmp_path):
    make_run(tmp_path / "run")
    (run,) = list_runs(tmp_path)
    assert (run.method, run.step, run.planned_steps) == ("seele", 3, 4)
    assert (run.accuracy_step, run.accuracy) == (2, {"chains/heldout": 0.25, "chains/harder": 0.0})
    assert (run.last_activity, run.note) == (NOW, "")


def test_a_run_that_holds_its_lock_is_running_and_one_that_was_killed_is_interrupted(tmp_path):
    run = make_run(tmp_path / "run", status="running")
    assert states(tmp_path) == {"run": RunState.INTERRUPTED}
    with (run / ".lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert states(tmp_path) == {"run": RunState.RUNNING}
    assert states(tmp_path) == {"run": RunState.INTERRUPTED}
    # Asking leaves the lock free.
    with (run / ".lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_the_first_stage_of_two_runs_under_the_lock_of_the_run(tmp_path):
    make_run(tmp_path / "run" / "sft", status="running")
    with (tmp_path / "run" / ".lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert states(tmp_path) == {"run/sft": RunState.RUNNING}
    assert states(tmp_path) == {"run/sft": RunState.INTERRUPTED}


def test_broken_runs_get_a_line_that_says_why(tmp_path):
    (make_run(tmp_path / "card") / "run_card.json").write_text('{"status": "run')
    (make_run(tmp_path / "bare") / "run_card.json").unlink()
    make_run(tmp_path / "strange", status="?")
    (make_run(tmp_path / "no_steps") / "metrics.jsonl").write_text('{"step": 1, "accu')
    (make_run(tmp_path / "early", status="failed") / "metrics.jsonl").unlink()
    (make_run(tmp_path / "lost") / "metrics.jsonl").unlink()
    runs = {run.name: run for run in list_runs(tmp_path)}
    assert {name: run.state for name, run in runs.items()} == {
        **dict.fromkeys(("card", "bare", "strange"), RunState.BROKEN),
        **dict.fromkeys(("no_steps", "lost"), RunState.FINISHED),
        "early": RunState.FAILED,
    }
    assert "run_card.json is not JSON" in runs["card"].note
    assert "run_card.json is missing" in runs["bare"].note
    assert "metrics.jsonl holds no complete step" in runs["no_steps"].note
    table = describe_runs([*runs.values()], now=NOW)
    assert table.count("\n") == 7 and "run_card.json is not JSON" in table
    assert "metrics.jsonl holds no complete step." in table and "metrics.jsonl is missing." in table


def test_a_link_that_may_not_be_followed_costs_only_its_own_line(tmp_path, monkeypatch):
    make_run(tmp_path / "own")
    (tmp_path / "theirs").symlink_to("/nowhere")

    def refuse(folder):
        if folder.name == "theirs":
            raise PermissionError(13, "Permission denied", str(folder))
        return is_run_folder(folder)

    is_run_folder = overview.is_run_folder
    monkeypatch.setattr(overview, "is_run_folder", refuse)
    states = {run.name: run.state for run in list_runs(tmp_path)}
    assert states == {"own": RunState.FINISHED, "theirs": RunState.BROKEN}


def test_a_log_that_was_cut_off_counts_up_to_the_last_whole_line(tmp_path):
    cut = make_run(tmp_path / "cut") / "metrics.jsonl"
    cut.write_text(cut.read_text() + '{"step": 4, "val/accuracy/chains/held')
    assert [(run.step, run.accuracy_step) for run in list_runs(tmp_path)] == [(3, 2)]


def test_of_a_long_log_only_the_end_is_read(tmp_path, monkeypatch):
    filler = {f"metric/{number}": 0.5 for number in range(20)}
    steps = [{"step": step} | filler for step in range(2000)]
    steps[0]["val/accuracy/heldout"] = 0.5
    size = (make_run(tmp_path / "run", steps=steps) / "metrics.jsonl").stat().st_size
    for num_bytes, accuracy_step in ((size, 0), (size // 4, None)):
        monkeypatch.setattr(overview, "TAIL_BYTES", num_bytes)
        (run,) = list_runs(tmp_path)
        assert (run.step, run.accuracy_step) == (1999, accuracy_step)
    steps[1990]["val/accuracy/heldout"] = 0.5
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in steps))
    (run,) = list_runs(tmp_path)
    assert (run.step, run.accuracy_step) == (1999, 1990)


@pytest.mark.parametrize(
    ("seconds", "age"), [(-1, "0 s"), (59, "59 s"), (60, "1 min"), (7199, "1 h"), (86400 * 3, "3 d")]
)
def test_ages(seconds, age):
    assert describe_age(seconds) == age


def test_data_sets_of_one_file_name_are_told_apart(tmp_path):
    accuracy = {
        "val/accuracy/gsm8k/heldout": 0.25,
        "val/accuracy/math/heldout": 0.5,
        "val/accuracy/math/x": 0,
    }
    make_run(tmp_path / "a", steps=[{"step": 3} | accuracy])
    table = describe_runs(list_runs(tmp_path), now=NOW)
    assert "  gsm8k/heldout 25.0%, math/heldout 50.0%, x 0.0%  " in table


def test_the_command_prints_a_line_a_run_or_json(tmp_path, capsys):
    make_run(tmp_path / "a", age_s=60)
    make_run(tmp_path / "b", planned_steps=None, steps=[])
    heads, first, second = describe_runs(list_runs(tmp_path), now=NOW).splitlines()
    assert re.split("  +", heads) == ["run", "method", "state", "step", "un-hinted accuracy", "age"]
    note = "metrics.jsonl holds no complete step."
    assert re.split("  +", first) == ["b", "seele", "finished", "-", note, "0 s"]
    accuracy = "heldout 25.0%, harder 0.0% (step 2)"
    assert re.split("  +", second) == ["a", "seele", "finished", "3 of 4", accuracy, "1 min"]

    def said(*arguments):
        return exit_status("runs", *arguments), capsys.readouterr()

    assert said(tmp_path)[1].out.splitlines()[0] == heads
    listed = json.loads(said(tmp_path, "--json")[1].out)
    assert [each["name"] for each in listed] == ["b", "a"]
    assert listed[1]["accuracy"] == {"chains/heldout": 0.25, "chains/harder": 0.0}
    assert listed[1]["last_activity"] == "1970-01-12T13:45:40+00:00"
    (tmp_path / "none").mkdir()
    assert said(tmp_path / "none")[1].out == f"no runs below {tmp_path / 'none'}\n"
    status, streams = said(tmp_path / "absent")
    assert status == 2 and "no such folder" in streams.err


# One run as frames


@pytest.fixture
def run(tmp_path):
    pytest.importorskip("pandas")
    folder = make_run(tmp_path / "runs" / "quickstart")
    for step in (1, 3):
        (folder / "rollouts").mkdir(exist_ok=True)
        lines = "".join(f"{json.dumps(line)}\n" for line in ROLLOUTS)
        (folder / "rollouts" / f"step_{step}.jsonl").write_text(lines)
    (folder / "eval").mkdir()
    (folder / "eval" / "scores.json").write_text(json.dumps({"scores": [SCORE], "conditions": {}}))
    return folder


def test_steps_are_rows_and_metrics_columns(run):
    steps = seele.load_run(run).steps
    assert steps.index.tolist() == [0, 1, 2, 3] and steps.index.name == "step"
    assert steps["accuracy/mean"].tolist()[1:] == [0.5, 0.75, 0.25]
    assert steps["accuracy/mean"].isna().tolist() == [True, False, False, False]


def test_validation_has_a_row_a_step_and_data_set(run):
    rows = seele.load_run(str(run)).validation.values.tolist()
    assert rows == [[0, "chains/heldout", 0.125], [2, "chains/heldout", 0.25], [2, "chains/harder", 0.0]]


def test_evaluations_have_a_row_a_score(run):
    (row,) = seele.load_run(run).evaluations.to_dict("records")
    assert (row["benchmark"], row["accuracy"], row["problems"]) == ("gsm8k", 0.5, 4)
    assert (row["interval_low"], row["interval_high"]) == (0.25, 0.75)


def test_rollouts_are_read_when_they_are_asked_for(run):
    loaded = seele.load_run(run)
    # Written after loading, so that only a late read can find it.
    (run / "rollouts" / "step_2.jsonl").write_text(json.dumps(ROLLOUTS[0]) + "\n")
    assert loaded.rollouts["step"].tolist() == [1, 1, 2, 3, 3]
    assert loaded.rollouts["reward"].tolist() == [1.0, 0.0, 1.0, 1.0, 0.0]
    assert loaded.rollouts_of(3)["hint_ratio"].tolist() == [0.5, 0.25]
    with pytest.raises(
        CheckpointError, match=r"no rollouts of step 7; the steps with rollouts are \[1, 2, 3\]"
    ):
        loaded.rollouts_of(7)


def test_damaged_and_missing_rollouts_are_noted_once_they_are_read(run):
    loaded = seele.load_run(run)
    before = loaded.notes
    (run / "rollouts" / "step_2.jsonl").write_text("{\n")
    for _ in range(2):
        loaded.rollouts_of(2)
    assert len(loaded.rollouts) == 4
    assert loaded.notes == (*before, "step_2.jsonl, line 1, is cut off or not JSON and was skipped.")
    shutil.rmtree(run / "rollouts")
    loaded = seele.load_run(run)
    assert loaded.rollouts.empty and loaded.notes[-1] == "There are no rollouts (rollouts/step_N.jsonl)."


def test_card_settings_and_what_is_missing_are_there(run):
    loaded = seele.load_run(run)
    assert loaded.card["commit"] == "c" and loaded.settings["seele"] == {"hints": {"rounds": 2}}
    assert loaded.setting("seele.hints.rounds") == 2
    assert any("controller" in note for note in loaded.notes)


def test_frames_of_a_run_that_ended_before_its_first_step_are_empty(run):
    for part in ("metrics.jsonl", "rollouts/step_1.jsonl", "rollouts/step_3.jsonl", "eval/scores.json"):
        (run / part).unlink()
    loaded = seele.load_run(run)
    frames = (loaded.steps, loaded.validation, loaded.evaluations, loaded.rollouts)
    assert [len(frame) for frame in frames] == [0, 0, 0, 0]
    assert "accuracy" in loaded.evaluations and "accuracy" in loaded.validation


def test_what_is_no_run_is_refused(run):
    with pytest.raises(CheckpointError, match="not a run folder"):
        seele.load_run(run.parent)


def test_without_pandas_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(DependencyError, match="pip install pandas"):
        seele.load_run(make_run(tmp_path / "run"))


def test_the_documented_example_runs(run, monkeypatch):
    page = (ROOT / "docs" / "runs.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(run.parents[1])
    given = ROLLOUTS[0] | {"origin": "trace"}
    wrong_but_rewarded = ROLLOUTS[1] | {"origin": "policy", "reward": 0.1}
    with (run / "rollouts" / "step_1.jsonl").open("a") as file:
        file.writelines(f"{json.dumps(line)}\n" for line in (given, wrong_but_rewarded))
    scope = {}
    exec(compile(example, "docs/runs.md", "exec"), scope)
    assert scope["solved"].to_dict() == {1: 1 / 3, 3: 0.5} and len(scope["last"]) == 2


# --- One step's visits -> metrics and dump, worked by hand


INSTANCE = Instance(
    instance_id="i", data_source="chains", question="1+2", steps=("1+", "2=", "3"), answer="3", level=1
)


def rollout(
    round_index, index, reason, *, hint_steps, tokens=2, finish=Finish.STOP, cached=0, is_probe=False
):
    return Rollout(
        round_index=round_index,
        rollout_index=index,
        share=HintShare(hint_steps / 3, 2, is_probe=is_probe),
        hint_steps=hint_steps,
        completion=Completion(
            text="x", token_ids=tuple(range(tokens)), log_probs=(), finish=finish, cached_prompt_tokens=cached
        ),
        grade=Grade(reason is GradeReason.CORRECT, reason),
    )


RIGHT, WRONG = GradeReason.CORRECT, GradeReason.WRONG
VISIT = Visit(
    instance=INSTANCE,
    step=5,
    prompt_tokens=4,
    step_tokens=(2, 1, 1),
    rollouts=(
        rollout(0, 0, RIGHT, hint_steps=2),
        rollout(0, 1, WRONG, hint_steps=2, cached=7),
        rollout(1, 2, GradeReason.TIMEOUT, hint_steps=0, tokens=5, finish=Finish.LENGTH),
        rollout(1, 3, GradeReason.NO_ANSWER, hint_steps=0),
    ),
)


def test_hand_worked_step():
    metrics = step_metrics([VISIT])
    expected = {
        "accuracy/mean": 0.25,
        "accuracy/round_0": 0.5,
        "accuracy/round_1": 0.0,
        "rounds/all_same_share": 0.5,
        # 2/1 * 1/2 * 1/2 in the first round, 0 in the second.
        "rounds/mean_a_1_minus_a": 0.25,
        "rounds/mean_distance": 0.25,
        "prompts/nonzero_variance_share": 1.0,
        # Within rounds 1/4 on average; of all four rollouts together 4/3 * 1/4 * 3/4 = 1/4.
        "prompts/variance_between_hints": 0.0,
        # Two rollouts begin behind the middle third, two at the front.
        "starts/question": 0.5,
        "starts/first_third": 0.0,
        "starts/middle_third": 0.0,
        "starts/last_third": 0.5,
        "practised/first_third": 0.5,
        "practised/middle_third": 0.5,
        "practised/last_third": 1.0,
        "hint_ratio/mean": 1 / 3,
        "hint_ratio/p50": 1 / 3,
        "hint_ratio/p10": 2 / 30,
        "hint_ratio/p90": 18 / 30,
        "hint_ratio/round_0": 2 / 3,
        "hint_ratio/round_1": 0.0,
        "reward/ungraded_share": 0.25,
        "reward/no_answer_share": 0.25,
        "reward/malformed_share": 0.0,
        "reward/format_share": 0.0,
        "reward/mean": 0.25,
        "rollout/truncated_share": 0.25,
        "rollout/mean_response_tokens": 11 / 4,
        "group/on_policy": 4.0,
        "group/off_policy": 0.0,
        "group/hinted": 2.0,
    }
    assert metrics == pytest.approx(expected)
    # Behind a hint in the user's turn, a rollout is a whole solution.
    in_question = step_metrics([VISIT], continues_hints=False)
    assert {*expected} - {*in_question} == {
        name for name in expected if name.startswith(("starts", "practised"))
    }


def test_dump_has_a_line_per_rollout_with_the_hint_that_it_saw():
    rows = list(rollout_rows(VISIT, {0: 0.75, 1: -0.25, 2: -0.25}))
    assert [row["rollout"] for row in rows] == [0, 1, 2, 3]
    assert [row["hint"] for row in rows] == ["1+2=", "1+2=", "", ""]
    assert [row["hint_tokens"] for row in rows] == [3, 3, 0, 0]
    assert [row["advantage"] for row in rows] == [0.75, -0.25, -0.25, None]
    assert (rows[2]["reason"], rows[2]["finish"], rows[2]["reward"]) == ("timeout", "length", 0.0)
    assert (rows[0]["question"], rows[0]["answer"], rows[0]["num_steps"]) == ("1+2", "3", 3)


def test_numbers_of_a_reward_function_are_logged_and_all_it_returned_is_dumped():
    grades = [
        Grade(False, WRONG, 0.25, {"steps": 1.0, "said": "no"}),
        Grade(True, RIGHT, 0.75, {"steps": 3.0}),
    ]
    own = [replace(each, grade=grade) for each, grade in zip(VISIT.rollouts, grades, strict=False)]
    visit = replace(VISIT, rollouts=tuple(own))
    metrics = step_metrics([visit])
    assert (metrics["reward/steps"], metrics["reward/mean"]) == (2.0, 0.5)
    assert "reward/said" not in metrics
    assert metrics["accuracy/mean"] == 0.5 and metrics["reward/format_share"] == 0.5
    rows = list(rollout_rows(visit, {}))
    assert [row["reward"] for row in rows] == [0.25, 0.75]
    assert [row["reward_extra"] for row in rows] == [{"steps": 1.0, "said": "no"}, {"steps": 3.0}]
    assert "reward_extra" not in next(rollout_rows(VISIT, {}))


def test_the_tokens_of_a_line_come_last_as_the_browser_expects(monkeypatch):
    torch = pytest.importorskip("torch")
    token_dump = pytest.importorskip("seele_verl.token_dump", reason="needs the bindings' libraries")
    names = ["responses", "advantages", "rollout_log_probs", "old_log_probs"]
    columns = {name: torch.ones(1, 2) for name in names}
    monkeypatch.setattr(token_dump, "read_columns", lambda _, read: {name: columns[name] for name in read})
    batch = SimpleNamespace(keys=["row"], tags=[{}], fields=names)
    # Like SentencePiece, this drops the blank that a text begins with.
    tokens = token_dump.token_columns(batch, lambda ids: [(" a" * len(each))[1:] for each in ids])["row"]
    assert tokens["tokens"] == [" a", " a"]
    grade = Grade(
        True, RIGHT, 1.0, {"said": '", "tokens": ["no"]'}, walk=Walk((Segment(0, 2, 0, True),), None)
    )
    visit = replace(VISIT, rollouts=(replace(VISIT.rollouts[0], grade=grade),))
    (row,) = rollout_rows(visit, {0: 0.5}, {0: {name: ["hint", *column] for name, column in tokens.items()}})
    rest, _, _ = json.dumps(row, ensure_ascii=False).encode().partition(TOKENS)
    expected = json.loads(json.dumps({name: row[name] for name in row if name not in tokens}))
    assert json.loads(rest + b"}") == expected
    page = (Path(__file__).parents[2] / "docs" / "runs.md").read_text()
    assert [name for name in row if f"`{name}`" not in page] == [], "docs/runs.md has a table of the fields"
    assert {"segments", "is_flagged", "reward_extra"} <= expected.keys() and len(tokens) == 3
    # A hint in the response is not a part of the line's text.
    assert {name: row[name] for name in tokens} == tokens


def test_probes_count_as_rollouts_but_not_as_hinted_accuracy():
    probes = tuple(rollout(0, index, RIGHT, hint_steps=0, is_probe=True) for index in (4, 5))
    metrics, without = step_metrics([replace(VISIT, rollouts=VISIT.rollouts + probes)]), step_metrics([VISIT])
    assert metrics["accuracy/probes"] == 1.0
    for name in ("accuracy/mean", "accuracy/round_0", "rounds/mean_a_1_minus_a", "hint_ratio/mean"):
        assert metrics[name] == without[name]
    assert metrics["group/on_policy"] == without["group/on_policy"] + 2


def test_what_nobody_generated_counts_as_given_only():
    trace = replace(rollout(0, 4, RIGHT, hint_steps=0, tokens=9), origin=Origin.TRACE)
    visit = replace(VISIT, rollouts=(*VISIT.rollouts, trace))
    metrics, without = step_metrics([visit]), step_metrics([VISIT])
    assert metrics["accuracy/off_policy"] == 1.0 and metrics["group/off_policy"] == 1.0
    added = {"accuracy/off_policy", "group/off_policy"}
    assert {name: value for name, value in metrics.items() if name not in added} == {
        name: value for name, value in without.items() if name not in added
    }
    last = list(rollout_rows(visit, {}))[-1]
    assert (last["origin"], last["generated_tokens"]) == ("trace", 0)


def test_what_rows_of_a_group_begin_with_is_counted_once():
    # A prompt of 5 tokens with hints of 0, 3 and 2, and another problem's row.
    rows = [("a", 5, 10), ("a", 8, 4), ("a", 7, 6), ("b", 9, 1)]
    assert packed_tokens(rows) == 8 + 20 + 9 + 1
    assert packed_tokens(reversed(rows)) == packed_tokens(rows)
    assert packed_tokens([]) == 0


def test_teacher_forced_tokens_are_given_rollouts_and_hints_that_are_learnt():
    # A replayed success teaches its own tokens, not those of the hint that it was written behind.
    trace = replace(rollout(0, 4, RIGHT, hint_steps=1, tokens=9), origin=Origin.REPLAY)
    visit = replace(VISIT, rollouts=(*VISIT.rollouts, trace))
    assert teacher_forced_tokens([visit], learns_hints=False) == 9
    assert teacher_forced_tokens([visit, VISIT], learns_hints=True) == 9 + 2 * 2 * 3
    assert teacher_forced_tokens([visit, VISIT], learns_hints=True, once_a_round=True) == 9 + 2 * 3


def test_variance_between_hints_is_what_the_rounds_do_not_explain():
    # One round always right, one always wrong: all variance is between them.
    rollouts = tuple(
        rollout(index // 2, index, RIGHT if index < 2 else WRONG, hint_steps=2 - index // 2 * 2)
        for index in range(4)
    )
    metrics = step_metrics([replace(VISIT, rollouts=rollouts)])
    assert metrics["prompts/variance_between_hints"] == pytest.approx(1.0)
    assert metrics["rounds/mean_a_1_minus_a"] == 0.0


def test_variance_between_hints_is_estimated_without_bias():
    """Two rounds of two rollouts, right with 0.9 and with 0.1: all outcomes, by how likely they are."""
    between = total = 0.0
    for rights in itertools.product((True, False), repeat=4):
        rollouts = tuple(
            rollout(index // 2, index, RIGHT if right else WRONG, hint_steps=2 - index // 2 * 2)
            for index, right in enumerate(rights)
        )
        visit = replace(VISIT, rollouts=rollouts)
        weight = math.prod(0.9 if right == (index < 2) else 0.1 for index, right in enumerate(rights))
        pooled = np.mean(rights)
        share = step_metrics([visit])["prompts/variance_between_hints"]
        within = step_metrics([visit])["rounds/mean_a_1_minus_a"]
        whole = pooled * (1 - pooled) + within / 4
        between, total = between + weight * share * whole, total + weight * whole
    # The accuracies' variance, 0.16, of 0.5 * 0.5.
    assert (between, total) == pytest.approx((0.16, 0.25))


def test_dropped_hints_and_planned_ones_without_a_hint_are_one_group():
    rollouts = tuple(
        replace(rollout(0, index, RIGHT if index else WRONG, hint_steps=0), share=HintShare(0.0, size))
        for index, size in enumerate((1, 7, 7, 7))
    )
    metrics = step_metrics([replace(VISIT, rollouts=rollouts)])
    assert (metrics["accuracy/mean"], metrics["rounds/all_same_share"]) == (0.75, 0.0)


def test_a_hint_of_a_single_rollout_says_nothing_of_variance():
    """Two agree behind one hint; the single one behind another says neither that they agree nor that not."""
    rollouts = tuple(
        rollout(index // 2, index, (RIGHT, WRONG, WRONG)[index], hint_steps=2 - index // 2 * 2)
        for index in range(3)
    )
    metrics = step_metrics([replace(VISIT, rollouts=rollouts)])
    assert (metrics["rounds/all_same_share"], metrics["rounds/mean_a_1_minus_a"]) == (0.0, 0.5)
    assert metrics["prompts/variance_between_hints"] == 0.0
    assert metrics["prompts/nonzero_variance_share"] == 1.0
    alone = step_metrics([replace(VISIT, rollouts=rollouts[1:])])
    assert not {"rounds/all_same_share", "rounds/mean_a_1_minus_a"} & alone.keys()


def test_a_reward_for_the_form_leaves_every_accuracy_as_it_was():
    """The second rollout of four is wrong and earns 0.1: (1 + 0.1) / 4 on average."""
    formal = replace(VISIT.rollouts[1], grade=Grade(False, WRONG, score=0.1))
    visit = replace(VISIT, rollouts=(VISIT.rollouts[0], formal, *VISIT.rollouts[2:]))
    before, after = step_metrics([VISIT]), step_metrics([visit])
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"reward/format_share", "reward/mean"}
    assert (after["reward/format_share"], after["reward/mean"]) == (0.25, pytest.approx(0.275))
    assert visit.accuracy == VISIT.accuracy == 0.25
    assert [row["reward"] for row in rollout_rows(visit, {})] == [1.0, 0.1, 0.0, 0.0]
