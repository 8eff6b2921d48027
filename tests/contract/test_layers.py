"""Allowed imports, and the linters' findings: one process per tool, with its output in the failure."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = Path(sys.executable).parent

CHECKS = [
    pytest.param(["lint-imports", "--no-logo"], id="import-linter"),
    pytest.param(["ruff", "check", "--output-format=concise"], id="ruff check"),
    pytest.param(["ruff", "format", "--check"], id="ruff format"),
    pytest.param(["mypy"], id="mypy"),
]

HEAVY = ("verl", "ray", "vllm", "torch", "hydra", "datasets", "transformers", "wandb")
# losses uses torch; methods and cli compose it.
NOT_PURE = ("seele.losses", "seele.methods", "seele.cli")


def pure_modules() -> list[str]:
    names = (
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((ROOT / "seele").rglob("*.py"))
    )
    return [name for name in names if not name.startswith(NOT_PURE) and not name.endswith("__main__")]


@pytest.mark.parametrize("command", CHECKS)
def test_linter_finds_nothing(command: list[str]) -> None:
    result = subprocess.run([TOOLS / command[0], *command[1:]], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}{result.stderr}"


def test_pure_modules_and_the_command_line_import_nothing_heavy() -> None:
    modules = ", ".join([*pure_modules(), "seele.cli.main"])
    probe = f"import sys, {modules}; print([m for m in {HEAVY} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[]", f"the pure core or `seele --help` pulled in {result.stdout}"


def test_the_walk_of_one_prompt_names_functions_that_exist() -> None:
    section = (ROOT / "docs" / "design.md").read_text().partition("## One prompt, from parquet to loss")[2]
    rows = [line for line in section.partition("\n## ")[0].splitlines() if re.match(r"\| \d+ \|", line)]
    assert 10 <= len(rows) <= 12
    for row in rows:
        file, *names = re.findall(r"`([^`]+)`", row.rsplit("|", 2)[1])
        place = ROOT / file
        text = "".join(path.read_text() for path in ([place] if place.is_file() else place.glob("*.py")))
        for name in names:
            assert re.search(rf"(def|class) {name.split('.')[-1]}\b", text), f"{file}: {name}"
