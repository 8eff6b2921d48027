"""``seele data inspect`` and ``milestones``: show a file's hints, add milestones, and print statistics."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seele.cli.outputs import writable_file

if TYPE_CHECKING:
    from rich.console import Console

    from seele.data.statistics import ProblemStatistics
    from seele.records import Instance

HEADER = (
    *("source", "level", "problems", "no hint possible", "steps (median)", "steps (most)"),
    *("question (chars)", "solution (chars)", "longest (chars)", "step (chars)"),
    *("answer before the last step", "hints stating it", "hints mentioning it"),
)

GROUPS_SIDE_BY_SIDE = 4


def inspect_problems(
    file: Annotated[Path, typer.Argument(help="A parquet file of problems.", show_default=False)],
    num: Annotated[int, typer.Option(min=0, help="Number of problems, from the start.")] = 3,
    html: Annotated[
        Path | None,
        typer.Option(
            help="Write the problems as one HTML page.",
            dir_okay=False,
            show_default="the terminal",
            callback=writable_file,
        ),
    ] = None,
    stats: Annotated[
        bool, typer.Option("--stats", help="Print statistics by source and level; the page always has them.")
    ] = False,
) -> None:
    """Show some problems with every hint that may be given for them."""
    from rich.console import Console
    from rich.text import Text

    from seele.data.statistics import describe_problems
    from seele.data.steps.leakage import with_revelation
    from seele.data.storage.files import check_output, write_atomically
    from seele.data.storage.schema import count_unhintable, read_problems
    from seele.report.page import problem_page

    if html is not None:
        check_output(file, html, option="--html")
    instances = read_problems(file)
    shown = [with_revelation(instance) for instance in instances[:num]]
    summary = f"{file}: {len(instances)} problems, {count_unhintable(instances)} without a possible hint"
    groups = describe_problems(instances) if stats or html else []
    if html is not None:
        write_atomically(html, problem_page(summary, shown, HEADER, map(_cells, groups)))
        typer.echo(f"{html}: {len(shown)} of {len(instances)} problems")
        return
    console = Console()
    console.print(Text(_printable(summary)))
    if stats:
        _print_statistics(console, groups)
    for instance in shown:
        _print_problem(console, instance)


def milestones_command(
    file: Annotated[Path, typer.Argument(help="A parquet file of problems.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Parquet file to write.", dir_okay=False, show_default="FILE itself", callback=writable_file
        ),
    ] = None,
) -> None:
    """Add the milestones of the worked solutions, and print how many there are.

    Milestones that FILE holds already are kept. A manifest beside FILE gets its new checksum.
    """
    from seele.data.prepare import update_checksum
    from seele.data.storage.files import file_sha256
    from seele.data.storage.schema import read_problems, write_milestones
    from seele.reward.milestones import coverage, milestones_of

    instances = read_problems(file)
    found = [milestones_of(each) for each in instances]
    kept = sum(each.milestones is not None for each in instances)
    before = file_sha256(file)
    write_milestones(file, out or file, found)
    update_checksum(out or file, before=before)
    counts = coverage(replace(each, milestones=own) for each, own in zip(instances, found, strict=True))
    before_this = f"; {kept} problems had theirs, which are kept" if kept else ""
    typer.echo(f"{out or file}: {counts.problems} problems, {sum(map(len, found))} milestones{before_this}")
    for count, whole, what in (
        (counts.holding, counts.steps, "steps before the last have a milestone"),
        (counts.stating, counts.steps, "state a value"),
        (counts.new, counts.steps, "state one that is neither in the question nor in an earlier step"),
        (counts.with_two, counts.problems, "problems have at least two milestones, the answer among them"),
    ):
        typer.echo(f"  {count / whole if whole else 0.0:6.1%} of {whole}: {what}")


def _cells(group: "ProblemStatistics") -> tuple[str, ...]:
    return (
        *(group.data_source, group.level, f"{group.problems:,}", f"{group.unhintable_share:.1%}"),
        *(f"{group.steps_median:g}", str(group.steps_max)),
        *(f"{group.question_chars_median:,.0f}", f"{group.solution_chars_median:,.0f}"),
        *(f"{group.solution_chars_max:,}", f"{group.step_chars_median:,.0f}"),
        *(f"{group.stated_early_share:.1%}", f"{group.revealing_share:.1%}", f"{group.mentioning_share:.1%}"),
    )


def _print_statistics(console: "Console", groups: Iterable["ProblemStatistics"]) -> None:
    from rich.table import Table
    from rich.text import Text

    # Transposed, because thirteen columns do not fit a terminal but a few groups do.
    columns = list(map(_cells, groups))
    for first in range(0, len(columns), GROUPS_SIDE_BY_SIDE):
        table = Table(show_header=False)
        for line in zip(HEADER, *columns[first : first + GROUPS_SIDE_BY_SIDE], strict=True):
            table.add_row(*(Text(_printable(cell)) for cell in line))
        console.print(table)


def _print_problem(console: "Console", instance: "Instance") -> None:
    from rich.table import Table
    from rich.text import Text

    from seele.report.page import hint_lines, tier_lines

    table = Table(
        title=Text(_printable(instance.instance_id)),
        title_justify="left",
        caption=Text(_printable(f"answer: {instance.answer}")),
    )
    table.add_column("hint ratio", justify="right")
    table.add_column("shown to the model, with the lines above")
    table.add_column("states the answer")
    table.add_row("", Text(_printable(instance.question)), "")
    for ratio, step, is_revealing in hint_lines(instance):
        table.add_row(
            "never" if ratio is None else f"{ratio:.3f}",
            Text(_printable(step.rstrip()) or "no hint"),
            "yes" if is_revealing else "",
        )
    if instance.tiers:
        table.add_section()
        table.add_row("", "tiers, each shown by itself (seele.hints.kind=tiers)", "")
    for ratio, tier in tier_lines(instance):
        table.add_row(f"{ratio:.3f}", Text(_printable(tier)), "")
    console.print(table)


def _printable(text: str) -> str:
    """Return ``text`` with control characters escaped, so that it cannot control the terminal."""
    return "".join(
        character if character.isprintable() or character == "\n" else f"\\x{ord(character):02x}"
        for character in text
    )
