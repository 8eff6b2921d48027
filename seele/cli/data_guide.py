"""``seele data guide``: add copies of the hard problems with the beginning of a solution."""

from pathlib import Path
from typing import Annotated

import typer

from seele.cli.outputs import writable_file
from seele.cli.sampling import run_sampler


def guide_command(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A parquet file of problems.", show_default=False)],
    model: Annotated[Path, typer.Option(help="Hugging Face folder of the model.", show_default=False)],
    out: Annotated[
        Path,
        typer.Option(help="Parquet file to write.", show_default=False, callback=writable_file),
    ],
) -> None:
    """Copy each problem that a model does not solve, with the shortest sufficient hint in its question.

    Data for method=pope. The same command continues where a killed one stopped. Put further options of the
    sampler after --, such as --longest 0.25, --request TEXT, --samples 8, --samples-dir DIR (of `seele data
    filter`), --template, --max-tokens or --seed.
    """
    run_sampler(
        "seele_eval.guided_problems", [str(file), "--model", str(model), "--out", str(out), *context.args]
    )
