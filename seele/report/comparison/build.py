"""Turn a comparison into its files as bytes, which the caller writes."""

import json

from seele.report.comparison.figures import draw_figures
from seele.report.comparison.page import render_page
from seele.report.comparison.results import Comparison
from seele.report.comparison.summary import summarise
from seele.report.comparison.tables import markdown


def build_files(comparison: Comparison) -> dict[str, bytes]:
    """Files by name: figures, numbers, tables and, last, ``index.html`` that refers to the figures."""
    return {
        **{f"accuracy_{cost}.png": image for cost, image in draw_figures(comparison).items()},
        "summary.json": summary_text(comparison).encode(),
        "comparison.md": markdown(comparison).encode(),
        "index.html": render_page(comparison).encode(),
    }


def summary_text(comparison: Comparison) -> str:
    """``summary.json``: the same bytes for the same runs and options."""
    return json.dumps(summarise(comparison), indent=2, ensure_ascii=False) + "\n"
