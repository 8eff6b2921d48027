"""The Hugging Face hub: retries, what is not retried, the cache, and a cache of another revision."""

import json
import os
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest

pytest.importorskip("datasets", reason="datasets is not installed")

from seele.data.storage import hub
from seele.data.storage.hub import HubSource, commit_of, open_hub_rows, read_hub_rows
from seele.errors import DataError

COMMIT, OTHER = "a" * 40, "b" * 40
SOURCE = HubSource("owner/name", "train", COMMIT)


class StatusError(OSError):
    """An answer of the hub that is no success."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.response = SimpleNamespace(status_code=status)


class CutOff(Exception):
    """What a client raises beside Python's own errors."""


class FailingHub(ModuleType):
    """Stands in for ``datasets``: raises these errors in turn, then serves a row."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__("datasets")
        self.errors, self.attempts = list(errors), 0

    def load_dataset(self, *_, **__):
        self.attempts += 1
        if self.errors:
            raise self.errors.pop(0)
        return [{"x": 1}]


@pytest.fixture
def waits(monkeypatch):
    """Seconds that were waited; nobody waits them."""
    waited = []
    monkeypatch.setattr(hub, "RETRY_DELAYS_S", (1.0, 2.0, 4.0))
    monkeypatch.setattr(hub.time, "sleep", waited.append)
    return waited


def wrapped(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("reset"),
        TimeoutError("too slow"),
        StatusError(429),
        StatusError(503),
        wrapped(OSError("cannot download"), StatusError(504)),
        wrapped(ValueError("bad file"), ConnectionError("reset")),
    ],
    ids=str,
)
def test_a_passing_failure_is_tried_again_with_longer_and_longer_waits(error, monkeypatch, waits):
    monkeypatch.setitem(sys.modules, "datasets", stand_in := FailingHub(error, error))
    assert read_hub_rows(SOURCE, instead="") == [
        ("owner/name@aaaaaaaa (train): row 0 (counted from 0)", {"x": 1})
    ]
    assert (stand_in.attempts, waits) == (3, [1.0, 2.0])


def test_errors_of_the_hubs_client_are_tried_again(monkeypatch, waits):
    httpx = pytest.importorskip("httpx")
    monkeypatch.setitem(sys.modules, "datasets", stand_in := FailingHub(httpx.ReadTimeout("slow")))
    assert read_hub_rows(SOURCE, instead="") and stand_in.attempts == 2


@pytest.mark.parametrize(
    "error",
    [
        StatusError(401),
        StatusError(404),
        ValueError("unknown split 'trian'"),
        FileNotFoundError("no such data set"),
        RuntimeError("Dataset scripts are no longer supported"),
        ConnectionError("Couldn't reach 'owner/name' on the Hub (OfflineModeIsEnabled)"),
    ],
    ids=str,
)
def test_what_will_not_pass_is_not_tried_again(error, monkeypatch, waits):
    monkeypatch.setitem(sys.modules, "datasets", stand_in := FailingHub(error))
    with pytest.raises(DataError, match=r"cannot fetch owner/name@aaaaaaaa \(train\).*do that instead"):
        read_hub_rows(SOURCE, instead="do that instead")
    assert (stand_in.attempts, waits) == (1, [])


def test_the_last_attempts_error_is_told(monkeypatch, waits):
    monkeypatch.setitem(sys.modules, "datasets", stand_in := FailingHub(*[ConnectionError("reset")] * 9))
    with pytest.raises(DataError, match="reset"):
        read_hub_rows(SOURCE, instead="")
    assert (stand_in.attempts, waits) == (4, [1.0, 2.0, 4.0])


def test_an_error_of_our_own_making_is_not_hidden(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", FailingHub(CutOff("bug")))
    with pytest.raises(CutOff):
        read_hub_rows(SOURCE, instead="")


def test_rows_of_another_revision_are_refused(monkeypatch):
    rows = SimpleNamespace(
        cache_files=[{"filename": f"/cache/owner___name/default/0.0.0/{OTHER}/name-train.arrow"}]
    )
    assert commit_of(rows) == OTHER
    stand_in = ModuleType("datasets")
    stand_in.load_dataset = lambda *_, **__: rows
    monkeypatch.setitem(sys.modules, "datasets", stand_in)
    with pytest.raises(DataError, match=f"holds revision {OTHER}; ask for that one"):
        open_hub_rows(SOURCE, instead="")
    assert open_hub_rows(HubSource("owner/name", "train", "main"), instead="") is rows


# The real library, without a network

FILL_CACHE = """
import sys
from pathlib import Path
from datasets import Dataset, DatasetInfo
from datasets.arrow_writer import ArrowWriter
folder = Path(sys.argv[1]) / "owner___made_up" / "default" / "0.0.0" / sys.argv[2]
folder.mkdir(parents=True)
rows = Dataset.from_dict({"question": ["q?"], "answer": ["1"], "other": ["x"]})
with ArrowWriter(path=str(folder / "made_up-train.arrow"), features=rows.features) as writer:
    writer.write_table(rows.data.table)
    num_examples, num_bytes = writer.finalize()
from datasets.splits import SplitDict, SplitInfo
splits = SplitDict()
splits.add(SplitInfo(name="train", num_bytes=num_bytes, num_examples=1, dataset_name="made_up"))
info = DatasetInfo(features=rows.features, splits=splits, builder_name="parquet", dataset_name="made_up",
                   config_name="default", version="0.0.0")
info.write_to_directory(str(folder))
"""


@pytest.fixture(scope="module")
def offline(tmp_path_factory):
    """Environment without a network and with one revision of one data set in the cache."""
    pytest.importorskip("datasets")
    cache = tmp_path_factory.mktemp("cache")
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(cache), "HF_HOME": str(cache)}
    subprocess.run([sys.executable, "-c", FILL_CACHE, cache, COMMIT], check=True, env=environment)
    return environment


def prepare(reference: str, out, environment) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "seele.cli.main", "data", "prepare", reference, "--out", str(out)]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_offline_the_cache_serves_and_what_is_not_pinned_is_recorded_and_said(offline, tmp_path):
    result = prepare("hf://owner/made_up", tmp_path, offline)
    assert result.returncode == 0, result.stderr
    assert f"not pinned to a commit; now it was {COMMIT}" in result.stdout
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["splits"]["train"]["origin"] == {
        "hub": "owner/made_up",
        "configs": [],
        "split": "train",
        "revision": COMMIT,
    }


def test_offline_another_revision_or_data_set_is_refused_with_what_to_do(offline, tmp_path):
    result = prepare(f"hf://owner/made_up?revision={OTHER}", tmp_path, offline)
    assert result.returncode == 2 and f"holds revision {COMMIT}; ask for that one" in result.stderr
    result = prepare("hf://owner/absent", tmp_path, offline)
    assert result.returncode == 2 and "give them with --source PATH" in result.stderr
    assert not list(tmp_path.iterdir())
