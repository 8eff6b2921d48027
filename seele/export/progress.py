"""How far training had come at the checkpoint that is exported, and what it had cost by then."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seele.export.base_model import FIRST_STAGE
from seele.report.run_folder import RunFolder, read_run
from seele.report.series import token_totals

SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where the checkpoint stands in its run."""

    step: int | None
    """None where it was not recorded."""
    steps: str
    """In words."""
    costs: Mapping[str, str]
    """Amounts by what they count."""
    warning: str | None
    """Says that the run is unfinished, or went on after this checkpoint."""


def read_progress(folder: Path, run: RunFolder, *, step: int | None) -> Progress:
    """Progress of the run at ``step``.

    Args:
        folder: The run folder.
        run: What was read from it.
        step: The checkpoint's.
    """
    costs = _costs(run, step)
    if run.setting("seele.method") == "sft_rl" and (folder / FIRST_STAGE).is_dir():
        first = read_run(folder / FIRST_STAGE).card.get("steps")
        if isinstance(first, int):
            costs = {"supervised steps before": f"{first:,}"} | costs
    return Progress(
        step=step,
        steps="an unknown number of steps" if step is None else f"{step:,} steps",
        costs=costs,
        warning=_warning(run, step),
    )


def _warning(run: RunFolder, step: int | None) -> str | None:
    status, last = run.card.get("status", "unknown"), run.card.get("steps")
    if status != "finished":
        planned = run.setting("trainer.total_training_steps")
        of = f" of at most {planned:,} steps" if isinstance(planned, int) and planned > 0 else ""
        return f"The run was unfinished when this was exported (status: {status}){of}."
    if isinstance(last, int) and step is not None and step < last:
        return f"An intermediate checkpoint: the run went on to step {last:,}."
    return None


def _costs(run: RunFolder, step: int | None) -> dict[str, str]:
    metrics = [row for row in run.metrics if step is None or row["step"] <= step]
    totals = {
        "tokens generated": token_totals(metrics, "generated"),
        "tokens prefilled": token_totals(metrics, "prefilled"),
        "tokens trained on": token_totals(metrics, "trained"),
    }
    costs = {what: f"{int(values[-1]):,}" for what, values in totals.items() if values and values[-1] > 0}
    seconds = sum(row.get("timing_s/step", 0.0) for row in metrics)
    return costs | ({"hours in steps": f"{seconds / SECONDS_PER_HOUR:.2f}"} if seconds else {})
