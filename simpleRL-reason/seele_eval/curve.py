"""Draw accuracy over training: ``python -m seele_eval.curve FOLDER``, with evaluations in ``FOLDER/step_N``.

Writes curve.md, curve.json and curve.png there. ``scripts/eval.sh`` makes such a folder (STEPS=...).
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seele.data.storage.files import write_atomically
from seele.errors import CheckpointError
from seele.report.charts import (
    legend_below,
    new_chart,
    nth_colour,
    plain,
    png,
    share_on_y,
    step_axis,
    style_axes,
)
from seele_eval.command import run_command
from seele_eval.conditions import OF_THE_MODEL, differing
from seele_eval.estimates import Estimate
from seele_eval.tables import conditions_list, percent, table

Curve = Mapping[int, Estimate]
"""Accuracy by step."""


def read_steps(folder: Path) -> dict[int, Any]:
    """Read ``scores.json`` of each evaluated step, in order of steps.

    Raises:
        CheckpointError: If no step has been evaluated, or a file is damaged.
    """
    files = {
        int(path.parent.name.removeprefix("step_")): path
        for path in folder.glob("step_*/scores.json")
        if path.parent.name.removeprefix("step_").isdigit()
    }
    if not files:
        raise CheckpointError(
            f"{folder}: holds no step_N/scores.json; evaluate with STEPS=... scripts/eval.sh"
        )
    return {step: _read(path) for step, path in sorted(files.items())}


def _read(path: Path) -> Any:
    try:
        written = json.loads(path.read_bytes())
        # Raises early if the fields read below are missing.
        _accuracies(written), _sizes(written), written["conditions"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path}: is damaged ({error!r}); run the evaluation again to rewrite it"
        ) from error
    return written


def curves_of(steps: Mapping[int, Any]) -> Mapping[str, Curve]:
    """The curve of each benchmark and average."""
    curves: dict[str, dict[int, Estimate]] = {}
    for step, written in steps.items():
        for name, each in _accuracies(written).items():
            curves.setdefault(name, {})[step] = each
    return curves


def _accuracies(written: Mapping[str, Any]) -> dict[str, Estimate]:
    scores = written["scores"]
    names = [score["benchmark"] for score in scores]
    found = {}
    for score in scores:
        is_alone = names.count(score["benchmark"]) == 1
        name = score["benchmark"] if is_alone else f"{score['benchmark']} at T={score['temperature']:g}"
        found[name] = Estimate(score["accuracy"], tuple(score["interval_95"]))
    for name, average in written["averages"].items():
        found[f"average of {name}"] = Estimate(average["value"], tuple(average["interval_95"]))
    return found


def notes_on(steps: Mapping[int, Any]) -> list[str]:
    """One sentence for each way in which a step was evaluated unlike the last one."""
    last = max(steps)
    written = steps[last]
    sizes = _sizes(written)
    notes = []
    for step, other in steps.items():
        amiss = differing(
            other["conditions"], written["conditions"], ignoring=OF_THE_MODEL | {"name", "benchmarks"}
        )
        amiss += [
            f"{name} had {' x '.join(map(str, size))} and has {' x '.join(map(str, sizes[name]))} samples"
            for name, size in _sizes(other).items()
            if name in sizes and size != sizes[name]
        ]
        notes += [f"step {step} differs from step {last}: {each}" for each in amiss]
    return notes


def _sizes(written: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Problems and samples of each benchmark."""
    return {
        f"{score['benchmark']} at T={score['temperature']:g}": (score["problems"], score["samples"])
        for score in written["scores"]
    }


def curve_table(curves: Mapping[str, Curve]) -> str:
    """Return a table with one line per step: accuracies in percent with their intervals."""
    steps = sorted({step for curve in curves.values() for step in curve})
    rows = [
        {"step": str(step)}
        | {name: percent(curve[step]) if step in curve else "-" for name, curve in curves.items()}
        for step in steps
    ]
    return table(rows, num_names=0)


def draw(curves: Mapping[str, Curve]) -> bytes:
    """The curves as a PNG."""
    figure, axes = new_chart()
    for index, (name, curve) in enumerate(curves.items()):
        steps, colour = list(curve), nth_colour(index)
        low, high = zip(*(each.band for each in curve.values()), strict=True)
        axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(steps, [each.value for each in curve.values()], "o-", color=colour, label=plain(name))
    style_axes(axes, x_label="training step", y_label="accuracy without hints")
    share_on_y(axes)
    step_axis(axes)
    legend_below(figure)
    return png(figure)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Exit status: 0, or 2 for an error that the user can fix."""
    parser = argparse.ArgumentParser(prog="seele_eval.curve", description="Accuracy over training steps.")
    parser.add_argument("folder", type=Path, help="folder with the evaluations step_N")
    folder = parser.parse_args(argv).folder
    return run_command(lambda: _write(read_steps(folder), folder))


def _write(steps: Mapping[int, Any], folder: Path) -> str:
    curves = curves_of(steps)
    points = {
        name: [
            {"step": step, "accuracy": each.value, "interval_95": each.interval_95}
            for step, each in curve.items()
        ]
        for name, curve in curves.items()
    }
    conditions = {f"step {step}": written["conditions"] for step, written in steps.items()}
    notes = "".join(f"- {note}\n" for note in notes_on(steps))
    sys.stderr.write(notes)
    text = curve_table(curves)
    write_atomically(
        folder / "curve.json", json.dumps({"curves": points, "conditions": conditions}, indent=2) + "\n"
    )
    write_atomically(
        folder / "curve.md", text + (f"\n{notes}" if notes else "") + conditions_list(conditions)
    )
    write_atomically(folder / "curve.png", draw(curves))
    return text


if __name__ == "__main__":
    raise SystemExit(main())
