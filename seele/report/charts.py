"""How the report's charts look: colours, axes, legends. Draws series without knowing what they mean."""

import io

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from seele.report.series import Series, moving_mean

# Okabe and Ito's palette, which readers with any colour vision can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#6A51A3")
GREY = "#8a8f98"
INK = "#24292f"

MAX_LEGEND_COLUMNS = 5


def new_figure(*, height_in: float = 3.9) -> Figure:
    """An empty figure whose parts do not overlap."""
    return Figure(figsize=(7.2, height_in), dpi=160, layout="constrained")


def png(figure: Figure) -> bytes:
    """The figure as a PNG, which does not name matplotlib's version."""
    image = io.BytesIO()
    # Agg draws without a display; pyplot would look for one.
    figure.savefig(image, format="png", metadata={"Software": None})
    return image.getvalue()


def new_chart() -> tuple[Figure, Axes]:
    """A figure with one chart."""
    figure = new_figure()
    return figure, figure.subplots()


def style_axes(axes: Axes, *, x_label: str, y_label: str) -> None:
    """Set the labels, and keep grid lines behind the data."""
    axes.set_xlabel(x_label, size=9.5, color=INK)
    axes.set_ylabel(y_label, size=9.5, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.grid(axis="y", color=GREY, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.margins(x=0.02)
    axes.tick_params(labelsize=8.5, colors=INK, length=3)


def share_on_y(axes: Axes) -> None:
    """Let the vertical axis span all of [0, 1], so that charts can be compared by eye."""
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    # A little more than [0, 1]: a line along the edge would be cut in half.
    axes.set_ylim(-0.02, 1.02)


def step_axis(axes: Axes) -> None:
    """Mark only whole numbers on the horizontal axis, which shows steps."""
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))


def target_line(axes: Axes, accuracy: float, *, label: str = "") -> None:
    """Draw a dashed line at the accuracy that a quantity should approach."""
    axes.axhline(accuracy, color=INK, linewidth=1, linestyle=(0, (4, 3)), label=label)


def legend_below(figure: Figure) -> None:
    """Place one legend below the figure, where it hides no data, with as many columns as fit its width."""
    for num_columns in range(MAX_LEGEND_COLUMNS, 0, -1):
        legend = figure.legend(
            loc="outside lower center", ncols=num_columns, frameon=False, fontsize=8.5, labelcolor=INK
        )
        if num_columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()


def noisy_line(axes: Axes, series: Series, *, colour: str, label: str) -> None:
    """Draw a series, pale, under its moving mean over a tenth of its steps."""
    window = max(1, len(series.x) // 10)
    if window > 1:
        axes.plot(series.x, series.y, color=colour, alpha=0.25, linewidth=0.8)
    smooth = moving_mean(series, window=window)
    thick_line(axes, smooth, colour=colour, label=label)


def thick_line(axes: Axes, series: Series, *, colour: str, label: str) -> None:
    """Draw a series as it is, and a single step, of which a line would be invisible, as a point."""
    axes.plot(series.x, series.y, "." if len(series.x) == 1 else "-", color=colour, linewidth=2, label=label)


def nth_colour(index: int) -> str:
    """Return a colour for each index; colours repeat."""
    return COLOURS[index % len(COLOURS)]


def plain(text: str) -> str:
    """Escape ``text`` so that matplotlib does not read it as mathematics."""
    return text.replace("$", r"\$")


def shortened(text: str, *, limit: int = 30) -> str:
    """Shorten ``text`` to ``limit`` characters by cutting out the middle."""
    return text if len(text) <= limit else f"{text[: limit // 2 - 1]}…{text[-(limit // 2 - 1) :]}"
