"""Problems and their hints as one HTML page: text is escaped, nothing is loaded from elsewhere."""

from collections.abc import Iterable, Iterator, Sequence

from seele.records import Instance
from seele.report.html_text import Markup, element, join, table
from seele.report.stylesheet import CSS

EXPLANATION = (
    "Each line of a problem is what one more step adds: the hint of a ratio is all lines down to it. Lines "
    "from the one on that states the answer are marked; the last step is never shown to the model."
)


def problem_page(
    title: str, instances: Sequence[Instance], header: Sequence[str], rows: Iterable[Sequence[str]]
) -> str:
    """The page's HTML.

    Args:
        title: What is shown, such as the file's name.
        instances: The problems to show.
        header: Columns of the table of statistics, the first two of them texts.
        rows: Its rows.
    """
    content = [
        element("h1", title),
        table(header, rows, numbers_from=2),
        element("p", EXPLANATION, class_="soft"),
        *map(_problem, instances),
    ]
    head = join(
        [
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("title", title),
            element("style", Markup(CSS)),
        ]
    )
    body = element("body", *content)
    return f"<!DOCTYPE html>\n{element('html', element('head', head), body, lang='en')}\n"


def hint_lines(instance: Instance) -> Iterator[tuple[float | None, str, bool]]:
    """For each step: the hint ratio that ends with it, or None if no hint may; its text; and whether hints
    from there on state the answer. The hint of nothing comes first.
    """
    ratios = {instance.num_hint_steps(ratio): ratio for ratio in instance.legal_hint_ratios}
    yield 0.0, "", False
    for number, step in enumerate(instance.steps, start=1):
        is_revealing = instance.revealed_at is not None and number >= instance.revealed_at
        yield ratios.get(number), step, is_revealing


def _problem(instance: Instance) -> Markup:
    level = f"level {instance.level}" if instance.level else ""
    lines = [
        element(
            "tr",
            element("td", "never" if ratio is None else f"{ratio:.3f}", class_="number"),
            element("td", element("pre", element("mark", text) if is_revealing else text), class_="text"),
        )
        for ratio, text, is_revealing in hint_lines(instance)
        if text
    ]
    header = element(
        "header",
        element("b", instance.instance_id),
        *(element("span", part) for part in (instance.data_source, level) if part),
        element("span", f"answer: {instance.answer}"),
    )
    question = element("pre", instance.question, class_="question")
    shown = (
        element("div", element("table", *lines), class_="scroll") if lines else element("p", "No solution.")
    )
    return element("div", header, question, shown, class_="example")
