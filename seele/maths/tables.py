"""Markdown tables of figures."""

from collections.abc import Iterable, Sequence


def markdown_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, num_names: int = 1, is_padded: bool = False
) -> str:
    """Return a table with its first ``num_names`` columns aligned left and the others right.

    Cells are plain text: ``|`` is escaped, and white space, such as a line break, becomes one space.

    Args:
        heads: The first line.
        rows: The other lines, of as many cells.
        num_names: Columns that are aligned left.
        is_padded: True if columns have the same width in every line, to be read as plain text.
    """
    lines = [[_one_line(cell) for cell in line] for line in (heads, *rows)]
    if is_padded:
        return "".join(map(_line, _padded(lines, num_names)))
    rule = "|" + "---|" * num_names + "---:|" * (len(heads) - num_names) + "\n"
    return "".join((_line(lines[0]), rule, *map(_line, lines[1:])))


def _padded(lines: Sequence[Sequence[str]], num_names: int) -> Iterable[Sequence[str]]:
    """Pad every cell to its column's width, and insert the rule."""
    columns = []
    for index, column in enumerate(zip(*lines, strict=True)):
        width, is_name = max(2, *map(len, column)), index < num_names
        rule = f":{'-' * (width - 1)}" if is_name else f"{'-' * (width - 1)}:"
        cells = [cell.ljust(width) if is_name else cell.rjust(width) for cell in column]
        columns.append([cells[0], rule, *cells[1:]])
    return zip(*columns, strict=True)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
