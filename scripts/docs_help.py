"""Print the help of the commands that read their arguments with argparse, as a JSON object.

Libraries of others are empty here, so that any Python can import the modules, and quickly.
"""

import contextlib
import importlib
import io
import json
import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

ROOT = Path(__file__).parents[1]
EVALUATION = (
    *("compare", "compare_seeds", "contamination", "curve", "difficulty", "guided_problems", "harness"),
    *("hint_curve", "own_solutions", "validation"),
)
COMMANDS = {
    "seele eval": ["seele_eval.run"],
    "seele merge": ["seele_verl.merge"],
    "seele model": ["seele_models.command"],
    "seele model base": ["seele_models.command", "base"],
    "seele model fetch": ["seele_models.command", "fetch"],
    "seele model warm-start": ["seele_models.command", "warm-start"],
    **{f"python -m seele_eval.{name}": [f"seele_eval.{name}"] for name in EVALUATION},
    "python -m seele_verl.gpu_check": ["seele_verl.gpu_check.__main__"],
    "python -m seele_verl.memory": ["seele_verl.memory"],
}
"""The module of each command, and the subcommand."""


class EmptyLibraries:
    """Finds a stand-in for every module that is neither Python's nor ours."""

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        """Return the specification of the stand-in."""
        library = name.partition(".")[0]
        ours = library.startswith(("seele", "_")) or library in sys.stdlib_module_names
        return None if ours else ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the stand-in."""
        return MagicMock(__path__=[], __name__=spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Leave it empty."""


def help_of(command: str) -> str:
    """Return what a command prints for ``--help``, in lines of 80 characters."""
    module, *subcommand = COMMANDS[command]
    sys.argv = [command.removesuffix(f" {' '.join(subcommand)}")]
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
        importlib.import_module(module).main([*subcommand, "--help"])
    return said.getvalue()


def main() -> None:
    """Print the help by command."""
    os.environ["COLUMNS"] = "82"
    sys.path[:0] = [str(ROOT / folder) for folder in ("", "verl", "simpleRL-reason")]
    sys.meta_path.insert(0, EmptyLibraries())  # type: ignore[arg-type]
    sys.stdout.write(json.dumps({command: help_of(command) for command in COMMANDS}))


if __name__ == "__main__":
    main()
