"""Pages from the templates of this package. Every value that a template is given is escaped."""

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def render_template(name: str, **values: Any) -> str:
    """The HTML of ``templates/NAME`` for these values."""
    return _environment().get_template(name).render(values)


@cache
def _environment() -> "Environment":
    # Commands that write no page should not wait for this import.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("seele.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
