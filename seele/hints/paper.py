"""The paper's controller: refit an item curve after every round and aim the next hint at the target accuracy.

SEELE (arXiv:2509.06923), Alg. 1 and section 4.2. Within a visit only that visit's rounds count; from visit to
visit nothing but a rate is carried over. Where the text leaves a choice, the comment at the place says which
we made.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from seele.errors import ConfigError
from seele.hints.contract import nearest_legal
from seele.hints.state import check_state, read_section, state_header
from seele.maths.irt import ItemCurve, invert
from seele.maths.irt_fit import fit_curve, with_margins
from seele.records import State

STORE_RATES = ("last_used", "refit")

_VERSION = 1
_SECTIONS = ("counters", "stored_rates", "visits", "last_fits")


@dataclass(frozen=True, slots=True)
class Observation:
    """The outcome of one round: its hint ratio in [0, 1], and how many of its rollouts were correct."""

    hint_ratio: float
    num_correct: int
    num_rollouts: int

    def __post_init__(self) -> None:
        if not (0.0 <= self.hint_ratio <= 1.0 and 0 <= self.num_correct <= self.num_rollouts > 0):
            raise ValueError(
                f"hint_ratio must lie in [0, 1], num_correct in 0..num_rollouts, num_rollouts > 0; got {self}"
            )

    @property
    def accuracy(self) -> float:
        """Share of the rollouts that were correct, in [0, 1]."""
        return self.num_correct / self.num_rollouts


@dataclass(frozen=True, slots=True)
class FittedVisit:
    """The last curve fitted for a problem, with the rounds it was fitted to (margin points not included)."""

    curve: ItemCurve
    observations: tuple[Observation, ...]


@dataclass(slots=True)
class _Visit:
    """A visit under way (the paper's memory C_x)."""

    is_hintable: bool = True
    """False where only one hint ratio is legal: nothing can be chosen, so nothing is fitted."""
    observations: list[Observation] = field(default_factory=list)


class PaperController:
    """Choose the hint ratio at which the problem's fitted curve crosses the target accuracy.

    Round 0 uses the rate stored by the problem's previous visit, and on its first visit the largest legal
    ratio. Every later round fits the curve to the rounds of this visit and the margin points, and inverts it
    at the target. A fit that does not converge is counted and repeats the hint ratio of the round before.

    The margin point (0, 0) claims failure without hint until that is tried. With two steps there is nothing
    between: a problem that the first step always solves keeps that hint for good.

    Args:
        target_accuracy: a* in (0, 1), 0.5 in the paper (section 5.1).
        store_rate: What a visit leaves for the next one. ``refit`` fits once more with all rounds;
            ``last_used`` keeps the ratio of the last round. The paper's "final rate" may mean either; the
            first wastes no observation.
    """

    name: ClassVar[str] = "paper"

    def __init__(self, *, target_accuracy: float = 0.5, store_rate: str = "refit") -> None:
        if store_rate not in STORE_RATES:
            raise ConfigError(f"seele.hints.store_rate: expected one of {STORE_RATES}, got {store_rate!r}")
        self._target_accuracy = target_accuracy
        self._store_rate = store_rate
        self._stored_rates: dict[str, float] = {}
        self._visits: dict[str, _Visit] = {}
        self._last_fits: dict[str, FittedVisit] = {}
        self._counters = {"failed_fits": 0, "fits": 0}

    def next_hint_ratio(self, instance_id: str, *, round_index: int, legal_ratios: Sequence[float]) -> float:
        """See ``Controller``. A round without any observation before it is treated like round 0."""
        if round_index == 0:
            # A visit that was cut off never ended; its observations belong to an older policy.
            self._visits[instance_id] = _Visit(is_hintable=len(legal_ratios) > 1)
        if len(legal_ratios) == 1:
            return legal_ratios[0]
        visit = self._visits.get(instance_id)
        if visit is None or not visit.observations:
            rate = self._stored_rates.get(instance_id, max(legal_ratios))
        else:
            rate = self._refit(instance_id, visit.observations)
        return nearest_legal(rate, legal_ratios)

    def observe(self, instance_id: str, *, hint_ratio: float, num_correct: int, num_rollouts: int) -> None:
        """See ``Controller``.

        Raises:
            ValueError: If the ratio is outside [0, 1], no rollout is counted, or more are correct than that.
        """
        # Plain Python numbers: NumPy's do not survive JSON.
        observation = Observation(float(hint_ratio), int(num_correct), int(num_rollouts))
        self._visits.setdefault(instance_id, _Visit()).observations.append(observation)

    def end_visit(self, instance_id: str) -> None:
        """Store the rate for the next visit and forget the rounds. Without observations there is none."""
        visit = self._visits.pop(instance_id, None)
        if visit is None or not visit.is_hintable or not visit.observations:
            return
        if self._store_rate == "refit":
            self._stored_rates[instance_id] = self._refit(instance_id, visit.observations)
        else:
            self._stored_rates[instance_id] = visit.observations[-1].hint_ratio

    def last_fit(self, instance_id: str) -> FittedVisit | None:
        """The last curve that was fitted for the problem, or None before the first."""
        return self._last_fits.get(instance_id)

    def state_dict(self) -> State:
        """See ``Controller``.

        A curve is [slope, shift, floor], an observation [hint_ratio, num_correct, num_rollouts].
        """
        return {
            **state_header(self.name, _VERSION),
            "counters": dict(self._counters),
            "stored_rates": dict(sorted(self._stored_rates.items())),
            "visits": {
                instance_id: {
                    "is_hintable": visit.is_hintable,
                    "observations": _write_observations(visit.observations),
                }
                for instance_id, visit in sorted(self._visits.items())
            },
            "last_fits": {
                instance_id: {
                    "curve": [fit.curve.slope, fit.curve.shift, fit.curve.floor],
                    "observations": _write_observations(fit.observations),
                }
                for instance_id, fit in sorted(self._last_fits.items())
            },
        }

    def load_state_dict(self, state: State) -> None:
        """See ``Controller``. The settings are not part of the state: those of this controller stay."""
        check_state(state, header=state_header(self.name, _VERSION), sections=_SECTIONS)
        counters = read_section(state, "counters", _read_count)
        stored_rates = read_section(state, "stored_rates", _read_rate)
        visits = read_section(state, "visits", _read_visit)
        last_fits = read_section(state, "last_fits", _read_fit)
        self._counters = {key: counters.get(key, 0) for key in self._counters}
        self._stored_rates, self._visits, self._last_fits = stored_rates, visits, last_fits

    def metrics(self) -> dict[str, float]:
        """See ``Controller``: fits since training began, and numbers of problems."""
        return {
            **{key: float(count) for key, count in self._counters.items()},
            "stored_rates": float(len(self._stored_rates)),
            "open_visits": float(len(self._visits)),
        }

    def _refit(self, instance_id: str, observations: Sequence[Observation]) -> float:
        """The hint ratio in [0, 1] that the observations, at least one, predict to meet the target."""
        fit = fit_curve(with_margins([(seen.hint_ratio, seen.accuracy) for seen in observations]))
        self._counters["fits"] += 1
        if not fit.converged:
            self._counters["failed_fits"] += 1
            return observations[-1].hint_ratio
        self._last_fits[instance_id] = FittedVisit(fit.curve, tuple(observations))
        return invert(fit.curve, self._target_accuracy)


def _write_observations(observations: Sequence[Observation]) -> list[list[float]]:
    return [[seen.hint_ratio, seen.num_correct, seen.num_rollouts] for seen in observations]


def _read_observations(value: Any) -> list[Observation]:
    return [Observation(*entry) for entry in value]


def _read_visit(value: Any) -> _Visit:
    return _Visit(
        is_hintable=bool(value["is_hintable"]), observations=_read_observations(value["observations"])
    )


def _read_fit(value: Any) -> FittedVisit:
    return FittedVisit(ItemCurve(*value["curve"]), tuple(_read_observations(value["observations"])))


def _read_rate(value: Any) -> float:
    if not 0.0 <= value <= 1.0:
        raise ValueError("a rate lies in [0, 1]")
    return float(value)


def _read_count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError("a count is a whole number, 0 or more")
    return value
