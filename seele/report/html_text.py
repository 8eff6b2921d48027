"""HTML elements as text. What is not an element already is escaped, so that no caller has to remember it."""

import html
from collections.abc import Iterable, Sequence

VOID = frozenset({"img", "meta", "link"})
"""Elements without content and end tag."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(tag: str, *content: object, **attributes: str) -> Markup:
    """``<tag attributes>content</tag>``. The underscore at the end of ``class_`` is dropped."""
    opening = "".join(f' {name.rstrip("_")}="{html.escape(value)}"' for name, value in attributes.items())
    inner = join(content)
    return Markup(f"<{tag}{opening}>" if tag in VOID else f"<{tag}{opening}>{inner}</{tag}>")


def join(parts: Iterable[object]) -> Markup:
    """The parts one after the other, escaped where they are no markup."""
    return Markup("".join(part if isinstance(part, Markup) else html.escape(str(part)) for part in parts))


def table(header: Sequence[object], rows: Iterable[Sequence[object]], *, numbers_from: int = 1) -> Markup:
    """A table; columns from ``numbers_from`` on are set flush right."""
    head = element(
        "tr", *(element("th", cell, class_=_class(i, numbers_from)) for i, cell in enumerate(header))
    )
    body = [
        element("tr", *(element("td", cell, class_=_class(i, numbers_from)) for i, cell in enumerate(row)))
        for row in rows
    ]
    return element("div", element("table", element("thead", head), element("tbody", *body)), class_="scroll")


def _class(column: int, numbers_from: int) -> str:
    return "number" if column >= numbers_from else "text"
