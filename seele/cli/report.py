"""``seele report``: write the report of a run."""

from pathlib import Path
from typing import Annotated

import typer

from seele.data.storage.files import write_atomically
from seele.errors import ConfigError


def report_command(
    run: Annotated[Path, typer.Argument(help="Run folder, of a finished or an interrupted run.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder to write; RUN/report by default.")] = None,
) -> None:
    """Write index.html with figures and summary.json from what a run left.

    Raises:
        CheckpointError: If RUN is not a run folder.
        ConfigError: If --out is a file.
    """
    # Matplotlib takes half a second to import, which every other sub-command would wait for.
    from seele.report.build import build_report

    folder = run / "report" if out is None else out
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--out {folder}: is a file; expected a folder, or a path where one can be made")
    for name, content in build_report(run).items():
        write_atomically(folder / name, content)
    typer.echo(folder / "index.html")
