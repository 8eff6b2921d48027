"""Commands of packages that need engines: found by entry point, and given their arguments unchanged.

The core has only their names and one line of help each, so that ``seele --help`` imports no engine.
"""

from collections.abc import Callable
from importlib.metadata import entry_points

from seele.errors import DependencyError

GROUP = "seele.commands"
"""Entry points ``name = package.module:function``; it reads ``sys.argv`` and returns a status."""

HELP = {
    "train": "Train a model: settings and groups as NAME=VALUE; docs/methods lists the methods.",
    "check": "Check the command of a training run, from the same settings, without starting it.",
    "eval": "Evaluate a model without hints, on benchmarks or on your own problems.",
    "merge": "Merge a run's checkpoint into a Hugging Face folder.",
    "model": "Fetch a pretrained model, warm-start it, or make a small base model on a CPU.",
}


def find_engine_command(name: str) -> Callable[[], int | None]:
    """Return the function of a command.

    Raises:
        DependencyError: If the command's package, or a library that it imports, is not installed.
    """
    points = tuple(entry_points(group=GROUP, name=name))
    if not points:
        raise _not_installed(name, f"no installed package has the entry point {name!r} of {GROUP}")
    try:
        command: Callable[[], int | None] = points[0].load()
    except ModuleNotFoundError as error:
        raise _not_installed(name, f"{error.name} is missing") from error
    return command


def _not_installed(name: str, why: str) -> DependencyError:
    return DependencyError(
        f"seele {name}: {why}. This command needs the training stack: in a checkout, "
        "`bash scripts/setup.sh` creates an environment that has it, and `seele doctor` lists what is missing"
    )
