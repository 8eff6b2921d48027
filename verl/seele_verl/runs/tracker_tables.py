"""Sends trackers more than numbers of a step: how long its hints were, some of its rollouts, and its hint
controller's curves.
"""

import html
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seele.maths.tables import markdown_table
from seele.records import AccuracyCurve
from seele.report.curves import choose_problems, with_rounds
from seele.report.series import spread_evenly

HINTS, ROLLOUTS, CURVES = "hint_ratio/of_rollouts", "rollouts", "curves"
NUM_ROLLOUTS, EVERY_STEPS = 32, 10
"""A table has this number of rollouts; it and the curves are sent with the first step and every tenth."""
COLUMNS = ("instance_id", "round", "hint_ratio", "hint", "text", "answer", "reason", "reward", "advantage")
MAX_CHARS = 2000
Image = NDArray[np.uint8]
"""(height, width, 3), red, green and blue of each pixel."""
# A Markdown table shows the text unchanged.
_IN_A_CELL = {ord(mark): f"&#{ord(mark)};" for mark in "|\\`*_[~"} | {ord("\n"): "<br>"}


def log_rollouts(
    trackers: Mapping[str, Any],
    step: int,
    rows: Sequence[Mapping[str, Any]],
    curves_of: Callable[[Collection[str]], list[AccuracyCurve]],
) -> None:
    """Send a histogram of the hint ratios and, now and then, a table of rollouts spread over the step and a
    figure of the curves of some of its problems.

    Args:
        trackers: verl's trackers, by name; wandb, trackio, tensorboard and mlflow are supported.
        step: The step.
        rows: The step's lines of ``rollouts/step_N.jsonl``.
        curves_of: Returns the curves that the hint controller keeps of some problems, none or one of each.
    """
    sampled = [row for row in rows if row["origin"] == "policy"]
    supported = trackers.keys() & _SENDERS.keys()
    if not sampled or not supported:
        return
    table, image = [], None
    if step == 1 or step % EVERY_STEPS == 0:
        table = [[_shown(row[name]) for name in COLUMNS] for row in spread_evenly(sampled, NUM_ROLLOUTS)]
        image = _draw_curves(curves_of({row["instance_id"] for row in sampled}), sampled)
    for name in supported:
        _SENDERS[name](trackers[name], step, [row["hint_ratio"] for row in sampled], table, image)


def _draw_curves(curves: list[AccuracyCurve], rows: Sequence[Mapping[str, Any]]) -> Image | None:
    # Imported here: most runs draw nothing, and matplotlib takes half a second.
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from seele.report.figures import MAX_CURVES, draw_problems

    seen = ((row["instance_id"], row["round"], row["hint_ratio"], row["reason"] == "correct") for row in rows)
    problems = choose_problems(with_rounds(curves, seen), count=MAX_CURVES, target_accuracy=0.5)
    if not problems:
        return None
    canvas = FigureCanvasAgg(draw_problems(problems))
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3]


def _to_wandb(
    wandb: Any, step: int, ratios: list[float], table: list[list[Any]], image: Image | None
) -> None:
    logged = {HINTS: wandb.Histogram(ratios)}
    if table:
        logged[ROLLOUTS] = wandb.Table(list(COLUMNS), table)
    if image is not None:
        logged[CURVES] = wandb.Image(image)
    wandb.log(logged, step=step)


def _to_trackio(_: Any, step: int, ratios: list[float], table: list[list[Any]], image: Image | None) -> None:
    # verl imports these two only if requested; trackio brings pandas.
    pandas, trackio = import_module("pandas"), import_module("trackio")
    logged = {HINTS: trackio.Histogram(ratios)}
    if table:
        logged[ROLLOUTS] = trackio.Table(dataframe=pandas.DataFrame(table, columns=list(COLUMNS)))
    if image is not None:
        logged[CURVES] = trackio.Image(image)
    trackio.log(logged, step=step)


def _to_mlflow(_: Any, step: int, ratios: list[float], table: list[list[Any]], image: Image | None) -> None:
    mlflow = import_module("mlflow")
    # mlflow has no histograms.
    mlflow.log_table({"hint_ratio": ratios}, artifact_file=f"{HINTS}/step_{step}.json")
    if table:
        columns = dict(zip(COLUMNS, map(list, zip(*table, strict=True)), strict=True))
        mlflow.log_table(columns, artifact_file=f"{ROLLOUTS}/step_{step}.json")
    if image is not None:
        mlflow.log_image(image, artifact_file=f"{CURVES}/step_{step}.png")


def _to_tensorboard(
    tracker: Any, step: int, ratios: list[float], table: list[list[Any]], image: Image | None
) -> None:
    tracker.writer.add_histogram(HINTS, np.array(ratios), step)
    if table:
        cells = [
            [html.escape("" if value is None else str(value)).translate(_IN_A_CELL) for value in row]
            for row in table
        ]
        tracker.writer.add_text(ROLLOUTS, markdown_table(COLUMNS, cells, num_names=len(COLUMNS)), step)
    if image is not None:
        tracker.writer.add_image(CURVES, image, step, dataformats="HWC")


_SENDERS = {
    "wandb": _to_wandb,
    "trackio": _to_trackio,
    "mlflow": _to_mlflow,
    "tensorboard": _to_tensorboard,
}


def _shown(value: Any) -> Any:
    return value[:MAX_CHARS] if isinstance(value, str) else value
