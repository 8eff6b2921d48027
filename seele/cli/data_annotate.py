"""``seele data annotate``: worked solutions in a few steps from a server that speaks OpenAI's interface."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seele.config.settings import RewardConfig
from seele.endpoint import API_KEY
from seele.errors import ConfigError

if TYPE_CHECKING:
    from seele.data.annotation.annotate import Outcome

_GRADERS = min(4, os.cpu_count() or 1)


def annotate_command(
    file: Annotated[Path, typer.Argument(help="A parquet file of problems.", show_default=False)],
    out: Annotated[
        Path,
        typer.Option(help="Parquet file of the problems whose solution was kept.", show_default=False),
    ],
    endpoint: Annotated[str, typer.Option(help="Address; ends in /v1 as a rule.", show_default=False)],
    model: Annotated[str, typer.Option(help="The server's name for the model.", show_default=False)],
    calls: Annotated[
        Path | None,
        typer.Option(help="Where replies are kept.", show_default="OUT with the ending .calls.jsonl"),
    ] = None,
    prompt: Annotated[
        Path | None, typer.Option(help="Text with {question} in place of ours.", show_default=False)
    ] = None,
    min_steps: Annotated[int, typer.Option(help="Of a solution that is kept.")] = 2,
    max_steps: Annotated[int, typer.Option(help="Of a solution that is kept.")] = 5,
    answer_only: Annotated[
        bool, typer.Option("--answer-only", help="Do not show the reference solution, but its answer.")
    ] = False,
    attempts: Annotated[int, typer.Option(help="Replies that a problem may cost.")] = 3,
    temperature: Annotated[float, typer.Option(help="Of the first attempt.")] = 0.0,
    retry_temperature: Annotated[float, typer.Option(help="Of the others.")] = 0.7,
    max_tokens: Annotated[int, typer.Option(help="Longest reply.")] = 4096,
    seed: Annotated[int, typer.Option(help="Sent with the number of the attempt added.")] = 0,
    extra: Annotated[
        str, typer.Option(help="JSON object of further fields of the request; null leaves one of ours out.")
    ] = "{}",
    concurrency: Annotated[int, typer.Option(min=1, help="Requests under way at the same time.")] = 16,
    tries: Annotated[int, typer.Option(min=1, help="Requests for one reply before it is given up.")] = 8,
    timeout_s: Annotated[float, typer.Option(min=0.1, help="For one reply.")] = 600.0,
    key_variable: Annotated[str, typer.Option(help="Environment variable with the key.")] = API_KEY,
    price_in: Annotated[float, typer.Option(help="For a million tokens of prompts.")] = 0.0,
    price_out: Annotated[float, typer.Option(help="For a million tokens of replies.")] = 0.0,
    reply_tokens: Annotated[int, typer.Option(min=1, help="Expected of a reply, for the estimate.")] = 800,
    max_cost: Annotated[
        float | None,
        typer.Option(help="Ends the run before it costs more, earlier runs included.", show_default=False),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Start although more may be spent than allowed.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would cost.")] = False,
    grader: Annotated[
        str, typer.Option(help="mathruler, math_verify, strict+ or multiple_choice.")
    ] = RewardConfig().grader,
    graders: Annotated[int, typer.Option(min=1, help="Grading processes.")] = _GRADERS,
) -> None:
    """Have every problem solved in a few steps, and keep what the grader accepts.

    The same command goes on where a killed one stopped; what was answered is never paid for again. Exit
    status 1: the money did not suffice for all problems.
    """
    from seele.data.annotation.calls import Annotator
    from seele.data.annotation.cost import Prices
    from seele.data.annotation.file import AnnotationOrder, prepare
    from seele.data.annotation.prompt import DEFAULT_PROMPT, AnnotatorPrompt
    from seele.endpoint import Endpoint, Patience
    from seele.reward.grader import GraderPool

    annotator = Annotator(
        endpoint=Endpoint(url=endpoint, key_variable=key_variable, timeout_s=timeout_s),
        model=model,
        prompt=AnnotatorPrompt(
            template=DEFAULT_PROMPT if prompt is None else _read_prompt(prompt),
            min_steps=min_steps,
            max_steps=max_steps,
            shows_solution=not answer_only,
        ),
        temperature=temperature,
        retry_temperature=retry_temperature,
        max_tokens=max_tokens,
        attempts=attempts,
        seed=seed,
        extra=_parse_extra(extra),
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
    with GraderPool(grader=grader, num_workers=graders) as pool:
        ready = prepare(order, pool, reply_tokens=reply_tokens)
        typer.echo(ready.forecast_text)
        if dry_run:
            return
        ready.check_cost()
        # One that does not start is found before anything is paid.
        pool.grade_answer("1", "2")
        with _progress(ready.num_tasks) as on_outcome:
            report = ready.annotate(
                pool,
                grader_name=grader,
                patience=Patience(attempts=tries),
                concurrency=concurrency,
                on_outcome=on_outcome,
            )
    typer.echo(report.text)
    if not report.is_complete:
        raise typer.Exit(1)


@contextmanager
def _progress(total: int) -> Iterator[Callable[["Outcome"], None]]:
    """A line on standard error while outcomes come."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        line, kept = progress.add_task("0 kept", total=total), 0

        def advance(outcome: "Outcome") -> None:
            nonlocal kept
            kept += bool(outcome.steps)
            progress.update(line, advance=1, description=f"{kept} kept")

        yield advance


def _read_prompt(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--prompt {path}: cannot be read as text ({error}); check the path") from error


def _parse_extra(text: str) -> dict[str, Any]:
    try:
        extra = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--extra {text}: not JSON ({error}); expected an object") from error
    if not isinstance(extra, dict):
        raise ConfigError(f'--extra {text}: expected a JSON object such as {{"top_p": 0.9}}')
    return extra
