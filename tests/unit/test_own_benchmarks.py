"""Benchmarks of a user's own, from a YAML file or an import path: scored, resumed, looked for in problems."""

import json
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from seele import plugins
from seele.data.storage.schema import write_problems
from seele.errors import ConfigError, DataError
from seele.records import Finish, Instance
from seele_eval import contamination, run
from seele_eval.arguments import parse_arguments
from seele_eval.own_benchmarks import find_benchmarks
from seele_eval.predictions import read_predictions
from seele_eval.prompts import Response
from seele_eval.sources import load_benchmark

QUESTIONS = [f"How many legs have {n} made-up spiders with eight legs each in all?" for n in range(1, 5)]
YAML = """
reference: legs.jsonl
columns: {question: ask, answer: gold, level: meta.hard}
prompt: "{question}\\nOne number."
"""
CODE = """
import json

from seele_eval.benchmarks import Benchmark
from seele_eval.problems import open_problem
from seele.data.sources import OpenSplit


def near(answer, gold):
    return abs(float(answer) - float(gold)) < 2


def undecided(answer, gold):
    return None


def rows(split):
    yield {"question": f"Rows of {split}?", "answer": 4}


def read(row, at):
    return open_problem(row["ask"], row["gold"])


LEGS = Benchmark(read=read, open=lambda: OpenSplit(rows=[("row 0", {"ask": "2+2?", "gold": "4"})], origin={}))
"""


