"""``seele data filter`` through real vLLM: a tiny model, a few samples of a few problems, several bands."""

import json
from pathlib import Path

import pytest

from seele.data.difficulty import COUNTS, Band, filter_file, read_counts
from seele.data.storage.schema import read_problems

SAMPLES = 4


@pytest.fixture(scope="module")
def folder(problems, base_model, tmp_path_factory, finish, python) -> Path:
    """Samples of the training problems in ``samples/``, and all problems again in ``all.parquet``."""
    made = tmp_path_factory.mktemp("filtered")
    command = (python, "-m", "seele.cli.main", "data", "filter", str(problems / "train.parquet"))
    places = ("--out", str(made / "all.parquet"), "--samples-dir", str(made / "samples"))
    settings = ("--samples", str(SAMPLES), "--temperature", "1.0", "--max-tokens", "96")
    sampling = ("--band", f"0:{SAMPLES}", "--model", str(base_model), *settings, "--", "--template", "plain")
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
    assert len(rows) == SAMPLES * len(counts.by_problem)
    for count in counts.by_problem.values():
        mine = [row for row in rows if row["instance_id"] == count.instance_id]
        assert sum(row["correct"] for row in mine) == count.correct
        assert sum(row["finish"] == "length" for row in mine) == count.truncated
