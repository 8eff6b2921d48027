"""Samples of an evaluation: kept, resumed, drawn in parallel, and counted."""

import io
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from helpers.commands import kill_at
from seele.errors import CheckpointError, ConfigError, DependencyError
from seele.records import Finish, GradeReason
from seele_eval.command import Progress, duration
from seele_eval.generation import EngineSettings
from seele_eval.parallel import complete_in_processes, share_gpus, visible_gpus
from seele_eval.predictions import Ledger, Prediction, read_predictions
from seele_eval.prompts import Request
from seele_eval.run import main

# --- Samples on disk: appended whole, read again, never changed, and nobody else's


CONDITIONS = {"model": "here", "weights_sha256": {"w": "1"}, "seed": 0}


def prediction(sample, text="\\boxed{1}"):
    return Prediction(
        benchmark="b", temperature=0.6, instance_id="p", level=0, sample=sample, question="?", answer="1",
        text=text, extracted="1", correct=True, reason=GradeReason.CORRECT, finish=Finish.STOP,
        response_tokens=3,
    )  # fmt: skip


def fill(folder, *samples, conditions=CONDITIONS):
    with Ledger(folder, conditions) as ledger:
        for sample in samples:
            ledger.append(sample)


def test_what_is_appended_is_there_again(tmp_path):
    fill(tmp_path, prediction(0))
    fill(tmp_path, prediction(1))
    ledger = Ledger(tmp_path, CONDITIONS)
    assert list(ledger.done.values()) == [prediction(0), prediction(1)]
    assert list(ledger.done) == [("b", 0.6, "p", 0), ("b", 0.6, "p", 1)]
    assert read_predictions(tmp_path).conditions == CONDITIONS


@pytest.mark.parametrize("text", ["two\nlines", "line\u2028separator", "\ud800", "\x00", '"', "数学"])
def test_any_text_survives(tmp_path, text):
    fill(tmp_path, prediction(0, text))
    assert read_predictions(tmp_path).predictions == (prediction(0, text),)


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_a_line_that_was_cut_off_is_drawn_again_and_the_others_stay(tmp_path, cut):
    fill(tmp_path, prediction(0), prediction(1))
    path = tmp_path / "predictions.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    ledger = Ledger(tmp_path, CONDITIONS)
    assert path.read_bytes() == whole[:-cut], "reading changes nothing"
    assert list(ledger.done.values()) == [prediction(0)]
    with ledger:
        ledger.append(prediction(1))
    assert path.read_bytes() == whole


def test_a_file_that_was_cut_off_in_its_first_line_begins_anew(tmp_path):
    (tmp_path / "predictions.jsonl").write_text('{"conditio')
    fill(tmp_path, prediction(0))
    assert read_predictions(tmp_path).predictions == (prediction(0),)


@pytest.mark.parametrize("damage", ["{", "[]", '{"benchmark": "b"}', '{"reason": "no such"}'])
def test_damage_elsewhere_is_named_and_nothing_is_changed(tmp_path, damage):
    fill(tmp_path, prediction(0))
    path = tmp_path / "predictions.jsonl"
    head, line = path.read_text().splitlines()
    path.write_text(f"{head}\n{damage}\n{line}\n")
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match="line 2 is damaged"):
        Ledger(tmp_path, CONDITIONS)
    assert path.read_bytes() == before


def test_a_file_without_conditions_is_not_gone_on_from(tmp_path):
    (tmp_path / "predictions.jsonl").write_text(json.dumps({"text": "?"}) + "\n")
    with pytest.raises(CheckpointError, match="holds no conditions"):
        Ledger(tmp_path, CONDITIONS)


def test_an_unfinished_evaluation_under_other_conditions_is_refused_with_what_differs(tmp_path):
    fill(tmp_path, prediction(0))
    with pytest.raises(ConfigError, match="seed was 0 and is 1"):
        Ledger(tmp_path, CONDITIONS | {"seed": 1})


