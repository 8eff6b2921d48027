"""Scores as Markdown that also reads well as plain text, and pass@k over k as a table and as a figure.

The tables hold the papers' columns, and all details. ``seele_eval.estimates`` defines pass@k and the k of a
curve.
"""

import json
from collections.abc import Mapping, Sequence, Set
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from seele.maths.tables import markdown_table
from seele.report.charts import INK, legend_below, new_figure, nth_colour, plain, png, share_on_y, style_axes
from seele_eval.benchmarks import BENCHMARKS, GENERAL, LUFFY, MATH
from seele_eval.estimates import Estimate, attempts
from seele_eval.grading import BOX
from seele_eval.scores import Score

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
    return png(figure)


def _draw_panel(
    axes: Axes, curves: Mapping[str, PassCurve], colours: Mapping[str, str], *, labelled: Set[str]
) -> None:
    for name, curve in curves.items():
        ks, colour = list(curve), colours[name]
        low, high = zip(*(each.band for each in curve.values()), strict=True)
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
    """The values of k to label: the last, and those that leave room for the next label."""
    ordered = sorted(ks)
    return [k for k, after in pairwise(ordered) if 2 * after >= 3 * k] + ordered[-1:]


_ABSENT = "-"

Columns = Mapping[str, str]
"""Headings of a table's columns, by benchmark or average."""


def _columns(*groups: tuple[str, Sequence[str], str]) -> Columns:
    columns: dict[str, str] = {}
    for average, members, head in groups:
        columns |= {name: BENCHMARKS[name].title for name in members} | {average: head}
    return columns


SEELE_COLUMNS = _columns(("math", MATH, "Avg.(Math)"), ("general", GENERAL, "Avg.(Gen)"))
LUFFY_COLUMNS = _columns(("luffy", LUFFY, "Avg.(LUFFY)"))


def results_table(
    rows: Sequence[tuple[str, Mapping[str, float]]],
    *,
    partial: Set[str] = frozenset(),
    columns: Columns = SEELE_COLUMNS,
) -> str:
    """Accuracies in percent, in the column order of a README.

    Args:
        rows: Each model's name, and its accuracies and averages by name. Missing values are marked.
        partial: Names that were measured on only some problems, which are marked.
        columns: ``SEELE_COLUMNS`` or ``LUFFY_COLUMNS``.
    """
    cells = [
        {"Model": name}
        | {
            head: f"{100 * values[key]:.1f}{'*' * (key in partial)}" if key in values else _ABSENT
            for key, head in columns.items()
        }
        for name, values in rows
    ]
    note = "\n\\* not measured on all problems\n" if not partial.isdisjoint(columns) else ""
    return table(cells, num_names=1) + note


def details_table(scores: Sequence[Score]) -> str:
    """One row per benchmark and temperature, with accuracies and their intervals."""
    may_be_unboxed = any(score.answers != BOX for score in scores)
    return table([_details(score, may_be_unboxed=may_be_unboxed) for score in scores], num_names=2)


def column_tables(score: Score) -> str:
    """A section of Markdown for each column that accuracies are split by; empty without such columns."""
    return "\n".join(
        f"## {score.benchmark} by {column} ({decoding(score)})\n\n"
        + table(
            [
                {
                    "value": part.value,
                    "problems": str(part.problems),
                    f"avg@{score.samples} % (95 % interval)": percent(part.accuracy),
                }
                for part in parts
            ],
            num_names=1,
        )
        for column, parts in score.by_column.items()
    )


def percent(estimate: Estimate) -> str:
    """``41.2 (38.0 to 44.5)``; ``41.2 (-)`` without an interval."""
    return _with_interval(estimate, sign="")


def difference(estimate: Estimate) -> str:
    """``+1.2 (-0.4 to +2.8)``; ``+1.2 (-)`` without an interval."""
    return _with_interval(estimate, sign="+")


def _with_interval(estimate: Estimate, *, sign: str) -> str:
    ends = [f"{100 * end:{sign}.1f}" for end in estimate.interval_95 or ()]
    return f"{100 * estimate.value:{sign}.1f} ({' to '.join(ends) or _ABSENT})"


def decoding(score: Score) -> str:
    """Describe how samples were drawn."""
    return f"T={score.temperature:g}, {score.samples} samples" if score.temperature else "greedy"


def conditions_list(conditions: Mapping[str, Any]) -> str:
    """The conditions as a section of Markdown."""
    return "\n## Conditions\n\n" + "".join(
        f"- {name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in conditions.items()
    )


def table(rows: Sequence[Mapping[str, str]], *, num_names: int) -> str:
    """Return the rows as a table under their keys; names are aligned left, numbers right."""
    heads = list(rows[0])
    cells = [[row[head] for head in heads] for row in rows]
    return markdown_table(heads, cells, num_names=num_names, is_padded=True)


def _details(score: Score, *, may_be_unboxed: bool) -> dict[str, str]:
    several = score.samples > 1
    return {
        "benchmark": score.benchmark,
        "decoding": decoding(score),
        "problems": str(score.problems),
        "avg@k % (95 % interval)": percent(score.estimates[f"avg@{score.samples}"]),
        "pass@k %": percent(score.estimates[f"pass@{score.samples}"]) if several else _ABSENT,
        "maj@k %": percent(votes) if (votes := score.estimates.get(f"maj@{score.samples}")) else _ABSENT,
        "tokens": f"{score.mean_response_tokens:.1f}",
        "truncated %": f"{100 * score.truncated_share:.1f}",
        "ungraded %": f"{100 * score.ungraded_share:.1f}",
        "no answer %": _ABSENT if score.no_answer_share is None else f"{100 * score.no_answer_share:.1f}",
    } | ({"without box %": f"{100 * score.unboxed_share:.1f}"} if may_be_unboxed else {})
