"""The report's figures.

Each function takes a run and returns a figure, or None if the run holds nothing to draw. ``series`` and
``curves`` compute the numbers; ``charts`` decides how charts look.

S counts steps.
"""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, PercentFormatter

from seele.report.charts import (
    COLOURS,
    GREY,
    INK,
    legend_below,
    new_chart,
    new_figure,
    noisy_line,
    nth_colour,
    plain,
    png,
    share_on_y,
    shortened,
    step_axis,
    style_axes,
    target_line,
    thick_line,
)
from seele.report.curves import FittedProblem, aimed_accuracy, choose_problems, fitted_problems
from seele.report.run_folder import RunFolder
from seele.report.series import (
    PHASE,
    ROUND,
    VALIDATION,
    by_step,
    by_tokens,
    num_rounds,
    phases,
    token_totals,
    validation_splits,
)

MAX_CURVES = 6

# Further phases are summed as "other": a stack of more colours is unreadable.
MAX_PHASES = 7


def accuracy_against_tokens(run: RunFolder) -> Figure | None:
    """Un-hinted validation accuracy of each split, and the accuracy of the training rollouts.

    The x-axis shows tokens, or steps if nothing is generated, as in supervised training.
    """
    generates = any(token_totals(run.metrics, "generated"))
    over_costs = by_tokens if generates else by_step
    splits = validation_splits(run.metrics, run.validation_files)
    training = over_costs(run.metrics, "accuracy/mean")
    if not splits and not training:
        return None
    figure, axes = new_chart()
    for index, split in enumerate(splits):
        series = over_costs(run.metrics, VALIDATION + split)
        axes.plot(
            series.x, series.y, "o-", color=nth_colour(index), label=f"{plain(split)}, no hint", zorder=3
        )
    if training:
        is_hinted = any(by_step(run.metrics, "hint_ratio/mean").y)
        noisy_line(axes, training, colour=GREY, label="training rollouts" + ", hinted" * is_hinted)
    style_axes(axes, x_label="generated tokens" if generates else "step", y_label="accuracy")
    share_on_y(axes)
    if generates:
        axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    else:
        step_axis(axes)
    legend_below(figure)
    return figure


def accuracy_per_round(run: RunFolder) -> Figure | None:
    """Mean accuracy of each round over the steps, and the accuracy that the controller aims at."""
    rounds = num_rounds(run.metrics)
    if not rounds:
        return None
    figure, axes = new_chart()
    target = aimed_accuracy(run)
    if target is not None:
        target_line(axes, target, label=f"target {target:g}")
    for index in range(rounds):
        series = by_step(run.metrics, f"{ROUND}{index}")
        noisy_line(axes, series, colour=nth_colour(index), label=f"round {index + 1}")
    style_axes(axes, x_label="step", y_label="accuracy")
    share_on_y(axes)
    step_axis(axes)
    legend_below(figure)
    return figure


def hint_ratio(run: RunFolder) -> Figure | None:
    """Share of the solution that is revealed: mean, and the middle 80 % of the step's problems and rounds."""
    mean = by_step(run.metrics, "hint_ratio/mean")
    low, high = by_step(run.metrics, "hint_ratio/p10"), by_step(run.metrics, "hint_ratio/p90")
    if not mean or max(mean.y) == 0:
        return None
    figure, axes = new_chart()
    if low.x == high.x:
        axes.fill_between(
            low.x, low.y, high.y, color=COLOURS[0], alpha=0.15, linewidth=0, label="10 % to 90 %"
        )
    thick_line(axes, mean, colour=COLOURS[0], label="mean")
    style_axes(axes, x_label="step", y_label="revealed share of the solution")
    share_on_y(axes)
    step_axis(axes)
    legend_below(figure)
    return figure


def fitted_curves(run: RunFolder) -> Figure | None:
    """Last fitted curve of some problems, from easy to hard, with the rounds that it was fitted to."""
    target = aimed_accuracy(run)
    aim = 0.5 if target is None else target
    problems = choose_problems(fitted_problems(run), count=MAX_CURVES, target_accuracy=aim)
    return draw_problems(problems, target) if problems else None


