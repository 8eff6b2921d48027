"""``seele simulate``: hint controllers against problems whose curves are known."""

import json
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seele.cli.outputs import writable_folder
from seele.errors import ConfigError

if TYPE_CHECKING:
    from seele.hints import Controller


def simulate_command(
    controller: Annotated[
        list[str],
        typer.Option(
            help="Name of a controller, or path/to/file.py:Name of your own, with settings after a colon "
            "(fixed:ratio=0.3); repeat it to compare others with the first."
        ),
    ],
    rounds: Annotated[
        int | None, typer.Option(help="Rounds per visit. By default 4, or as many as --round-sizes has.")
    ] = None,
    rollouts: Annotated[
        int | None,
        typer.Option(
            help="Rollouts per visit, split over its rounds; of each round if failed rounds are rolled out "
            "again. By default 16, or the sum of --round-sizes."
        ),
    ] = None,
    round_sizes: Annotated[
        str | None,
        typer.Option(
            help="Rollouts of each round, if they differ: 4,2,1,1. With --rollouts 16, this is 8,4,2,2."
        ),
    ] = None,
    when: Annotated[
        str, typer.Option(help="As seele.hints.when: always, after_failure, until_success or rescue.")
    ] = "always",
    failing_accuracy: Annotated[
        float, typer.Option(help="Accuracy up to which a first round counts as failed.")
    ] = 0.0,
    passing_accuracy: Annotated[
        float, typer.Option(help="until_success: accuracy up to which a round with a hint is kept.")
    ] = 1.0,
    dropout: Annotated[float, typer.Option(help="Probability that a rollout loses its hint.")] = 0.0,
    visits: Annotated[
        int, typer.Option(help="Visits per problem; if more than one, the first is not scored.")
    ] = 1,
    quorum: Annotated[
        float, typer.Option(help="Share of a round's rollouts after which the next round is planned.")
    ] = 1.0,
    problems: Annotated[int, typer.Option(help="Problems per world.")] = 3000,
    world: Annotated[list[str] | None, typer.Option(help="Worlds; all by default.")] = None,
    unit: Annotated[str, typer.Option(help="Where solutions are cut: step or token.")] = "step",
    batch_size: Annotated[
        int | None, typer.Option(help="Problems that are visited together; all by default.")
    ] = None,
    target_accuracy: Annotated[float, typer.Option(help="Accuracy that hints aim at.")] = 0.5,
    seed: Annotated[int, typer.Option(help="Seed of problems, drift, luck and controllers.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for simulation.json, simulation.md and simulation.png.",
            file_okay=False,
            callback=writable_folder,
        ),
    ] = None,
) -> None:
    """Let controllers choose hints for synthetic problems, and report how much their rollouts can teach: the
    mean of a(1-a), where a is the accuracy at the hints chosen.

    Raises:
        ConfigError: If a controller, a setting, a world or a number is not allowed.
    """
    from seele.config import HintConfig
    from seele.data.storage.files import write_atomically
    from seele.hints import configured_controller
    from seele.simulate.summary import markdown, report
    from seele.simulate.visits import Schedule, simulate
    from seele.simulate.worlds import WORLDS, draw_problems

    if problems < 2:
        raise ConfigError(f"--problems: expected at least 2, got {problems}")
    if seed < 0:
        raise ConfigError(f"--seed: expected 0 or more, got {seed}")
    if when == "always" and failing_accuracy:
        raise ConfigError("--failing-accuracy: has no effect with --when always")
    if when != "until_success" and passing_accuracy != 1.0:
        raise ConfigError(f"--passing-accuracy: has no effect with --when {when}")
    sizes = _sizes(round_sizes) if round_sizes is not None else None
    if rounds is None:
        rounds = 4 if sizes is None else len(sizes)
    elif sizes is not None and rounds != len(sizes):
        raise ConfigError(f"--rounds: got {rounds}, but --round-sizes has {len(sizes)}; leave one out")
    if twice := [spec for spec in controller if controller.count(spec) > 1]:
        raise ConfigError(f"--controller: {twice[0]!r} is named twice; name each once")
    if rollouts is None:
        rollouts = 16 if sizes is None else sum(sizes)
    try:
        hints = HintConfig(
            target_accuracy=target_accuracy,
            rounds=rounds,
            rollouts_per_prompt=rollouts,
            round_sizes=sizes,
            when=when,
            failing_accuracy=failing_accuracy,
            passing_accuracy=passing_accuracy,
            dropout=dropout,
            round_quorum=quorum,
        )
        schedule = Schedule(
            visits=visits,
            hints=hints,
            batch_size=problems if batch_size is None else batch_size,
        )
    except ValueError as error:
        # The options have names of their own.
        text = str(error).replace("rollouts_per_prompt", "--rollouts")
        raise ConfigError(f"seele simulate: {text}") from error

    def build(spec: str) -> "Controller":
        name, settings = _parse(spec)
        chosen = replace(hints, controller=name, settings=settings)
        return configured_controller(chosen, seed=seed, training_steps=schedule.num_steps(problems))

    for spec in controller:
        build(spec)
    drawn = [
        draw_problems(name, num_problems=problems, seed=seed, unit=unit) for name in world or list(WORLDS)
    ]
    traces = {
        spec: {each.world: simulate(build(spec), each, schedule, seed=seed) for each in drawn}
        for spec in controller
    }
    figures = report(traces, schedule) | {"seed": seed, "problems": problems, "unit": unit}
    text, table = json.dumps(figures, indent=1) + "\n", markdown(figures)
    if out is not None:
        from seele.report.simulation import draw

        write_atomically(out / "simulation.json", text)
        write_atomically(out / "simulation.md", table)
        write_atomically(out / "simulation.png", draw(traces))
    typer.echo(text if as_json else table, nl=False)


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(each) for each in text.split(","))
    except ValueError as error:
        raise ConfigError(f"--round-sizes: expected whole numbers such as 4,2,1,1, got {text!r}") from error


def _parse(spec: str) -> tuple[str, dict[str, Any]]:
    import yaml

    from seele.config.settings import RUN_WIDE
    from seele.hints import CONTROLLERS

    name, _, rest = spec.partition(":")
    if name not in CONTROLLERS and rest and "=" not in rest.partition(":")[0]:
        # package.module:Name or path/to/file.py:Name
        attribute, _, rest = rest.partition(":")
        name = f"{name}:{attribute}"
    settings: dict[str, Any] = {}
    # A comma within a list divides no settings.
    for item in filter(None, re.split(r",(?![^\[\]]*\])", rest)):
        key, equals, value = item.partition("=")
        if not equals:
            raise ConfigError(f"--controller {spec}: expected NAME or NAME:key=value,key=value, got {item!r}")
        if key in RUN_WIDE:
            raise ConfigError(
                f"--controller {spec}: {key!r} is common to all controllers; use --seed, --rounds, "
                "--rollouts or --target-accuracy"
            )
        try:
            settings[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ConfigError(f"--controller {spec}: cannot read the value {value!r} of {key!r}") from error
        if isinstance(settings[key], str):
            # YAML 1.1 reads a number such as 5e-3, which has no point, as text.
            with suppress(ValueError):
                settings[key] = float(settings[key])
    return name, settings
