"""What the Bayesian controller has learnt: about each problem, the population, and the policy's drift.

The controller (``seele.hints.bayes``) handles the rounds of a visit in progress; this module keeps what
outlasts the visit, packed into 328 bytes per problem. Probabilities are stored as 16-bit floats and returned
as stored, so a restored store cannot differ from the saved one.

Axes as in ``seele.maths.curve_grid``.
"""

import base64
import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seele.maths import curve_grid
from seele.maths.curve_grid import NUM_BOUNDS, NUM_CROSSINGS, NUM_SLOPES, Array32
from seele.maths.irt import Array
from seele.records import AccuracyCurve

_FIRST_CAPACITY = 64

PACKED = np.dtype(
    [
        ("crossing", np.float16, (NUM_SLOPES, NUM_CROSSINGS)),
        ("bounds", np.float16, (NUM_SLOPES, NUM_BOUNDS)),
        ("unhinted_accuracy", np.float16),
        ("best_accuracy", np.float16),
    ]
)
"""A problem's row in the belief store: the parts of ``split_belief``, and the mean accuracy without a hint
and under the largest legal one."""


class BeliefStore:
    """Rows by instance id, in the order in which problems were added."""

    def __init__(self) -> None:
        self._row_of: dict[str, int] = {}
        self._rows = np.zeros(_FIRST_CAPACITY, dtype=PACKED)

    @property
    def rows(self) -> NDArray[np.void]:
        """All rows, with the fields of ``PACKED``."""
        return self._rows[: len(self._row_of)]

    @property
    def ids(self) -> Sequence[str]:
        """Instance ids of all rows, in their order."""
        return tuple(self._row_of)

    def find(self, instance_ids: Sequence[str]) -> NDArray[np.int64]:
        """(N,) row of each problem, -1 for one that was never added."""
        return np.fromiter((self._row_of.get(name, -1) for name in instance_ids), dtype=np.int64)

    def beliefs(self, rows: NDArray[np.int64]) -> tuple[Array32, Array32]:
        """(N, S, M) crossings given the slope and (N, S, F) bounds of the problems in ``rows``."""
        found = self._rows[rows]
        return found["crossing"].astype(np.float32), found["bounds"].astype(np.float32)

    def put(self, instance_ids: Sequence[str], **fields: NDArray[np.floating[Any]]) -> None:
        """Replace the problems' rows, or add them; ``fields`` are those of ``PACKED``, a row per problem."""
        for name in instance_ids:
            self._row_of.setdefault(name, len(self._row_of))
        while len(self._row_of) > len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        rows = self.find(instance_ids)
        for field, values in fields.items():
            self._rows[field][rows] = values

    def state(self) -> dict[str, Any]:
        """JSON: the ids in order, and the rows as base64 of their bytes."""
        order = sorted(self._row_of)
        packed = self._rows[self.find(order)].tobytes()
        return {"instance_ids": order, "rows": base64.b64encode(packed).decode("ascii")}

    def load(self, state: Any) -> None:
        """Restore the contents that ``state`` was saved from.

        Raises:
            ValueError: If the ids and the rows do not match, or the rows are not probabilities.
        """
        names = list(state["instance_ids"])
        rows = np.frombuffer(base64.b64decode(state["rows"], validate=True), dtype=PACKED)
        if not len(rows) == len(names) == len(set(names)):
            raise ValueError(f"{len(set(names))} distinct ids among {len(names)} for {len(rows)} rows")
        if not all(((rows[field] >= 0.0) & (rows[field] <= 1.0)).all() for field in PACKED.names or ()):
            raise ValueError("the values stored for a problem must be probabilities, in [0, 1]")
        self._row_of = {name: row for row, name in enumerate(names)}
        self._rows = np.concatenate([rows, np.zeros(_FIRST_CAPACITY, dtype=PACKED)])


POPULATION_WEIGHT = 30.0
"""Number of visits after which the observed population weighs as much as the assumed one."""

DRIFT_WEIGHT = 200.0
"""The same for the drift between visits, about which one visit says little."""

MEMORY = 4096
"""Number of visits after which population and drift keep a share of 1/e, because the policy changes."""

FORGETTING = 0.02
"""Probability that what was known of a problem at its last visit has become worthless."""

CERTAINTY = 0.9
"""A problem is solved if its mean un-hinted accuracy is above this, and unlearnable if its mean accuracy
under its largest hint is below one minus this."""

CURVES_AT_ONCE = 512


