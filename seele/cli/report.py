"""``seele report`` on a run, ``seele compare`` on methods, ``seele runs`` on a folder of runs.

Methods are compared over seeds, at equal cost.
"""

import json
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from seele.cli.outputs import writable_folder
from seele.data.storage.files import check_writable, write_atomically
from seele.errors import ConfigError


def report_command(
    run: Annotated[Path, typer.Argument(help="Run folder of a finished or interrupted run.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder to write; RUN/report by default.")] = None,
    own_parts: Annotated[
        bool, typer.Option("--own-parts", help="Import the run's own controller, for its curves.")
    ] = False,
) -> None:
    """Write index.html with figures, rollouts.html and summary.json; print the run's un-hinted accuracies.

    Raises:
        CheckpointError: If RUN is not a run folder.
        ConfigError: If --out is a file or cannot be written.
    """
    # Imported here, so that other sub-commands do not wait half a second for Matplotlib.
    from seele.report.build import build_report

    folder = run / "report" if out is None else out
    check_writable(folder, is_folder=True)
    files = build_report(run, own_parts=own_parts)
    for name, content in files.items():
        write_atomically(folder / name, content)
    summary = json.loads(files["summary.json"])
    for note in summary["notes"]:
        typer.echo(f"note: {note}", err=True)
    for split, points in summary["unhinted_accuracy"].items():
        ends = [f"{points[end]['accuracy']:.1%} at step {points[end]['step']}" for end in ("first", "last")]
        accuracies = ", ".join(dict.fromkeys(ends))  # one, if there was one validation
        typer.echo(f"correct without hints on {split}: {accuracies}")
    typer.echo(folder / "index.html")


def compare_command(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders of finished or interrupted runs.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for index.html, figures, comparison.md and summary.json.", callback=writable_folder
        ),
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="Arm that the others are compared with; grpo or the first by default.")
    ] = None,
    split: Annotated[list[str] | None, typer.Option(help="Validation splits; all by default.")] = None,
    cost: Annotated[
        list[str] | None,
        typer.Option(
            help="steps, tokens_generated, tokens_prefilled, tokens_trained, tokens_trained_packed, "
            "tokens_trained_informative, tokens_teacher_forced, flops, seconds; all by default."
        ),
    ] = None,
    accuracy: Annotated[
        float | None,
        typer.Option(help="Accuracy in [0, 1] whose cost is compared; the reference's last by default."),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(help="Budget of the one --cost; by default the most that every run reaches."),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(help="Settings that split a method's runs into arms, such as seele.advantage.baseline."),
    ] = None,
    label: Annotated[list[str] | None, typer.Option(help="RUN=NAME: the arm of a run.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print summary.json instead of tables.")] = False,
) -> None:
    """Compare un-hinted accuracy between methods, over seeds and at equal cost; docs/compare.md explains it.

    Raises:
        CheckpointError: If a RUN is not a run folder or lacks what is compared.
        ConfigError: If an option is not allowed, or the runs cannot be compared.
    """
    # Imported here, so that other sub-commands do not wait a second for Matplotlib and numpy.
    from seele.report.comparison.analysis import compare
    from seele.report.comparison.build import build_files, summary_text
    from seele.report.comparison.tables import markdown

    comparison = compare(
        runs,
        by=by or (),
        labels=label or (),
        reference=reference,
        splits=split or (),
        costs=cost or (),
        accuracy=accuracy,
        budget=budget,
    )
    if out is not None:
        for name, content in build_files(comparison).items():
            write_atomically(out / name, content)
    typer.echo(summary_text(comparison) if as_json else markdown(comparison), nl=False)
    if out is not None:
        typer.echo(f"written to {out / 'index.html'}", err=True)


def runs_command(
    folder: Annotated[Path, typer.Argument(help="A run folder, or one that holds runs.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the runs below a folder with state, step, un-hinted accuracy and age, most recently active first.

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
        typer.echo(describe_runs(runs, now=time.time()), nl=False)  # noqa: TID251
    else:
        typer.echo(f"no runs below {folder}")
