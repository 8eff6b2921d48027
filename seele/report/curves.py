"""Fitted accuracy-hint curves of single problems, read back from the hint controller's saved state.

Only the state's JSON is known here, not the controllers: stages exchange values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seele.maths.irt import ItemCurve, invert


@dataclass(frozen=True, slots=True)
class FittedProblem:
    """One problem's last fitted curve and the rounds that it was fitted to."""

    instance_id: str
    curve: ItemCurve
    observations: tuple[tuple[float, float], ...]
    """(hint ratio, accuracy) of each round, in order."""


def read_fits(controller: Mapping[str, Any]) -> list[FittedProblem]:
    """All fitted problems of a controller's state, by id; none where the controller fits no curves."""
    entries = controller.get("last_fits")
    if not isinstance(entries, Mapping):
        return []
    fits = []
    for instance_id, entry in sorted(entries.items()):
        try:
            observations = tuple(
                (float(ratio), correct / total) for ratio, correct, total in entry["observations"]
            )
            fits.append(FittedProblem(str(instance_id), ItemCurve(*entry["curve"]), observations))
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            # Another controller's format: there is no curve to show, and nothing for the reader to repair.
            continue
    return fits


def choose_problems(fits: list[FittedProblem], *, count: int, target_accuracy: float) -> list[FittedProblem]:
    """``count`` problems from easy to hard, among those whose rounds tried the most different hints."""
    tried = {fit.instance_id: len({ratio for ratio, _ in fit.observations}) for fit in fits}
    most_tried = sorted(fits, key=lambda fit: (-tried[fit.instance_id], fit.instance_id))
    # Four times as many as shown: enough to span easy and hard, few enough to have tried several hints.
    candidates = sorted(most_tried[: 4 * count], key=lambda fit: invert(fit.curve, target_accuracy))
    if len(candidates) <= count:
        return candidates
    return [candidates[round(i * (len(candidates) - 1) / (count - 1))] for i in range(count)]
