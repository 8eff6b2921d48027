"""Histograms of hints, tables of rollouts and figures of curves, as trackers store them."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from types import SimpleNamespace

import pytest

from seele.records import AccuracyCurve
from seele_verl.runs.tracker_tables import COLUMNS, CURVES, HINTS, NUM_ROLLOUTS, ROLLOUTS, log_rollouts

ROWS = [
    {
        "instance_id": f"p{number}",
        "round": 0,
        "hint_ratio": number / 100,
        "hint": "1 + 1 = 2\n",
        "text": "so <script>|x| `y` 2*3*4",
        "answer": "2",
        "reason": "wrong",
        "reward": 0.0,
        "advantage": None,
        "origin": "policy" if number < 90 else "trace",
    }
    for number in range(100)
]


def curves_of(problems):
    """The curves of a controller that knows two of the step's problems, and one that was given a trace."""
    assert len(problems) == 90
    names = [name for name in ("p1", "p2", "p99") if name in problems]
    return [AccuracyCurve(instance_id=name, hint_ratios=(0.0, 1.0), accuracies=(0.1, 1.0)) for name in names]


def test_tensorboard_stores_a_histogram_each_step_and_a_table_and_curves_every_tenth(tmp_path):
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    tracker = SimpleNamespace(writer=tensorboard.SummaryWriter(str(tmp_path)))
    asked = []
    for step in (1, 2, 10):
        log_rollouts(
            {"tensorboard": tracker, "console": None},
            step,
            ROWS,
            lambda problems, step=step: asked.append(step) or curves_of(problems),
        )
    log_rollouts({"tensorboard": tracker}, 20, ROWS, lambda _: [])
    log_rollouts({"tensorboard": tracker}, 30, [], curves_of)
    log_rollouts({"console": None}, 40, ROWS, None)
    tracker.writer.close()
    stored = events.EventAccumulator(
        str(tmp_path), size_guidance={"histograms": 0, "tensors": 0, "images": 0}
    )
    stored.Reload()
    histograms = stored.Histograms(HINTS)
    assert [(each.step, each.histogram_value.num) for each in histograms] == [
        (step, 90) for step in (1, 2, 10, 20)
    ]
    (tag,) = [tag for tag in stored.Tags()["tensors"] if tag.startswith(ROLLOUTS)]
    tables = stored.Tensors(tag)
    assert [each.step for each in tables] == [1, 10, 20]
    assert asked == [1, 10]
    images = stored.Images(CURVES)
    assert [each.step for each in images] == [1, 10]
    assert images[0].width > images[0].height > 100 and images[0].encoded_image_string.startswith(b"\x89PNG")
    lines = tables[0].tensor_proto.string_val[0].decode().splitlines()
    assert len(lines) == 2 + NUM_ROLLOUTS and all(line.count("|") == len(COLUMNS) + 1 for line in lines)
    assert (
        "so &lt;script&gt;&#124;x&#124; &#96;y&#96; 2&#42;3&#42;4" in lines[2] and "1 + 1 = 2<br>" in lines[2]
    )


def test_wandb_stores_the_table_the_histogram_and_the_curves(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    with wandb.init(project="test", dir=str(tmp_path)) as tracked:
        log_rollouts({"wandb": wandb}, 1, ROWS, curves_of)
        wandb.log({"next": 1}, step=2)
        assert {*tracked.summary[HINTS].keys()} >= {"bins", "values"}
        assert tracked.summary[CURVES]["_type"] == "image-file"
    (curves,) = tmp_path.rglob(f"{CURVES}*.png")
    assert curves.read_bytes().startswith(b"\x89PNG")
    (stored,) = tmp_path.rglob("*.table.json")
    table = json.loads(stored.read_text())
    assert table["columns"] == list(COLUMNS) and len(table["data"]) == NUM_ROLLOUTS
    assert table["data"][0][0] == "p0" and table["data"][-1][0] == "p89"


def test_mlflow_stores_its_tables(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    with mlflow.start_run() as run:
        for step in (1, 2, 10):
            log_rollouts({"mlflow": mlflow}, step, ROWS, curves_of)
    stored = {
        name: mlflow.load_table(f"{name}.json", run_ids=[run.info.run_id])
        for name in (f"{HINTS}/step_2", f"{ROLLOUTS}/step_10")
    }
    assert [table.shape for table in stored.values()] == [(90, 1), (NUM_ROLLOUTS, len(COLUMNS))]
    for name, kind in ((ROLLOUTS, "json"), (CURVES, "png")):
        artifacts = mlflow.MlflowClient().list_artifacts(run.info.run_id, name)
        assert [each.path for each in artifacts] == [f"{name}/step_1.{kind}", f"{name}/step_10.{kind}"]


def test_trackio_stores_the_table_and_the_histogram(tmp_path):
    pytest.importorskip("trackio")
    # It decides where it writes when it is imported.
    code = "import sys, json, trackio; from seele_verl.runs.tracker_tables import log_rollouts\n"
    code += "from seele.records import AccuracyCurve\n"
    code += "curve = AccuracyCurve(instance_id='p1', hint_ratios=(0.0, 1.0), accuracies=(0.1, 1.0))\n"
    code += "trackio.init(project='p', name='r'); rows = json.load(sys.stdin)\n"
    code += "for step in (1, 2, 10): log_rollouts({'trackio': trackio}, step, rows, lambda _: [curve])\n"
    code += "trackio.finish()\n"
    environment = {**os.environ, "TRACKIO_DIR": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", code]
    subprocess.run(command, input=json.dumps(ROWS), text=True, env=environment, check=True, timeout=120)
    with closing(sqlite3.connect(tmp_path / "p.db")) as stored:
        lines = [json.loads(line) for (line,) in stored.execute("SELECT metrics FROM metrics ORDER BY step")]
    assert [sum(line[HINTS]["values"]) for line in lines] == [90, 90, 90]
    assert [CURVES in line for line in lines] == [True, False, True]
    assert [len(line[ROLLOUTS]["_value"]) if ROLLOUTS in line else 0 for line in lines] == [
        NUM_ROLLOUTS,
        0,
        NUM_ROLLOUTS,
    ]


def test_mlflow_and_trackio_get_theirs_by_their_documented_signatures(monkeypatch):
    pytest.importorskip("pandas")
    told = []
    note = lambda data, artifact_file: told.append((artifact_file, data))  # noqa: E731
    mlflow = SimpleNamespace(log_table=note, log_image=note)
    trackio = SimpleNamespace(
        Histogram=lambda sequence: ("histogram", len(sequence)),
        Image=lambda value: ("image", value.shape[2], str(value.dtype)),
        Table=lambda dataframe: ("table", dataframe.shape),
        log=lambda metrics, step: told.append((step, metrics)),
    )
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setitem(sys.modules, "trackio", trackio)
    log_rollouts({"mlflow": None}, 10, ROWS, curves_of)
    log_rollouts({"trackio": None}, 10, ROWS, curves_of)
    (hints, ratios), (rollouts, columns), (curves, image), (step, logged) = told
    assert hints == f"{HINTS}/step_10.json" and len(ratios["hint_ratio"]) == 90
    assert rollouts == "rollouts/step_10.json" and [*columns] == list(COLUMNS)
    assert len(columns["text"]) == NUM_ROLLOUTS
    assert curves == "curves/step_10.png" and image.shape[2] == 3
    assert step == 10 and logged == {
        HINTS: ("histogram", 90),
        ROLLOUTS: ("table", (NUM_ROLLOUTS, len(COLUMNS))),
        CURVES: ("image", 3, "uint8"),
    }
