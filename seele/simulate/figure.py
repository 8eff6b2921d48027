"""The figure of a simulation: how close each controller keeps its problems to the best legal hint."""

import io
from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from seele.simulate.visits import Trace

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#6A51A3")
"""Okabe and Ito's palette, which readers with any colour vision can tell apart."""


def draw(traces: Mapping[str, Mapping[str, Trace]]) -> bytes:
    """Return a PNG: mean a(1 - a) by round, counted over visits, as a share of that of the best legal hint.

    Args:
        traces: Controller -> world -> trace.
    """
    figure = Figure(figsize=(7.2, 3.9), dpi=160, layout="constrained")
    axes = figure.subplots()
    for index, (name, by_world) in enumerate(traces.items()):
        used_VR = np.mean([t.worth_NVR.mean(axis=0) for t in by_world.values()], axis=0)
        best_V = np.mean([t.oracle_NV.mean(axis=0) for t in by_world.values()], axis=0)
        share = (used_VR / best_V[:, None]).ravel()
        axes.plot(
            range(1, len(share) + 1), share, marker="o", color=COLOURS[index % len(COLOURS)], label=name
        )
    axes.set_xlabel("round, counted over visits")
    axes.set_ylabel("share of the best legal hint's a(1 - a)")
    axes.set_ylim(0.0, 1.0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.legend(frameon=False, loc="lower right")
    image = io.BytesIO()
    figure.savefig(image, format="png", metadata={"Software": None})
    return image.getvalue()