def test_conditions_without_a_sample_bind_nothing(tmp_path):
    (tmp_path / "predictions.jsonl").write_text(json.dumps({"conditions": CONDITIONS}) + "\n")
    fill(tmp_path, prediction(0), conditions=CONDITIONS | {"seed": 1})
    assert read_predictions(tmp_path).conditions["seed"] == 1


def test_a_finished_one_is_set_aside_whole(tmp_path):
    fill(tmp_path, prediction(0))
    for round_number in (1, 2):
        (tmp_path / "scores.json").write_text("{}")
        (tmp_path / "scores.md").write_text("table")
        before = (tmp_path / "predictions.jsonl").read_bytes()
        conditions = CONDITIONS | {"seed": round_number}
        ledger = Ledger(tmp_path, conditions)
        assert ledger.done == {} and not (tmp_path / f"earlier_{round_number}").exists()
        with ledger:
            ledger.append(prediction(1))
        earlier = tmp_path / f"earlier_{round_number}"
        assert (earlier / "predictions.jsonl").read_bytes() == before
        assert (earlier / "scores.json").is_file() and (earlier / "scores.md").is_file()
        assert read_predictions(tmp_path).predictions == (prediction(1),)


@pytest.mark.parametrize("moves", range(5))
def test_a_set_aside_that_was_killed_is_finished_at_the_next_start(tmp_path, monkeypatch, moves):
    fill(tmp_path, prediction(0))
    for name in ("scores.json", "scores.md", "pass_at_k.png"):
        (tmp_path / name).write_text(name)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    left, rename = iter(range(moves)), Path.rename
    with monkeypatch.context() as patch:
        # Killed before one of its moves.
        patch.setattr(Path, "rename", lambda path, target: rename(path, target if next(left) >= 0 else None))
        with pytest.raises(StopIteration):
            fill(tmp_path, prediction(1), conditions=CONDITIONS | {"seed": 1})
    fill(tmp_path, prediction(1), conditions=CONDITIONS | {"seed": 1})
    assert {path.name: path.read_bytes() for path in (tmp_path / "earlier_1").iterdir()} == before
    assert read_predictions(tmp_path).predictions == (prediction(1),)
    assert {path.name for path in tmp_path.iterdir()} == {"earlier_1", "predictions.jsonl"}


def test_one_that_is_set_aside_never_meets_an_earlier_one(tmp_path):
    fill(tmp_path, prediction(0))
    (tmp_path / "scores.json").write_text("{}")
    (tmp_path / "earlier_2").mkdir()
    fill(tmp_path, prediction(1), conditions=CONDITIONS | {"seed": 1})
    assert (tmp_path / "earlier_3" / "predictions.jsonl").is_file()


def test_the_same_weights_elsewhere_are_the_same_model(tmp_path):
    fill(tmp_path, prediction(0))
    assert Ledger(tmp_path, CONDITIONS | {"model": "elsewhere"}).done


def test_scores_that_are_no_longer_of_all_samples_go(tmp_path):
    fill(tmp_path, prediction(0))
    (tmp_path / "scores.json").write_text("{}")
    fill(tmp_path, prediction(1))
    assert not (tmp_path / "scores.json").exists()


def test_two_evaluations_cannot_write_at_the_same_time(tmp_path):
    with Ledger(tmp_path, CONDITIONS), pytest.raises(ConfigError, match="another process"):
        fill(tmp_path, prediction(0))


def test_what_another_one_wrote_since_it_was_read_is_not_lost(tmp_path):
    stale = Ledger(tmp_path, CONDITIONS)
    fill(tmp_path, prediction(0))
    with pytest.raises(ConfigError, match="has written to it meanwhile"):
        stale.__enter__()
    assert read_predictions(tmp_path).predictions == (prediction(0),)


# --- A real evaluation in a real process, killed at random moments


FIXTURES = Path(os.environ["SEELE_FIXTURES"], "benchmarks")
NUM_KILLS = 3
SAMPLES = 60
# Two problems each of AIME24 and AMC23, three greedy ones of GSM8K.
TOTAL = 2 * SAMPLES + 2 * SAMPLES + 3
CONCURRENCY = 4
MOST = TOTAL // NUM_KILLS - CONCURRENCY
"""Samples that each killed process is waited for, at the most."""


