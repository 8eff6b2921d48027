"""The documentation site: the contents of its front page and reference. CI builds it with
``scripts/docs.sh``, where a broken link is an error; ``test_built_site.py`` looks at it in a browser.
"""

import dataclasses
import importlib.util
import json
import re
import runpy
import sys
import types
import unicodedata
from functools import cache
from pathlib import Path

import pytest

from seele.cli.engines import HELP
from seele.config import SeeleConfig

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site():
    """``scripts/docs_site.py``, without mkdocs."""
    files = types.ModuleType("mkdocs.structure.files")
    files.File = files.Files = object
    stands_in = {"mkdocs": types.ModuleType("mkdocs"), "mkdocs.structure": types.ModuleType("structure")}
    stands_in["mkdocs.structure.files"] = files
    before = {name: sys.modules.get(name) for name in stands_in}
    sys.modules |= stands_in
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "scripts" / "docs_site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, module_before in before.items():
        if module_before is None:
            del sys.modules[name]
    return module


def settings(config: object, key: str) -> set[str]:
    found = set()
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        path = f"{key}.{field.name}"
        found |= settings(value, path) if dataclasses.is_dataclass(value) else {path}
    return found


def test_the_page_of_metrics_is_up_to_date():
    text = (ROOT / "docs" / "metrics.md").read_text()
    write = runpy.run_path(str(ROOT / "scripts" / "docs_metrics.py"))["page"]
    assert write(text) == text, "python scripts/docs_metrics.py"
    assert "| `accuracy/round_N` | the same for round N |" in text


def test_every_setting_has_a_section_with_its_docstring(site):
    page = site.settings_page()
    sections = {part.split("`")[0]: part for part in page.split("\n### `")[1:]}
    described = {name for name in sections if ".NAME." not in name}
    assert described == settings(SeeleConfig(method="seele"), "seele")
    assert "`float` = `0.5`" in sections["seele.hints.target_accuracy"]
    assert "aims at in each round" in sections["seele.hints.target_accuracy"]
    empty = [name for name, part in sections.items() if len(part.strip().splitlines()) < 5]
    assert empty == []


@pytest.fixture(scope="module")
def commands(site):
    """Sections of the commands' page, by command."""
    return {part.partition("`")[0]: part for part in site.commands_page().split("\n## `")[1:]}


def test_every_command_has_a_section(commands):
    assert {"seele train", "seele data prepare gsm8k", "seele simulate", "seele compare"} <= commands.keys()
    assert {f"seele {name}" for name in HELP} <= commands.keys()
    kinds = re.findall(r"^    (\S+)(?:\s|$)", commands["seele model"], re.M)
    assert kinds == ["base", "fetch", "warm-start"]
    assert {f"seele model {kind}" for kind in kinds} <= commands.keys()
    # These read their arguments themselves.
    assert "--temperature" in commands["seele eval"] and "--step STEP" in commands["seele merge"]
    assert "settings.md" in commands["seele train"]
    empty = [name for name, part in commands.items() if len(part.strip().splitlines()) < 3]
    assert empty == []


def test_every_module_that_a_user_runs_has_a_section(commands):
    page = "\n".join(commands.values())
    pages = [ROOT / "README.md", ROOT / "data" / "README.md", *(ROOT / "docs").glob("**/*.md")]
    named = {name for file in pages for name in re.findall(r"python -m (seele_\w+\.\w+)", file.read_text())}
    named |= {
        f"seele_eval.{file.stem}"
        for file in (ROOT / "simpleRL-reason" / "seele_eval").glob("*.py")
        if file.stem != "worker" and 'if __name__ == "__main__":' in file.read_text()
    }
    # docs/experiments.md names what an earlier commit ran.
    named -= {"seele_verl.base_model"}
    assert [name for name in sorted(named) if f"python -m {name}`" not in page] == []


def without_code(page: Path) -> str:
    return re.sub(r"^( *)```.*?^ *```$", "", page.read_text(), flags=re.M | re.S)


@cache
def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings that hold both on the site (Python-Markdown) and on GitHub."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", without_code(page), re.M):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
        on_site = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip())
        if on_site == re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-"):
            found.add(on_site)
    return found


def test_links_lead_somewhere():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md"), *(ROOT / "data").glob("*.md")]
    broken = []
    for page in pages:
        text = re.sub(r"`[^`\n]*`", "", without_code(page))
        for path, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)", text):
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(f"{page.relative_to(ROOT)}: {path}{anchor and '#'}{anchor}")
    assert broken == []


def test_the_front_page_is_the_readme_with_links_as_seen_from_docs(site):
    page = site.front_page()
    assert "](methods/README.md)" in page and "](figures/front.png)" in page and "](docs/" not in page
    assert "](../examples)" in page


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs" / "tutorials").glob("1*.md")), ids=lambda page: page.stem
)
def test_a_tutorial_as_a_notebook_has_its_commands_as_cells(site, page):
    book = json.loads(site.notebook(page.read_text()))
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    commands = ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]
    assert commands and all(command.startswith("%%bash\n") for command in commands)
    assert len(commands) == page.read_text().count("\n```bash\n")
    assert "```bash" not in json.dumps(book)
    check_notebook(book)


def check_notebook(book):
    """Check the format 4.5."""
    assert book.keys() == {"cells", "metadata", "nbformat", "nbformat_minor"}
    assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"])
    for cell in book["cells"]:
        of_code = {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        assert cell.keys() == {"cell_type", "id", "metadata", "source"} | of_code
        assert cell["cell_type"] in ("code", "markdown") and re.fullmatch(r"[\w-]{1,64}", cell["id"])
        assert all(isinstance(line, str) for line in cell["source"]) and cell["metadata"] == {}


def test_a_tutorial_links_its_notebook_on_the_site(site):
    def shown(path):
        page = types.SimpleNamespace(file=types.SimpleNamespace(src_uri=path))
        return site.on_page_markdown("# Title\n\nText.\n", page=page)

    linked = "# Title\n\n[This page as a notebook](102_own_data.ipynb)\n\nText.\n"
    assert shown("tutorials/102_own_data.md") == linked
    assert "notebook" not in shown("tutorials/README.md") + shown("training.md")


def test_the_readme_has_at_most_700_words():
    assert len((ROOT / "README.md").read_text().split()) <= 700
