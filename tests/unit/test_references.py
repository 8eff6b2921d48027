"""References to data sets of the hub, as other projects write them: their columns, their configurations."""

import json
import os
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from seele.cli.main import main
from seele.data.sources import Counts, find_settings, read_source
from seele.data.storage.hub import HubSource, open_configs
from seele.data.storage.schema import read_problems
from seele.data.tasks.gsm8k import read_gsm8k

FIXTURES = Path(os.environ["SEELE_FIXTURES"], "datasets")
GSM8K = "https://huggingface.co/datasets/openai/gsm8k?config=main&split=train"
MATH = "https://huggingface.co/datasets/EleutherAI/hendrycks_math?split=test"
DAPO = "hf://BytedTsinghua-SIA/DAPO-Math-17k?split=train"
SUBJECTS = (
    *("algebra", "counting_and_probability", "geometry", "intermediate_algebra"),
    *("number_theory", "prealgebra", "precalculus"),
)
GSM8K_ROWS = [
    {"question": f"{n} boxes of 6 eggs?", "answer": f"{n}*6=<<{n}*6={6 * n}>>{6 * n} eggs.\n#### {6 * n}"}
    for n in (200, 3)
]


class Rows(list):
    """The little of a data set of ``datasets`` that is asked for."""

    @property
    def column_names(self):
        return list(self[0])

    def select_columns(self, names):
        return Rows({name: row[name] for name in names} for row in self)


class Hub(ModuleType):
    """Stands in for ``datasets``: rows by repository, configuration and split, errors as the library's."""

    def __init__(self, tables: dict[tuple[str, str | None, str], list[dict]]) -> None:
        super().__init__("datasets")
        self.tables, self.calls = tables, []

    def get_dataset_config_names(self, name, *, revision):
        return list(dict.fromkeys(config for repository, config, _ in self.tables if repository == name))

    def load_dataset(self, name, config, *, split, revision):
        self.calls.append((name, config, split, revision))
        configs = self.get_dataset_config_names(name, revision=revision)
        if not configs:
            raise FileNotFoundError(f"Dataset '{name}' doesn't exist on the Hub or cannot be accessed.")
        if config not in configs:
            if config is None:
                raise ValueError(f"Config name is missing.\nPlease pick one among: {configs}")
            raise ValueError(f"BuilderConfig '{config}' not found. Available: {configs}")
        if (name, config, split) not in self.tables:
            raise ValueError(f'Unknown split "{split}".')
        return Rows(self.tables[name, config, split])


@pytest.fixture
def serve(monkeypatch):
    """Makes the hub serve these tables; returns its stand-in."""

    def replace(tables):
        monkeypatch.setitem(sys.modules, "datasets", hub := Hub(tables))
        return hub

    return replace


def rows_of(name: str) -> list[dict]:
    return [json.loads(line) for line in (FIXTURES / f"{name}.jsonl").read_text().splitlines()]


def prepare(*arguments: object) -> int:
    """Exit status of ``seele data prepare ARGUMENTS``."""
    with pytest.raises(SystemExit) as ended:
        main(["data", "prepare", *map(str, arguments)])
    return int(ended.value.code or 0)


# The three references in the README of LZE


def test_gsm8k_by_reference_has_its_gold_behind_the_mark_and_its_lines_as_steps(serve, tmp_path, capsys):
    hub = serve({("openai/gsm8k", "main", "train"): GSM8K_ROWS})
    assert prepare(GSM8K, "--out", tmp_path / "out") == 0
    assert hub.calls == [("openai/gsm8k", "main", "train", "main")]
    problems = read_problems(tmp_path / "out" / "train.parquet")
    assert [each.answer for each in problems] == ["1200", "18"]
    assert problems[1].steps == ("3*6=18 eggs.\n", "The answer is \\boxed{18}.")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert (manifest["source"], manifest["licence"], manifest["reference"]) == ("gsm8k", "MIT", GSM8K)
    assert manifest["splits"]["train"]["golds"] == {"grader": "mathruler", "checked": 2, "failing": 0}


def test_gsm8k_by_reference_gives_the_problems_of_its_own_command(serve, tmp_path):
    serve({("openai/gsm8k", "main", "train"): GSM8K_ROWS})
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in GSM8K_ROWS))
    assert list(read_source(GSM8K)) == read_gsm8k("train", folder=tmp_path)


def test_math_by_reference_joins_all_configurations(serve, tmp_path):
    tables = {
        ("EleutherAI/hendrycks_math", subject, "test"): [
            row | {"problem": f"{subject}: {row['problem']}"} for row in rows_of("math_algebra_test")
        ]
        for subject in SUBJECTS
    }
    hub = serve(tables)
    assert prepare(MATH, "--out", tmp_path / "out") == 0
    assert [config for _, config, _, _ in hub.calls] == list(SUBJECTS)
    problems = read_problems(tmp_path / "out" / "train.parquet")
    assert [each.question.split(":")[0] for each in problems] == list(SUBJECTS)
    assert {each.answer for each in problems} == {"5"} and {each.data_source for each in problems} == {"math"}
    assert all(each.steps and each.level for each in problems)
    origin = json.loads((tmp_path / "out" / "manifest.json").read_text())["splits"]["train"]["origin"]
    assert (origin["configs"], origin["split"]) == (list(SUBJECTS), "test")


