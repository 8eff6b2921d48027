"""Run sampling commands in another process, because ``seele`` must not import an engine."""

import subprocess
import sys
from collections.abc import Sequence

import typer


def run_sampler(module: str, arguments: Sequence[str]) -> None:
    """Run ``python -m module`` to its end; the module reports its own errors.

    Raises:
        typer.Exit: If it failed; with its exit status.
    """
    status = subprocess.run([sys.executable, "-m", module, *arguments], check=False).returncode
    if status:
        raise typer.Exit(status if status > 0 else 128 - status)
