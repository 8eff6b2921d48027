"""What stands below the steps' lines while a run is watched in a terminal: where it is, and its course."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from rich.progress_bar import ProgressBar
from rich.table import Table

STEPS_SHOWN = 40
_LEVELS = "▁▂▃▄▅▆▇█"
VALIDATION, ROUND = "val/accuracy/", "accuracy/round_"


def draw_board(rows: Sequence[Mapping[str, float]], total_steps: int) -> Table:
    """The table: a bar for the steps, then a line for each quantity with its last value and its course.

    Args:
        rows: The logged steps, in order; the last STEPS_SHOWN of each quantity are drawn.
        total_steps: Steps of the whole run.
    """
    table = Table.grid(padding=(0, 2))
    last = rows[-1] if rows else {"step": 0}
    done = ProgressBar(total=total_steps, completed=last["step"], width=STEPS_SHOWN)
    table.add_row("step", f"{int(last['step'])} of {total_steps}", done)
    for name, values in _courses(rows):
        table.add_row(name, f"{values[-1]:.2f}", sparkline(values[-STEPS_SHOWN:]))
    seconds = [row["timing_s/step"] for row in rows if "timing_s/step" in row][-STEPS_SHOWN:]
    if seconds:
        left = int(fmean(seconds) * (total_steps - last["step"]))
        table.add_row("time left", f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d}", "")
    speeds = [
        row["tokens/generated"] / row["timing_s/gen"]
        for row in rows
        if row.get("timing_s/gen") and "tokens/generated" in row
    ]
    if speeds:
        table.add_row(
            "tokens a second", f"{speeds[-1]:,.0f}", sparkline(speeds[-STEPS_SHOWN:], most=max(speeds))
        )
    return table


def _courses(rows: Sequence[Mapping[str, float]]) -> Iterator[tuple[str, list[float]]]:
    """Name and values of each quantity in [0, 1] that the run logs."""
    late = [
        fmean(values)
        for row in rows
        if (values := [row[key] for key in row if key.startswith(ROUND) and key != f"{ROUND}0"])
    ]
    splits = dict.fromkeys(key for row in rows for key in row if key.startswith(VALIDATION))
    courses = {
        "hint ratio": [row["hint_ratio/mean"] for row in rows if "hint_ratio/mean" in row],
        "accuracy, first round": [row[f"{ROUND}0"] for row in rows if f"{ROUND}0" in row],
        "accuracy, later rounds": late,
        **{
            f"un-hinted, {key.removeprefix(VALIDATION)}": [row[key] for row in rows if key in row]
            for key in splits
        },
    }
    return ((name, values) for name, values in courses.items() if values)


def sparkline(values: Sequence[float], *, most: float = 1.0) -> str:
    """A character for each value, from 0 to ``most``; what is outside is drawn at the edge."""
    top = len(_LEVELS) - 1
    return "".join(_LEVELS[min(top, max(0, round(value / (most or 1.0) * top)))] for value in values)
