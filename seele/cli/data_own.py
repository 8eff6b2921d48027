"""``seele data own``: worked solutions in a model's own words."""

from pathlib import Path
from typing import Annotated

import typer

from seele.cli.outputs import writable_file
from seele.cli.sampling import run_sampler


def own_command(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A parquet file of problems.", show_default=False)],
    model: Annotated[Path, typer.Option(help="Hugging Face folder of the model.", show_default=False)],
    out: Annotated[
        Path,
        typer.Option(help="Parquet file to write.", show_default=False, callback=writable_file),
    ],
) -> None:
    """Replace worked solutions with a model's correct responses after the shortest sufficient hint.

    The same command continues where a killed one stopped. Put further options of the sampler after --, such
    as --samples 4, --samples-dir DIR (of `seele data filter`), --template, --max-tokens or --seed.
    """
    run_sampler(
        "seele_eval.own_solutions", [str(file), "--model", str(model), "--out", str(out), *context.args]
    )
