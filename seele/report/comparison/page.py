"""The comparison as one HTML page; figures stand beside it as PNG files. Layout and wording only."""

from seele.report.comparison.costs import COSTS
from seele.report.comparison.results import Comparison
from seele.report.comparison.tables import Table, result_tables, run_table, title
from seele.report.html_text import Markup, element, join, table
from seele.report.stylesheet import CSS

CAPTION = (
    "Accuracy without hints over {cost}. Lines: mean over seeds, as far as all seeds of the arm go. Bands: "
    "bootstrap 95 % interval over seeds, or smallest to largest where the legend says so. Dashed: the "
    "budget, which every run reached."
)


def render_page(comparison: Comparison) -> str:
    """The page's HTML; it refers to ``accuracy_COST.png`` for every cost of the comparison."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title(comparison)),
        element("style", Markup(CSS)),
    )
    body = element(
        "body",
        element("h1", title(comparison)),
        _notes(comparison),
        element("section", element("h2", "Figures"), *(_figure(cost) for cost in comparison.costs)),
        *(_section(split, *result_tables(comparison, split)) for split in comparison.results),
        _section("Runs", run_table(comparison)),
    )
    return f'<!doctype html>\n<html lang="en">{head}{body}</html>\n'


def _notes(comparison: Comparison) -> Markup:
    if not comparison.notes:
        return Markup()
    notes = element("ul", *(element("li", note) for note in comparison.notes))
    return element("div", notes, class_="notes")


def _figure(cost: str) -> Markup:
    image = element("img", src=f"accuracy_{cost}.png", alt=f"figure: accuracy, {cost}", loading="lazy")
    return element("figure", image, element("figcaption", CAPTION.format(cost=COSTS[cost].title)))


def _section(heading: str, *parts: Table) -> Markup:
    return element("section", element("h2", heading), *(_table(part) for part in parts))


def _table(part: Table) -> Markup:
    rows = table(part.heads, part.rows, numbers_from=part.num_names)
    return join([element("h3", part.title), rows, element("p", part.explanation, class_="soft")])
