"""The table below the step lines in an interactive terminal: how far a run is, and its course."""

from collections.abc import Mapping, Sequence
from math import ceil, isfinite
from statistics import fmean

from rich.progress_bar import ProgressBar
from rich.table import Table

from seele.report.series import ROUND, VALIDATION, courses

STEPS_SHOWN = 40
_DRAWN = (
    *("step", "hint_ratio/mean", "timing_s/step", "timing_s/gen"),
    *("tokens/generated", "tokens/generated_total"),
    *("actor/sft_loss", "tokens/trained"),
)
_LEVELS = "▁▂▃▄▅▆▇█"


def drawn_of(row: Mapping[str, float]) -> dict[str, float]:
    """Return what ``draw_board`` reads from a step's line: a few of its numbers, as runs have many steps."""
    return {name: row[name] for name in row if name in _DRAWN or name.startswith((ROUND, VALIDATION))}


def steps_left(row: Mapping[str, float], total_steps: int, max_generated_tokens: int | None) -> int:
    """Return the number of steps after a step's line until the nearer end of the run: its last step, or the
    step after the one that reaches ``max_generated_tokens``, at the mean tokens of a step so far.
    """
    left = total_steps - int(row["step"])
    total = row.get("tokens/generated_total")
    if max_generated_tokens is None or not total:
        return left
    if total - row["tokens/generated"] >= max_generated_tokens:
        return 0  # the step before has reached it
    until_reached = ceil((max_generated_tokens - total) / (total / row["step"]))
    return min(left, max(0, until_reached) + 1)


def clock(seconds: int) -> str:
    """A time as ``2:48``, or from an hour on as ``30:00:00``."""
    minutes = f"{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{seconds // 3600}:{minutes}" if seconds >= 3600 else minutes.removeprefix("0")


def tokens_a_second(row: Mapping[str, float]) -> float | None:
    """Return how fast a step generated tokens, or a supervised one trained on them.

    None if its line lacks that: a lost line is restored from its checkpoint; older checkpoints hold no times.
    """
    count, seconds = ("trained", "step") if "actor/sft_loss" in row else ("generated", "gen")
    tokens, seconds_taken = row.get(f"tokens/{count}"), row.get(f"timing_s/{seconds}")
    return tokens / seconds_taken if tokens is not None and seconds_taken else None


def draw_board(
    rows: Sequence[Mapping[str, float]], total_steps: int, max_generated_tokens: int | None = None
) -> Table:
    """Return the table: a bar for the steps, then a line for each quantity with its last value and course.

    Args:
        rows: The logged steps, in order; the last STEPS_SHOWN of each quantity are drawn.
        total_steps: Steps of the whole run.
        max_generated_tokens: The token budget that may end it earlier.
    """
    table = Table.grid(padding=(0, 2))
    last = rows[-1] if rows else {"step": 0}
    done = ProgressBar(total=total_steps, completed=last["step"], width=STEPS_SHOWN)
    table.add_row("step", f"{int(last['step'])} of {total_steps}", done)
    for kind, name, series in courses(rows):
        if series:
            name = f"un-hinted, {name}" if kind == "unhinted" else name
            table.add_row(name, f"{series.y[-1]:.2f}", sparkline(series.y[-STEPS_SHOWN:]))
    if losses := [row["actor/sft_loss"] for row in rows if "actor/sft_loss" in row]:
        most = max(filter(isfinite, losses), default=1.0)
        table.add_row("loss", f"{losses[-1]:.3f}", sparkline(losses[-STEPS_SHOWN:], most=most))
    seconds = [row["timing_s/step"] for row in rows if "timing_s/step" in row][-STEPS_SHOWN:]
    if seconds:
        left = int(fmean(seconds) * steps_left(last, total_steps, max_generated_tokens))
        table.add_row("time left", clock(left), "")
    speeds = [speed for row in rows if (speed := tokens_a_second(row)) is not None]
    if speeds:
        table.add_row(
            "tokens a second", f"{speeds[-1]:,.0f}", sparkline(speeds[-STEPS_SHOWN:], most=max(speeds))
        )
    return table


def sparkline(values: Sequence[float], *, most: float = 1.0) -> str:
    """Return a character for each value, from 0 to ``most``; values outside are drawn at the edge, and those
    that are not finite as blanks.
    """
    top = len(_LEVELS) - 1
    return "".join(
        _LEVELS[min(top, max(0, round(value / (most or 1.0) * top)))] if isfinite(value) else " "
        for value in values
    )
