"""Simulation of a controller on problems with known curves, over visits between which ability grows.

Every controller meets the same problems, the same drift and the same luck: the i-th rollout of a problem's
visit succeeds if a uniform number, drawn once, lies below the accuracy. Differences between controllers are
therefore paired.

Axes: N problems, V visits, R rounds, G rollouts of a visit, J legal hint ratios, S shares of a round.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from seele.config import HintConfig
from seele.config.build import require
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
    hints: HintConfig = field(default_factory=lambda: HintConfig(rollouts_per_prompt=16))
    """Rounds and their sizes, and when problems get hints. With ``until_success`` and ``rescue``, failed
    rollouts are replaced here; the other values of ``when`` are up to the controller
    (``seele.hints.conditions``). A round's first rollouts, after which the next one is planned
    (``round_quorum``), are no better here than its last; the controller observes those one round later.
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
        for name in ("visits", "batch_size"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, got {getattr(self, name)}")


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
    simulation = _Simulation(controller, problems, schedule)
    ability_N = np.zeros(len(problems.instance_ids))
    for visit in range(schedule.visits):
        if visit:
            ability_N = ability_N + _drift(schedule, len(ability_N), [seed, visit])
        luck = np.random.default_rng([seed, visit, 1])
        simulation.visit_all(visit, problems.accuracy(ability_N), luck)
    return simulation.trace


class _Simulation:
    """A controller, the problems that it meets, and the trace of the visits so far."""

    def __init__(self, controller: Controller, problems: Problems, schedule: Schedule) -> None:
        self.controller, self.schedule, self.hints = controller, schedule, schedule.hints
        self.ids = problems.instance_ids
        self.legal = [
            tuple(float(ratio) for ratio in row[legal_J])
            for row, legal_J in zip(problems.cuts.ratio_NJ, problems.cuts.is_legal_NJ, strict=True)
        ]
        self.sizes_R = self.hints.rollouts_of_rounds
        self.first_R = list(accumulate(self.sizes_R, initial=0))
        """The first rollout of each round, then their number."""
        # Of the hints that may rescue a problem, each is tried once.
        most_hints = problems.cuts.ratio_NJ.shape[1] if self.hints.when == "rescue" else 0
        self.num_draws = self.first_R[-1] + most_hints
        shape_NV = (len(self.ids), schedule.visits)
        shape = (*shape_NV, 1 if self.hints.retries else len(self.sizes_R))
        self.trace = Trace(
            hint_ratio_NVR=np.zeros(shape),
            accuracy_NVR=np.zeros(shape),
            worth_NVR=np.zeros(shape),
            correct_NVR=np.zeros(shape, dtype=np.int64),
            unhinted_NV=np.zeros(shape_NV),
            oracle_NV=np.zeros(shape_NV),
            size_R=np.array(self.sizes_R[: shape[2]]),
            num_rounds_NV=np.full(shape_NV, len(self.sizes_R)),
            num_generated_NV=np.zeros(shape_NV, dtype=np.int64),
        )
        self.step = 0

    def visit_all(self, visit: int, accuracy_NJ: Array, luck: np.random.Generator) -> None:
        """Visit every problem once, a batch a step, given its accuracy under each hint."""
        self.visit, self.accuracy_NJ = visit, accuracy_NJ
        self.tried_N: list[set[float]] = [set() for _ in self.ids]
        self.luck_NG = luck.random((len(self.ids), self.num_draws))
        self.trace.unhinted_NV[:, visit] = accuracy_NJ[:, 0]
        self.trace.oracle_NV[:, visit] = reward_variance(accuracy_NJ).max(1)
        for first in range(0, len(self.ids), self.schedule.batch_size):
            self._train_step(range(first, min(first + self.schedule.batch_size, len(self.ids))))

    def _train_step(self, batch: range) -> None:
        self.step += 1
        self.controller.begin_step(self.step)
        late: list[RoundOutcome] = []
        for round_index in range(len(self.sizes_R)):
            outcomes, stragglers = self._roll_out_round(batch, round_index)
            self.controller.observe_rounds(late + outcomes)
            late = stragglers
        if late:
            self.controller.observe_rounds(late)
        if self.hints.when == "rescue":
            most = self.hints.failing_accuracy * self.hints.rollouts_per_prompt
            self._rescue([n for n in batch if self.trace.correct_NVR[n, self.visit, 0] <= most])
        self.controller.end_visits([self.ids[n] for n in batch])

    def _roll_out_round(
        self, batch: range, round_index: int
    ) -> tuple[list[RoundOutcome], list[RoundOutcome]]:
        """Return the round's outcomes, within the quorum and of the stragglers."""
        hints, trace = self.hints, self.trace
        size = self.sizes_R[round_index]
        left = size if hints.retries else hints.rollouts_per_prompt - self.first_R[round_index]
        kept_index = 0 if hints.retries else round_index
        under_way = [n for n in batch if trace.num_rounds_NV[n, self.visit] > round_index]
        requests = [RoundRequest(self.ids[n], round_index, self.legal[n], left) for n in under_way]
        plans = self.controller.plan_rounds(requests, num_rollouts=size)
        outcomes: list[RoundOutcome] = []
        late: list[RoundOutcome] = []
        for n, plan in zip(under_way, plans, strict=True):
            if hints.when == "until_success":
                ratios = {share.hint_ratio for share in plan}
                if ratios <= self.tried_N[n]:
                    trace.num_rounds_NV[n, self.visit] = round_index
                    continue
                self.tried_N[n] |= ratios
            planned = sum(share.num_rollouts for share in plan)
            luck_G = self.luck_NG[n, self.first_R[round_index] :]
            soon, stragglers = _roll_out(
                self.ids[n], plan, self._accuracies(n, plan), luck_G, hints.round_quorum
            )
            outcomes += soon
            late += stragglers
            num_correct = sum(seen.num_correct for seen in soon + stragglers)
            trace.correct_NVR[n, self.visit, kept_index] = num_correct
            trace.num_generated_NV[n, self.visit] += planned
            self._record(n, slice(kept_index, None), plan)
            most = hints.passing_accuracy if round_index else 1.0
            is_kept = num_correct > hints.failing_accuracy * planned and num_correct / planned <= most
            if planned > size or (hints.when == "until_success" and is_kept):
                trace.num_rounds_NV[n, self.visit] = round_index + 1
        return outcomes, late

    def _rescue(self, failed: Sequence[int]) -> None:
        """Try every hint of the problems once; the success under the weakest one replaces a failure."""
        trace, num_kept = self.trace, self.hints.rollouts_per_prompt - 1
        tried: list[RoundOutcome] = []
        for num_hints in sorted({len(self.legal[n]) - 1 for n in failed} - {0}):
            members = [n for n in failed if len(self.legal[n]) - 1 == num_hints]
            requests = [RoundRequest(self.ids[n], 1, self.legal[n], num_hints) for n in members]
            plans = self.controller.plan_rounds(requests, num_rollouts=num_hints)
            for n, plan in zip(members, plans, strict=True):
                if not any(share.hint_ratio for share in plan):
                    continue
                luck_G = self.luck_NG[n, self.hints.rollouts_per_prompt :]
                outcomes, _ = _roll_out(self.ids[n], plan, self._accuracies(n, plan), luck_G, quorum=1.0)
                tried += outcomes
                trace.num_rounds_NV[n, self.visit] = 2
                trace.num_generated_NV[n, self.visit] += num_hints
                if solved := [seen.hint_ratio for seen in outcomes if seen.num_correct and seen.hint_ratio]:
                    trace.correct_NVR[n, self.visit, 0] += 1
                    kept = (HintShare(self.legal[n][0], num_kept), HintShare(min(solved), 1))
                    self._record(n, slice(1), kept)
        self.controller.observe_rounds(tried)

    def _accuracies(self, n: int, plan: Sequence[HintShare]) -> Array:
        """Return the true accuracy of problem n under the hint of each share."""
        return np.array([self.accuracy_NJ[n, self.legal[n].index(share.hint_ratio)] for share in plan])

    def _record(self, n: int, rounds: slice, plan: Sequence[HintShare]) -> None:
        """Enter the plan's means for these rounds of problem n's visit."""
        accuracy_S = self._accuracies(n, plan)
        weight_S = np.array([share.num_rollouts * (not share.is_probe) for share in plan], dtype=float)
        if not weight_S.any():
            # If all shares are probes, they represent the round.
            weight_S[:] = 1.0
        weight_S /= weight_S.sum()
        cell = (n, self.visit, rounds)
        self.trace.hint_ratio_NVR[cell] = weight_S @ [share.hint_ratio for share in plan]
        self.trace.accuracy_NVR[cell] = weight_S @ accuracy_S
        self.trace.worth_NVR[cell] = weight_S @ reward_variance(accuracy_S)


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
