"""Tiny models with real vLLM: nine benchmarks, and counts of correct samples."""

import json
import os
import shutil
import sys
from functools import partial
from pathlib import Path

import pytest

from seele.data.difficulty import COUNTS, Band, filter_file, read_counts
from seele.data.storage.schema import read_problems
from seele_eval.arguments import parse_arguments
from seele_eval.benchmarks import GENERAL, MATH
from seele_eval.generation import EngineSettings
from seele_eval.parallel import WORKER, complete_in_processes
from seele_eval.predictions import read_predictions
from seele_eval.run import evaluate

# --- A tiny model on all nine benchmarks with real vLLM, a few made-up rows of each, in one engine start


FIXTURES = Path(os.environ["SEELE_FIXTURES"], "benchmarks")
CONTEXT_TOKENS = 2048
SAMPLES = 3


@pytest.fixture(scope="module")
def model(base_model, tmp_path_factory) -> Path:
    """The base model with a context long enough for the benchmarks' prompts, one byte per token."""
    folder = shutil.copytree(base_model, tmp_path_factory.mktemp("long") / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": CONTEXT_TOKENS}))
    return folder


def command(model: Path, out: Path, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "seele_eval.run", "--model", str(model), "--benchmarks", "all"),
        *("--data-dir", str(FIXTURES), "--any-row-count", "--samples", str(SAMPLES), "--max-tokens", "16"),
        *("--out", str(out), *more),
    ]


@pytest.fixture(scope="module")
def evaluated(model, tmp_path_factory, finish, python) -> Path:
    out = tmp_path_factory.mktemp("nine") / "out"
    finish([python, *command(model, out)[1:]])
    return out


def texts(out: Path) -> dict[tuple, str]:
    return {each.key: each.text for each in read_predictions(out).predictions}


def test_all_nine_are_measured_with_their_averages(evaluated):
    written = json.loads((evaluated / "scores.json").read_text())
    scores = {score["benchmark"]: score for score in written["scores"]}
    assert list(scores) == [*MATH, *GENERAL]
    assert written["averages"].keys() == {"math", "general"}
    assert (scores["aime24"]["samples"], scores["aime24"]["temperature"]) == (SAMPLES, 0.6)
    assert (scores["gsm8k"]["samples"], scores["gsm8k"]["temperature"]) == (1, 0.0)
    assert all(0 < score["mean_response_tokens"] <= 16 for score in scores.values())
    assert sum(score["problems"] * score["samples"] for score in scores.values()) == len(texts(evaluated))


def test_samples_of_one_problem_differ(evaluated):
    sampled = [text for (name, _, _, _), text in texts(evaluated).items() if name == "aime24"]
    assert len(set(sampled)) > 1


def test_a_process_of_its_own_draws_the_same_samples_whatever_else_is_drawn(
    model, evaluated, tmp_path, python
):
    again = tmp_path / "again"
    arguments = parse_arguments([*command(model, again)[3:], "--benchmarks", "amc23,gsm8k"])
    settings = EngineSettings(max_tokens=16)
    worker = (python, *WORKER[1:])
    in_a_process = partial(complete_in_processes, model, settings=settings, shares=[()], command=worker)
    evaluate(arguments, complete=in_a_process)
    whole, part = texts(evaluated), texts(again)
    assert len(part) == 2 * SAMPLES + 3
    assert all(whole[key] == text for key, text in part.items())


def test_a_finished_evaluation_starts_no_engine(model, evaluated):
    before = (evaluated / "scores.json").read_bytes()
    evaluate(parse_arguments(command(model, evaluated)[3:]), complete=pytest.fail)
    assert (evaluated / "scores.json").read_bytes() == before


# --- ``seele data filter`` with real vLLM: a tiny model, a few samples of a few problems, several bands


SAMPLES_OF_A_PROBLEM = 4


@pytest.fixture(scope="module")
def folder(problems, base_model, tmp_path_factory, finish, python) -> Path:
    """Samples of the training problems in ``samples/``, and all problems in ``all.parquet``."""
    made = tmp_path_factory.mktemp("filtered")
    command = (python, "-m", "seele.cli.main", "data", "filter", str(problems / "train.parquet"))
    places = ("--out", str(made / "all.parquet"), "--samples-dir", str(made / "samples"))
    settings = ("--samples", str(SAMPLES_OF_A_PROBLEM), "--temperature", "1.0", "--max-tokens", "96")
    sampling = (
        "--band",
        f"0:{SAMPLES_OF_A_PROBLEM}",
        "--model",
        str(base_model),
        *settings,
        "--",
        "--template",
        "plain",
    )
    finish([*command, *places, *sampling])
    return made


def test_bands_divide_the_problems_without_sampling_again(folder, problems):
    manifest = json.loads((folder / "all.manifest.json").read_text())
    assert manifest["kept"] == manifest["problems"] == len(read_problems(problems / "train.parquet"))
    assert manifest["conditions"]["weights_sha256"] and manifest["conditions"]["temperature"] == 1.0
    histogram = {int(correct): number for correct, number in manifest["by_correct_samples"].items()}
    bands = [Band(correct, correct) for correct, number in histogram.items() if number]
    assert len(bands) > 1, "a base model solves some problems more often than others"
    ids = []
    for band in bands:
        filter_file(problems / "train.parquet", folder / "part.parquet", folder / "samples" / COUNTS, band)
        ids += [each.instance_id for each in read_problems(folder / "part.parquet")]
    assert sorted(ids) == sorted(each.instance_id for each in read_problems(problems / "train.parquet"))


def test_the_counts_are_those_of_the_samples(folder):
    lines = (folder / "samples" / "predictions.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines[1:]]
    counts = read_counts(folder / "samples" / COUNTS)
    assert len(rows) == SAMPLES_OF_A_PROBLEM * len(counts.by_problem)
    for count in counts.by_problem.values():
        mine = [row for row in rows if row["instance_id"] == count.instance_id]
        assert sum(row["correct"] for row in mine) == count.correct
        assert sum(row["finish"] == "length" for row in mine) == count.truncated
