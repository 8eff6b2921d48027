"""``seele data``: prepare, annotate and filter the parquet files of problems, and look at them."""

import typer

from seele.cli import data_reasoning
from seele.cli.data_annotate import annotate_command
from seele.cli.data_filter import filter_command
from seele.cli.data_inspect import inspect_problems
from seele.cli.data_prepare import prepare_app

data_reasoning.register(prepare_app)
data_app = typer.Typer(no_args_is_help=True, help="Prepare, annotate, filter and inspect problems.")
data_app.add_typer(prepare_app, name="prepare")
data_app.command("annotate")(annotate_command)
data_app.command("filter", context_settings={"allow_extra_args": True})(filter_command)
data_app.command("inspect")(inspect_problems)
