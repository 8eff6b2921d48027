"""Learning-Zone Energy: learn from groups with an uncertain outcome, on problems that were hard at first.

Source: arXiv:2605.17003 and ``backward_scorer.py`` of its code (github.com/Stellaris167/LZE, commit 1180f7b);
``docs/selection.md`` lists the differences. Energies save updates, not rollouts: every problem is rolled out
before its energy is known. ``seele.curriculum.pruning`` saves rollouts.

N counts the groups of a step.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from seele.config.settings import SelectionConfig
from seele.records import State
from seele.rounding import at_most
from seele.saved_state import read_count, read_ratio, read_state

Array = NDArray[np.float64]

# The anchor of a problem solved at first sight: it may still be kept when nothing harder is uncertain.
SMALLEST_ANCHOR = 0.05
# Noise is relative to the spread of energies. Groups of about equal energy are still shuffled a little.
SMALLEST_SPREAD = 0.01
# Separates the noise from other draws with the run's seed and a small number, such as a curriculum's arms.
STREAM = int.from_bytes(b"lze")


def energy(pass_rate: Array, first_pass_rate: Array, average: Array, *, momentum: float) -> Array:
    """Return the Learning-Zone Energy of each group.

        E = max(1 - p0, 0.05) * 4 p (1 - p) * (1 + momentum * min(2 |p - average|, 1))

    This is the difficulty at first sight, times the variance of 0/1 rewards (scaled to at most 1), increased
    by how far the pass rate has moved. It is exactly 0 at pass rates 0 and 1.

    Args:
        pass_rate: (N,) pass rate p now, in [0, 1]: the share of correct rollouts, or graded rewards' mean.
        first_pass_rate: (N,) pass rate p0 when the problem was first seen.
        average: (N,) moving average of the pass rate, without this observation.
        momentum: Weight of the movement, 0 or more; alpha in the paper.

    Returns:
        (N,) energies in [0, 1 + momentum].
    """
    anchor = np.maximum(1.0 - first_pass_rate, SMALLEST_ANCHOR)
    uncertainty = 4.0 * pass_rate * (1.0 - pass_rate)
    movement = np.minimum(2.0 * np.abs(pass_rate - average), 1.0)
    return anchor * uncertainty * (1.0 + momentum * movement)


class LearningZoneSelection:
    """Keep the groups of highest energy, after a warm-up that keeps all groups with any energy.

    A group whose rewards all agree has no energy and is never kept, not even during warm-up. Its pooled
    advantages are zero, divided by their standard deviation or not, so its rewards contribute no gradient.
    Any other contribution is lost: from terms that do not depend on rewards (KL, imitation), from overlong
    penalties and credit by milestones, or with a baseline from elsewhere (``hint_conditional``).

    The pass rate must be 0 or 1 where the baseline compares parts of a group and rewards agree within each.
    The Gumbel noise depends on the seed and the number of selections so far, so that a resumed run makes the
    same selections. The order of the groups does not matter.
    """

    name: ClassVar[str] = "lze"
    _HEADER: ClassVar[State] = {"selection": name, "version": 1}

    def __init__(self, config: SelectionConfig, *, seed: int) -> None:
        self._config = config
        self._seed = seed
        self._num_selections = 0
        # By instance id: pass rate at first sight, and its moving average.
        self._histories: dict[str, tuple[float, float]] = {}
        self._metrics: dict[str, float] = {}

    def select(self, pass_rates: Mapping[str, float], *, epoch: float) -> list[str]:
        """See ``Selection``. A step without groups does not count as a selection and changes nothing."""
        if not pass_rates:
            return []
        # Sorted, because noise depends on position and pass rates may come in the order rollouts ended.
        instance_ids = sorted(pass_rates)
        rates = np.array([pass_rates[name] for name in instance_ids], dtype=np.float64)
        assert ((rates >= 0.0) & (rates <= 1.0)).all(), f"a pass rate lies in [0, 1], got {rates}"
        energies = self._observe(instance_ids, rates)
        target_ratio = self._target_ratio(epoch)
        num_wanted = max(1, at_most(target_ratio, len(rates)))
        kept = {instance_ids[position] for position in self._ranked(energies)[:num_wanted]}
        self._num_selections += 1
        self._metrics = _summary(rates, energies, num_kept=len(kept), target_ratio=target_ratio)
        return [name for name in pass_rates if name in kept]

    def state_dict(self) -> State:
        """See ``Selection``. A problem is stored as [pass rate at first sight, moving average]."""
        return {
            **self._HEADER,
            "num_selections": self._num_selections,
            "problems": {name: list(history) for name, history in sorted(self._histories.items())},
        }

    def load_state_dict(self, state: State) -> None:
        """See ``Selection``. The settings are not part of the state: this selection keeps its own."""
        self._num_selections, self._histories = read_state(state, header=self._HEADER, read=_read)

    def metrics(self) -> dict[str, float]:
        """See ``Selection``. Empty before the first selection; without energies if no group has any."""
        return dict(self._metrics)

    def _observe(self, instance_ids: list[str], rates: Array) -> Array:
        """Return (N,) energies relative to the earlier averages, then update the averages."""
        known = [self._histories.get(name, (p, p)) for name, p in zip(instance_ids, rates, strict=True)]
        first, average = np.array(known).T
        decay = self._config.decay
        moved = decay * average + (1.0 - decay) * rates
        histories = zip(first.tolist(), moved.tolist(), strict=True)
        self._histories.update(zip(instance_ids, histories, strict=True))
        return energy(rates, first, average, momentum=self._config.momentum)

    def _target_ratio(self, epoch: float) -> float:
        """Return the share of the groups to keep: 1 during warm-up, then falling linearly to ``ratio``."""
        since_warmup = epoch - self._config.warmup_epochs
        if self._config.transition_epochs > 0.0:
            progress = min(max(since_warmup / self._config.transition_epochs, 0.0), 1.0)
        else:
            progress = float(since_warmup >= 0.0)
        return (1.0 - progress) + progress * self._config.ratio

    def _ranked(self, energies: Array) -> NDArray[np.intp]:
        """Return the positions of the groups with energy, highest noisy energy first, ties by id."""
        eligible = np.flatnonzero(energies > 0.0)
        if not eligible.size:
            return eligible
        spread = max(float(np.ptp(energies[eligible])), SMALLEST_SPREAD)
        generator = np.random.default_rng([self._seed, self._num_selections, STREAM])
        noise = generator.gumbel(scale=self._config.noise * spread, size=eligible.size)
        return eligible[np.argsort(-(energies[eligible] + noise), kind="stable")]


def _summary(rates: Array, energies: Array, *, num_kept: int, target_ratio: float) -> dict[str, float]:
    alive = energies[energies > 0.0]
    of_energy = {"mean": alive.mean(), "max": alive.max(), "min": alive.min()} if alive.size else {}
    return {
        **{f"energy_{name}": float(value) for name, value in of_energy.items()},
        "pass_rate_mean": float(rates.mean()),
        "selected_ratio": num_kept / len(rates),
        "selected_groups": float(num_kept),
        "target_ratio": target_ratio,
        "dead_group_share": 1.0 - alive.size / len(rates),
    }


def _read(state: Mapping[str, Any]) -> tuple[int, dict[str, tuple[float, float]]]:
    histories = {
        name: (read_ratio(first), read_ratio(average)) for name, (first, average) in state["problems"].items()
    }
    return read_count(state["num_selections"]), histories
