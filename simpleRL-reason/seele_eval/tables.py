"""Scores as Markdown that also reads well as plain text: the papers' columns, and all details."""

import json
from collections.abc import Mapping, Sequence, Set
from typing import Any

from seele_eval.benchmarks import BENCHMARKS, GENERAL, LUFFY, MATH
from seele_eval.estimates import Estimate
from seele_eval.grading import BOX
from seele_eval.scores import Score

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
        partial: Names that were measured on some problems only, which are marked.
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
                    "value": _in_cell(part.value),
                    "problems": str(part.problems),
                    f"avg@{score.samples} % (95 % interval)": percent(part.accuracy),
                }
                for part in parts
            ],
            num_names=1,
        )
        for column, parts in score.by_column.items()
    )


def _in_cell(text: str) -> str:
    """Keep the text on one line and escape the ends of cells."""
    return " ".join(text.split()).replace("|", "\\|")


def percent(estimate: Estimate) -> str:
    """``41.2 (38.0 to 44.5)``."""
    low, high = estimate.interval_95
    return f"{100 * estimate.value:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def difference(estimate: Estimate) -> str:
    """``+1.2 (-0.4 to +2.8)``."""
    low, high = estimate.interval_95
    return f"{100 * estimate.value:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


def decoding(score: Score) -> str:
    """Describe how samples were drawn."""
    return f"T={score.temperature:g}, {score.samples} samples" if score.temperature else "greedy"


def conditions_list(conditions: Mapping[str, Any]) -> str:
    """The conditions as a section of Markdown."""
    return "\n## Conditions\n\n" + "".join(
        f"- {name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in conditions.items()
    )


def table(rows: Sequence[Mapping[str, str]], *, num_names: int) -> str:
    """The rows under their keys; names are aligned left, numbers right."""
    columns = [(head, *(row[head] for row in rows)) for head in rows[0]]
    padded = []
    for index, column in enumerate(columns):
        width, is_name = max(2, *map(len, column)), index < num_names
        rule = f":{'-' * (width - 1)}" if is_name else f"{'-' * (width - 1)}:"
        cells = [cell.ljust(width) if is_name else cell.rjust(width) for cell in column]
        padded.append([cells[0], rule, *cells[1:]])
    return "".join(f"| {' | '.join(line)} |\n" for line in zip(*padded, strict=True))


def _details(score: Score, *, may_be_unboxed: bool) -> dict[str, str]:
    several = score.samples > 1
    return {
        "benchmark": score.benchmark,
        "decoding": decoding(score),
        "problems": str(score.problems),
        "avg@k % (95 % interval)": percent(score.estimates[f"avg@{score.samples}"]),
        "pass@k %": percent(score.estimates[f"pass@{score.samples}"]) if several else _ABSENT,
        "maj@k %": percent(score.estimates[f"maj@{score.samples}"]) if several else _ABSENT,
        "tokens": f"{score.mean_response_tokens:.1f}",
        "truncated %": f"{100 * score.truncated_share:.1f}",
        "no answer %": f"{100 * score.no_answer_share:.1f}",
    } | ({"without box %": f"{100 * score.unboxed_share:.1f}"} if may_be_unboxed else {})