@pytest.fixture
def legs(tmp_path):
    """A benchmark of four questions as a YAML file."""
    rows = [{"ask": ask, "gold": 8 * n, "meta": {"hard": n}} for n, ask in enumerate(QUESTIONS, start=1)]
    (tmp_path / "legs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "legs.py").write_text(CODE)
    (file := tmp_path / "legs.yaml").write_text(YAML)
    return file


@pytest.fixture
def model(tmp_path):
    (folder := tmp_path / "model").mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def load(spec):
    [(name, benchmark)] = find_benchmarks([str(spec)]).items()
    return load_benchmark(name, benchmark, data_dir=None)


def evaluate(model, spec, out, *options):
    """The score of a model that always answers 9, and the questions that it was asked."""
    asked = []

    def complete(requests):
        asked.extend(request.question for request in requests)
        said = Response(text="\\boxed{9}", num_tokens=1, finish=Finish.STOP)
        return ((index, said) for index, _ in enumerate(requests))

    argv = ["--model", str(model), "--benchmarks", str(spec), "--out", str(out), *options]
    [score] = run.evaluate(parse_arguments(argv), complete=complete).scores
    return score, asked


def test_a_yaml_file_is_a_benchmark_with_its_columns_and_its_prompt(legs):
    task = load(legs)
    assert (task.name, task.samples, task.temperature, len(task.problems)) == ("legs", 1, 0.0, 4)
    assert [(each.question, each.answer, each.level) for each in task.problems] == [
        (f"{ask}\nOne number.", str(8 * n), n) for n, ask in enumerate(QUESTIONS, start=1)
    ]
    assert task.source["rows"] == 4 and list(task.source["files"]) == ["legs.jsonl"]


def test_its_scores_are_written_resumed_and_told_apart_like_the_nines(legs, model, tmp_path):
    legs.write_text(f"{YAML}judge: legs.py:near\n")
    score, asked = evaluate(model, legs, tmp_path / "out", "--by", "meta.hard")
    assert (score.benchmark, score.accuracy, score.problems) == ("legs", 0.25, 4)
    assert [part.value for part in score.by_column["meta.hard"]] == ["1", "2", "3", "4"]
    assert len(asked) == 4 and "legs" in (tmp_path / "out" / "scores.md").read_text()
    again, asked = evaluate(model, legs, tmp_path / "out")
    assert asked == [] and again.accuracy == score.accuracy
    # What another judge decided does not count; what was asked with another prompt is refused.
    (tmp_path / "wide.py").write_text(CODE.replace("< 2", "< 8"))
    legs.write_text(f"{YAML}judge: wide.py:near\n")
    again, asked = evaluate(model, legs, tmp_path / "out")
    assert (again.accuracy, again.problems, len(asked)) == (0.5, 4, 4)
    legs.write_text(legs.read_text().replace("One number", "A number"))
    with pytest.raises(ConfigError, match="has samples of another legs problem"):
        evaluate(model, legs, tmp_path / "out")


def test_samples_and_temperature_are_the_files(legs, model, tmp_path):
    legs.write_text(f"{YAML}samples: 3\ntemperature: 1\nmay_be_published: false\nrows: 4\n")
    score, asked = evaluate(model, legs, tmp_path / "out")
    assert (score.samples, score.temperature, len(asked)) == (3, 1.0, 12)
    assert {each.question for each in read_predictions(tmp_path / "out").predictions} == {""}
    legs.write_text(f"{YAML}rows: 5\n")
    with pytest.raises(DataError, match="4 rows, but legs has 5"):
        load(legs)


def test_training_problems_that_it_asks_are_found_whatever_its_prompt(legs, tmp_path, capsys):
    legs.write_text(YAML.replace("One number.", "One number that nothing else follows, please."))
    questions = [QUESTIONS[2], "Is this another question of a made-up kind altogether, or is it not one?"]
    instances = [
        Instance(instance_id=f"a-{n}", data_source="a", question=question, steps=(), answer="24")
        for n, question in enumerate(questions)
    ]
    write_problems(tmp_path / "train.parquet", instances, split="train")
    assert contamination.main([str(tmp_path / "train.parquet"), "--benchmarks", str(legs)]) == 0
    said = capsys.readouterr().out
    assert "1 of 2 problems" in said and "row 0, a-0: legs 2, exact" in said


def test_options_are_judged_by_their_label(tmp_path):
    rows = [
        {"question": "Which?", "options": ["red", "blue"], "answer": "B"},
        {"question": "Which?", "options": {"1": "red", "2": "blue"}, "answer": "1"},
    ]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    (tmp_path / "colours.yaml").write_text("reference: rows.json\ncolumns: {options: options}\n")
    task = load(tmp_path / "colours.yaml")
    assert task.problems[0].question == "Which?\n\nA) red\nB) blue"
    said = [
        task.extract(f"\\boxed{{{colour}}}", problem) for problem in task.problems for colour in ("red", "B")
    ]
    assert said == ["A", "B", "1", "2"]
    assert [task.judge(None, task.problems[0], each).correct for each in ("A", "B")] == [False, True]


def test_several_answers_are_a_list_and_rows_may_come_from_a_function(legs, tmp_path):
    legs.write_text("reference: legs.py:rows\nsplit: hard\n")
    [problem] = load(legs).problems
    assert (problem.question, problem.answers) == ("Rows of hard?", ("4",))
    (tmp_path / "legs.jsonl").write_text(json.dumps({"question": "Roots?", "answer": [1, 2.5]}) + "\n")
    legs.write_text("reference: legs.jsonl\n")
    assert load(legs).problems[0].answers == ("1", "2.5")


def test_a_benchmark_is_found_by_import_path_and_of_an_installed_package(legs, tmp_path, monkeypatch):
    task = load(f"{tmp_path}/legs.py:LEGS")
    assert (task.name, task.problems[0].question) == ("LEGS", "2+2?")
    monkeypatch.syspath_prepend(str(tmp_path))
    points = EntryPoints([EntryPoint("spiders", "legs:LEGS", "seele.benchmarks")])
    monkeypatch.setattr(plugins, "entry_points", lambda *, group: points.select(group=group))
    assert load("spiders").problems == task.problems
    with pytest.raises(ConfigError, match=r"unknown \['beetles'\]; known are .*'spiders'.*FILE.yaml"):
        find_benchmarks(["beetles"])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("refrence: legs.jsonl", r"legs.yaml: unknown key 'refrence'; allowed keys are \['columns'"),
        ("reference: legs.jsonl\ncolumns: {gold: a}", r"legs.yaml.columns: unknown key 'gold'"),
        ("reference: legs.jsonl\ncolumns: {question: q}", r"column 'q': expected a text .*\['ask', 'gold'"),
        ("reference: legs.jsonl\nsamples: many", "legs.yaml.samples: expected int, got 'many'"),
        ("reference: legs.jsonl\nsamples: 0", "legs.yaml: expected temperature >= 0 and samples >= 1"),
        ("reference: legs.jsonl\nprompt: One number.", r"legs.yaml: prompt needs \{question\}"),
        ("reference: legs.jsonl\njudge: legs.py:far", "legs.yaml.judge: .*legs.py has no 'far'"),
        ("reference: none.jsonl", "none.jsonl: no such file"),
        ("{}", "reference"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_before_anything_is_drawn(legs, text, complaint):
    legs.write_text(text)
    with pytest.raises((ConfigError, DataError), match=complaint):
        load(legs)


def test_a_judge_or_reader_that_fails_is_named_with_its_line_and_the_problem(legs, model, tmp_path):
    for judge, complaint in (
        ("undecided", r":13: problem \w+-\w+: .*got None"),
        ("near", r":10: .*ValueError"),
    ):
        legs.write_text(f"{YAML}judge: legs.py:{judge}\n")
        task = load(legs)
        with pytest.raises(DataError, match=f"legs.py{complaint}"):
            task.judge(None, task.problems[0], "nine")
    (tmp_path / "typo.py").write_text(CODE.replace('row["gold"]', 'row["gould"]'))
    with pytest.raises(DataError, match=r"typo.py:22: row 0: KeyError: 'gould'"):
        load(f"{tmp_path}/typo.py:LEGS")


def test_names_are_not_taken_twice(legs, tmp_path):
    (tmp_path / "gsm8k.yaml").write_text(YAML)
    with pytest.raises(ConfigError, match="there is another benchmark 'gsm8k'; rename one"):
        find_benchmarks([str(tmp_path / "gsm8k.yaml")])
