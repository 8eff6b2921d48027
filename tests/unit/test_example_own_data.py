"""examples/own_data, copied out of the repository: its problems and its benchmark. A run trains on them in
tests/integration/test_two_ranks.py.
"""

import shlex
import shutil
from pathlib import Path

import pytest

from seele.cli.main import main
from seele.data.storage.schema import read_problems
from seele_eval.own_benchmarks import find_benchmarks
from seele_eval.sources import load_benchmark

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_data"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shutil.copytree(EXAMPLE, copy := tmp_path / "own_data")
    monkeypatch.chdir(copy)
    return copy


def test_its_commands_make_problems_with_hints_and_a_benchmark_of_others(folder, capsys):
    lines = (EXAMPLE / "README.md").read_text().splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("seele data ")]
    assert [command[2] for command in commands] == ["prepare", "inspect"]
    for _, *arguments in commands:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert not ended.value.code
    train, heldout = (read_problems(folder / "prepared" / f"{name}.parquet") for name in ("train", "heldout"))
    assert len(train) + len(heldout) == 32 and len(train) > 2 * len(heldout) > 8
    assert train[0].question in capsys.readouterr().out
    for problem in (*train, *heldout):
        assert len(problem.steps) > 2 and problem.steps[-1].endswith(f"\\boxed{{{problem.answer}}}")
    [(name, benchmark)] = find_benchmarks(["benchmark.yaml"]).items()
    asked = {problem.question for problem in load_benchmark(name, benchmark, data_dir=None).problems}
    assert len(asked) == 8 and asked.isdisjoint(problem.question for problem in (*train, *heldout))


def test_it_takes_few_lines():
    files = [file for file in EXAMPLE.iterdir() if file.suffix in (".py", ".yaml")]
    assert sum(len(file.read_text().splitlines()) for file in files) <= 40
