"""The rules of docs/style.md that a program can check: short lines, one sentence each, habits to avoid."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")),
        *(ROOT / name for name in ("data/README.md", "benchmarks/RESULTS.md")),
    ]
)
CODE = sorted(
    file
    for folder in ("seele", "seele_models", "verl/seele_verl", "simpleRL-reason/seele_eval", "scripts")
    for kind in ("*.py", "*.sh", "*.yaml")
    for file in (ROOT / folder).rglob(kind)
)
HABITS = re.compile(r"\b(nobody|whoever|so many|anew|mend(?:s|ed|ing)?)\b", re.IGNORECASE)
STYLE = ROOT / "docs" / "style.md"
"""Shows what to avoid."""


def prose(page: Path) -> list[tuple[int, str]]:
    """Return number and text of the lines that are neither code, nor a table, nor a heading."""
    lines, in_code = [], False
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not (in_code or line.lstrip().startswith(("|", "#", "<!--", "<"))):
            lines.append((number, line))
    return lines


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_lines_are_short_and_hold_one_sentence(page):
    # A link or a command may be longer than a line.
    long = [(n, line) for n, line in prose(page) if len(line) > 100 and " " in line[:100].strip()[20:]]
    assert long == []
    # A sentence may begin after a heading in bold.
    ends = re.compile(r"[a-z)`][.?!] +(?:\*\*)?[A-Z]")
    abbreviations = re.compile(r"\b(?:e\.g|i\.e|vs|etc|al|Fig|Eq|Sec|St|No)\. ")
    code = re.compile(r"`[^`]*`")
    lines = [(n, abbreviations.sub("", code.sub("`code`", line))) for n, line in prose(page)]
    assert [(n, line) for n, line in lines if ends.search(line)] == []


def test_pages_and_code_avoid_habits_that_stop_a_reader():
    found = [
        f"{named(file)}:{number}: {line.strip()}"
        for file in (*PAGES, *CODE)
        if file != STYLE
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if HABITS.search(line)
    ]
    assert found == []
