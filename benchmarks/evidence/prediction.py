"""What the simulator expects of a run's hint controller, for comparison with what it did.

The world is the base model's own accuracy under every hint (base_accuracy.json), raised to a power that falls
from 1 as the run learns: a chain of steps is solved if each is, so for a policy that errs half as often at
each step the accuracy is about the square root. The power is the one at which the world without hints is as
accurate as the run's validation on held-out problems. The order of problems, rounds, rollouts and the
controller with its settings are the run's; nothing else comes from it.

Axes: P problems, N visits of them in the order of the run, J legal hint ratios, S steps.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from omegaconf import OmegaConf
from plan import BASE_ACCURACY

from seele.curriculum import UniformCurriculum
from seele.hints import configured_controller
from seele.maths.irt import Array
from seele.report.charts import COLOURS, png
from seele.report.run_folder import RunFolder
from seele.simulate.visits import Schedule, simulate
from seele.simulate.worlds import Cuts
from seele_verl.settings import read_settings

PANELS = {
    "first_round_S": "accuracy of the first round",
    "later_rounds_S": "accuracy of the later rounds",
    "worth_S": "a(1 - a)",
    "hint_ratio_S": "hint ratio",
}
"""Field of ``Course`` -> its label."""


@dataclass(frozen=True, slots=True)
class Course:
    """What the hints did, step by step."""

    first_round_S: Array
    """Mean accuracy of the first round, which knows only earlier visits."""
    later_rounds_S: Array
    worth_S: Array
    """Mean a(1 - a)."""
    hint_ratio_S: Array


@dataclass(frozen=True, slots=True)
class _Visits:
    """A run's visits as problems (``seele.simulate.worlds.Problems``) that are visited once each."""

    instance_ids: list[str]
    """The same for every visit of a problem."""
    cuts: Cuts
    accuracy_NJ: Array

    def accuracy(self, ability_N: Array) -> Array:
        """Return the accuracies, which include ability already."""
        return self.accuracy_NJ


def measured(run: RunFolder) -> Course:
    """Return the course from the metrics of a run whose every step had rounds."""
    rows = [row for row in run.metrics if "accuracy/round_0" in row]
    rounds = run.settings["seele"]["hints"]["rounds"]

    def later(row: Any) -> float:
        return float(np.mean([row[f"accuracy/round_{index}"] for index in range(1, rounds)]))

    return Course(
        first_round_S=np.array([row["accuracy/round_0"] for row in rows]),
        later_rounds_S=np.array([later(row) for row in rows]),
        worth_S=np.array([row["rounds/mean_a_1_minus_a"] for row in rows]),
        hint_ratio_S=np.array([row["hint_ratio/mean"] for row in rows]),
    )


def predicted(run: RunFolder, *, heldout: str) -> Course:
    """Simulate the controller of ``run``, of the main task; ``heldout`` names its validation accuracy."""
    config = OmegaConf.create(run.settings)
    config.seele.selection.pop("min_ratio", None)  # a setting of older runs that decided nothing
    settings = read_settings(config)
    hints, seed = settings.hints, settings.seed
    batch_size = run.settings["data"]["train_batch_size"]
    num_steps = sum("accuracy/round_0" in row for row in run.metrics)
    names, ratio_PJ, is_legal_PJ, accuracy_PJ = base_world()
    curriculum = UniformCurriculum(len(names), seed=seed)
    drawn_N = np.concatenate([curriculum.draw(batch_size) for _ in range(num_steps)])
    validated = [(row["step"], row[heldout]) for row in run.metrics if heldout in row]
    unhinted_S = np.interp(np.arange(num_steps), *zip(*validated, strict=True))
    power_S = np.array([power_of(float(unhinted)) for unhinted in unhinted_S])
    accuracy_NJ = accuracy_PJ[drawn_N] ** np.repeat(power_S, batch_size)[:, None]
    is_legal_NJ = is_legal_PJ[drawn_N]
    world = _Visits(
        [names[problem] for problem in drawn_N],
        Cuts(ratio_PJ[drawn_N], is_legal_NJ),
        np.where(is_legal_NJ, accuracy_NJ, 0.0),
    )
    schedule = Schedule(hints=hints, batch_size=batch_size)
    controller = configured_controller(hints, seed=seed, training_steps=settings.training_steps)
    trace = simulate(controller, world, schedule, seed=seed)

    def by_step(values_N: Array) -> Array:
        return values_N.reshape(num_steps, batch_size).mean(axis=1)

    return Course(
        first_round_S=by_step(trace.accuracy_NVR[:, 0, 0]),
        later_rounds_S=by_step(trace.accuracy_NVR[:, 0, 1:].mean(axis=1)),
        worth_S=by_step(trace.worth_NVR[:, 0].mean(axis=1)),
        hint_ratio_S=by_step(trace.hint_ratio_NVR[:, 0].mean(axis=1)),
    )


