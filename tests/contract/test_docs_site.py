"""The documentation site: the contents of its front page and reference. CI builds it with
``scripts/docs.sh``, where a broken link is an error; ``test_built_site.py`` looks at it in a browser.
"""

import dataclasses
import importlib.util
import json
import re
import sys
import types
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
    assert all(cell.keys() >= {"id", "metadata", "source"} for cell in book["cells"])
    assert commands and all(command.startswith("%%bash\n") for command in commands)
    assert len(commands) == page.read_text().count("\n```bash\n")
    assert "```bash" not in json.dumps(book)


def test_the_readme_has_at_most_700_words():
    assert len((ROOT / "README.md").read_text().split()) <= 700
