"""Markdown tables of figures."""

from collections.abc import Iterable, Sequence


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, num_names: int = 1) -> str:
    """A table with its first ``num_names`` columns aligned left and the others right."""
    rule = "|" + "---|" * num_names + "---:|" * (len(heads) - num_names)
    return "".join(f"{line}\n" for line in (_line(heads), rule, *map(_line, rows)))


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
