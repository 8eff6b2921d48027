"""pass@k over k, as a table and as a figure.

``seele_eval.estimates`` defines pass@k and the k of a curve.
"""

import io
from collections.abc import Mapping, Sequence, Set
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from seele.report.charts import INK, legend_below, new_figure, nth_colour, plain, share_on_y, style_axes
from seele_eval.estimates import Estimate, attempts
from seele_eval.scores import Score
from seele_eval.tables import percent, table

PassCurve = Mapping[int, Estimate]
"""pass@k by k."""

# More panels side by side would be too narrow to read.
_MAX_COLUMNS = 3


def curves_of(scores: Sequence[Score]) -> dict[str, PassCurve]:
    """One curve for each benchmark and temperature with several samples of each problem."""
    several = [score for score in scores if score.samples > 1]
    names = [score.benchmark for score in several]
    return {
        name if names.count(name) == 1 else f"{name} at T={score.temperature:g}": {
            k: score.estimates[f"pass@{k}"] for k in attempts(score.samples)
        }
        for name, score in zip(names, several, strict=True)
    }


def pass_table(curves: Mapping[str, PassCurve]) -> str:
    """One row per k and one column per curve: pass@k in percent with its interval."""
    rows = [
        {"k": str(k)}
        | {f"{name} %": percent(curve[k]) if k in curve else "-" for name, curve in curves.items()}
        for k in sorted({k for curve in curves.values() for k in curve})
    ]
    return table(rows, num_names=0)


def draw_panels(panels: Mapping[str, Mapping[str, PassCurve]]) -> bytes:
    """Draw the curves as a PNG with one panel per title; the legends name the curves."""
    num_columns = min(_MAX_COLUMNS, len(panels))
    num_rows = -(-len(panels) // num_columns)
    figure = new_figure(height_in=3.9 if num_rows == num_columns == 1 else 2.6 * num_rows + 0.6)
    grid = figure.subplots(num_rows, num_columns, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    names = list(dict.fromkeys(name for curves in panels.values() for name in curves))
    colours = {name: nth_colour(index) for index, name in enumerate(names)}
    labelled: set[str] = set()
    for axes, (title, curves) in zip(grid.flat, panels.items(), strict=False):
        _draw_panel(axes, curves, colours, labelled=labelled)
        axes.set_title(plain(title), size=8.5, color=INK)
        labelled |= curves.keys()
    legend_below(figure)
    image = io.BytesIO()
    figure.savefig(image, format="png")
    return image.getvalue()


def _draw_panel(
    axes: Axes, curves: Mapping[str, PassCurve], colours: Mapping[str, str], *, labelled: Set[str]
) -> None:
    for name, curve in curves.items():
        ks, colour = list(curve), colours[name]
        low, high = zip(*(each.interval_95 for each in curve.values()), strict=True)
        axes.fill_between(ks, low, high, color=colour, alpha=0.15, linewidth=0)
        label = "" if name in labelled else plain(name)
        axes.plot(ks, [each.value for each in curve.values()], "o-", color=colour, label=label)
    axes.set_xscale("log", base=2)
    style_axes(axes, x_label="k", y_label="pass@k")
    axes.xaxis.set_major_locator(FixedLocator(_ticks({k for curve in curves.values() for k in curve})))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(ScalarFormatter())
    share_on_y(axes)


def _ticks(ks: Set[int]) -> list[int]:
    """The labelled k: the last, and those that leave room for the next label."""
    ordered = sorted(ks)
    return [k for k, after in pairwise(ordered) if 2 * after >= 3 * k] + ordered[-1:]
