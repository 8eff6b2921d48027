"""A real evaluation in a real process, killed at random moments, against a server that stays."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

FIXTURES = Path(os.environ["SEELE_FIXTURES"], "benchmarks")
NUM_KILLS = 6
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
def test_killed_often_an_evaluation_loses_nothing_repeats_nothing_and_changes_nothing(server, tmp_path):
    out, chance = tmp_path / "out", random.Random(0)
    server.delay_s = 0.02
    for _ in range(NUM_KILLS):
        server.settle()
        before, some = lines_of(out), chance.randrange(MOST)
        # However late it is killed: the evaluation does not end before.
        server.hold_after = server.honest + some + CONCURRENCY
        process = subprocess.Popen(command(server, out), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while len(lines_of(out)) < len(before) + some:
            assert process.poll() is None, process.stderr.read().decode()
            time.sleep(0.001)
        time.sleep(chance.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert lines_of(out)[: len(before)] == before, "finished samples stay as they are"
    server.hold_after = float("inf")
    # What the last of them had sent may still be under way.
    server.settle()
    before = lines_of(out)
    assert 0 < len(before) < TOTAL and not (out / "scores.json").exists()
    asked_before = len(server.asked)

    result = subprocess.run(command(server, out), capture_output=True, text=True)

    assert result.returncode == 0, result.stderr
    lines = lines_of(out)
    assert lines[: len(before)] == before
    assert Counter(Counter(map(key, lines)).values()) == {1: TOTAL}
    assert len(server.asked) - asked_before == TOTAL - len(before), "nothing finished is asked for again"
    assert f"{TOTAL}/{TOTAL} samples" in result.stderr

    whole = tmp_path / "whole"
    subprocess.run(command(server, whole), capture_output=True, check=True)
    assert sorted(lines_of(whole)) == sorted(lines), "as if it had never been killed"
    assert (whole / "scores.json").read_bytes() == (out / "scores.json").read_bytes()