def command(server, out):
    return [
        *(sys.executable, "-m", "seele_eval.run", "--server", server.url, "--model", "stand-in"),
        *("--benchmarks", "aime24,amc23,gsm8k", "--data-dir", str(FIXTURES), "--any-row-count"),
        *("--samples", str(SAMPLES), "--concurrency", str(CONCURRENCY), "--out", str(out)),
    ]


def lines_of(out):
    path = out / "predictions.jsonl"
    return path.read_bytes().split(b"\n")[1:-1] if path.exists() else []


def key(line):
    row = json.loads(line)
    return (row["benchmark"], row["temperature"], row["instance_id"], row["sample"])


@pytest.mark.timeout(300)
def test_killed_often_an_evaluation_loses_nothing_repeats_nothing_and_changes_nothing(new_server, tmp_path):
    out, chance = tmp_path / "out", random.Random(0)
    for _ in range(NUM_KILLS):
        before, some = lines_of(out), chance.randrange(MOST)
        server = new_server()
        server.delay_s = 0.02
        # However late it is killed: the evaluation does not end before.
        server.hold_after = some + CONCURRENCY
        kill_at(
            lambda: len(lines_of(out)),
            len(before) + some,
            command(server, out),
            after_s=chance.random() * 0.05,
        )
        assert lines_of(out)[: len(before)] == before, "finished samples stay as they are"
    before, server = lines_of(out), new_server()
    assert 0 < len(before) < TOTAL and not (out / "scores.json").exists()

    result = subprocess.run(command(server, out), capture_output=True, text=True)

    assert result.returncode == 0, result.stderr
    lines = lines_of(out)
    assert lines[: len(before)] == before
    assert Counter(Counter(map(key, lines)).values()) == {1: TOTAL}
    assert len(server.asked) == TOTAL - len(before), "nothing finished is asked for again"
    assert f"{TOTAL}/{TOTAL} samples" in result.stderr

    whole = tmp_path / "whole"
    assert main(command(server, whole)[3:]) == 0
    assert sorted(lines_of(whole)) == sorted(lines), "as if it had never been killed"
    assert (whole / "scores.json").read_bytes() == (out / "scores.json").read_bytes()


# --- One process a share of the GPUs: shares, dealing, failures. The processes here are stand-ins


WORKER = """
import json, os, sys
job = json.loads(sys.stdin.readline())
for index, prompt in enumerate(job["prompts"]):
    text = f'{os.environ.get("CUDA_VISIBLE_DEVICES")}: {len(prompt["token_ids"])} {prompt["seed"]}'
    print(json.dumps({"index": index, "text": text, "num_tokens": 2, "finish": "stop"}), flush=True)
"""
DIES = (
    WORKER
    + """
    if index == 1 and os.environ["CUDA_VISIBLE_DEVICES"] == "b":
        sys.exit("out of memory")
"""
)


def complete(model, shares, program=WORKER, count=5):
    requests = [Request(question="x" * n, template="plain", temperature=1.0, seed=n) for n in range(count)]
    return complete_in_processes(
        model, requests, EngineSettings(max_tokens=4), shares, command=[sys.executable, "-c", program]
    )


def test_requests_are_dealt_in_turn_and_responses_find_their_request(bytes_model):
    responses = dict(complete(bytes_model, [("a",), ("b",)]))
    # The prompt of request n has n characters and a line end.
    assert {n: response.text for n, response in responses.items()} == {
        n: f"{'ab'[n % 2]}: {n + 1} {n}" for n in range(5)
    }
    assert responses[0].num_tokens == 2 and responses[0].finish is Finish.STOP


def test_more_processes_than_requests_are_not_started(bytes_model):
    assert len(dict(complete(bytes_model, [("a",), ("b",), ("c",)], count=2))) == 2


