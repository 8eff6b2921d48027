"""Accuracy-hint curves of single problems, read back from the hint controller's saved state.

This module knows the state's JSON and not the controllers: stages exchange values.
"""

import base64
import binascii
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seele.maths import curve_grid
from seele.maths.irt import ItemCurve, predict_accuracy
from seele.report.run_folder import RolloutLine


@dataclass(frozen=True, slots=True)
class FittedProblem:
    """One problem's curve and the last rounds that it rests on."""

    instance_id: str
    accuracy: tuple[float, ...]
    """What the curve says at each of ``curve_grid.RATIOS``, never decreasing."""
    observations: tuple[tuple[int, float, float], ...]
    """(number of the round from 1, hint ratio, accuracy), in order; a round may have several hints."""

    def crossing(self, target_accuracy: float) -> float:
        """The first of ``curve_grid.RATIOS`` with at least the target; 1 if there is none."""
        position = int(np.searchsorted(self.accuracy, target_accuracy))
        return float(curve_grid.RATIOS[min(position, len(self.accuracy) - 1)])


def read_beliefs(controller: Mapping[str, Any], rollouts: Sequence[RolloutLine]) -> list[FittedProblem]:
    """The problems that ``rollouts`` visited, by id, with what the Bayesian controller believes of them.

    None where the state is not of that controller, or of another form.
    """
    try:
        kept = controller["beliefs"]["problems"]
        rows = np.frombuffer(base64.b64decode(kept["rows"]), dtype=curve_grid.PACKED)
        row_of = {str(name): row for name, row in zip(kept["instance_ids"], rows, strict=True)}
    except (KeyError, TypeError, ValueError, binascii.Error):
        return []
    corrects: dict[str, dict[tuple[int, float], list[bool]]] = defaultdict(lambda: defaultdict(list))
    for line in rollouts:
        if line.instance_id in row_of:
            corrects[line.instance_id][line.round, line.hint_ratio].append(line.is_correct)
    problems = []
    for instance_id, groups in sorted(corrects.items()):
        belief_1G = curve_grid.join_belief(*curve_grid.unpack(np.stack([row_of[instance_id]])))
        accuracy_T = curve_grid.expected_accuracy(belief_1G / belief_1G.sum())[0]
        observations = tuple(
            (index + 1, ratio, float(np.mean(values))) for (index, ratio), values in sorted(groups.items())
        )
        problems.append(FittedProblem(instance_id, tuple(accuracy_T.tolist()), observations))
    return problems


def read_fits(controller: Mapping[str, Any]) -> list[FittedProblem]:
    """All fitted problems of a controller's state, by id; none where the controller fits no curves."""
    entries = controller.get("last_fits")
    if not isinstance(entries, Mapping):
        return []
    fits = []
    for instance_id, entry in sorted(entries.items()):
        try:
            observations = tuple(
                (number, float(ratio), correct / total)
                for number, (ratio, correct, total) in enumerate(entry["observations"], start=1)
            )
            accuracy_T = predict_accuracy(ItemCurve(*entry["curve"]), curve_grid.RATIOS)
            fits.append(FittedProblem(str(instance_id), tuple(accuracy_T.tolist()), observations))
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            # Another controller's format: there is no curve to show, and nothing for the reader to repair.
            continue
    return fits


def choose_problems(fits: list[FittedProblem], *, count: int, target_accuracy: float) -> list[FittedProblem]:
    """``count`` problems from easy to hard, among those whose rounds tried the most different hints."""
    tried = {fit.instance_id: len({ratio for _, ratio, _ in fit.observations}) for fit in fits}
    most_tried = sorted(fits, key=lambda fit: (-tried[fit.instance_id], fit.instance_id))
    # Four times as many as shown: enough to span easy and hard, few enough to have tried several hints.
    candidates = sorted(most_tried[: 4 * count], key=lambda fit: fit.crossing(target_accuracy))
    if len(candidates) <= count:
        return candidates
    return [candidates[round(i * (len(candidates) - 1) / (count - 1))] for i in range(count)]
