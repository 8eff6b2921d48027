"""Progress on the terminal: one line per step, from the run's ``metrics.jsonl``, and the run's warnings.

In an interactive terminal, a table below them shows the run's course.

All other output goes to the run's log file.
"""

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.live import Live

from seele.report.series import is_validated
from seele_verl.runs.live import clock, draw_board, drawn_of, steps_left, tokens_a_second
from seele_verl.runs.log import METRICS, WARNINGS, rows_of

POLL_INTERVAL_S = 0.5


def format_step(
    metrics: Mapping[str, float], total_steps: int, max_generated_tokens: int | None = None
) -> str:
    """Format one step: accuracy per round, mean hint ratio, rollouts of a problem, speed, time left,
    un-hinted accuracy. ``max_generated_tokens`` is the token budget that may end the run earlier.
    """
    parts = [f"step {int(metrics['step']):>4}/{total_steps}"]
    rounds = [metrics[name] for name in _numbered("accuracy/round_", metrics)]
    if rounds:
        parts.append("rounds " + " ".join(f"{accuracy:.2f}" for accuracy in rounds))
        parts.append(f"hint {metrics['hint_ratio/mean']:.2f}")
        on, off, hinted = (metrics[f"group/{kind}"] for kind in ("on_policy", "off_policy", "hinted"))
        given = f", {off:.3g} off-policy" if off else ""
        parts.append(f"{on + off:.3g} rollouts a problem, {hinted:.3g} hinted{given}")
    elif "actor/sft_loss" in metrics:
        parts.append(f"loss {metrics['actor/sft_loss']:.3f}")
    if (speed := tokens_a_second(metrics)) is not None:
        parts.append(f"{speed:,.0f} tok/s")
    if "timing_s/step" in metrics:
        step_s = metrics["timing_s/step"]
        left = int(step_s * steps_left(metrics, total_steps, max_generated_tokens))
        parts += [f"{step_s:.1f} s/step", f"{clock(left)} left"]
    validation = {name: value for name, value in metrics.items() if name.startswith("val/accuracy/")}
    if validation:
        parts.append(
            "un-hinted "
            + " ".join(f"{name.rsplit('/', 1)[-1]} {value:.1%}" for name, value in sorted(validation.items()))
        )
    return " | ".join(parts)


def _numbered(prefix: str, metrics: Mapping[str, float]) -> list[str]:
    return sorted(
        (name for name in metrics if name.startswith(prefix)), key=lambda name: int(name.removeprefix(prefix))
    )


@contextmanager
def follow_metrics(
    run: Path, *, total_steps: int, after_step: int, terminal: TextIO, max_generated_tokens: int | None = None
) -> Iterator[None]:
    """While open, print a line for every step after ``after_step`` that is logged, and all warnings; also the
    line of ``after_step`` if a resumed run makes up for its validation. An interactive terminal also shows a
    table of the run's course below. Times left end with the last step or with ``max_generated_tokens``,
    whichever is nearer.
    """
    done = threading.Event()
    metrics, warnings = _Tail(run / METRICS), _Tail(run / WARNINGS)
    warnings.new()
    has_validated = any(is_validated(row) for row in rows_of(run) if row["step"] == after_step)
    console = Console(file=terminal, soft_wrap=True, highlight=False, markup=False, emoji=False)

    def follow(board: Live | None) -> None:
        printed, by_step = after_step - (not has_validated), dict[int, dict[str, float]]()
        while True:
            is_last = done.wait(POLL_INTERVAL_S)
            # A step's line may appear again, with its validation.
            new = {row["step"]: row for row in map(json.loads, metrics.new().splitlines())}
            for step in new:
                if step > printed and (step > after_step or is_validated(new[step])):
                    printed = step
                    console.print(format_step(new[step], total_steps, max_generated_tokens))
            if told := warnings.new():
                console.print(told, end="")
            if board and new:
                by_step |= {step: drawn_of(row) for step, row in new.items()}
                rows = [*by_step.values()]
                board.update(draw_board(rows, total_steps, max_generated_tokens), refresh=True)
            if is_last:
                return

    # This process's output goes to the log; only the terminal's own lines are above the table.
    is_watched = console.is_terminal and not console.is_dumb_terminal
    table = Live(console=console, redirect_stdout=False, redirect_stderr=False, transient=True)
    with table if is_watched else nullcontext() as board:
        thread = threading.Thread(target=follow, args=(board,), name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


class _Tail:
    """Reads whole lines that are appended to a file. A file that replaces it is read from its beginning."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = self._read_bytes = 0

    def new(self) -> str:
        """Return what was appended since the last call."""
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return ""
        with file:
            if self._inode != (inode := os.fstat(file.fileno()).st_ino):
                self._inode, self._read_bytes = inode, 0
            file.seek(self._read_bytes)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._read_bytes += len(whole + newline)
        return (whole + newline).decode("utf-8")