def test_dapo_by_reference_is_unwrapped_and_each_question_kept_once(serve, tmp_path, capsys):
    serve({("BytedTsinghua-SIA/DAPO-Math-17k", None, "train"): rows_of("dapo_17k") * 100})
    assert prepare(DAPO, "--out", tmp_path / "out") == 0
    problems = read_problems(tmp_path / "out" / "train.parquet")
    assert [(each.question, each.answer) for each in problems] == [
        ("How many made-up primes are below 10?", "4"),
        ("Let $a+b=7$ in a made-up triangle. Find $a+b+1$.", "8"),
    ]
    assert "2 problems of 600 rows" in capsys.readouterr().out


def test_a_reference_says_which_rows_and_not_what_is_held_out(serve):
    settings = find_settings("hf://zwhe99/DeepMath-103K?split=train")
    assert settings.heldout_share == 0.0 and settings.splits == {"train": "train"}
    assert settings.columns == find_settings("deepmath").columns
    assert find_settings("hf://eleutherai/Hendrycks_Math?config=algebra").reference.endswith("config=algebra")


# Other data sets


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        (
            {"id": 1, "problem": "q?", "solution": "So \\boxed{7}.", "answer": "7", "level": "Level 2"},
            {"question": "problem", "answer": "answer", "solution": "solution", "level": "level"},
        ),
        ({"problem": "q?", "answer": 7.0, "url": "x"}, {"question": "problem", "answer": "answer"}),
        (
            {"problem": "q?", "solution": "So \\boxed{7}.", "type": "x"},
            {"question": "problem", "solution": "solution"},
        ),
        (
            {"prompt": [{"role": "user", "content": "q?"}], "reward_model": {"ground_truth": "7"}},
            {"question": "prompt[-1].content", "answer": "reward_model.ground_truth"},
        ),
        ({"question": "q?", "final_answer": "7"}, {"question": "question", "answer": "final_answer"}),
        (
            {"question": "q?", "answer": "6+1=<<6+1=7>>7\n#### 7"},
            {"question": "question", "solution": "answer"},
        ),
        (
            {"question": "q?", "answer": "7", "steps": ["a.\n", "b."], "difficulty": 3},
            {"question": "question", "answer": "answer", "steps": "steps", "level": "difficulty"},
        ),
    ],
    ids=["math500", "aime", "boxed", "verl", "final_answer", "gsm8k copy", "steps"],
)
def test_columns_are_found_by_their_usual_names(serve, row, columns):
    serve({("owner/name", None, "train"): [row]})
    [problem] = read_source("hf://owner/name", counts=(counts := Counts()))
    assert (problem.question, problem.answer) == ("q?", "7")
    assert counts.columns == columns


def test_what_was_found_is_said_and_recorded(serve, tmp_path, capsys):
    serve({("owner/name", None, "train"): [{"problem": "q?", "answer": "7"}]})
    assert prepare("hf://owner/name", "--out", tmp_path) == 0
    assert "columns by their names: question=problem answer=answer (--map" in capsys.readouterr().out
    entry = json.loads((tmp_path / "manifest.json").read_text())["splits"]["train"]
    assert entry["columns"] == {"question": "problem", "answer": "answer"}


def test_what_is_mapped_is_not_looked_for_and_nothing_is_added_to_it(serve):
    row = {"problem": "q?", "answer": "8", "gold": "7", "solution": "So \\boxed{8}."}
    serve({("owner/name", None, "train"): [row]})
    [problem] = read_source("hf://owner/name", columns={"answer": "gold"})
    assert (problem.question, problem.answer, problem.steps) == ("q?", "7", ())


def test_columns_that_cannot_be_mapped_are_named_with_what_there_is(serve, tmp_path, capsys):
    serve({("owner/name", None, "train"): [{"frage": "q?", "antwort": "7", "meta": {"gold": "7"}}]})
    assert prepare("hf://owner/name", "--out", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert "question=question, answer=answer" in error and error.count("\n") == 1
    assert "this row has ['frage', 'antwort', 'meta', 'meta.gold']" in error
    assert '--map "question=COLUMN answer=COLUMN' in error
    assert not [*(tmp_path / "out").iterdir()]


# Configurations, access


def test_without_a_name_all_configurations_are_read(serve):
    tables = {
        ("owner/name", config, "train"): [{"question": f"{config}?", "answer": "7"}] for config in ("a", "b")
    }
    serve(tables)
    assert [each.question for each in read_source("hf://owner/name")] == ["a?", "b?"]
    assert [each.question for each in read_source("hf://owner/name?config=b")] == ["b?"]
    opened = open_configs(HubSource("owner/name", "train", "main"), (), instead="")
    assert [source.config for _, source in opened] == ["a", "b"]


@pytest.mark.parametrize(
    ("reference", "complaint"),
    [
        ("hf://owner/name?config=c", r"no configuration 'c'.*config=NAME"),
        ("hf://owner/name?config=a&split=trian", 'Unknown split "trian"'),
        ("hf://owner/other", r"cannot be accessed\. If owner/other is gated or private: .*HF_TOKEN"),
    ],
)
def test_what_cannot_be_had_is_named_before_anything_is_written(
    serve, tmp_path, capsys, reference, complaint
):
    serve({("owner/name", "a", "train"): [{"question": "q?", "answer": "7"}]})
    assert prepare(reference, "--out", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(complaint, error)
    assert not (tmp_path / "out").exists()