def draw_problems(problems: Sequence[FittedProblem], target: float | None = None) -> Figure:
    """A panel for each problem, at least one, with its curve, its rounds and the target accuracy."""
    num_columns = min(3, len(problems))
    num_rows = -(-len(problems) // num_columns)
    figure = new_figure(height_in=2.3 * num_rows + 0.4)
    grid = figure.subplots(num_rows, num_columns, sharex=True, sharey=True, squeeze=False)
    for axes in grid.flat[len(problems) :]:
        axes.set_visible(False)
    for axes, problem in zip(grid.flat, problems, strict=False):
        if target is not None:
            target_line(axes, target)
        _draw_problem(axes, problem)
    figure.supxlabel("hint ratio", size=9.5, color=INK)
    figure.supylabel("accuracy", size=9.5, color=INK)
    return figure


def _draw_problem(axes: Axes, problem: FittedProblem) -> None:
    axes.plot(problem.curve.hint_ratios, problem.curve.accuracies, color=COLOURS[0], linewidth=2)
    rounds_at: dict[tuple[float, float], list[str]] = {}
    for number, *point in problem.observations:
        rounds_at.setdefault((point[0], point[1]), []).append(str(number))
    for (ratio, accuracy), numbers in rounds_at.items():
        axes.plot(ratio, accuracy, "o", color=COLOURS[1], markersize=5, zorder=3, clip_on=False)
        # The label goes towards the middle of the panel, where there is room.
        is_left = ratio < 0.7
        axes.annotate(
            ", ".join(numbers),
            (ratio, accuracy),
            xytext=(6 if is_left else -6, -9 if accuracy > 0.5 else 4),
            textcoords="offset points",
            fontsize=7.5,
            color=COLOURS[1],
            ha="left" if is_left else "right",
        )
    axes.set_title(plain(shortened(problem.instance_id)), size=8.5, color=INK)
    style_axes(axes, x_label="", y_label="")
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlim(-0.02, 1.02)
    share_on_y(axes)


def learning_signal(run: RunFolder) -> Figure | None:
    """Learning signal of the update: a(1-a) within rounds, and the share of rounds that agree completely."""
    signal = by_step(run.metrics, "rounds/mean_a_1_minus_a")
    same = by_step(run.metrics, "rounds/all_same_share")
    if not signal or not same:
        return None
    figure = new_figure(height_in=2.7)
    left, right = figure.subplots(1, 2)
    target_line(left, 0.25)
    noisy_line(left, signal, colour=COLOURS[2], label="")
    noisy_line(right, same, colour=COLOURS[1], label="")
    style_axes(left, x_label="step", y_label="mean a(1-a) within a round")
    style_axes(right, x_label="step", y_label="rounds whose rollouts all agree")
    # The estimate of a small group exceeds 1/4 if the group is divided.
    left.set_ylim(0, max(0.27, 1.05 * max(signal.y)))
    share_on_y(right)
    step_axis(left)
    step_axis(right)
    return figure


def phase_seconds(run: RunFolder) -> Figure | None:
    """Seconds of each step by phase, and of the whole step."""
    names = phases(run.metrics)
    if not names:
        return None
    rows = [row for row in run.metrics if any(PHASE + name in row for name in names)]
    steps = [row["step"] for row in rows]
    seconds_by_phase = [np.array([row.get(PHASE + name, 0.0) for row in rows]) for name in names]
    stack = list(zip(names, seconds_by_phase, map(nth_colour, range(MAX_PHASES)), strict=False))
    if len(names) > MAX_PHASES:
        stack.append(("other", np.sum(seconds_by_phase[MAX_PHASES:], axis=0), GREY))
    figure, axes = new_chart()
    # One shape a phase, with both edges of each step's bar: a bar a step is slow.
    edges = np.add.outer(steps, [-0.5, 0.5]).ravel()
    below = np.zeros(len(edges))
    for name, seconds_S, colour in stack:
        above = below + np.repeat(seconds_S, 2)
        axes.fill_between(edges, below, above, color=colour, linewidth=0.4, label=plain(name))
        below = above
    total = by_step(run.metrics, PHASE + "step")
    if total:
        axes.plot(total.x, total.y, ".", color=INK, markersize=3, label="whole step")
    style_axes(axes, x_label="step", y_label="seconds")
    axes.set_ylim(bottom=0)
    step_axis(axes)
    legend_below(figure)
    return figure


FIGURES: dict[str, Callable[[RunFolder], Figure | None]] = {
    "accuracy": accuracy_against_tokens,
    "rounds": accuracy_per_round,
    "hints": hint_ratio,
    "curves": fitted_curves,
    "signal": learning_signal,
    "phases": phase_seconds,
}
"""Drawing function by figure name; the file is NAME.png."""


def draw_figures(run: RunFolder) -> dict[str, bytes]:
    """PNG bytes by name, for every figure that the run has data for."""
    figures = {name: draw(run) for name, draw in FIGURES.items()}
    return {name: png(figure) for name, figure in figures.items() if figure is not None}
