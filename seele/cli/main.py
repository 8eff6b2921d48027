"""Entry point of the ``seele`` command: its sub-commands, and the exit on errors that a user can fix."""

import inspect
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Annotated

import typer

from seele.cli import data_reasoning
from seele.cli.cost import cost_command
from seele.cli.data_annotate import annotate_command
from seele.cli.data_filter import filter_command
from seele.cli.data_hint_search import guide_command, own_command
from seele.cli.data_hints import hints_command
from seele.cli.data_inspect import inspect_problems, milestones_command
from seele.cli.data_limr import limr_command
from seele.cli.data_prepare import prepare_app
from seele.cli.doctor.command import doctor_command
from seele.cli.engines import HELP, find_engine_command
from seele.cli.export import export_command
from seele.cli.grade import grade_command
from seele.cli.report import compare_command, report_command, runs_command
from seele.cli.simulate import simulate_command
from seele.cli.view import view_command
from seele.errors import SeeleError
from seele.host import escape_what_the_terminal_lacks

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="SEELE: reinforcement learning with hints that keep problems at the edge of the model's ability.",
)
data_reasoning.register(prepare_app)
data_app = typer.Typer(no_args_is_help=True, help="Prepare, annotate, filter and inspect problems.")
data_app.add_typer(prepare_app, name="prepare")


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"seele {version('seele')}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None: ...


def _add(group: typer.Typer, name: str, command: Callable[..., None], *, passes_on: bool = False) -> None:
    """Add a command; its help is its docstring without the errors, each paragraph as one line.
    ``passes_on`` allows extra arguments.
    """
    about = (inspect.getdoc(command) or "").partition("\n\nRaises:")[0]
    about = re.sub(r"(?<!\n)\n(?=\S)", " ", about)
    settings = {"allow_extra_args": True} if passes_on else {}
    group.command(name, help=about, context_settings=settings)(command)


_add(data_app, "annotate", annotate_command)
_add(data_app, "filter", filter_command, passes_on=True)
_add(data_app, "guide", guide_command, passes_on=True)
_add(data_app, "hints", hints_command)
_add(data_app, "inspect", inspect_problems)
_add(data_app, "limr", limr_command)
_add(data_app, "milestones", milestones_command)
_add(data_app, "own", own_command, passes_on=True)

for name, text in HELP.items():
    # Listed here; ``main`` runs them, because they read their arguments themselves.
    app.command(name, help=text)(lambda: None)
app.add_typer(data_app, name="data")
_add(app, "compare", compare_command)
_add(app, "cost", cost_command)
_add(app, "doctor", doctor_command)
_add(app, "export", export_command)
_add(app, "grade", grade_command)
_add(app, "report", report_command)
_add(app, "runs", runs_command)
_add(app, "simulate", simulate_command)
_add(app, "view", view_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run ``seele`` with ``arguments``, by default those of the command line.

    Exit status 2: an error that a user can fix, such as a file that cannot be read or written. Exit status
    130: Ctrl-C.
    """
    try:
        _run(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(128 + signal.SIGINT)


def _run(given: list[str]) -> None:
    escape_what_the_terminal_lacks()
    try:
        command = find_engine_command(given[0]) if given and given[0] in HELP else None
        # After the look-up: a checkout may hold the metadata of an earlier build.
        _make_current_folder_importable()
        if command is None:
            app(args=given, prog_name="seele")
    except (SeeleError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    if command is not None:
        # Outside the ``try``, because the command handles its own errors.
        sys.argv = [f"seele {given[0]}", *given[1:]]
        sys.exit(command())


def _make_current_folder_importable() -> None:
    """Let settings name a module in the current folder (``package.module:Name``), as ``python -m`` does."""
    folder = os.getcwd()
    if not sys.flags.safe_path and folder not in sys.path:
        sys.path.insert(0, folder)


if __name__ == "__main__":
    main()
