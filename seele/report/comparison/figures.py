"""The comparison's figures: accuracy against each cost, one panel per split."""

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from seele.report.charts import (
    COLOURS,
    INK,
    new_figure,
    nth_colour,
    plain,
    png,
    share_on_y,
    shortened,
    step_axis,
    style_axes,
)
from seele.report.comparison.curves import COSTS, Curve, mean_curve
from seele.report.comparison.results import MIN_SEEDS, Comparison, band


def draw_figures(comparison: Comparison) -> dict[str, bytes]:
    """PNG bytes by cost."""
    return {cost: png(accuracy_against(comparison, cost)) for cost in comparison.costs}


def accuracy_against(comparison: Comparison, cost: str) -> Figure:
    """Draw the mean over seeds of each arm with its band, and the budget that all runs reached."""
    splits = [split for split, by_cost in comparison.results.items() if cost in by_cost]
    num_columns = min(2, len(splits))
    num_rows = -(-len(splits) // num_columns)
    figure = new_figure(height_in=0.4 + 3.3 * num_rows + 0.2 * len(comparison.arms))
    grid = figure.subplots(num_rows, num_columns, squeeze=False)
    for axes in grid.flat[len(splits) :]:
        axes.set_visible(False)
    for axes, split in zip(grid.flat, splits, strict=False):
        _draw_split(axes, comparison.curves[split][cost], is_labelled=split == splits[0])
        budget = comparison.results[split][cost].budget
        axes.axvline(
            budget,
            color=INK,
            linewidth=1,
            linestyle=(0, (4, 3)),
            label="common budget" if split == splits[0] else "",
        )
        axes.set_title(plain(shortened(split)), size=8.5, color=INK)
        style_axes(axes, x_label=COSTS[cost].title, y_label="accuracy, no hint")
        top = axes.get_ylim()[1]
        share_on_y(axes)
        # Zooming in eases the comparison; all panels begin at 0.
        axes.set_ylim(0.0, min(1.02, top))
        if cost == "steps":
            step_axis(axes)
        else:
            axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    # Arms have long names, so each gets a line.
    figure.legend(loc="outside lower center", frameon=False, fontsize=8.5, labelcolor=INK)
    return figure


def _draw_split(axes: Axes, curves: Mapping[str, Mapping[int, Curve]], *, is_labelled: bool) -> None:
    for index, (arm, by_seed) in enumerate(curves.items()):
        mean = mean_curve(by_seed.values())
        colour = nth_colour(index)
        label = f"{plain(shortened(arm, limit=60))}: {describe_band(len(by_seed))}" if is_labelled else ""
        # Marks at the seeds' validations, between which nothing was measured.
        (line,) = axes.plot(
            mean.cost_V, mean.accuracy_V, "o-", color=colour, linewidth=2, markersize=4, label=label
        )
        if index >= len(COLOURS):
            line.set_dashes((3, 1.5))
        if len(by_seed) > 1:
            axes.fill_between(mean.cost_V, *band(by_seed), color=colour, alpha=0.15, linewidth=0)


def describe_band(num_seeds: int) -> str:
    """Describe the band around a mean over ``num_seeds`` seeds."""
    if num_seeds == 1:
        return "1 seed"
    return f"{num_seeds} seeds, {'95 % interval' if num_seeds >= MIN_SEEDS else 'smallest to largest'}"
