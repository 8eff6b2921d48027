"""Our controller: a belief about every problem's curve, carried from visit to visit.

Where the paper's controller (``seele.hints.paper``) fits a curve to the rounds of one visit and forgets it,
this one keeps a probability for each of many curves (``seele.maths.curve_grid``):

* a problem never seen before starts from the population, which is learnt from all visits;
* every round updates the belief by Bayes' rule, with the binomial likelihood of its rollouts;
* between two visits the policy changes, so beliefs move by a drift whose distribution is also learnt;
* the hint is the legal one with the largest expected a(1 - a), uncertainty included.

docs/controllers.md tells which of these matter, and how much.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from seele.errors import ConfigError
from seele.hints.beliefs import Beliefs
from seele.hints.contract import Controller, check_count, check_number, check_outcome
from seele.hints.withdrawal import Withdrawal
from seele.maths import curve_grid
from seele.maths.curve_grid import Array32
from seele.maths.irt import Array
from seele.records import AccuracyCurve, HintShare, RoundOutcome, RoundRequest, State
from seele.saved_state import read_count, read_ratio, read_section, read_two_counts, read_value

TIE = 1e-5
"""Hints whose expected worths differ by less than this are equal; the shorter one is chosen."""


@dataclass(slots=True)
class _Visit:
    """A visit in progress."""

    outcomes: dict[float, tuple[int, int]] = field(default_factory=dict)
    """Hint ratio -> numbers of correct and wrong rollouts under it: sums, so the order of observations does
    not matter."""
    largest_ratio: float = 0.0
    probes_due: int = 0
    """Un-hinted rollouts that the first round was planned with; 0 if none is a probe, and once they have come
    and the next round is planned."""
    probes: tuple[int, int] = (0, 0)
    """Numbers of correct and of all un-hinted rollouts of the first round: the policy's own ability, counted
    when the visit ends. A probe cannot be told from a rollout that the best hint, or dropout, left without
    help."""


class BayesController(Controller):
    """Choose the legal hint ratio with the largest expected a(1 - a), given all observations.

    A visit's hints depend on the problem and on visits that have ended, not on other visits in progress.
    Training ends a step's visits together, so no hint depends on which problem was quicker.

    Args:
        rounds: Rounds of a visit.
        rollouts_per_round: Rollouts of the first round, None if unknown.
        target_accuracy: a* in (0, 1). If it is not 1/2, the worth of an accuracy peaks at a*
            (``curve_grid.utility_table``).
        probes: Rollouts of each visit's first round that get no hint (``plan_rounds``). They measure the
            policy's own ability, and count as observations like all others. A visit of one round has fewer
            where given rollouts leave it none that is not a probe.
        settle_below: A visit's rounds end early, with its remaining rollouts in one round, once knowing the
            problem's curve exactly would raise the expected a(1 - a) by less than this. With 0 they end early
            only where a single hint is allowed.
        spread: Whether to spread a round's rollouts evenly over all legal hints instead. Beliefs are still
            updated but choose nothing.
        withdraw_from: Step at which the largest allowed hint ratio begins to fall, linearly.
        withdraw_by: First step without hints; None, without ``withdraw_from``, to leave it to the accuracy.
        withdraw_at: Mean accuracy of the probes at which hints end; None for never.
        uses_memory: See ``Beliefs``, also for the two below; ablations switch them off.
        learns_population: See ``Beliefs``.
        learns_drift: See ``Beliefs``.
    """

    name = "bayes"
    tolerates_partial_rounds = True

    def __init__(
        self,
        *,
        rounds: int,
        rollouts_per_round: int | None = None,
        target_accuracy: float = 0.5,
        probes: int = 0,
        settle_below: float = 0.0,
        spread: bool = False,
        withdraw_from: int = 0,
        withdraw_by: int | None = None,
        withdraw_at: float | None = None,
        uses_memory: bool = True,
        learns_population: bool = True,
        learns_drift: bool = True,
    ) -> None:
        self._probes = check_count("probes", probes, at_least=0)
        # A visit needs rollouts that are not probes.
        most = None if rollouts_per_round is None else rollouts_per_round - (rounds == 1)
        if most is not None and probes > most:
            raise ConfigError(
                f"seele.hints.settings.probes: expected at most {most} of the {rollouts_per_round} rollouts "
                f"of the first of {rounds} rounds, got {probes}"
            )
        if withdraw_at is not None and probes == 0:
            raise ConfigError(
                "seele.hints.settings.withdraw_at: needs un-hinted rollouts; set probes to at least 1"
            )
        if spread and (probes or settle_below):
            raise ConfigError(
                "seele.hints.settings.spread: true allows no probes and no early end of rounds; got "
                f"probes={probes}, settle_below={settle_below}; set both to 0"
            )
        switches = {
            "spread": spread,
            "uses_memory": uses_memory,
            "learns_population": learns_population,
            "learns_drift": learns_drift,
        }
        for key, value in switches.items():
            if not isinstance(value, bool):
                raise ConfigError(f"seele.hints.settings.{key}: expected true or false, got {value!r}")
        self._not_probes = int(rounds == 1)
        self._spread = spread
        self._settle_below = check_number("settle_below", settle_below)
        self._withdrawal = Withdrawal(begin=withdraw_from, end=withdraw_by, accuracy=withdraw_at)
        self._worth_GT = curve_grid.utility_table(target_accuracy)
        self._beliefs = Beliefs(
            uses_memory=uses_memory, learns_population=learns_population, learns_drift=learns_drift
        )
        self._visits: dict[str, _Visit] = {}

    # ------------------------------------------------------------------ hints

    def begin_step(self, step: int) -> None:
        """See ``Controller``: sets the clock of the withdrawal."""
        self._withdrawal.begin_step(step)

    def plan_rounds(
        self, requests: Sequence[RoundRequest], *, num_rollouts: int
    ) -> list[tuple[HintShare, ...]]:
        """See ``Controller``: the probes of the first round, then one hint or all legal hints for the others.
        Plans all remaining rollouts if the curve is known well enough.
        """
        self._open_visits(requests)
        for visit in (self._visits.get(each.instance_id) for each in requests if each.round_index):
            if visit is not None and visit.probes[1] >= visit.probes_due:
                visit.probes_due = 0
        belief_NG = self._current([request.instance_id for request in requests])
        accuracy_NT = curve_grid.expected_accuracy(belief_NG)
        choices = self._choose(belief_NG, [request.legal_ratios for request in requests])
        plans = []
        for request, belief_G, accuracy_T, (allowed, best) in zip(
            requests, belief_NG, accuracy_NT, choices, strict=True
        ):
            can_probe = request.round_index == 0 and 0.0 in request.legal_ratios
            probes = min(self._probes, num_rollouts - self._not_probes) if can_probe else 0
            size = num_rollouts
            if request.rollouts_left and self._is_settled(belief_G, allowed):
                size = request.rollouts_left
            plan = [HintShare(0.0, probes, is_probe=True)] if probes else []
            hinted = size - probes
            if self._spread:
                # Rollout j of n gets hint j S / n of the S legal ones, beginning with no hint.
                levels = Counter(rollout * len(allowed) // hinted for rollout in range(hinted))
                plan = [HintShare(float(allowed[level]), count) for level, count in levels.items()]
            elif hinted:
                plan.append(HintShare(float(allowed[best]), hinted))
            if probes:
                due = sum(share.num_rollouts for share in plan if share.hint_ratio == 0.0)
                self._visits[request.instance_id].probes_due = due
            predicted = np.interp([share.hint_ratio for share in plan], curve_grid.RATIOS, accuracy_T)
            plans.append(
                tuple(
                    replace(share, predicted_accuracy=float(accuracy))
                    for share, accuracy in zip(plan, predicted, strict=True)
                )
            )
        return plans

    def _choose(self, belief_NG: Array32, legal_ratios: Sequence[Sequence[float]]) -> list[tuple[Array, int]]:
        """For each belief, the allowed ratios and the index of the best one."""
        choices = []
        for worth_T, legal in zip(belief_NG @ self._worth_GT, legal_ratios, strict=True):
            allowed = self._withdrawal.allowed(legal)
            worth = np.interp(allowed, curve_grid.RATIOS, worth_T)
            choices.append((allowed, int(np.argmax(worth >= worth.max() - TIE))))
        return choices

    def _is_settled(self, belief_G: Array32, allowed: Array) -> bool:
        if len(allowed) == 1:
            return True
        # Rounding may put the worth slightly below 0, which must not end rounds by default.
        return self._settle_below > 0.0 and self._worth_of_knowing(belief_G, allowed) < self._settle_below

    def _worth_of_knowing(self, belief_G: Array32, allowed: Array) -> float:
        """How much larger a(1 - a) would be if the curve were known: the value of perfect information."""
        worth_GJ = self._worth_GT[:, curve_grid.nearest_columns(allowed)]
        return float(belief_G @ worth_GJ.max(axis=1) - (belief_G @ worth_GJ).max())

    def predicted_accuracy(self, instance_id: str, hint_ratios: Sequence[float]) -> Array:
        """Mean accuracy expected at each hint ratio now, never decreasing in the ratio; same shape."""
        accuracy_T = curve_grid.expected_accuracy(self._current([instance_id]))[0]
        predicted: Array = np.interp(np.asarray(hint_ratios, dtype=np.float64), curve_grid.RATIOS, accuracy_T)
        return predicted

    # ----------------------------------------------------------- observations

    def observe_rounds(self, outcomes: Sequence[RoundOutcome]) -> None:
        """See ``Controller``.

        Raises:
            ValueError: If an outcome is impossible, before anything is counted.
        """
        checked = [check_outcome(seen.hint_ratio, seen.num_correct, seen.num_rollouts) for seen in outcomes]
        for seen, (ratio, correct, rollouts) in zip(outcomes, checked, strict=True):
            visit = self._visits.setdefault(seen.instance_id, _Visit())
            visit.largest_ratio = max(visit.largest_ratio, ratio)
            correct_before, wrong_before = visit.outcomes.get(ratio, (0, 0))
            visit.outcomes[ratio] = (correct_before + correct, wrong_before + rollouts - correct)
            if visit.probes_due and ratio == 0.0:
                visit.probes = visit.probes[0] + correct, visit.probes[1] + rollouts

    def end_visits(self, instance_ids: Sequence[str]) -> None:
        """Keep what was learnt for later visits. A visit without observations leaves nothing."""
        ids = [name for name in dict.fromkeys(instance_ids) if self._outcomes(name)]
        if ids:
            largest_N = np.array([self._visits[name].largest_ratio for name in ids])
            self._beliefs.learn(ids, self._log_likelihood(ids), largest_N)
        for name in instance_ids:
            visit = self._visits.pop(name, None)
            if visit is not None and visit.probes[1] and visit.probes[1] >= visit.probes_due:
                # Not counted before, so that no hint of a step depends on which visit was quicker.
                self._withdrawal.count_probes(visit.probes[0] / visit.probes[1])

    # ----------------------------------------------------------------- visits

    def _open_visits(self, requests: Sequence[RoundRequest]) -> None:
        for request in requests:
            if request.round_index == 0:
                # An interrupted visit never ended; its observations belong to an older policy.
                self._visits[request.instance_id] = _Visit(largest_ratio=max(request.legal_ratios))

    def _outcomes(self, instance_id: str) -> dict[float, tuple[int, int]]:
        return self._visits[instance_id].outcomes if instance_id in self._visits else {}

    def _current(self, ids: Sequence[str]) -> Array32:
        """(N, G) current beliefs, including the rounds of the visit."""
        if not ids:
            return np.zeros((0, curve_grid.NUM_CURVES), dtype=np.float32)
        priors_NG = self._beliefs.priors(ids)
        if not any(self._outcomes(name) for name in ids):
            return priors_NG
        return curve_grid.update(priors_NG, self._log_likelihood(ids))

    def _log_likelihood(self, ids: Sequence[str]) -> Array32:
        """(N, G) log likelihood of the visits' observations so far."""
        seen = [sorted(self._outcomes(name).items()) for name in ids]
        table_NK3 = np.zeros((len(ids), max(map(len, seen)), 3))
        for row, outcomes in zip(table_NK3, seen, strict=True):
            for cell, (ratio, (correct, wrong)) in zip(row, outcomes, strict=False):
                cell[:] = ratio, correct, wrong
        return curve_grid.log_likelihood(*np.moveaxis(table_NK3, 2, 0))

    def curves(self, instance_ids: Collection[str] | None = None) -> list[AccuracyCurve]:
        """See ``Controller``: as of the end of each problem's last visit."""
        return self._beliefs.curves(instance_ids)

    # ------------------------------------------------------------------ state

    def state_dict(self) -> State:
        """See ``Controller``. An outcome is [hint_ratio, correct, wrong]."""
        return {
            **super().state_dict(),
            "beliefs": self._beliefs.state(),
            "visits": {name: _write_visit(visit) for name, visit in sorted(self._visits.items())},
            "withdrawal": self._withdrawal.state(),
        }

    def load_state_dict(self, state: State) -> None:
        """See ``Controller``. Settings are not part of the state: this controller keeps its own."""
        self._visits, self._withdrawal, self._beliefs = self._read_state(
            state,
            lambda saved: (
                read_section(saved, "visits", _read_visit),
                read_value(saved, "withdrawal", self._withdrawal.restored),
                read_value(saved, "beliefs", self._beliefs.restored),
            ),
        )

    def metrics(self) -> dict[str, float]:
        """See ``Controller``, ``Beliefs.metrics`` and ``Withdrawal.metrics``."""
        open_visits = {"open_visits": float(len(self._visits))}
        return open_visits | self._beliefs.metrics() | self._withdrawal.metrics()


def _write_visit(visit: _Visit) -> dict[str, Any]:
    return {
        "outcomes": [[ratio, *counts] for ratio, counts in sorted(visit.outcomes.items())],
        "largest_ratio": visit.largest_ratio,
        "probes_due": visit.probes_due,
        "probes": list(visit.probes),
    }


def _read_visit(value: Any) -> _Visit:
    outcomes: dict[float, tuple[int, int]] = {}
    for ratio, correct, wrong in value["outcomes"]:
        outcomes[read_ratio(ratio)] = (read_count(correct), read_count(wrong))
    return _Visit(
        outcomes,
        read_ratio(value["largest_ratio"]),
        read_count(value["probes_due"]),
        read_two_counts(value["probes"]),
    )
