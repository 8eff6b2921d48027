"""Run sampling commands in another process, because ``seele`` must not import an engine."""

from collections.abc import Sequence

import typer

from seele.child import run_module


def run_sampler(module: str, arguments: Sequence[str]) -> None:
    """Run ``python -m module`` to its end; the module reports its own errors.

    Raises:
        typer.Exit: If it failed; with its exit status.
        SystemExit: As in ``run_module``.
    """
    if status := run_module(module, arguments):
        raise typer.Exit(status)
