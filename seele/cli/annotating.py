"""Options, progress line and exit shared by the commands that ask a server about every problem."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seele.cli.outputs import writable_file
from seele.errors import ConfigError

if TYPE_CHECKING:
    from seele.data.annotation.annotate import Outcome
    from seele.data.annotation.file import PreparedAnnotation
    from seele.data.annotation.report import Maker

File = Annotated[Path, typer.Argument(help="A parquet file of problems.", show_default=False)]
Address = Annotated[
    str, typer.Option(help="Address of the server, usually ending in /v1.", show_default=False)
]
Model = Annotated[str, typer.Option(help="The server's name for the model.", show_default=False)]
Calls = Annotated[
    Path | None,
    typer.Option(
        help="File that stores the replies.",
        show_default="OUT with the ending .calls.jsonl",
        callback=writable_file,
    ),
]
PromptFile = Annotated[
    Path | None,
    typer.Option(help="File with your own prompt, which contains {question}.", show_default=False),
]
Attempts = Annotated[int, typer.Option(help="Maximum number of replies per problem.")]
Temperature = Annotated[float, typer.Option(help="Sampling temperature of the first attempt.")]
RetryTemperature = Annotated[float, typer.Option(help="Sampling temperature of later attempts.")]
MaxTokens = Annotated[int, typer.Option(help="Maximum number of tokens in a reply.")]
Seed = Annotated[int, typer.Option(help="Seed of a request; the number of the attempt is added.")]
Extra = Annotated[
    str, typer.Option(help="JSON object of extra request fields; null removes a default field.")
]
Concurrency = Annotated[int, typer.Option(min=1, help="Requests in flight at the same time.")]
Tries = Annotated[int, typer.Option(min=1, help="Requests for one reply before giving up.")]
TimeoutS = Annotated[float, typer.Option(min=0.1, help="Timeout of one reply, in seconds.")]
KeyVariable = Annotated[str, typer.Option(help="Environment variable that holds the API key.")]
PriceIn = Annotated[float, typer.Option(help="Price of a million prompt tokens.")]
PriceOut = Annotated[float, typer.Option(help="Price of a million reply tokens.")]
ReplyTokens = Annotated[int, typer.Option(min=1, help="Expected tokens of a reply, for the estimate.")]
MaxCost = Annotated[
    float | None,
    typer.Option(help="Stop before the total cost, earlier runs included, exceeds this.", show_default=False),
]
Yes = Annotated[bool, typer.Option("--yes", help="Start even if the expected cost exceeds the limit.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print the expected cost.")]


def ask(
    ready: "PreparedAnnotation",
    make: "Maker",
    *,
    tries: int,
    concurrency: int,
    grader_name: str | None = None,
) -> None:
    """Ask about every problem, write the file and print a summary.

    Raises:
        Exit: With status 1, if the budget ran out before all problems were done.
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
    """Show a progress line on standard error as outcomes arrive."""
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
    """Return the text of the ``--prompt`` file.

    Raises:
        ConfigError: If it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--prompt {path}: cannot be read as text ({error}); check the path") from error


def parse_extra(text: str) -> dict[str, Any]:
    """Return the fields of ``--extra``.

    Raises:
        ConfigError: If it is not a JSON object.
    """
    try:
        extra = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--extra {text}: not JSON ({error}); expected an object") from error
    if not isinstance(extra, dict):
        raise ConfigError(f'--extra {text}: expected a JSON object such as {{"top_p": 0.9}}')
    return extra
