"""Histograms of hints and tables of rollouts, as trackers store them."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from types import SimpleNamespace

import pytest

from seele_verl.runs.tracker_tables import COLUMNS, HINTS, NUM_ROLLOUTS, ROLLOUTS, log_rollouts

ROWS = [
    {
        "instance_id": f"p{number}",
        "round": 0,
        "hint_ratio": number / 100,
        "hint": "1 + 1 = 2\n",
        "text": "so <script>|x| `y`",
        "answer": "2",
        "reason": "wrong",
        "reward": 0.0,
        "advantage": None,
        "origin": "policy" if number < 90 else "trace",
    }
    for number in range(100)
]


def test_tensorboard_stores_a_histogram_each_step_and_a_table_every_tenth(tmp_path):
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    tracker = SimpleNamespace(writer=tensorboard.SummaryWriter(str(tmp_path)))
    for step in (1, 2, 10):
        log_rollouts({"tensorboard": tracker, "console": None}, step, ROWS)
    log_rollouts({"tensorboard": tracker}, 3, [])
    tracker.writer.close()
    stored = events.EventAccumulator(str(tmp_path), size_guidance={"histograms": 0, "tensors": 0})
    stored.Reload()
    histograms = stored.Histograms(HINTS)
    assert [(each.step, each.histogram_value.num) for each in histograms] == [(1, 90), (2, 90), (10, 90)]
    (tag,) = [tag for tag in stored.Tags()["tensors"] if tag.startswith(ROLLOUTS)]
    tables = stored.Tensors(tag)
    assert [each.step for each in tables] == [1, 10]
    lines = tables[0].tensor_proto.string_val[0].decode().splitlines()
    assert len(lines) == 2 + NUM_ROLLOUTS and all(line.count("|") == len(COLUMNS) + 1 for line in lines)
    assert "so &lt;script&gt;&#124;x&#124; &#96;y&#96;" in lines[2] and "1 + 1 = 2<br>" in lines[2]


def test_wandb_stores_the_table_and_the_histogram(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    with wandb.init(project="test", dir=str(tmp_path)) as tracked:
        log_rollouts({"wandb": wandb}, 1, ROWS)
        wandb.log({"next": 1}, step=2)
        assert {*tracked.summary[HINTS].keys()} >= {"bins", "values"}
    (stored,) = tmp_path.rglob("*.table.json")
    table = json.loads(stored.read_text())
    assert table["columns"] == list(COLUMNS) and len(table["data"]) == NUM_ROLLOUTS
    assert table["data"][0][0] == "p0" and table["data"][-1][0] == "p99"


def test_mlflow_stores_its_tables(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    with mlflow.start_run() as run:
        for step in (1, 2, 10):
            log_rollouts({"mlflow": mlflow}, step, ROWS)
    stored = {
        name: mlflow.load_table(f"{name}.json", run_ids=[run.info.run_id])
        for name in (f"{HINTS}/step_2", f"{ROLLOUTS}/step_10")
    }
    assert [table.shape for table in stored.values()] == [(90, 1), (NUM_ROLLOUTS, len(COLUMNS))]
    artifacts = mlflow.MlflowClient().list_artifacts(run.info.run_id, ROLLOUTS)
    assert [each.path for each in artifacts] == ["rollouts/step_1.json", "rollouts/step_10.json"]


def test_trackio_stores_the_table_and_the_histogram(tmp_path):
    pytest.importorskip("trackio")
    # It decides where it writes when it is imported.
    code = "import sys, json, trackio; from seele_verl.runs.tracker_tables import log_rollouts\n"
    code += "trackio.init(project='p', name='r'); rows = json.load(sys.stdin)\n"
    code += "for step in (1, 2, 10): log_rollouts({'trackio': trackio}, step, rows)\n"
    code += "trackio.finish()\n"
    environment = {**os.environ, "TRACKIO_DIR": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", code]
    subprocess.run(command, input=json.dumps(ROWS), text=True, env=environment, check=True, timeout=120)
    with closing(sqlite3.connect(tmp_path / "p.db")) as stored:
        lines = [json.loads(line) for (line,) in stored.execute("SELECT metrics FROM metrics ORDER BY step")]
    assert [sum(line[HINTS]["values"]) for line in lines] == [90, 90, 90]
    assert [len(line[ROLLOUTS]["_value"]) if ROLLOUTS in line else 0 for line in lines] == [
        NUM_ROLLOUTS,
        0,
        NUM_ROLLOUTS,
    ]


def test_mlflow_and_trackio_get_theirs_by_their_documented_signatures(monkeypatch):
    pytest.importorskip("pandas")
    told = []
    mlflow = SimpleNamespace(log_table=lambda data, artifact_file: told.append((artifact_file, data)))
    trackio = SimpleNamespace(
        Histogram=lambda sequence: ("histogram", len(sequence)),
        Table=lambda dataframe: ("table", dataframe.shape),
        log=lambda metrics, step: told.append((step, metrics)),
    )
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setitem(sys.modules, "trackio", trackio)
    log_rollouts({"mlflow": None}, 10, ROWS)
    log_rollouts({"trackio": None}, 10, ROWS)
    (hints, ratios), (rollouts, columns), (step, logged) = told
    assert hints == f"{HINTS}/step_10.json" and len(ratios["hint_ratio"]) == 90
    assert rollouts == "rollouts/step_10.json" and [*columns] == list(COLUMNS)
    assert len(columns["text"]) == NUM_ROLLOUTS
    assert step == 10 and logged == {
        HINTS: ("histogram", 90),
        ROLLOUTS: ("table", (NUM_ROLLOUTS, len(COLUMNS))),
    }
