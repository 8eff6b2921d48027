"""The comparison as one HTML page; figures stand beside it as PNG files."""

from seele.report.comparison.costs import COSTS
from seele.report.comparison.results import Comparison
from seele.report.comparison.tables import result_tables, run_table, title
from seele.report.templating import render_template


def render_page(comparison: Comparison) -> str:
    """The page's HTML; it refers to ``accuracy_COST.png`` for every cost of the comparison."""
    tables = {split: result_tables(comparison, split) for split in comparison.results}
    return render_template(
        "comparison.html",
        heading=title(comparison),
        notes=comparison.notes,
        costs={cost: COSTS[cost].title for cost in comparison.costs},
        sections=[*tables.items(), ("Runs", [run_table(comparison)])],
    )
