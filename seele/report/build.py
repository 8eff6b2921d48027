"""Start here: turn a run folder into the report's files as bytes, which the caller writes.

``summary.json`` holds the report's numbers, for other programs and for the page's tables.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from seele.report.browser.page import rollouts_page
from seele.report.curves import skipped_controller
from seele.report.figures import draw_figures
from seele.report.page import render_page
from seele.report.run_folder import Metrics, RunFolder, read_run
from seele.report.series import (
    PHASE,
    ROUND,
    VALIDATION,
    by_step,
    has_totals,
    last_third,
    num_rounds,
    phases,
    token_totals,
    validation_splits,
)


def build_report(run_folder: Path, *, own_parts: bool = False) -> dict[str, bytes]:
    """Return the report's files by name: figures, ``summary.json``, ``rollouts.html`` if there are rollouts.

    The last is ``index.html``, which refers to them.

    Args:
        run_folder: The run.
        own_parts: As in ``RunFolder``.

    Raises:
        CheckpointError: If ``run_folder`` is not a run folder.
    """
    run = read_run(run_folder, own_parts=own_parts)
    if note := skipped_controller(run):
        run = replace(run, notes=(*run.notes, note))
    summary = summarise(run)
    figures = draw_figures(run)
    page = render_page(run, summary, figures)
    rollouts = rollouts_page(run_folder, run)
    return {
        **{f"{name}.png": image for name, image in figures.items()},
        "summary.json": (json.dumps(summary, indent=2, ensure_ascii=False) + "\n").encode(),
        **({"rollouts.html": rollouts.encode()} if rollouts else {}),
        "index.html": page.encode(),
    }


def summarise(run: RunFolder) -> dict[str, Any]:
    """Summarise a run; missing parts are None or empty."""
    metrics = run.metrics
    splits = validation_splits(metrics, run.validation_files)
    return {
        "run": run.name,
        "method": run.setting("seele.method"),
        "last_step": int(metrics[-1]["step"]) if metrics else None,
        "unhinted_accuracy": {split: _milestones(metrics, split) for split in splits},
        "last_third": _last_third(metrics),
        "hint_ratio": _ends(metrics, "hint_ratio/mean"),
        "accuracy": _ends(metrics, "accuracy/mean"),
        "reward": _ends(metrics, "reward/mean"),
        "tokens": _tokens(metrics),
        "seconds": {
            "steps": sum(by_step(metrics, PHASE + "step").y),
            "phases": {name: sum(by_step(metrics, PHASE + name).y) for name in phases(metrics)},
        },
        "failed_fits": _last(metrics, "controller/failed_fits"),
        "evaluation": [asdict(score) for score in run.scores],
        "notes": list(run.notes),
    }


def _milestones(metrics: Sequence[Metrics], split: str) -> dict[str, dict[str, float]]:
    """First, last and best validation of one split; the earliest if several are equally good."""
    key = VALIDATION + split
    points = [
        {"step": int(row["step"]), "accuracy": row[key], "generated_tokens": int(total)}
        for row, total in zip(metrics, token_totals(metrics, "generated"), strict=True)
        if key in row
    ]
    return {"first": points[0], "last": points[-1], "best": max(points, key=lambda point: point["accuracy"])}


def _last_third(metrics: Sequence[Metrics]) -> dict[str, Any] | None:
    """Mean accuracy of each round over the last third of the steps, and the mean of rounds 2 and later, which
    weigh the same.
    """
    rows = last_third(metrics)
    means = [
        fmean(values) if (values := by_step(rows, f"{ROUND}{index}").y) else None
        for index in range(num_rounds(metrics))
    ]
    if not rows or not means:
        return None
    late = [mean for mean in means[1:] if mean is not None]
    return {
        "first_step": int(rows[0]["step"]),
        "accuracy_by_round": means,
        "accuracy_of_rounds_2_and_later": fmean(late) if late else None,
    }


def _ends(metrics: Sequence[Metrics], key: str) -> dict[str, float] | None:
    series = by_step(metrics, key)
    return {"first": series.y[0], "last": series.y[-1]} if series else None


def _last(metrics: Sequence[Metrics], key: str) -> float | None:
    series = by_step(metrics, key)
    return series.y[-1] if series else None


def _tokens(metrics: Sequence[Metrics]) -> dict[str, int]:
    """Tokens of all steps and of an earlier training stage; the last two only if the run counts them."""
    counted = [name for name in ("trained_packed", "trained_informative") if has_totals(metrics, name)]
    names = ("generated", "prefilled", "trained", *counted)
    return {name: int([0.0, *token_totals(metrics, name)][-1]) for name in names}
