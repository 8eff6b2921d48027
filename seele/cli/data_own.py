"""``seele data own``: worked solutions in a model's own words."""

from pathlib import Path
from typing import Annotated

import typer

from seele.cli.sampling import run_sampler


def own_command(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A parquet file of problems.", show_default=False)],
    model: Annotated[Path, typer.Option(help="Hugging Face folder.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Parquet file to write.", show_default=False)],
) -> None:
    """Replace worked solutions by right responses of a model, behind as short a hint as is needed.

    The same command goes on where a killed one stopped. After -- come further options of the sampler, such as
    --samples 4, --samples-dir DIR (of `seele data filter`), --template, --max-tokens or --seed.
    """
    run_sampler(
        "seele_eval.own_solutions", [str(file), "--model", str(model), "--out", str(out), *context.args]
    )
