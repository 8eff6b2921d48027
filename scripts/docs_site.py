"""Hooks of mkdocs.yml: the front page from README.md, and the reference of settings and commands from code.

Links to files outside docs/ become their paths, as code, because the site has no page for them.
"""

import ast
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from typer.main import get_command

ROOT = Path(__file__).parents[1]
SETTINGS = ROOT / "seele" / "config"
ROOT_CLASS = "SeeleConfig"
SAME = {
    "seele check": "seele_verl.check",
    "seele eval": "seele_eval.run",
    "seele merge": "seele_verl.merge",
    "seele train": "seele_verl.train",
}
"""Commands of ``seele`` that are modules as well."""
_COMMANDS = re.compile(r"^```bash\n(.*?)^```$", re.M | re.S)
_TABLE_OF_ROWS = re.compile(r"<table>\s*<thead>\s*<tr>\s*<th[^>]*></th>.*?</table>", re.S)
_FIRST_CELL = re.compile(r"(<tr>\s*)<td[^>]*>(.*?)</td>", re.S)
_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<path>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Render blocks of formulas (```math, as on GitHub) as MathML, which needs no script."""
    fences = [{"name": "math", "class": "math", "format": formula}]
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": fences}
    return config


def formula(source: str, *_: Any, **__: Any) -> str:
    """Return LaTeX as MathML.

    Raises:
        SuperFencesException: If the converter cannot read it; other exceptions would leave it as code.
    """
    from latex2mathml.converter import convert
    from pymdownx.superfences import SuperFencesException

    try:
        return f'<div class="formula" tabindex="0">{convert(source, display="block")}</div>'
    except Exception as error:
        raise SuperFencesException(f"formula: {error!r}: {source}") from error


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    pages = {
        "index.md": front_page(),
        "reference/settings.md": settings_page(),
        "reference/commands.md": commands_page(),
    }
    for page in sorted((ROOT / "docs" / "tutorials").glob("[0-9]*.md")):
        pages[notebook_of(f"tutorials/{page.name}")] = notebook(page.read_text())
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Replace links out of docs/ with paths, and link the notebook of a tutorial below its title."""
    if book := notebook_of(page.file.src_uri):
        title, rest = markdown.split("\n", 1)
        markdown = f"{title}\n\n[This page as a notebook]({Path(book).name})\n{rest}"
    here = (ROOT / "docs" / page.file.src_uri).parent

    def shown(link: re.Match[str]) -> str:
        target = (here / link["path"]).resolve()
        if target.is_relative_to(ROOT / "docs") or not target.exists():
            return link[0]
        return f"`{target.relative_to(ROOT)}`"

    return _LINK.sub(shown, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Mark the first column of a table as headers of its rows if it has no header of its own."""
    return _TABLE_OF_ROWS.sub(lambda table: _FIRST_CELL.sub(r'\1<th scope="row">\2</th>', table[0]), html)


def on_post_page(output: str, **_: Any) -> str:
    """Name the theme's search for screen readers."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')


def notebook_of(page: str) -> str:
    """Return the path of a tutorial's notebook; "" for other pages."""
    return re.sub(r"\.md$", ".ipynb", page) if re.match(r"tutorials/\d", page) else ""


def notebook(page: str) -> str:
    """Return a tutorial as a Jupyter notebook, with its commands as shell cells."""
    cells: list[dict[str, Any]] = []
    for number, part in enumerate(_COMMANDS.split(page)):
        if number % 2:
            of_kind = {"cell_type": "code", "execution_count": None, "outputs": []}
            part = f"%%bash\n{part}"
        else:
            of_kind = {"cell_type": "markdown"}
        if part.strip():
            lines = part.strip().splitlines(keepends=True)
            cells.append({**of_kind, "id": f"cell-{number}", "metadata": {}, "source": lines})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    book = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


def front_page() -> str:
    """Return README.md with its links seen from docs/."""

    def seen(link: re.Match[str]) -> str:
        path = link["path"]
        if path.startswith("docs/"):
            return f"[{link['text']}]({path.removeprefix('docs/')}{link['anchor'] or ''})"
        return f"[{link['text']}](../{path})"

    return _LINK.sub(seen, (ROOT / "README.md").read_text())


def settings_page() -> str:
    """Every setting of the ``seele:`` block with its type, default and docstring."""
    classes = {
        node.name: node
        for file in sorted(SETTINGS.glob("*.py"))
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.ClassDef)
    }
    lines = [
        "# Settings",
        "",
        "SEELE's own settings, from `seele/config/`; verl's settings keep verl's names.",
        "",
    ]
    lines += _section(classes, ROOT_CLASS, "seele")
    return "\n".join(lines) + "\n"


def _section(classes: dict[str, ast.ClassDef], name: str, key: str) -> Iterator[str]:
    yield from (f"## `{key}`", "", inspect.cleandoc(ast.get_docstring(classes[name]) or ""), "")
    deeper = []
    for field, about in _fields(classes, name):
        kind = ast.unparse(field.annotation)
        path = f"{key}.{field.target.id}"  # type: ignore[union-attr]
        if kind in classes:
            deeper.append((kind, path))
            continue
        deeper += [(word, f"{path}.NAME") for word in re.findall(r"\w+", kind) if word in classes]
        default = "" if field.value is None else f" = `{ast.unparse(field.value)}`"
        yield from (f"### `{path}`", "", f"`{kind}`{default}", "", about, "")
    for inner, path in deeper:
        yield from _section(classes, inner, path)


def _fields(classes: dict[str, ast.ClassDef], name: str) -> Iterator[tuple[ast.AnnAssign, str]]:
    """Fields and their docstrings, those of base classes first."""
    node = classes[name]
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in classes:
            yield from _fields(classes, base.id)
    for field, after in zip(node.body, [*node.body[1:], ast.Pass()], strict=True):
        if isinstance(field, ast.AnnAssign):
            has_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            yield field, inspect.cleandoc(after.value.value) if has_text else ""


def commands_page() -> str:
    """The help of every command of ``seele``, and of the tools ``python -m ...``."""
    sys.path.insert(0, str(ROOT))
    from seele.cli.main import app

    helper = [sys.executable, str(ROOT / "scripts" / "docs_help.py")]
    helps: dict[str, str] = json.loads(subprocess.run(helper, stdout=subprocess.PIPE, check=True).stdout)
    described = dict(_commands(get_command(app), "seele"))
    lines = ["# Commands", ""]
    for path in sorted({*described, *helps}, key=lambda path: (path.startswith("python"), path)):
        lines += [f"## `{path}`", ""]
        if path in described:
            lines += [inspect.cleandoc(described[path].help or ""), ""]
            lines += [*map(_parameter, described[path].params), ""]
        if path in SAME:
            lines += [f"`python -m {SAME[path]}` is the same command.", ""]
        if path in helps:
            lines += ["```text", helps[path].rstrip(), "```", ""]
        if path in ("seele check", "seele train"):
            lines += [
                "Settings: [SEELE's](settings.md) and verl's; `seele train --help` prints them all.",
                "",
            ]
    return "\n".join(lines) + "\n"


def _parameter(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts) or f"`{option.name}`"
    about = getattr(option, "help", None)
    return f"- {names}{f': {about}' if about else ''}"


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        if hasattr(inner, "commands"):
            yield from _commands(inner, f"{path} {name}")
        else:
            yield f"{path} {name}", inner
