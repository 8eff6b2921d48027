"""The figure of README.md: what SEELE's hints do over a run, from stored runs."""

from collections.abc import Sequence

import numpy as np
from matplotlib.ticker import EngFormatter

from seele.maths.irt import Array
from seele.report.charts import GREY, INK, new_chart, nth_colour, png, share_on_y, style_axes, target_line
from seele.report.run_folder import RunFolder
from seele.report.series import by_tokens, moving_mean

WINDOW = 9
"""Number of steps averaged in each point of the training lines."""


def draw_front(runs: Sequence[RunFolder], without_hints: Sequence[RunFolder], *, heldout: str) -> bytes:
    """PNG of means over seeds: hint ratio and accuracy of the rollouts, and the accuracy without hints.

    Args:
        runs: One arm with hints, one run per seed.
        without_hints: The arm to compare with.
        heldout: The validation metric.
    """
    figure, axes = new_chart()
    target_line(axes, 0.5, label="target of the controller")
    for metric, colour, label in (
        ("hint_ratio/mean", nth_colour(1), "SEELE: share of the solution in the hint"),
        ("accuracy/mean", nth_colour(2), "SEELE: accuracy of the rollouts"),
    ):
        axes.plot(*_mean_over_seeds(runs, metric, window=WINDOW), color=colour, label=label)
    for arm, colour, label in ((runs, nth_colour(0), "SEELE"), (without_hints, GREY, "GRPO")):
        line = _mean_over_seeds(arm, heldout, window=1)
        axes.plot(*line, color=colour, linewidth=2.5, label=f"{label}: held-out accuracy without hints")
    style_axes(axes, x_label="generated tokens", y_label="")
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    share_on_y(axes)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8.5, labelcolor=INK)
    return png(figure)


def _mean_over_seeds(runs: Sequence[RunFolder], metric: str, *, window: int) -> tuple[Array, Array]:
    """(points,) generated tokens, up to where the shortest run ends, and the mean there."""
    series = [moving_mean(by_tokens(run.metrics, metric), window=window) for run in runs]
    grid_P = np.linspace(max(each.x[0] for each in series), min(each.x[-1] for each in series), 200)
    return grid_P, np.mean([np.interp(grid_P, each.x, each.y) for each in series], axis=0)
