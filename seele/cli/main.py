"""Entry point of the ``seele`` command: its sub-commands, and how an error that a user can fix ends."""

import sys
from collections.abc import Sequence

import typer

from seele.cli.compare import compare_command
from seele.cli.cost import cost_command
from seele.cli.data import data_app
from seele.cli.doctor.command import doctor_command
from seele.cli.export import export_command
from seele.cli.grade import grade_command
from seele.cli.report import report_command
from seele.cli.simulate import simulate_command
from seele.errors import SeeleError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="SEELE: reinforcement learning with hints, each problem at the edge of what the model can do.",
)
app.add_typer(data_app, name="data")
app.command("compare")(compare_command)
app.command("cost")(cost_command)
app.command("doctor")(doctor_command)
app.command("export")(export_command)
app.command("grade")(grade_command)
app.command("report")(report_command)
app.command("simulate")(simulate_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run ``seele``, by default on the command line.

    Exit status 2: an error that a user can fix, such as a file that cannot be read or written.
    """
    try:
        app(args=arguments, prog_name="seele")
    except (SeeleError, OSError) as error:
        typer.echo(f"{type(error).__name__}: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
