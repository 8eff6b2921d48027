"""The figure of a simulation: how close each controller keeps its problems to the best legal hint."""

from collections.abc import Mapping

import numpy as np

from seele.report.charts import new_chart, nth_colour, png, step_axis, style_axes
from seele.simulate.visits import Trace


def draw(traces: Mapping[str, Mapping[str, Trace]]) -> bytes:
    """Return a PNG: mean a(1 - a) by round, counted over visits, as a share of that of the best legal hint.

    Args:
        traces: Controller -> world -> trace.
    """
    figure, axes = new_chart()
    for index, (name, by_world) in enumerate(traces.items()):
        used_VR = np.mean([t.worth_NVR.mean(axis=0) for t in by_world.values()], axis=0)
        best_V = np.mean([t.oracle_NV.mean(axis=0) for t in by_world.values()], axis=0)
        share = (used_VR / best_V[:, None]).ravel()
        axes.plot(range(1, len(share) + 1), share, marker="o", color=nth_colour(index), label=name)
    style_axes(axes, x_label="round, counted over visits", y_label="share of the best legal hint's a(1 - a)")
    axes.set_ylim(0.0, 1.0)
    step_axis(axes)
    axes.legend(frameon=False, loc="lower right")
    return png(figure)
