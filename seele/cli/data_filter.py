"""``seele data filter``: problems that a model solves neither too often nor too seldom."""

from pathlib import Path
from typing import Annotated

import typer

from seele.cli.sampling import run_sampler
from seele.errors import ConfigError


def filter_command(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A parquet file of problems.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Parquet file of those within the band.", show_default=False)],
    band: Annotated[
        str, typer.Option(help="LEAST:MOST correct samples of a problem that is kept, both included.")
    ] = "0:0",
    samples_dir: Annotated[
        Path | None,
        typer.Option(help="Where samples and counts are kept.", show_default="FILE with the ending .samples"),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Sample with this Hugging Face folder or name what has no samples yet.", show_default=False
        ),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Of each problem.", show_default="8, as in the paper")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0.0, help="Of the samples.", show_default="0.6, as in the paper")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Longest sample.", show_default="2048, as in the paper")
    ] = None,
) -> None:
    """Keep the problems whose number of correct samples lies within a band.

    With --model, what has no samples yet is sampled with vLLM, on all GPUs; the same command goes on where a
    killed one stopped. Without it, the counts that are there are used, under any band. After -- come further
    options of the sampler, such as --server URL, --template, --grader, --tensor-parallel or --seed.
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
        raise ConfigError(
            f"{' '.join([*given, *context.args])}: for sampling only, and nothing is sampled without --model"
        )
    typer.echo(filter_file(file, out, folder / COUNTS, wanted))
