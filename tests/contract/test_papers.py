"""docs/papers.md says what the recipes do: each is described once, and every value in a column "ours", or
under a key in a table of recipes, is the one that is composed.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

import yaml
from omegaconf import DictConfig, OmegaConf

from seele_verl.options import names

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "papers.md").read_text()
RECIPES = names("recipe")


def code(text: str) -> list[str]:
    """The pieces in code font."""
    return re.findall(r"`([^`]+)`", text)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables(text: str) -> list[list[dict[str, str]]]:
    """Rows by column of each Markdown table."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        header, _, *rows = block.splitlines()
        found.append([dict(zip(cells(header), cells(row), strict=True)) for row in rows])
    return found


SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", PAGE, flags=re.MULTILINE))
RECIPES_OF = {
    paper: code(re.search(r"^Recipes: ((?:.+\n)+)", text, flags=re.MULTILINE)[1])
    for paper, text in SECTIONS.items()
}


def claims(paper: str) -> dict[str, dict[str, str]]:
    """What the section says of each of its recipes: value by setting."""
    said = {recipe: {} for recipe in RECIPES_OF[paper]}
    for table in tables(SECTIONS[paper]):
        for row in table:
            if "ours" in row:
                (key,), (value,) = code(row["setting"]), code(row["ours"])
                rows = [(recipe, key, value) for recipe in said]
            else:
                keys = [name for name in row if code(name)]
                rows = [
                    (recipe, code(key)[0], code(row[key])[0])
                    for recipe in code(row.get("recipe", ""))
                    for key in keys
                ]
            for recipe, key, value in rows:
                assert key not in said[recipe], f"{recipe}: {key} is there twice"
                said[recipe][key] = value
    return said


SAID = {recipe: values for paper in SECTIONS for recipe, values in claims(paper).items()}


def value_of(text: str) -> object:
    # YAML 1.1 takes 1e-6 for a text.
    return float(text) if re.fullmatch(r"\de-\d", text) else yaml.safe_load(text)


def test_every_recipe_is_described_once() -> None:
    assert sorted(recipe for recipes in RECIPES_OF.values() for recipe in recipes) == RECIPES
    assert all(len(values) >= 15 for values in SAID.values())


@pytest.mark.parametrize("recipe", RECIPES)
def test_ours_is_what_is_composed(recipe: str, composed: Callable[..., DictConfig]) -> None:
    said = {key: value_of(text) for key, text in SAID[recipe].items()}
    config = composed(f"recipe={recipe}")
    assert {key: OmegaConf.select(config, key, throw_on_missing=True) for key in said} == said


def test_every_script_that_the_page_names_is_there() -> None:
    named = {*re.findall(r"train_recipe\.sh ([\w.-]+)", PAGE), *re.findall(r"recipe=([\w.-]+)", PAGE)}
    assert named - {"NAME"} <= {*RECIPES}
    assert len(named) >= 10


def test_the_notice_names_every_paper_that_the_code_names() -> None:
    notice = (ROOT / "NOTICE").read_text()
    places = [ROOT / folder for folder in ("seele", "verl", "simpleRL-reason", "docs/methods")]
    files = [path for place in places for path in place.rglob("*") if path.suffix in (".py", ".yaml", ".md")]
    named = {paper for path in files for paper in re.findall(r"arXiv:(\d{4}\.\d{5})", path.read_text())}
    assert len(named) >= 20
    assert sorted(paper for paper in named if paper not in notice) == []
