"""Problems as verl's trainer takes them: cut into the units of the run's hints."""

import dataclasses

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from omegaconf import OmegaConf

from seele.data.storage.schema import write_problems
from seele.errors import ConfigError
from seele.records import Instance
from seele_verl.dataset import ProblemDataset

PROBLEM = Instance(
    instance_id="toy/1",
    data_source="toy",
    question="3 * 4?",
    steps=("Take 3. Take 4.\n", "3 * 4 = 12.\n", "So \\boxed{12}."),
    answer="12",
)


class Characters:
    """A tokenizer of code points."""

    def encode(self, text, *, add_special_tokens):
        return [ord(character) for character in text]

    def decode(self, token_ids, *, clean_up_tokenization_spaces):
        return "".join(map(chr, token_ids))


def instance_under(tmp_path, **hints):
    write_problems(tmp_path / "train.parquet", [PROBLEM], split="train")
    config = OmegaConf.create({"seele": {"hints": hints}, "data": {"hints": "${seele.hints}"}}).data
    dataset = ProblemDataset(str(tmp_path / "train.parquet"), Characters(), config)
    return dataset[0]["instance"]


def test_by_default_a_problem_is_as_its_file_has_it(tmp_path):
    assert instance_under(tmp_path) == PROBLEM


def test_the_run_decides_units_and_how_far_hints_go(tmp_path):
    sentences = instance_under(tmp_path, unit="sentence", revealing="forbid")
    assert sentences.steps == ("Take 3. ", "Take 4.\n", "3 * 4 = 12.\n", "So \\boxed{12}.")
    assert sentences.legal_hint_ratios == (0.0, 0.25, 0.5)
    tokens = instance_under(tmp_path, unit="token")
    assert "".join(tokens.steps) == "".join(PROBLEM.steps) and len(tokens.steps) > 20


def test_its_problems_are_named_in_order(tmp_path):
    for name, ids in {"a": ["x", "y"], "b": ["z"]}.items():
        problems = [dataclasses.replace(PROBLEM, instance_id=each) for each in ids]
        write_problems(tmp_path / f"{name}.parquet", problems, split="train")
    files = [str(tmp_path / f"{name}.parquet") for name in "ba"]
    assert ProblemDataset(files).instance_ids == ["z", "x", "y"]
    assert ProblemDataset(files, max_samples=2).instance_ids == ["z", "x"]


def test_a_method_without_hints_is_unaffected(tmp_path):
    assert instance_under(tmp_path, controller="none", unit="token", revealing="forbid") == PROBLEM


def test_a_bad_setting_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"seele\.hints: unit must be one of"):
        instance_under(tmp_path, unit="word")
