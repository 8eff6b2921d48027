"""One process a share of the GPUs: shares, dealing, failures. The processes here are stand-ins."""

import os
import subprocess
import sys
import time

import pytest

from seele.errors import ConfigError, DependencyError
from seele.records import Finish
from seele_eval.generation import EngineSettings
from seele_eval.parallel import complete_in_processes, share_gpus, visible_gpus
from seele_eval.prompts import Request

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


@pytest.mark.parametrize(("gpus", "tensor_parallel", "copies"), [("", 1, 2), ("01", 2, 2), ("0", 2, None)])
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
        "import time; from seele_eval import command; command.end_with_standard_input(); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)
    time.sleep(0.1)
    assert process.poll() is None
    process.stdin.close()
    assert process.wait(timeout=60) == 1
