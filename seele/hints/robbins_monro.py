"""Stochastic approximation (Robbins and Monro 1951): step against the error, with ever smaller gains.

It fits no curve, and in simulation it beats the paper's controller, which fits one after every round
(docs/controllers.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from seele.hints.contract import SequentialController, check_number, check_outcome, nearest_legal
from seele.records import State
from seele.saved_state import read_count, read_ratio, read_section


@dataclass(frozen=True, slots=True)
class _Track:
    """One problem's rate in [0, 1], and the number of rounds that updated it."""

    rate: float
    num_rounds: int = 0


class RobbinsMonroController(SequentialController):
    """Move each problem's rate after each of its rounds, over all visits.

        x <- x - gain_k (accuracy - target),  gain_k = max(gain / k^decay, smallest_gain)

    k counts the problem's rounds from 1. The floor under the gain is our addition: the policy changes between
    visits, so the crossing must be tracked, not found once.

    Args:
        target_accuracy: a* in (0, 1).
        start: Rate of a problem never seen before, in [0, 1].
        gain: Gain of the first round, in units of hint ratio per unit of accuracy.
        decay: Exponent of k. Without a floor, the rate converges for exponents in (1/2, 1].
        smallest_gain: Floor under the gain.
    """

    name = "robbins_monro"
    learns_from_own_hints = True

    def __init__(
        self,
        *,
        target_accuracy: float = 0.5,
        start: float = 0.5,
        gain: float = 0.5,
        decay: float = 1.0,
        smallest_gain: float = 0.1,
    ) -> None:
        self._target_accuracy = target_accuracy
        self._start = check_number("start", start, at_most=1.0)
        self._gain = check_number("gain", gain)
        self._decay = check_number("decay", decay, at_most=1.0)
        self._smallest_gain = check_number("smallest_gain", smallest_gain)
        self._tracks: dict[str, _Track] = {}

    def next_hint_ratio(self, instance_id: str, *, round_index: int, legal_ratios: Sequence[float]) -> float:
        """See ``Controller``."""
        return nearest_legal(self._track(instance_id).rate, legal_ratios)

    def observe(self, instance_id: str, *, hint_ratio: float, num_correct: int, num_rollouts: int) -> None:
        """See ``Controller``.

        Raises:
            ValueError: If the outcome is impossible.
        """
        _, correct, rollouts = check_outcome(hint_ratio, num_correct, num_rollouts)
        track = self._track(instance_id)
        num_rounds = track.num_rounds + 1
        gain = max(self._gain / num_rounds**self._decay, self._smallest_gain)
        rate = track.rate - gain * (correct / rollouts - self._target_accuracy)
        self._tracks[instance_id] = _Track(min(max(rate, 0.0), 1.0), num_rounds)

    def state_dict(self) -> State:
        """See ``Controller``. A track is [rate, rounds]."""
        return {
            **super().state_dict(),
            "tracks": {
                instance_id: [track.rate, track.num_rounds]
                for instance_id, track in sorted(self._tracks.items())
            },
        }

    def load_state_dict(self, state: State) -> None:
        """See ``Controller``. Settings are not part of the state: this controller keeps its own."""
        self._tracks = self._read_state(state, lambda saved: read_section(saved, "tracks", _read_track))

    def metrics(self) -> dict[str, float]:
        """See ``Controller``: the number of problems observed, and their mean rate if there are any."""
        rates = [track.rate for track in self._tracks.values()]
        return {"problems": float(len(rates)), **({"mean_rate": fmean(rates)} if rates else {})}

    def _track(self, instance_id: str) -> _Track:
        return self._tracks.get(instance_id, _Track(self._start))


def _read_track(value: Any) -> _Track:
    rate, num_rounds = value
    return _Track(read_ratio(rate), read_count(num_rounds))
