"""Turn a comparison into its files as bytes, which the caller writes; figures go beside the page."""

import json

from seele.report.comparison.curves import COSTS
from seele.report.comparison.figures import draw_figures
from seele.report.comparison.results import Comparison
from seele.report.comparison.tables import (
    PRACTICE_TITLE,
    markdown,
    practice_tables,
    result_tables,
    run_table,
    summarise,
    title,
)
from seele.report.comparison.verdicts import verdicts
from seele.report.page import render_template


def build_files(comparison: Comparison) -> dict[str, bytes]:
    """Return files by name: figures, numbers, tables and, last, ``index.html`` that refers to the figures."""
    return {
        **{f"accuracy_{cost}.png": image for cost, image in draw_figures(comparison).items()},
        "summary.json": summary_text(comparison).encode(),
        "comparison.md": markdown(comparison).encode(),
        "index.html": render_page(comparison).encode(),
    }


def summary_text(comparison: Comparison) -> str:
    """Text of ``summary.json``: the same bytes for the same runs and options."""
    return json.dumps(summarise(comparison), indent=2, ensure_ascii=False) + "\n"


def render_page(comparison: Comparison) -> str:
    """The page's HTML; it refers to ``accuracy_COST.png`` for every cost of the comparison."""
    tables = {split: result_tables(comparison, split) for split in comparison.results}
    if practised := practice_tables(comparison):
        tables[PRACTICE_TITLE] = practised
    return render_template(
        "comparison.html",
        heading=title(comparison),
        verdicts=verdicts(comparison),
        notes=comparison.notes,
        costs={cost: COSTS[cost].title for cost in comparison.costs},
        sections=[*tables.items(), ("Runs", [run_table(comparison)])],
    )
