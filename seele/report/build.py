"""Start here: turn a run folder into the report's files as bytes, which the caller writes."""

import json
from pathlib import Path

from seele.report.figures import draw_figures
from seele.report.page import render_page
from seele.report.run_folder import read_run
from seele.report.summary import summarise


def build_report(run_folder: Path) -> dict[str, bytes]:
    """The report's files by name: figures, ``summary.json`` and, last, ``index.html``, which refers to them.

    Raises:
        CheckpointError: If ``run_folder`` is not a run folder.
    """
    run = read_run(run_folder)
    summary = summarise(run)
    figures = draw_figures(run)
    page = render_page(run, summary, figures)
    return {
        **{f"{name}.png": image for name, image in figures.items()},
        "summary.json": (json.dumps(summary, indent=2, ensure_ascii=False) + "\n").encode(),
        "index.html": page.encode(),
    }
