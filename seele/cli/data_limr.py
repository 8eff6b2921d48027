"""``seele data limr``: keep problems whose learning curve is close to the run's average."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer

from seele.cli.outputs import writable_file
from seele.errors import DataError


def limr_command(
    file: Annotated[Path, typer.Argument(help="A parquet file of problems.", show_default=False)],
    run: Annotated[Path, typer.Option(help="A run without hints on these problems.", show_default=False)],
    out: Annotated[
        Path,
        typer.Option(help="Parquet file of the kept problems.", show_default=False, callback=writable_file),
    ],
    visits: Annotated[
        int, typer.Option(min=1, help="Visits of each problem to score, from the run's first.")
    ] = 4,
    threshold: Annotated[float, typer.Option(max=1.0, help="Lowest score to keep.")] = 0.2,
) -> None:
    """Keep the problems whose learning curve is close to the run's average (LIMR, arXiv:2502.11886)."""
    from seele.data.alignment import first_visits, keep_aligned

    notes: list[str] = []
    accuracies = first_visits(_visits(run, notes), visits)
    for note in notes:
        typer.echo(f"note: {note}")
    typer.echo(keep_aligned(file, out, accuracies, threshold))


def _visits(run: Path, notes: list[str]) -> Iterator[tuple[str, float]]:
    """Yield problem and accuracy of each visit of the run, step by step; damaged lines go to ``notes``.

    Raises:
        DataError: If the run has no rollouts or hinted ones, or a row lacks a key.
    """
    from seele.report.run_folder import read_lines, rollout_files

    files = rollout_files(run)
    if not files:
        raise DataError(f"{run}: no rollouts found; give the folder of a run (trainer.default_local_dir)")
    for step in sorted(files):
        rows = list(read_lines(files[step], notes))
        for row in rows:
            if missing := [key for key in ("instance_id", "reason") if key not in row]:
                raise DataError(f"{files[step]}: a row lacks {missing}; give the folder of a run")
        rows.sort(key=lambda row: str(row["instance_id"]))
        for problem, of_problem in groupby(rows, key=lambda row: str(row["instance_id"])):
            rewards = []
            for row in of_problem:
                if row.get("hint_steps"):
                    raise DataError(f"{run}: has hinted rollouts; give a run without hints on these problems")
                if row.get("origin", "policy") == "policy":
                    rewards.append(float(row["reason"] == "correct"))
            if rewards:
                yield problem, fmean(rewards)
