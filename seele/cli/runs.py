"""``seele runs``: what the runs below a folder have come to."""

import json
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from seele.errors import ConfigError


def runs_command(
    folder: Annotated[Path, typer.Argument(help="A run folder, or one that holds runs.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the runs below a folder with state, step, un-hinted accuracy and age, the last active first.

    Raises:
        ConfigError: If there is no such folder.
    """
    from seele.runs.overview import RunSummary, describe_runs, list_runs

    def as_object(run: RunSummary) -> dict[str, Any]:
        at = datetime.fromtimestamp(run.last_activity, UTC).isoformat(timespec="seconds")
        return asdict(run) | {"folder": str(run.folder), "last_activity": at}

    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder; expected a run folder, or one that holds runs")
    runs = list_runs(folder)
    if as_json:
        typer.echo(json.dumps([as_object(run) for run in runs], indent=1))
    elif runs:
        typer.echo(describe_runs(runs, now=time.time()), nl=False)
    else:
        typer.echo(f"no runs below {folder}")
