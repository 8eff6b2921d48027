"""A run's data files may be references to the hub, which are prepared before anything else starts."""

import json
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

from omegaconf import OmegaConf

from seele.data.storage.schema import read_problems, write_problems
from seele.errors import ConfigError, DataError
from seele.records import Instance
from seele_verl import train
from seele_verl.runs.references import has_references, prepare_references

GSM8K = "https://huggingface.co/datasets/openai/gsm8k?config=main&split="
ROWS = [{"question": f"{n} boxes of 6?", "answer": f"{n}*6={6 * n}\n#### {6 * n}"} for n in (2, 3)]


class Hub(ModuleType):
    """Stands in for ``datasets``: the same rows for every data set, but for those that it does not have."""

    def __init__(self, rows: list[dict]) -> None:
        super().__init__("datasets")
        self.rows, self.calls = rows, []

    def load_dataset(self, name, config, *, split, revision):
        self.calls.append((name, config, split))
        # What a run on a machine without a GPU sets for its workers must not keep the hub away.
        assert os.environ.get("HF_HUB_OFFLINE") == self.offline
        if name.endswith("private"):
            raise FileNotFoundError(f"Dataset '{name}' is a gated dataset on the Hub.")
        return self.rows


@pytest.fixture
def hub(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "datasets", double := Hub(ROWS))
    double.offline = os.environ.get("HF_HUB_OFFLINE")
    return double


def configure(*overrides: str):
    return train.compose(["method=grpo", "hardware=cpu", "job=tiny", *overrides])


def test_references_and_files_mix_and_are_prepared_once(hub, tmp_path, capsys):
    write_problems(
        tmp_path / "mine.parquet",
        [Instance(instance_id="m", data_source="toy", question="?", steps=(), answer="1")],
        split="train",
    )
    overrides = (
        f"data.train_files=['{GSM8K}train',{tmp_path}/mine.parquet]",
        f"data.val_files='{GSM8K}test'",
    )
    config = configure(*overrides)
    assert has_references(config)
    config = prepare_references(config)
    [prepared, mine], [held_out] = config.data.train_files, config.data.val_files
    assert mine == f"{tmp_path}/mine.parquet"
    assert prepared.startswith(f"{tmp_path}/data/prepared/openai-gsm8k-train-")
    assert (prepared.endswith("/train.parquet"), held_out.endswith("/test.parquet")) == (True, True)
    assert [problem.answer for problem in read_problems(Path(prepared))] == ["12", "18"]
    assert config.data.references == {prepared: f"{GSM8K}train", held_out: f"{GSM8K}test"}
    assert f"{GSM8K}train" in OmegaConf.to_yaml(config, resolve=False)
    said = capsys.readouterr().out
    assert f"data.train_files: prepares {GSM8K}train in data/prepared/openai-gsm8k-train-" in said
    assert "2 problems of 2 rows" in said
    # The next run finds them there.
    hub.calls.clear()
    again = prepare_references(configure(*overrides))
    assert not hub.calls and again.data.train_files == config.data.train_files
    assert "is prepared in data/prepared/openai-gsm8k-train-" in capsys.readouterr().out


@pytest.mark.parametrize("spoil", ["manifest.json", "train.parquet"])
def test_a_folder_that_is_incomplete_or_changed_is_prepared_anew(hub, spoil):
    overrides = (f"data.train_files=['{GSM8K}train']", f"data.val_files=['{GSM8K}train']")
    config = prepare_references(configure(*overrides))
    # The same reference twice is fetched once.
    assert len(hub.calls) == 1
    file = Path(config.data.train_files[0])
    whole = file.read_bytes()
    (file.parent / spoil).write_text("{")
    prepare_references(configure(*overrides))
    assert len(hub.calls) == 2 and file.read_bytes() == whole
    golds = json.loads((file.parent / "manifest.json").read_text())["splits"]["train"]["golds"]
    assert golds == {"grader": "mathruler", "checked": 2, "failing": 0}


def test_other_settings_have_another_folder(hub):
    overrides = (f"data.train_files=['{GSM8K}train']", f"data.val_files=['{GSM8K}train']")
    first = prepare_references(configure(*overrides))
    second = prepare_references(configure(*overrides, "seele.reward.grader=strict+"))
    assert first.data.train_files != second.data.train_files and len(hub.calls) == 2


def test_files_of_a_supervised_stage_may_be_references(hub, tmp_path):
    files = (f"data.train_files=[{tmp_path}/mine.parquet]", f"data.val_files=[{tmp_path}/mine.parquet]")
    config = configure("method=sft_rl", *files, f"seele.sft.train_files=['{GSM8K}train']")
    assert has_references(config)
    config = prepare_references(config)
    [prepared] = config.seele.sft.train_files
    assert config.data.references == {prepared: f"{GSM8K}train"} and Path(prepared).is_file()


def test_local_files_stay_as_they_are(hub):
    config = configure("data.train_files=[some/train.parquet]", "data.val_files=some/test.parquet")
    assert not has_references(config)
    assert not has_references(configure("data.train_files=null", "data.val_files=3"))


@pytest.mark.parametrize(
    ("reference", "rows", "complaint"),
    [
        ("hf://owner/private", ROWS, r"data\.train_files: cannot fetch owner/private.*gated.*HF_TOKEN"),
        ("hf://owner/name", [{"frage": "?"}], r"this row has \['frage'\].*`seele data prepare`"),
        ("hf://owner/name", [{"question": "?", "answer": "{7"}], r"1 of 1 reference answers.*\{7"),
    ],
)
def test_what_cannot_be_prepared_is_named_and_leaves_nothing(hub, tmp_path, reference, rows, complaint):
    hub.rows = rows
    config = configure(f"data.train_files=['{reference}']", "data.val_files=[x.parquet]")
    with pytest.raises(DataError, match=complaint):
        prepare_references(config)
    assert not [*tmp_path.iterdir()]


def test_a_bad_setting_is_refused_before_anything_is_fetched(hub, tmp_path):
    overrides = [f"data.train_files=['{GSM8K}train']", "data.train_batch_size=0"]
    with pytest.raises(ConfigError, match=r"data\.train_batch_size"):
        train.run(configure(*overrides), overrides)
    with pytest.raises(ConfigError, match="unknown or empty parameter 'splt'"):
        train.run(configure("data.train_files=['hf://a/b?splt=x']"), [])
    assert not hub.calls and not [*tmp_path.iterdir()]


def test_the_run_reads_the_prepared_files(hub, monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(train, "set_environment", lambda config: seen.append("environment"))

    def no_stages(config, overrides):
        seen.append(list(config.data.train_files))
        yield from ()

    monkeypatch.setattr(train, "stages", no_stages)
    overrides = [f"data.train_files=['{GSM8K}train']", "data.val_files=[x.parquet]"]
    train.run(configure(*overrides), overrides)
    assert seen[0] == "environment" and seen[1][0].endswith("/train.parquet")
