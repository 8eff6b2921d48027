"""The rules of docs/style.md that a program can check: short lines, one sentence each, habits to avoid."""

import ast
import itertools
import re
import shutil
import subprocess
from pathlib import Path

import proselint.checks
import pytest
from proselint.config import DEFAULT
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

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
# "There is no" and "is none of" are English, and two settings have the value "none".
HABITS = re.compile(
    r"\b(nobody|whoever|so many|anew|mend(?:s|ed|ing)?"
    r"|(?<!there )(?<!rollout_correction )(?<!isolation )(?-i:is (?:no|none(?! of))))\b",
    re.IGNORECASE,
)
FRAGMENT = re.compile(r"\s*(?:Whether|Of) ")
STYLE = ROOT / "docs" / "style.md"
"""Shows what to avoid."""
# Typography is for print (curly quotes); the others take a p-value of .006, "00's" and "6 am" for errors.
PROSELINT = DEFAULT | {
    "checks": DEFAULT["checks"] | {"typography": False, "psychology": False, "dates_times": False}
}
# Docstrings also have formulas and the names of axes, where a letter follows itself.
PROSELINT_OF_CODE = PROSELINT | {"checks": PROSELINT["checks"] | {"lexical_illusions": False}}
CODE_SPAN = re.compile(r"`[^`]*`")


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
    lines = [(n, abbreviations.sub("", CODE_SPAN.sub("`code`", line))) for n, line in prose(page)]
    assert [(n, line) for n, line in lines if ends.search(line)] == []


@pytest.fixture(scope="module")
def proselint_checks():
    """Register proselint's checks, which it keeps for the whole process."""
    if not CheckRegistry().checks:
        CheckRegistry().register_many(proselint.checks.__register__)


@pytest.mark.usefixtures("proselint_checks")
@pytest.mark.parametrize("page", PAGES, ids=named)
def test_proselint_finds_nothing(page):
    assert proselint_finds(page, [line for _, line in prose(page)], PROSELINT) == []


@pytest.mark.usefixtures("proselint_checks")
@pytest.mark.parametrize("folder", sorted({file.relative_to(ROOT).parts[0] for file in CODE}))
def test_proselint_finds_nothing_in_docstrings_and_help(folder):
    found = {
        named(file): findings
        for file in CODE
        if file.suffix == ".py" and file.is_relative_to(ROOT / folder)
        if (findings := proselint_finds(file, [*docstrings(file).values(), *helps(file)], PROSELINT_OF_CODE))
    }
    assert found == {}


def proselint_finds(file: Path, texts: list[str], checks: dict) -> list[tuple[str, str]]:
    """Return message and quote of what proselint finds."""
    # Each code span is a word of its own, so that two of them are not a repetition.
    words = (f"w{number}" for number in itertools.count())
    lines = "\n\n".join(CODE_SPAN.sub(lambda _: next(words), text) for text in texts)
    text = f"\n{lines}\n"
    found = LintFile(named(file), lines).lint(checks)
    quotes = [(result.message, text[slice(*result.span)].strip()) for result, _ in found]
    # A line may begin as the one before ended, and numbers recur.
    return [(message, quote) for message, quote in quotes if not re.search(r"\n|\d", quote)]


def docstrings(file: Path) -> dict[int, str]:
    """Return the docstrings of a Python file by line, those of attributes included."""
    return {
        node.lineno: node.value.value
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def helps(file: Path) -> list[str]:
    """Return the help texts of a command's options."""
    return [
        node.value.value
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.keyword)
        and node.arg in ("help", "description", "epilog")
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]


def test_pages_and_code_avoid_habits_that_stop_a_reader():
    found = [
        f"{named(file)}:{number}: {line.strip()}"
        for file in (*PAGES, *CODE)
        if file != STYLE
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if HABITS.search(line)
    ]
    assert found == []


def test_the_page_of_symptoms_quotes_messages_that_exist():
    folders = ("seele", "seele_models", "verl/seele_verl", "simpleRL-reason/seele_eval")
    files = [
        file for folder in folders for file in (ROOT / folder).rglob("*") if file.suffix in (".py", ".html")
    ]
    said = re.sub(r'"\s*\n\s*f?"', "", "".join(file.read_text() for file in files))
    others = {"seele: command not found", "killed due to the node running low on memory"}
    cells = re.findall(r"^\| ([^|]*)\|", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE)
    parts = [
        part.strip() for cell in cells for text in re.findall("`(.*?)`", cell) for part in text.split("...")
    ]
    assert len(parts) > 40
    assert [part for part in parts if part not in said and part not in others] == []


def test_docstrings_begin_as_sentences():
    found = [
        f"{named(file)}:{number}: {text.strip().splitlines()[0]}"
        for file in (*CODE, *(ROOT / "tests").rglob("*.py"))
        if file.suffix == ".py"
        for number, text in docstrings(file).items()
        if FRAGMENT.match(text)
    ]
    assert found == []


def test_commit_titles_are_short():
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        pytest.skip("not a git checkout, or git is missing")
    log = ["git", "-C", str(ROOT), "log", "-20", "--no-merges", "--format=%s"]
    titles = subprocess.run(log, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    assert [title for title in titles if len(title) > 70] == []