def test_a_process_that_dies_is_reported_with_what_it_said_after_what_was_finished(bytes_model):
    responses = complete(bytes_model, [("a",), ("b",)], DIES, count=8)
    finished = []
    with pytest.raises(DependencyError, match=r"ended with status 1(.|\n)*out of memory"):
        for index, _ in responses:
            finished.append(index)
    assert {1, 3} <= set(finished)


def test_a_process_that_does_not_even_start_is_reported(bytes_model):
    with pytest.raises(DependencyError, match="SyntaxError"):
        dict(complete(bytes_model, [("a",), ("b",)], "this is no python"))


def test_bad_input_is_refused_before_a_process_is_started(bytes_model):
    with pytest.raises(ConfigError, match="does not fit"):
        complete(bytes_model, [("a",)], "raise SystemExit('started')", count=40)


@pytest.mark.parametrize(
    ("gpus", "tensor_parallel", "copies", "shares"),
    [
        ("", 1, None, [()]),
        ("", 1, 1, [()]),
        ("0", 1, None, [("0",)]),
        ("0123", 1, None, [("0",), ("1",), ("2",), ("3",)]),
        ("0123", 2, None, [("0", "1"), ("2", "3")]),
        ("0123", 1, 2, [("0",), ("1",)]),
        ("012", 2, None, [("0", "1")]),
    ],
)
def test_gpus_are_shared_out(gpus, tensor_parallel, copies, shares):
    assert share_gpus(list(gpus), tensor_parallel=tensor_parallel, copies=copies) == shares


@pytest.mark.parametrize(
    ("gpus", "tensor_parallel", "copies"), [("", 1, 2), ("", 2, None), ("01", 2, 2), ("0", 2, None)]
)
def test_too_few_gpus_are_refused(gpus, tensor_parallel, copies):
    with pytest.raises(ConfigError, match=f"this machine has {len(gpus)}"):
        share_gpus(list(gpus), tensor_parallel=tensor_parallel, copies=copies)


def test_the_environment_says_which_gpus_there_are(monkeypatch):
    monkeypatch.setitem(os.environ, "CUDA_VISIBLE_DEVICES", "2,GPU-5")
    assert visible_gpus() == ["2", "GPU-5"]
    monkeypatch.setitem(os.environ, "CUDA_VISIBLE_DEVICES", "")
    assert visible_gpus() == []


def test_a_process_ends_when_its_standard_input_does():
    program = (
        "import time; from seele_eval import command; command.end_with_standard_input(); "
        "print('ready', flush=True); time.sleep(600)"
    )
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", program], text=True, **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(timeout=60) == 1
        assert process.stderr.read() == ""


# --- How far an evaluation is: rate, time left, one line or many


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def advance(stream, seconds_each, *, total, done=0, wait_s=0.0):
    clock = Clock()
    progress = Progress(stream, total=total, done=done, clock=clock)
    clock.now += wait_s
    for _ in range(total - done):
        clock.now += seconds_each
        progress.advance()
    return stream.getvalue()


def test_a_log_gets_a_line_every_half_minute_and_one_at_the_end():
    lines = advance(io.StringIO(), 1.0, total=100).splitlines()
    assert lines[0] == "31/100 samples, 1.0 a second, 1 min 09 s left"
    assert lines[-1] == "100/100 samples, 1.0 a second, 0 s left"
    assert len(lines) == 4


def test_a_terminal_gets_one_line_that_is_written_over():
    text = advance(Terminal(), 1.0, total=5)
    assert text.count("\n") == 1 and text.count("\r") == 4


def test_neither_the_start_of_the_engine_nor_earlier_samples_count_for_the_rate():
    lines = advance(io.StringIO(), 1.0, total=100, done=50, wait_s=500.0).splitlines()
    assert lines[0] == "81/100 samples, 1.0 a second, 19 s left"


def test_one_sample_that_was_left_has_no_rate_and_is_said_all_the_same():
    assert advance(io.StringIO(), 1.0, total=100, done=99) == "100/100 samples\n"


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (59, "59 s"), (200, "3 min 20 s"), (3900, "1 h 05 min")]
)
def test_durations_are_said_as_people_do(seconds, words):
    assert duration(seconds) == words
