"""``seele compare``: methods against each other over seeds, at equal cost."""

from pathlib import Path
from typing import Annotated

import typer

from seele.data.storage.files import write_atomically
from seele.errors import ConfigError


def compare_command(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders, of finished or interrupted runs.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder for index.html, figures, comparison.md and summary.json.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="Arm that the others are compared with; grpo or the first by default.")
    ] = None,
    split: Annotated[list[str] | None, typer.Option(help="Validation splits; all by default.")] = None,
    cost: Annotated[
        list[str] | None,
        typer.Option(
            help="steps, tokens_generated, tokens_prefilled, tokens_trained, tokens_teacher_forced, flops, "
            "seconds; all by default."
        ),
    ] = None,
    accuracy: Annotated[
        float | None,
        typer.Option(help="Accuracy in [0, 1] whose cost is asked for; the reference's last by default."),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(help="What the one --cost may come to; by default as far as every run goes."),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(help="Settings that make arms of a method's runs, as in seele.advantage.baseline."),
    ] = None,
    label: Annotated[list[str] | None, typer.Option(help="RUN=NAME: the arm of a run.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print summary.json instead of tables.")] = False,
) -> None:
    """Compare un-hinted accuracy between methods, over seeds and at equal cost; docs/compare.md explains it.

    Raises:
        CheckpointError: If a RUN is no run folder or lacks what is compared.
        ConfigError: If an option is not allowed, or the runs cannot be compared.
    """
    # Matplotlib and numpy take a second to import, which every other sub-command would wait for.
    from seele.report.comparison.analysis import compare
    from seele.report.comparison.build import build_files, summary_text
    from seele.report.comparison.tables import markdown

    if out is not None and out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out}: is a file; expected a folder, or a path where one can be made")
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
