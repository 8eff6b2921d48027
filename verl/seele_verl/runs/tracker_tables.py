"""Sends trackers more than numbers of a step: how long its hints were, and some of its rollouts."""

import html
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from seele.maths.tables import markdown_table
from seele.report.series import spread_evenly

HINTS, ROLLOUTS = "hint_ratio/of_rollouts", "rollouts"
NUM_ROLLOUTS, EVERY_STEPS = 32, 10
"""A table has this number of rollouts, and is sent with the first step and every tenth."""
COLUMNS = ("instance_id", "round", "hint_ratio", "hint", "text", "answer", "reason", "reward", "advantage")
MAX_CHARS = 2000
_IN_A_CELL = str.maketrans({"|": "&#124;", "\n": "<br>", "\\": "&#92;", "`": "&#96;"})


def log_rollouts(trackers: Mapping[str, Any], step: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """Send a histogram of the hint ratios and, now and then, a table of rollouts spread over the step.

    Args:
        trackers: verl's trackers, by name; wandb, trackio, tensorboard and mlflow are supported.
        step: The step.
        rows: The step's lines of ``rollouts/step_N.jsonl``.
    """
    ratios = [row["hint_ratio"] for row in rows if row["origin"] == "policy"]
    if not ratios:
        return
    table = []
    if step == 1 or step % EVERY_STEPS == 0:
        table = [[_shown(row[name]) for name in COLUMNS] for row in spread_evenly(rows, NUM_ROLLOUTS)]
    for name in trackers.keys() & _SENDERS.keys():
        _SENDERS[name](trackers[name], step, ratios, table)


def _to_wandb(wandb: Any, step: int, ratios: list[float], table: list[list[Any]]) -> None:
    logged = {HINTS: wandb.Histogram(ratios)}
    wandb.log(logged | ({ROLLOUTS: wandb.Table(list(COLUMNS), table)} if table else {}), step=step)


def _to_trackio(_: Any, step: int, ratios: list[float], table: list[list[Any]]) -> None:
    # verl imports these two only if requested; trackio brings pandas.
    pandas, trackio = import_module("pandas"), import_module("trackio")
    logged = {HINTS: trackio.Histogram(ratios)}
    frame = pandas.DataFrame(table, columns=list(COLUMNS))
    trackio.log(logged | ({ROLLOUTS: trackio.Table(dataframe=frame)} if table else {}), step=step)


def _to_mlflow(_: Any, step: int, ratios: list[float], table: list[list[Any]]) -> None:
    mlflow = import_module("mlflow")
    # mlflow has no histograms.
    mlflow.log_table({"hint_ratio": ratios}, artifact_file=f"{HINTS}/step_{step}.json")
    if table:
        columns = dict(zip(COLUMNS, map(list, zip(*table, strict=True)), strict=True))
        mlflow.log_table(columns, artifact_file=f"{ROLLOUTS}/step_{step}.json")


def _to_tensorboard(tracker: Any, step: int, ratios: list[float], table: list[list[Any]]) -> None:
    tracker.writer.add_histogram(HINTS, np.array(ratios), step)
    if table:
        cells = [[_as_cell(value) for value in row] for row in table]
        tracker.writer.add_text(ROLLOUTS, markdown_table(COLUMNS, cells, num_names=len(COLUMNS)), step)


_SENDERS = {
    "wandb": _to_wandb,
    "trackio": _to_trackio,
    "mlflow": _to_mlflow,
    "tensorboard": _to_tensorboard,
}


def _shown(value: Any) -> Any:
    return value[:MAX_CHARS] if isinstance(value, str) else value


def _as_cell(value: Any) -> str:
    """Return text that a Markdown table shows unchanged."""
    return html.escape("" if value is None else str(value)).translate(_IN_A_CELL)
