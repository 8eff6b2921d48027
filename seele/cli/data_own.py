"""``seele data own``: worked solutions in a model's own words."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

# Another process, because nothing here may know an engine.
_SAMPLER = "seele_eval.own_solutions"


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
    arguments = [str(file), "--model", str(model), "--out", str(out), *context.args]
    status = subprocess.run([sys.executable, "-m", _SAMPLER, *arguments], check=False).returncode
    if status:
        raise typer.Exit(status if status > 0 else 128 - status)
