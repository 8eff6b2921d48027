"""Commands that look for the shortest hint after which a model solves a problem.

``seele data own`` takes what the model then writes as the solution; ``seele data guide`` puts the hint into
the question.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from seele.cli.outputs import writable_file
from seele.cli.sampling import run_sampler


def _command(module: str, about: str) -> Callable[..., None]:
    def command(
        context: typer.Context,
        file: Annotated[Path, typer.Argument(help="A parquet file of problems.", show_default=False)],
        model: Annotated[Path, typer.Option(help="Hugging Face folder of the model.", show_default=False)],
        out: Annotated[
            Path,
            typer.Option(help="Parquet file to write.", show_default=False, callback=writable_file),
        ],
    ) -> None:
        run_sampler(module, [str(file), "--model", str(model), "--out", str(out), *context.args])

    command.__doc__ = about
    return command


own_command = _command(
    "seele_eval.own_solutions",
    """Replace worked solutions with a model's correct responses after the shortest sufficient hint.

    The same command continues where a killed one stopped. Put further options of the sampler after --, such
    as --samples 4, --samples-dir DIR (of `seele data filter`), --template, --max-tokens or --seed.
    """,
)
guide_command = _command(
    "seele_eval.guided_problems",
    """Copy each problem that a model does not solve, with the shortest sufficient hint in its question.

    Data for method=pope. The same command continues where a killed one stopped. Put further options of the
    sampler after --, such as --longest 0.25, --request TEXT, --samples 8, --samples-dir DIR (of `seele data
    filter`), --template, --max-tokens or --seed.
    """,
)
