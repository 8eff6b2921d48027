"""The paper's controller: refit an item curve after every round and aim the next hint at the target accuracy.

SEELE (arXiv:2509.06923), Alg. 1 and section 4.2. Within a visit only that visit's rounds count; from visit to
visit only a rate is carried over. Where the paper leaves a choice, a comment states ours.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seele.errors import ConfigError
from seele.hints.contract import Controller, check_outcome, nearest_legal
from seele.maths.curve_grid import RATIOS
from seele.maths.irt import ItemCurve, invert, predict_accuracy
from seele.maths.irt_fit import fit_one_by_one, with_margins
from seele.maths.irt_grid_fit import fit_on_grid
from seele.records import AccuracyCurve, HintShare, RoundOutcome, RoundRequest, State
from seele.saved_state import read_count, read_ratio, read_section

STORE_RATES = ("last_used", "refit")
SOLVERS = {"trf": fit_one_by_one, "grid": fit_on_grid}


@dataclass(frozen=True, slots=True)
class Observation:
    """The outcome of one round: its hint ratio in [0, 1], and how many of its rollouts were correct."""

    hint_ratio: float
    num_correct: int
    num_rollouts: int

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
    """A visit in progress (the paper's memory C_x)."""

    is_hintable: bool = True
    """False if only one hint ratio is legal: there is no choice, so nothing is fitted."""
    observations: list[Observation] = field(default_factory=list)


class PaperController(Controller):
    """Choose the hint ratio at which the problem's fitted curve crosses the target accuracy.

    Round 0 uses the rate stored by the problem's previous visit, and on its first visit the largest legal
    ratio. Every later round fits the curve to the rounds of this visit and the margin points, and inverts it
    at the target. A fit that does not converge is counted and repeats the hint ratio of the round before.

    The margin point (0, 0) assumes failure without a hint until that is tried. With two steps there is no
    ratio in between: a problem that the first step always solves keeps that hint for good.

    Args:
        target_accuracy: a* in (0, 1), 0.5 in the paper (section 5.1).
        store_rate: The rate that a visit stores for the next one. ``refit`` fits once more with all rounds;
            ``last_used`` keeps the ratio of the last round. The paper's "final rate" may mean either; the
            first wastes no observation.
        solver: ``trf`` is the paper's trust-region-reflective solver. ``grid`` solves the same problem for
            many problems at once (``seele.maths.irt_grid_fit``), for simulations.
    """

    name = "paper"
    # A round 0 that lost its hint would otherwise take the place of the stored rate.
    learns_from_own_hints = True

    def __init__(
        self, *, target_accuracy: float = 0.5, store_rate: str = "refit", solver: str = "trf"
    ) -> None:
        if store_rate not in STORE_RATES:
            raise ConfigError(
                f"seele.hints.settings.store_rate: expected one of {STORE_RATES}, got {store_rate!r}"
            )
        if solver not in SOLVERS:
            raise ConfigError(
                f"seele.hints.settings.solver: expected one of {tuple(SOLVERS)}, got {solver!r}"
            )
        self._fit_all = SOLVERS[solver]
        self._target_accuracy = target_accuracy
        self._store_rate = store_rate
        self._stored_rates: dict[str, float] = {}
        self._visits: dict[str, _Visit] = {}
        self._last_fits: dict[str, FittedVisit] = {}
        self._counters = {"failed_fits": 0, "fits": 0}

    def plan_rounds(
        self, requests: Sequence[RoundRequest], *, num_rollouts: int
    ) -> list[tuple[HintShare, ...]]:
        """See ``Controller``. The first round of a visit has no curve to predict its accuracy. A later round
        without earlier observations has the hint of a first one.
        """
        for request in requests:
            if request.round_index == 0:
                # An interrupted visit never ended; its observations belong to an older policy.
                self._visits[request.instance_id] = _Visit(is_hintable=len(request.legal_ratios) > 1)
        to_fit = {
            request.instance_id: self._visits[request.instance_id].observations
            for request in requests
            if len(request.legal_ratios) > 1
            and request.instance_id in self._visits
            and self._visits[request.instance_id].observations
        }
        rates = self._refit(to_fit)
        plans: list[tuple[HintShare, ...]] = []
        for request in requests:
            ratio = self._choose(request, rates.get(request.instance_id))
            fit = self._last_fits.get(request.instance_id) if request.round_index else None
            predicted = None if fit is None else float(predict_accuracy(fit.curve, ratio))
            plans.append((HintShare(ratio, num_rollouts, predicted_accuracy=predicted),))
        return plans

    def _choose(self, request: RoundRequest, rate: float | None) -> float:
        if len(request.legal_ratios) == 1:
            return request.legal_ratios[0]
        if rate is None:
            rate = self._stored_rates.get(request.instance_id, max(request.legal_ratios))
        return nearest_legal(rate, request.legal_ratios)

    def observe_rounds(self, outcomes: Sequence[RoundOutcome]) -> None:
        """See ``Controller``.

        Raises:
            ValueError: If an outcome is impossible, before anything is counted.
        """
        checked = [check_outcome(seen.hint_ratio, seen.num_correct, seen.num_rollouts) for seen in outcomes]
        for seen, outcome in zip(outcomes, checked, strict=True):
            self._visits.setdefault(seen.instance_id, _Visit()).observations.append(Observation(*outcome))

    def end_visits(self, instance_ids: Sequence[str]) -> None:
        """Store the rates for later visits and forget the rounds. Without observations none is stored."""
        ended = {name: self._visits.pop(name) for name in dict.fromkeys(instance_ids) if name in self._visits}
        rounds = {
            name: visit.observations
            for name, visit in ended.items()
            if visit.is_hintable and visit.observations
        }
        if self._store_rate == "refit":
            self._stored_rates |= self._refit(rounds)
        else:
            self._stored_rates |= {name: seen[-1].hint_ratio for name, seen in rounds.items()}

    def state_dict(self) -> State:
        """See ``Controller``.

        A curve is [slope, shift, floor], an observation [hint_ratio, num_correct, num_rollouts].
        """
        return {
            **super().state_dict(),
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
        """See ``Controller``. Settings are not part of the state: this controller keeps its own."""
        counters, self._stored_rates, self._visits, self._last_fits = self._read_state(
            state,
            lambda saved: (
                read_section(saved, "counters", read_count),
                read_section(saved, "stored_rates", read_ratio),
                read_section(saved, "visits", _read_visit),
                read_section(saved, "last_fits", _read_fit),
            ),
        )
        self._counters = {key: counters.get(key, 0) for key in self._counters}

    def metrics(self) -> dict[str, float]:
        """See ``Controller``: numbers of fits since training began, and of problems."""
        return {
            **{key: float(count) for key, count in self._counters.items()},
            "stored_rates": float(len(self._stored_rates)),
            "open_visits": float(len(self._visits)),
        }

    def curves(self, instance_ids: Collection[str] | None = None) -> list[AccuracyCurve]:
        """See ``Controller``: the last fit of each problem."""
        return [
            AccuracyCurve(
                instance_id=instance_id,
                hint_ratios=tuple(RATIOS.tolist()),
                accuracies=tuple(predict_accuracy(fit.curve, RATIOS).tolist()),
                rounds=tuple((seen.hint_ratio, seen.accuracy) for seen in fit.observations),
            )
            for instance_id, fit in sorted(self._last_fits.items())
            if instance_ids is None or instance_id in instance_ids
        ]

    def _refit(self, rounds: Mapping[str, Sequence[Observation]]) -> dict[str, float]:
        """The hint ratio in [0, 1] at which each problem's observations, at least one, predict the target."""
        points = [
            with_margins([(seen.hint_ratio, seen.accuracy) for seen in observations])
            for observations in rounds.values()
        ]
        rates: dict[str, float] = {}
        for (name, observations), fit in zip(rounds.items(), self._fit_all(points), strict=True):
            self._counters["fits"] += 1
            if fit.converged:
                self._last_fits[name] = FittedVisit(fit.curve, tuple(observations))
                rates[name] = invert(fit.curve, self._target_accuracy)
            else:
                self._counters["failed_fits"] += 1
                rates[name] = observations[-1].hint_ratio
        return rates


def _write_observations(observations: Sequence[Observation]) -> list[list[float]]:
    return [[seen.hint_ratio, seen.num_correct, seen.num_rollouts] for seen in observations]


def _read_observations(value: Any) -> list[Observation]:
    return [Observation(*check_outcome(*entry)) for entry in value]


def _read_visit(value: Any) -> _Visit:
    return _Visit(
        is_hintable=bool(value["is_hintable"]), observations=_read_observations(value["observations"])
    )


def _read_fit(value: Any) -> FittedVisit:
    return FittedVisit(ItemCurve(*value["curve"]), tuple(_read_observations(value["observations"])))
