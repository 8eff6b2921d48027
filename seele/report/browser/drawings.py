"""Coordinates of the page's drawings, in a box of 1000 x 200 (timeline) or 100 x 100 (curve). Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from seele.records import AccuracyCurve
from seele.report.run_folder import Metrics
from seele.report.series import Series, courses

MAX_POINTS = 400
SPLIT_COLOURS = 4
"""Colours of validation splits in ``view.css``; they repeat."""
WIDTH, HEIGHT = 1000.0, 200.0


@dataclass(frozen=True)
class Line:
    """A line of the timeline."""

    name: str
    kind: str
    """Class of its colour: ``hint``, ``first``, ``late``, or ``unhinted-N`` for a validation split."""
    points: str
    """``x,y x,y ...`` as in SVG."""
    value: float | None
    """Its value in the step that is shown, in [0, 1]; None if it has none there."""
    dots: str = ""
    """An SVG path with a dot of no length per validation, or on a single point, which makes no line."""


@dataclass(frozen=True)
class Timeline:
    """Hints and accuracies over the steps of a run."""

    lines: tuple[Line, ...]
    first_step: int
    last_step: int

    def x(self, step: float) -> float:
        """Return the position of a step, in [0, WIDTH]."""
        share = (step - self.first_step) / max(1, self.last_step - self.first_step)
        return WIDTH * min(1.0, max(0.0, share))


def draw_timeline(
    metrics: Sequence[Metrics], *, files: Sequence[str] = (), step: int | None = None
) -> Timeline | None:
    """The timeline of a run's steps; None if no step has been logged.

    Args:
        metrics: The logged steps.
        files: The run's validation files, as in ``RunFolder.validation_files``: the order of the splits.
        step: The step that is shown; None for no values.
    """
    if not metrics:
        return None
    empty = Timeline((), int(metrics[0]["step"]), int(metrics[-1]["step"]))
    lines: list[Line] = []
    num_splits = 0
    for kind, name, series in courses(metrics, files):
        if series:
            if kind == "unhinted":
                kind, name = f"unhinted-{num_splits % SPLIT_COLOURS}", f"{name}, no hint"
                num_splits += 1
            value = next((y for x, y in zip(series.x, series.y, strict=True) if x == step), None)
            points = [f"{empty.x(x):.1f},{HEIGHT * (1 - y):.1f}" for x, y in _thinned(series)]
            is_dotted = kind.startswith("unhinted") or len(points) == 1
            dots = "".join(f"M{point}h0" for point in points) if is_dotted else ""
            lines.append(Line(name, kind, " ".join(points), value, dots))
    return Timeline(tuple(lines), empty.first_step, empty.last_step)


def _thinned(series: Series) -> Iterator[tuple[float, float]]:
    """Yield at most MAX_POINTS points, each the mean of neighbouring points."""
    stride = -(-len(series.x) // MAX_POINTS)
    for begin in range(0, len(series.x), stride):
        part = slice(begin, begin + stride)
        yield fmean(series.x[part]), min(1.0, max(0.0, fmean(series.y[part])))


@dataclass(frozen=True)
class Point:
    """A round in a problem's curve."""

    number: int
    hint_ratio: float
    accuracy: float


@dataclass(frozen=True)
class FittedCurve:
    """The controller's curve of a problem, and the rounds that it is based on."""

    line: str
    """Hints from left to right and accuracies upwards, as in SVG, in a box of 100 x 100."""
    points: tuple[Point, ...]


def draw_curve(curve: AccuracyCurve) -> FittedCurve:
    """The drawing of a curve."""
    line = (
        f"{100 * x:.1f},{100 * (1 - y):.1f}" for x, y in zip(curve.hint_ratios, curve.accuracies, strict=True)
    )
    return FittedCurve(
        " ".join(line), tuple(Point(number, *seen) for number, seen in enumerate(curve.rounds))
    )
