"""``seele data filter``: keep problems that a model solves neither too often nor too rarely."""

from pathlib import Path
from typing import Annotated

import typer

from seele.cli.outputs import writable_file
from seele.cli.sampling import run_sampler
from seele.errors import ConfigError


def filter_command(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A parquet file of problems.", show_default=False)],
    out: Annotated[
        Path,
        typer.Option(help="Parquet file of the kept problems.", show_default=False, callback=writable_file),
    ],
    band: Annotated[
        str,
        typer.Option(
            help="Correct samples of a kept problem, as LEAST:MOST, both inclusive; 0:0 keeps unsolved ones."
        ),
    ] = "0:0",
    samples_dir: Annotated[
        Path | None,
        typer.Option(help="Folder of samples and counts.", show_default="FILE with the ending .samples"),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Hugging Face folder or name of a model to sample the problems without samples.",
            show_default=False,
        ),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Samples per problem.", show_default="8, as in the paper")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0.0, help="Sampling temperature.", show_default="0.6, as in the paper")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Most tokens of a sample.", show_default="2048, as in the paper")
    ] = None,
) -> None:
    """Keep the problems whose number of correct samples lies within a band.

    With --model, vLLM samples the problems without samples on all GPUs; the same command continues where a
    killed one stopped. Without --model, the existing counts are used, under any band. Put further options of
    the sampler after --, such as --server URL, --template, --grader, --tensor-parallel or --seed.
    """
    from seele.data.difficulty import COUNTS, SAMPLES, Band, filter_file
    from seele.data.storage.files import check_output

    check_output(file, out)
    wanted = Band.parse(band)
    folder = samples_dir or file.with_suffix(".samples")
    settings = {"--samples": samples, "--temperature": temperature, "--max-tokens": max_tokens}
    given = [text for name, value in settings.items() if value is not None for text in (name, str(value))]
    if model is not None:
        wanted.check(samples or SAMPLES)
        run_sampler(
            "seele_eval.difficulty",
            [str(file), "--out", str(folder), "--model", model, *given, *context.args],
        )
    elif given or context.args:
        raise ConfigError(f"{' '.join([*given, *context.args])}: only for sampling, which needs --model")
    typer.echo(filter_file(file, out, folder / COUNTS, wanted))
