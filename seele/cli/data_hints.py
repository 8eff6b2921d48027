"""``seele data hints``: get hints in tiers from an OpenAI-compatible server."""

from pathlib import Path
from typing import Annotated

import typer

from seele.cli import annotating as options
from seele.cli.outputs import writable_file
from seele.endpoint import API_KEY


def hints_command(
    file: options.File,
    out: Annotated[
        Path,
        typer.Option(
            help="Parquet file of all problems, with their tiers.", show_default=False, callback=writable_file
        ),
    ],
    endpoint: options.Address,
    model: options.Model,
    form: Annotated[
        str,
        typer.Option(
            help="levels: three tiers, for method=sage; scaffold: knowledge, plan and solution in parts, for "
            "method=scaf_grpo."
        ),
    ] = "levels",
    parts: Annotated[
        int | None, typer.Option(help="Tiers of each kind in a scaffold.", show_default="4")
    ] = None,
    calls: options.Calls = None,
    prompt: options.PromptFile = None,
    attempts: options.Attempts = 3,
    temperature: options.Temperature = 0.0,
    retry_temperature: options.RetryTemperature = 0.7,
    max_tokens: options.MaxTokens = 4096,
    seed: options.Seed = 0,
    extra: options.Extra = "{}",
    concurrency: options.Concurrency = 16,
    tries: options.Tries = 8,
    timeout_s: options.TimeoutS = 600.0,
    key_variable: options.KeyVariable = API_KEY,
    price_in: options.PriceIn = 0.0,
    price_out: options.PriceOut = 0.0,
    reply_tokens: options.ReplyTokens = 800,
    max_cost: options.MaxCost = None,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Ask for hints in tiers for every problem, and keep those that do not state its answer.

    The column ``tiers`` is null where none were kept. The same command continues where a killed one
    stopped; no stored reply is paid for again. Exit status 1: the budget ran out before all problems were
    done.
    """
    from seele.data.annotation.calls import Annotator
    from seele.data.annotation.cost import Prices
    from seele.data.annotation.file import AnnotationOrder, prepare
    from seele.data.annotation.report import make_hints
    from seele.data.annotation.tiers import TiersPrompt
    from seele.endpoint import Endpoint

    tiers = TiersPrompt(form=form, parts=parts, own=None if prompt is None else options.read_prompt(prompt))
    annotator = Annotator(
        endpoint=Endpoint(url=endpoint, key_variable=key_variable, timeout_s=timeout_s),
        model=model,
        prompt=tiers,
        temperature=temperature,
        retry_temperature=retry_temperature,
        max_tokens=max_tokens,
        attempts=attempts,
        seed=seed,
        extra=options.parse_extra(extra),
    )
    order = AnnotationOrder(
        file=file,
        out=out,
        calls=calls or out.with_suffix(".calls.jsonl"),
        annotator=annotator,
        prices=Prices(per_million_in=price_in, per_million_out=price_out),
        max_cost=max_cost,
        may_exceed=yes,
    )
    ready = prepare(order, tiers.judge, reply_tokens=reply_tokens)
    typer.echo(ready.forecast_text)
    if dry_run:
        return
    ready.check_cost()
    options.ask(ready, make_hints, tries=tries, concurrency=concurrency)