class Beliefs:
    """One belief per problem seen, and the prior for a problem never seen before.

    Args:
        uses_memory: Whether a problem's next visit starts from its own belief; if not, from the population.
        learns_population: Whether the population is learnt; if not, it stays as assumed.
        learns_drift: Whether the drift is learnt; if not, it stays as assumed.
    """

    def __init__(
        self, *, uses_memory: bool = True, learns_population: bool = True, learns_drift: bool = True
    ) -> None:
        self._uses_memory = uses_memory
        self._learns_population, self._learns_drift = learns_population, learns_drift
        self._store = BeliefStore()
        self._population_G: Array = np.zeros(curve_grid.NUM_CURVES)
        self._drift_D: Array = np.zeros(len(curve_grid.DRIFTS))

    def priors(self, ids: Sequence[str]) -> Array32:
        """(N, G) belief about each of the N problems before its visit."""
        prior_NG = np.repeat(self._population()[None], len(ids), axis=0)
        rows = self._store.find(ids)
        known = (rows >= 0) & self._uses_memory
        if known.any():
            crossing_NSM, bounds_NSF = self._store.beliefs(rows[known])
            remembered_NG = curve_grid.join_belief(curve_grid.drift(crossing_NSM, self._drift()), bounds_NSF)
            remembered_NG *= np.float32(1.0 - FORGETTING)
            prior_NG[known] = remembered_NG + np.float32(FORGETTING) * prior_NG[known]
        return prior_NG

    def learn(self, ids: Sequence[str], log_likelihood_NG: Array32, largest_ratio_N: Array) -> None:
        """Update the beliefs with the observations of visits that have ended.

        Args:
            ids: (N,) the problems, each once.
            log_likelihood_NG: (N, G) log likelihood of all rounds.
            largest_ratio_N: (N,) the largest hint ratio that was legal.
        """
        belief_NG = curve_grid.update(self.priors(ids), log_likelihood_NG)
        drift_ND = self._drift_evidence(ids, log_likelihood_NG)
        keep = 1.0 - 1.0 / MEMORY
        for belief_G, drift_D in zip(belief_NG, drift_ND, strict=True):
            # One visit at a time, so that visits count the same whether or not they end together.
            self._population_G = keep * self._population_G + belief_G
            self._drift_D = keep * self._drift_D + drift_D
        crossing_NSM, bounds_NSF = curve_grid.split_belief(belief_NG)
        accuracy_NT = curve_grid.expected_accuracy(belief_NG)
        self._store.put(
            ids,
            crossing=crossing_NSM,
            bounds=bounds_NSF,
            unhinted_accuracy=accuracy_NT[:, 0],
            best_accuracy=accuracy_NT[np.arange(len(ids)), curve_grid.nearest_columns(largest_ratio_N)],
        )

    def _drift_evidence(self, ids: Sequence[str], log_likelihood_NG: Array32) -> Array:
        evidence_ND = np.zeros((len(ids), len(curve_grid.DRIFTS)))
        rows = self._store.find(ids)
        known = (rows >= 0) & self._uses_memory
        if known.any():
            evidence_ND[known] = curve_grid.drift_posterior(
                *self._store.beliefs(rows[known]), log_likelihood_NG[known], self._drift()
            )
        return evidence_ND

    def _population(self) -> Array32:
        """(G,) belief about a problem that was never visited."""
        weight_G = POPULATION_WEIGHT * curve_grid.PRIOR
        if self._learns_population:
            weight_G = weight_G + self._population_G
        population_G: Array32 = (weight_G / weight_G.sum()).astype(np.float32)
        return population_G

    def _drift(self) -> Array:
        weight_D = DRIFT_WEIGHT * curve_grid.DRIFT_PRIOR
        if self._learns_drift:
            weight_D = weight_D + self._drift_D
        drift_D: Array = weight_D / weight_D.sum()
        return drift_D

    def curves(self, instance_ids: Collection[str] | None = None) -> list[AccuracyCurve]:
        """The believed curves of the problems seen, or of those in ``instance_ids``, in order of their ids.

        The policy's drift since a problem's visit is not in them.
        """
        ratios = tuple(curve_grid.RATIOS.tolist())
        curves: list[AccuracyCurve] = []
        seen = set(self._store.ids)
        names = sorted(seen if instance_ids is None else seen.intersection(instance_ids))
        # A belief is 864 numbers, so problems are processed in chunks.
        for first in range(0, len(names), CURVES_AT_ONCE):
            ids = names[first : first + CURVES_AT_ONCE]
            belief_NG = curve_grid.join_belief(*self._store.beliefs(self._store.find(ids)))
            accuracy_NT = curve_grid.expected_accuracy(belief_NG / belief_NG.sum(axis=1, keepdims=True))
            curves += [
                AccuracyCurve(instance_id=name, hint_ratios=ratios, accuracies=tuple(accuracy_T.tolist()))
                for name, accuracy_T in zip(ids, accuracy_NT, strict=True)
            ]
        return curves

    def metrics(self) -> dict[str, float]:
        """Summary of the beliefs about the problems seen, and of the policy's drift between visits.

        The drift and its spread are in units of hint ratio.
        """
        rows, drift_D = self._store.rows, self._drift()
        gain_D = curve_grid.DRIFTS * curve_grid.CROSSING_GAP
        mean = float(drift_D @ gain_D)
        metrics = {
            "problems": float(len(rows)),
            "drift_mean": mean,
            "drift_sd": math.sqrt(max(float(drift_D @ gain_D**2) - mean**2, 0.0)),
        }
        if len(rows):
            metrics |= {
                "expected_unhinted_accuracy": float(rows["unhinted_accuracy"].mean(dtype=np.float64)),
                "solved_share": float((rows["unhinted_accuracy"] > CERTAINTY).mean()),
                "unlearnable_share": float((rows["best_accuracy"] < 1.0 - CERTAINTY).mean()),
            }
        return metrics

    def state(self) -> dict[str, Any]:
        """The state as JSON, without the settings."""
        return {
            "problems": self._store.state(),
            "population": self._population_G.tolist(),
            "drift": self._drift_D.tolist(),
        }

    def restored(self, state: Any) -> "Beliefs":
        """Return beliefs with these settings and the contents of ``state``.

        Raises:
            KeyError, TypeError, ValueError: If ``state`` did not come from ``Beliefs.state``.
        """
        fresh = Beliefs(
            uses_memory=self._uses_memory,
            learns_population=self._learns_population,
            learns_drift=self._learns_drift,
        )
        fresh._store.load(state["problems"])
        fresh._population_G = _read_weights(state["population"], curve_grid.NUM_CURVES)
        fresh._drift_D = _read_weights(state["drift"], len(curve_grid.DRIFTS))
        return fresh


def _read_weights(value: Any, length: int) -> Array:
    weights = np.array(value, dtype=np.float64)
    if weights.shape != (length,) or not (np.isfinite(weights) & (weights >= 0.0)).all():
        raise ValueError(f"expected {length} numbers, 0 or more, got shape {weights.shape}")
    return weights
