"""Simulation of a controller on problems with known curves, over visits between which ability grows.

Every controller meets the same problems, the same drift and the same luck: the i-th rollout of a problem's
visit succeeds if a uniform number, drawn once, lies below the accuracy. Differences between controllers are
therefore paired.

Axes: N problems, V visits, R rounds, G rollouts of a visit, J legal hint ratios, S shares of a round.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from seele.maths.efficiency import reward_variance
from seele.maths.irt import Array
from seele.records import HintShare, RoundOutcome, RoundRequest
from seele.simulate.worlds import Problems


class Controller(Protocol):
    """The part of a hint controller that a simulation needs (``seele.hints.Controller``)."""

    def begin_step(self, step: int) -> None:
        """Begin the next batch of problems, counted from 1."""
        ...

    def plan_rounds(
        self, requests: Sequence[RoundRequest], *, num_rollouts: int
    ) -> list[tuple[HintShare, ...]]:
        """Return the hints of each request's rollouts."""
        ...

    def observe_rounds(self, outcomes: Sequence[RoundOutcome]) -> None:
        """Observe the outcomes of the rounds."""
        ...

    def end_visits(self, instance_ids: Sequence[str]) -> None:
        """End the visits."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How often problems are visited, and how the policy changes in between."""

    visits: int = 1
    rounds: int = 4
    rollouts: int = 16
    """Rollouts of a problem in one visit, split evenly over its rounds; each round has all of them if failed
    rounds are rolled out again.
    """
    round_sizes: tuple[int, ...] | None = None
    """Rollouts of each round if they differ; ``rounds`` and ``rollouts`` are then their number and sum."""
    when: str = "always"
    """``seele.hints.when``. With ``until_success`` and ``rescue``, failed rollouts are replaced here; the
    other values are up to the controller (``seele.hints.conditions``).
    """
    failing_accuracy: float = 0.0
    """The largest accuracy of a round that counts as failed, in [0, 1)."""
    quorum: float = 1.0
    """Share in (0, 1] of a round's rollouts after which the next round is planned; the controller observes
    the others one round later. Here the first rollouts are no better than the last.
    """
    batch_size: int = 256
    """Problems that are visited together, as in one training step."""
    drift_mean: float = 0.05
    drift_sd: float = 0.05
    drift_range: tuple[float, float] = (-0.03, 0.2)
    """Gain in ability between two visits: normal, clipped, in units of hint ratio; drawn for each problem."""

    def num_steps(self, num_problems: int) -> int:
        """Return the steps that all visits of this number of problems take."""
        return self.visits * math.ceil(num_problems / self.batch_size)

    def __post_init__(self) -> None:
        for name in ("visits", "rounds", "rollouts", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0.0 < self.quorum <= 1.0:
            raise ValueError(f"quorum must lie in (0, 1], got {self.quorum}")
        if self.round_sizes is None and not self.retries and self.rollouts % self.rounds:
            raise ValueError(f"rollouts ({self.rollouts}) must be a multiple of rounds ({self.rounds})")

    @property
    def retries(self) -> bool:
        """True if a problem is rolled out again after a round that failed; the visit keeps one round."""
        return self.when in ("until_success", "rescue")

    @property
    def sizes_of_rounds(self) -> tuple[int, ...]:
        """Rollouts of each round, without those that rescue a problem."""
        if self.retries:
            return (self.rollouts,) * (1 if self.when == "rescue" else self.rounds)
        return self.round_sizes or (self.rollouts // self.rounds,) * self.rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Record of one controller in one world: the rollouts that a visit keeps, in R rounds, or in one if
    failed rounds are rolled out again.
    """

    hint_ratio_NVR: Array
    """Mean over the round's rollouts, like the next two fields; all three exclude probes."""
    accuracy_NVR: Array
    """True accuracy at the hints used."""
    worth_NVR: Array
    """a(1 - a) of the true accuracy at the hints used."""
    correct_NVR: NDArray[np.int64]
    unhinted_NV: Array
    """True accuracy without a hint."""
    oracle_NV: Array
    """a(1 - a) with the best legal hint."""
    size_R: NDArray[np.int64]
    """Rollouts of each round as planned."""
    num_rounds_NV: NDArray[np.int64]
    """Rounds of a visit; if it ended early, its last round fills the rest of the arrays above."""
    num_generated_NV: NDArray[np.int64]
    """Rollouts of a visit, also those that it does not keep."""


def simulate(controller: Controller, problems: Problems, schedule: Schedule, *, seed: int) -> Trace:
    """Visit every problem ``schedule.visits`` times."""
    num_problems, ids = len(problems.cuts.ratio_NJ), problems.instance_ids
    legal = [
        tuple(float(ratio) for ratio in row[legal_J])
        for row, legal_J in zip(problems.cuts.ratio_NJ, problems.cuts.is_legal_NJ, strict=True)
    ]
    sizes_R = schedule.sizes_of_rounds
    shape = (num_problems, schedule.visits, 1 if schedule.retries else len(sizes_R))
    begun_R = [*accumulate(sizes_R, initial=0)]
    # Of the hints that may rescue a problem, each is tried once.
    num_draws = begun_R[-1] + (problems.cuts.ratio_NJ.shape[1] if schedule.when == "rescue" else 0)
    hint_ratio_NVR, accuracy_NVR, worth_NVR = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    correct_NVR = np.zeros(shape, dtype=np.int64)
    unhinted_NV, oracle_NV = np.zeros(shape[:2]), np.zeros(shape[:2])
    num_rounds_NV = np.full(shape[:2], len(sizes_R))
    num_generated_NV = np.zeros(shape[:2], dtype=np.int64)
    ability_N, step = np.zeros(num_problems), 0

    def accuracies(n: int, plan: Sequence[HintShare]) -> Array:
        return np.array([accuracy_NJ[n, legal[n].index(share.hint_ratio)] for share in plan])

    def note(n: int, rounds: slice, plan: Sequence[HintShare], accuracy_S: Array) -> None:
        weight_S = np.array([share.num_rollouts * (not share.is_probe) for share in plan], dtype=float)
        if not weight_S.any():
            # If all shares are probes, they represent the round.
            weight_S[:] = 1.0
        weight_S /= weight_S.sum()
        cell = (n, visit, rounds)
        hint_ratio_NVR[cell] = weight_S @ [share.hint_ratio for share in plan]
        accuracy_NVR[cell] = weight_S @ accuracy_S
        worth_NVR[cell] = weight_S @ reward_variance(accuracy_S)

    def rescue(failed: Sequence[int]) -> None:
        """Try every hint of the problems once; the success under the weakest one replaces a failure."""
        tried: list[RoundOutcome] = []
        for num_hints in sorted({len(legal[n]) - 1 for n in failed} - {0}):
            members = [n for n in failed if len(legal[n]) - 1 == num_hints]
            requests = [RoundRequest(ids[n], 1, legal[n], num_hints) for n in members]
            plans = controller.plan_rounds(requests, num_rollouts=num_hints)
            for n, plan in zip(members, plans, strict=True):
                if not any(share.hint_ratio for share in plan):
                    continue
                luck_G = luck_NG[n, schedule.rollouts :]
                outcomes, _ = _roll_out(ids[n], plan, accuracies(n, plan), luck_G, quorum=1.0)
                tried += outcomes
                num_rounds_NV[n, visit] = 2
                num_generated_NV[n, visit] += num_hints
                if solved := [seen.hint_ratio for seen in outcomes if seen.num_correct]:
                    kept = (HintShare(legal[n][0], schedule.rollouts - 1), HintShare(min(solved), 1))
                    correct_NVR[n, visit, 0] += 1
                    note(n, slice(1), kept, accuracies(n, kept))
        controller.observe_rounds(tried)

    for visit in range(schedule.visits):
        if visit:
            ability_N = ability_N + _drift(schedule, num_problems, [seed, visit])
        accuracy_NJ = problems.accuracy(ability_N)
        unhinted_NV[:, visit], oracle_NV[:, visit] = accuracy_NJ[:, 0], reward_variance(accuracy_NJ).max(1)
        luck_NG = np.random.default_rng([seed, visit, 1]).random((num_problems, num_draws))
        for first in range(0, num_problems, schedule.batch_size):
            batch = range(first, min(first + schedule.batch_size, num_problems))
            step += 1
            controller.begin_step(step)
            late: list[RoundOutcome] = []
            for round_index, size in enumerate(sizes_R):
                left = size if schedule.retries else schedule.rollouts - begun_R[round_index]
                kept_index = 0 if schedule.retries else round_index
                under_way = [n for n in batch if num_rounds_NV[n, visit] > round_index]
                requests = [RoundRequest(ids[n], round_index, legal[n], left) for n in under_way]
                plans = controller.plan_rounds(requests, num_rollouts=size)
                outcomes, late = late, []
                for n, plan in zip(under_way, plans, strict=True):
                    planned = sum(share.num_rollouts for share in plan)
                    accuracy_S, luck_G = accuracies(n, plan), luck_NG[n, begun_R[round_index] :]
                    soon, stragglers = _roll_out(ids[n], plan, accuracy_S, luck_G, schedule.quorum)
                    outcomes += soon
                    late += stragglers
                    num_correct = sum(seen.num_correct for seen in soon + stragglers)
                    correct_NVR[n, visit, kept_index] = num_correct
                    num_generated_NV[n, visit] += planned
                    note(n, slice(kept_index, None), plan, accuracy_S)
                    has_failed = num_correct <= schedule.failing_accuracy * planned
                    if planned > size or (schedule.when == "until_success" and not has_failed):
                        num_rounds_NV[n, visit] = round_index + 1
                controller.observe_rounds(outcomes)
            if late:
                controller.observe_rounds(late)
            if schedule.when == "rescue":
                most = schedule.failing_accuracy * schedule.rollouts
                rescue([n for n in batch if correct_NVR[n, visit, 0] <= most])
            controller.end_visits([ids[n] for n in batch])
    return Trace(
        hint_ratio_NVR=hint_ratio_NVR,
        accuracy_NVR=accuracy_NVR,
        worth_NVR=worth_NVR,
        correct_NVR=correct_NVR,
        unhinted_NV=unhinted_NV,
        oracle_NV=oracle_NV,
        size_R=np.array(sizes_R[: shape[2]]),
        num_rounds_NV=num_rounds_NV,
        num_generated_NV=num_generated_NV,
    )


def _roll_out(
    instance_id: str, plan: Sequence[HintShare], accuracy_S: Array, luck_G: Array, quorum: float
) -> tuple[list[RoundOutcome], list[RoundOutcome]]:
    """Return the outcomes of each share's rollouts, within the quorum and of the stragglers. Rollouts take
    the uniform numbers in the order of the shares. Probes are always waited for.
    """
    soon: list[RoundOutcome] = []
    stragglers: list[RoundOutcome] = []
    first = 0
    for share, accuracy in zip(plan, accuracy_S, strict=True):
        size = share.num_rollouts
        enough = share.num_awaited(quorum)
        correct_G = luck_G[first : first + size] < accuracy
        first += size
        for outcomes, part_G in ((soon, correct_G[:enough]), (stragglers, correct_G[enough:])):
            if len(part_G):
                outcomes.append(RoundOutcome(instance_id, share.hint_ratio, int(part_G.sum()), len(part_G)))
    return soon, stragglers


def _drift(schedule: Schedule, num_problems: int, seed: list[int]) -> Array:
    gain_N = np.random.default_rng(seed).normal(schedule.drift_mean, schedule.drift_sd, num_problems)
    return np.clip(gain_N, *schedule.drift_range)