@cache
def base_world() -> tuple[list[str], Array, Any, Array]:
    """Return the problems' names in the order of their file, hint ratios, which of these are legal, and
    accuracies, padded as in ``Cuts``.
    """
    measured_once = json.loads(BASE_ACCURACY.read_text())
    samples, accuracies = measured_once["conditions"]["samples"], measured_once["accuracy"]
    shape = (len(accuracies), max(map(len, accuracies.values())))
    ratio_PJ, is_legal_PJ, accuracy_PJ = np.ones(shape), np.zeros(shape, dtype=bool), np.ones(shape)
    for problem, values in enumerate(accuracies.values()):
        here = problem, slice(len(values))
        ratio_PJ[here] = np.arange(len(values)) / len(values)
        is_legal_PJ[here] = True
        # No success in 32 samples does not prove that there are none, hence the mean of Jeffreys' posterior.
        accuracy_PJ[here] = (np.array(values) * samples + 0.5) / (samples + 1.0)
    return [*accuracies], ratio_PJ, is_legal_PJ, accuracy_PJ


@cache
def power_of(unhinted: float) -> float:
    """Return the power that makes the mean un-hinted accuracy over all problems ``unhinted``; at most 1."""
    *_, accuracy_PJ = base_world()
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = 0.5 * (low + high)
        mean = (accuracy_PJ[:, 0] ** middle).mean()
        low, high = (low, middle) if mean < unhinted else (middle, high)
    return 0.5 * (low + high)


def by_thirds(runs: Sequence[Array]) -> str:
    """Mean over runs of the means over the first, second and last third of their (S,) steps."""
    thirds = []
    for third in range(3):
        parts = [run_S[len(run_S) * third // 3 : len(run_S) * (third + 1) // 3] for run_S in runs]
        thirds.append(f"{np.mean([part_S.mean() for part_S in parts]):.3f}")
    return " ".join(thirds)


def draw(pairs: Mapping[str, tuple[Sequence[Course], Sequence[Course]]]) -> bytes:
    """Return a PNG with a row for each of ``PANELS``, a column per arm, and measured and simulated means."""
    figure = Figure(figsize=(4.2 * len(pairs), 8.4), dpi=120, layout="constrained")
    grid = figure.subplots(len(PANELS), len(pairs), sharex="col", sharey="row", squeeze=False)
    for column, (arm, both) in zip(grid.T, pairs.items(), strict=True):
        for axes, (field, name) in zip(column, PANELS.items(), strict=True):
            for courses, label, colour in zip(both, ("measured", "simulated"), COLOURS, strict=False):
                shortest = min(len(getattr(course, field)) for course in courses)
                mean_S = np.mean([getattr(course, field)[:shortest] for course in courses], axis=0)
                axes.plot(np.arange(1, shortest + 1), mean_S, color=colour, label=label)
            axes.set_ylabel(name if axes in grid[:, 0] else "", fontsize="small")
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", alpha=0.25)
        column[0].set_title(arm)
        column[-1].set_xlabel("step")
    grid[0, 0].legend(frameon=False)
    return png(figure)
