"""``seele data annotate``: get worked solutions of a few steps from an OpenAI-compatible server."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from seele.cli import annotating as options
from seele.cli.outputs import writable_file
from seele.config.settings import RewardConfig
from seele.endpoint import API_KEY

_GRADERS = min(4, os.cpu_count() or 1)


def annotate_command(
    file: options.File,
    out: Annotated[
        Path,
        typer.Option(
            help="Parquet file of the problems whose solution was kept.",
            show_default=False,
            callback=writable_file,
        ),
    ],
    endpoint: options.Address,
    model: options.Model,
    calls: options.Calls = None,
    prompt: options.PromptFile = None,
    min_steps: Annotated[int, typer.Option(help="Fewest steps of a kept solution.")] = 2,
    max_steps: Annotated[int, typer.Option(help="Most steps of a kept solution.")] = 5,
    answer_only: Annotated[
        bool, typer.Option("--answer-only", help="Show the model only the answer, not the worked solution.")
    ] = False,
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
    grader: Annotated[
        str, typer.Option(help="mathruler, math_verify, strict+ or multiple_choice.")
    ] = RewardConfig().grader,
    graders: Annotated[int, typer.Option(min=1, help="Grading processes.")] = _GRADERS,
) -> None:
    """Ask for a solution of a few steps to every problem, and keep those that the grader accepts.

    The same command continues where a killed one stopped; no stored reply is paid for again. Exit status
    1: the budget ran out before all problems were done.
    """
    from seele.data.annotation.calls import Annotator
    from seele.data.annotation.cost import Prices
    from seele.data.annotation.file import AnnotationOrder, prepare
    from seele.data.annotation.prompt import DEFAULT_PROMPT, AnnotatorPrompt, judge
    from seele.data.annotation.report import make_solutions
    from seele.endpoint import Endpoint
    from seele.reward.grader import GraderPool

    annotator = Annotator(
        endpoint=Endpoint(url=endpoint, key_variable=key_variable, timeout_s=timeout_s),
        model=model,
        prompt=AnnotatorPrompt(
            template=DEFAULT_PROMPT if prompt is None else options.read_prompt(prompt),
            min_steps=min_steps,
            max_steps=max_steps,
            shows_solution=not answer_only,
        ),
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
    with GraderPool(RewardConfig(grader=grader, num_workers=graders)) as pool:
        accept = partial(judge, grader=pool, min_steps=min_steps, max_steps=max_steps)
        ready = prepare(order, accept, reply_tokens=reply_tokens)
        typer.echo(ready.forecast_text)
        if dry_run:
            return
        ready.check_cost()
        # A grader that does not start fails here, before anything is paid for.
        pool.grade_answer("1", "2")
        options.ask(ready, make_solutions, tries=tries, concurrency=concurrency, grader_name=grader)
