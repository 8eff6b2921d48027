"""Problems and their hints as one HTML page: text is escaped, nothing is loaded from elsewhere."""

from collections.abc import Iterable, Iterator, Sequence

from seele.records import Instance
from seele.report.templating import render_template


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
    return render_template(
        "problems.html", heading=title, header=header, rows=rows, problems=instances, hint_lines=hint_lines
    )


def hint_lines(instance: Instance) -> Iterator[tuple[float | None, str, bool]]:
    """For each step: the hint ratio that ends with it, or None if no hint may; its text; and whether hints
    from there on state the answer. The empty hint comes first.
    """
    ratios = {instance.num_hint_steps(ratio): ratio for ratio in instance.legal_hint_ratios}
    yield 0.0, "", False
    for number, step in enumerate(instance.steps, start=1):
        is_revealing = instance.revealed_at is not None and number >= instance.revealed_at
        yield ratios.get(number), step, is_revealing
