"""Accuracy-hint curves of single problems, from the hint controller that a run saved."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from seele.config import HintConfig, from_mapping
from seele.errors import SeeleError
from seele.hints import CONTROLLERS, Controller, aims_at_target, configured_controller
from seele.records import AccuracyCurve
from seele.report.run_folder import RunFolder
from seele.report.series import spread_evenly

BUILT_WITH = (
    *("rounds", "rollouts_per_prompt", "round_sizes", "target_accuracy"),
    *("when", "dropout", "settings"),
)
"""Settings of ``seele.hints`` that a saved controller is built with, beside its name."""


@dataclass(frozen=True, slots=True)
class FittedProblem:
    """One problem's curve and the last rounds that it is based on."""

    curve: AccuracyCurve
    observations: tuple[tuple[int, float, float], ...]
    """(number of the round from 1, hint ratio, accuracy), in order; a round may have several hints."""

    @property
    def instance_id(self) -> str:
        """Id of the problem."""
        return self.curve.instance_id

    def crossing(self, target_accuracy: float) -> float:
        """The curve's first hint ratio that reaches the target, or its last if none does."""
        position = int(np.searchsorted(self.curve.accuracies, target_accuracy))
        return self.curve.hint_ratios[min(position, len(self.curve.hint_ratios) - 1)]


def saved_controller(run: RunFolder) -> Controller | None:
    """Restore the controller from the newest checkpoint.

    None if it cannot be built or restored, as with an older release's state or a missing file, or if it would
    have to be imported and ``run.own_parts`` is false.
    """
    name = _controller_name(run)
    if not _may_build(run, name):
        return None
    saved = run.setting("seele.hints") or {}
    try:
        # Settings that only another release knows do not matter.
        known = {key: value for key, value in saved.items() if key in BUILT_WITH}
        hints = from_mapping(HintConfig, known | {"controller": name}, "seele.hints")
        controller = configured_controller(hints)
        controller.load_state_dict(run.controller)
    except (SeeleError, AttributeError, TypeError):
        return None
    return controller


def skipped_controller(run: RunFolder) -> str | None:
    """A sentence on the controller of the run that is not imported; None if none is skipped."""
    name = _controller_name(run)
    if not name or _may_build(run, name):
        return None
    return (
        f"The controller {name} is not one of SEELE's, so its curves are left out: --own-parts imports it, "
        "which executes its code."
    )


def _controller_name(run: RunFolder) -> str:
    return str(run.setting("seele.hints.controller") or run.controller.get("controller", ""))


def _may_build(run: RunFolder, name: str) -> bool:
    return run.own_parts or name in CONTROLLERS


def fitted_problems(run: RunFolder) -> list[FittedProblem]:
    """Return the problems that the run's controller has a curve for; see ``with_rounds``."""
    if (controller := saved_controller(run)) is None:
        return []
    rollouts = [
        (each.instance_id, each.round, each.hint_ratio, each.is_correct)
        for each in run.rollouts
        if not each.is_given
    ]
    # All curves of a large run take a gigabyte, and a curve without rounds is shown with those of rollouts.
    curves = controller.curves({instance_id for instance_id, *_ in rollouts})
    if not curves or curves[0].rounds:
        curves = controller.curves()
    return with_rounds(curves, rollouts)


def with_rounds(
    curves: Iterable[AccuracyCurve], rollouts: Iterable[tuple[str, int, float, bool]]
) -> list[FittedProblem]:
    """Return the curves with the rounds that they were fitted to, or else those of the rollouts. Problems
    without either are skipped.

    Args:
        curves: At most one of each problem.
        rollouts: Problem, round from 0, hint ratio, and whether the answer was correct.
    """
    corrects: dict[str, dict[tuple[int, float], list[bool]]] = defaultdict(lambda: defaultdict(list))
    for instance_id, number, ratio, is_correct in rollouts:
        corrects[instance_id][number + 1, ratio].append(is_correct)
    problems = []
    for curve in curves:
        observations = tuple((number, *seen) for number, seen in enumerate(curve.rounds, start=1)) or tuple(
            (number, ratio, float(np.mean(values)))
            for (number, ratio), values in sorted(corrects.get(curve.instance_id, {}).items())
        )
        if observations:
            problems.append(FittedProblem(curve, observations))
    return problems


def aimed_accuracy(run: RunFolder) -> float | None:
    """The accuracy that the run's controller aims at, if its settings say so."""
    name, target = run.setting("seele.hints.controller"), run.setting("seele.hints.target_accuracy")
    if not isinstance(target, int | float) or not 0 < target < 1:
        return None
    if (run.setting("seele.hints.settings") or {}).get("spread"):  # of ``bayes``: rollouts over all hints
        return None
    if name is None:
        return float(target)
    try:
        return float(target) if _may_build(run, str(name)) and aims_at_target(str(name)) else None
    except SeeleError:  # a user's own controller whose file is gone
        return None


def choose_problems(fits: list[FittedProblem], *, count: int, target_accuracy: float) -> list[FittedProblem]:
    """Choose ``count`` problems, easy to hard, among those whose rounds tried the most different hints."""
    tried = {fit.instance_id: len({ratio for _, ratio, _ in fit.observations}) for fit in fits}
    most_tried = sorted(fits, key=lambda fit: (-tried[fit.instance_id], fit.instance_id))
    # Four times as many as shown: enough to span easy and hard, few enough to have tried several hints.
    candidates = sorted(most_tried[: 4 * count], key=lambda fit: fit.crossing(target_accuracy))
    return spread_evenly(candidates, count)
