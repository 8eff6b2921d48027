"""What the commands that ask a server about every problem share: options, progress, the end of a run."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seele.errors import ConfigError

if TYPE_CHECKING:
    from seele.data.annotation.annotate import Outcome
    from seele.data.annotation.file import PreparedAnnotation
    from seele.data.annotation.report import Maker

File = Annotated[Path, typer.Argument(help="A parquet file of problems.", show_default=False)]
Address = Annotated[str, typer.Option(help="Address; ends in /v1 as a rule.", show_default=False)]
Model = Annotated[str, typer.Option(help="The server's name for the model.", show_default=False)]
Calls = Annotated[
    Path | None,
    typer.Option(help="Where replies are kept.", show_default="OUT with the ending .calls.jsonl"),
]
PromptFile = Annotated[
    Path | None, typer.Option(help="Text with {question} in place of ours.", show_default=False)
]
Attempts = Annotated[int, typer.Option(help="Replies that a problem may cost.")]
Temperature = Annotated[float, typer.Option(help="Of the first attempt.")]
RetryTemperature = Annotated[float, typer.Option(help="Of the others.")]
MaxTokens = Annotated[int, typer.Option(help="Longest reply.")]
Seed = Annotated[int, typer.Option(help="Sent with the number of the attempt added.")]
Extra = Annotated[
    str, typer.Option(help="JSON object of further fields of the request; null leaves one of ours out.")
]
Concurrency = Annotated[int, typer.Option(min=1, help="Requests under way at the same time.")]
Tries = Annotated[int, typer.Option(min=1, help="Requests for one reply before it is given up.")]
TimeoutS = Annotated[float, typer.Option(min=0.1, help="For one reply.")]
KeyVariable = Annotated[str, typer.Option(help="Environment variable with the key.")]
PriceIn = Annotated[float, typer.Option(help="For a million tokens of prompts.")]
PriceOut = Annotated[float, typer.Option(help="For a million tokens of replies.")]
ReplyTokens = Annotated[int, typer.Option(min=1, help="Expected of a reply, for the estimate.")]
MaxCost = Annotated[
    float | None,
    typer.Option(help="Ends the run before it costs more, earlier runs included.", show_default=False),
]
Yes = Annotated[bool, typer.Option("--yes", help="Start although more may be spent than allowed.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what it would cost.")]


def ask(
    ready: "PreparedAnnotation",
    make: "Maker",
    *,
    tries: int,
    concurrency: int,
    grader_name: str | None = None,
) -> None:
    """Ask about every problem, write the file, and say what became of them.

    Raises:
        Exit: With status 1, if the money did not suffice for all problems.
    """
    from seele.endpoint import Patience

    with _progress(ready.num_tasks) as on_outcome:
        report = ready.annotate(
            make,
            patience=Patience(attempts=tries),
            concurrency=concurrency,
            on_outcome=on_outcome,
            grader_name=grader_name,
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
            kept += bool(outcome.texts)
            progress.update(line, advance=1, description=f"{kept} kept")

        yield advance


def read_prompt(path: Path) -> str:
    """The text of ``--prompt``.

    Raises:
        ConfigError: If it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--prompt {path}: cannot be read as text ({error}); check the path") from error


def parse_extra(text: str) -> dict[str, Any]:
    """The fields of ``--extra``.

    Raises:
        ConfigError: If it is no JSON object.
    """
    try:
        extra = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--extra {text}: not JSON ({error}); expected an object") from error
    if not isinstance(extra, dict):
        raise ConfigError(f'--extra {text}: expected a JSON object such as {{"top_p": 0.9}}')
    return extra
