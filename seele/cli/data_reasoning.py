"""``seele data prepare countdown | zebra | arc_1d``: SEC's reasoning tasks."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from seele.cli.data_prepare import OutOption, parse_settings, write_splits

_WORKERS = min(8, os.cpu_count() or 1)

SeedOption = Annotated[int, typer.Option(help="The same seed gives the same bytes.")]
PresetOption = Annotated[
    str, typer.Option(help="sec: SEC's levels and numbers; small: short problems for a tiny model.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="KEY=VALUE of the task's settings, such as num_train=64 (docs/reasoning.md)."),
]
WorkersOption = Annotated[
    int, typer.Option(min=1, help="Processes that draw problems.", show_default="one per core, at most 8")
]


# Task -> the help of its command, and the default number of processes that draw its problems.
_COMMANDS = {
    "countdown": ("Countdown: reach a target with 3 to 6 numbers; with worked steps.", _WORKERS),
    "zebra": (
        "Zebra puzzles: who lives where, from clues; 3 to 6 houses. SEC's numbers take 75 minutes of a core.",
        _WORKERS,
    ),
    "arc_1d": ("ARC-1D: find a rule on rows of 10 to 40 digits from three examples.", 1),
}


def register(prepare_app: typer.Typer) -> None:
    """Add the three commands."""
    for task, (says, workers) in _COMMANDS.items():
        prepare_app.command(task, help=says)(_command(task, workers))


def _command(task: str, default_workers: int) -> Callable[..., None]:
    def command(
        out: OutOption,
        seed: SeedOption = 0,
        preset: PresetOption = "sec",
        settings: SetOption = None,
        workers: WorkersOption = default_workers,
    ) -> None:
        _prepare(task, out, seed, preset, settings, workers)

    return command


def _prepare(task: str, out: Path, seed: int, preset: str, settings: list[str] | None, workers: int) -> None:
    from dataclasses import asdict

    from rich.console import Console
    from rich.progress import Progress

    from seele.config.build import from_mapping
    from seele.data.tasks.reasoning import CONFIGS, PRESETS, generate_splits
    from seele.data.tasks.reasoning_tasks import LIBRARY, VERSION
    from seele.errors import ConfigError

    if preset not in PRESETS:
        raise ConfigError(f"--preset {preset}: allowed are {sorted(PRESETS)}")
    chosen = {"seed": seed} | dict(PRESETS[preset][task]) | parse_settings(settings or [])
    config = from_mapping(CONFIGS[task], chosen, task)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(task, total=config.num_problems)
        splits = generate_splits(task, config, workers=workers, on_problem=lambda: progress.advance(bar))
    write_splits(
        out, splits, origin={"source": task, "origin": f"{LIBRARY}=={VERSION}", "settings": asdict(config)}
    )
