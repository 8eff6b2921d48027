"""One step's problems, from the curriculum to what is learnt from them, combining the parts of this package.

A step is ``begin``, possibly ``begin_more``, then rollouts, ``select``, an update, and ``learn``. Problems
are indices into the training data.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from seele.config import SeeleConfig
from seele.curriculum import build_curriculum
from seele.curriculum.pruning import ForwardPruning
from seele.curriculum.replay import LastSuccesses, SuccessPool
from seele.curriculum.selection import build_selection
from seele.errors import CheckpointError, DataError
from seele.records import Origin, Rollout, State, Success, Visit

MAX_PASSES = 10
"""Passes that a step may make over all problems, to find groups with signal, before it gives up."""
OTHER_PROBLEMS = (
    "within the limits on lengths, data.train_files have different problems than when it was saved, or the "
    "same in another order; resume with the files and limits that the checkpoint was trained with, or start "
    "a new run folder"
)


def problems_sha256(instance_ids: Iterable[str]) -> str:
    """Return a digest of problems and their order, by which a checkpoint knows those it was trained on."""
    return hashlib.sha256(json.dumps(list(instance_ids)).encode()).hexdigest()


class StepPlanner:
    """Decides which problems a step begins and which groups it learns from, and keeps the state for both."""

    def __init__(
        self,
        settings: SeeleConfig,
        rows: Sequence[Mapping[str, Any]],
        *,
        instance_ids: Sequence[str],
        batch_size: int,
        replays: bool,
        replays_visited: bool = False,
    ) -> None:
        """Plan steps of ``batch_size`` problems.

        Args:
            settings: The run's settings.
            rows: One mapping per problem with the columns that the curriculum needs (``columns_needed``).
            instance_ids: Ids of all problems, in the same order. A saved state fits only these problems.
            batch_size: Problems that a step trains on.
            replays: Whether some problems of a step are drawn to replay their earlier success.
            replays_visited: Whether each problem of a step replays its own earlier success, if any.
        """
        self._replays, self._replays_visited = replays, replays_visited
        self._settings = settings
        self._num_problems = len(rows)
        self._problems_sha256 = problems_sha256(instance_ids)
        self._batch_size = batch_size
        self._curriculum = build_curriculum(settings.curriculum, rows, seed=settings.seed)
        self._selection = build_selection(settings.selection, seed=settings.seed)
        self._pruning = ForwardPruning(settings.selection, seed=settings.seed)
        self._pool = SuccessPool(settings.replay, seed=settings.seed)
        self._successes = LastSuccesses()
        self._begun: list[int] = []
        self._step = 0

    def begin(self, step: int, *, carried: Sequence[int] = ()) -> tuple[list[int], dict[int, Success]]:
        """Return the problems that step ``step`` (from 1) rolls out, starting with those ``carried`` over
        from the previous step, and the earlier successes that some of them replay.
        """
        self._step = step
        replayed: dict[int, Success] = {}
        if self._replays:
            drawn = self._pool.draw(self._batch_size, step=step, avoid=carried)
            replayed = {problem: Success(completion) for problem, completion in drawn.items()}
        self._begun = [*carried, *replayed]
        num_fresh = self._batch_size + self._settings.curriculum.spare_problems - len(self._begun)
        self.begin_more(num_fresh, in_flight=self._begun)
        if self._replays_visited:
            replayed = self._successes.of(self._begun)
        return list(self._begun), replayed

    def begin_more(
        self, num_problems: int, *, in_flight: Sequence[int]
    ) -> tuple[list[int], dict[int, Success]]:
        """Return further problems to replace groups without signal, and the earlier successes that some of
        them replay. They are new ones or, once the step has begun all problems, any that are not being rolled
        out.
        """
        if len(self._begun) > MAX_PASSES * self._num_problems:
            raise DataError(
                f"step {self._step} went {MAX_PASSES} times through all {self._num_problems} problems and "
                "found too few groups whose rollouts disagree; set algorithm.filter_groups.enable=false, "
                "or train on problems that the policy solves sometimes"
            )
        begun = self._begun if len(self._begun) + num_problems <= self._num_problems else in_flight
        # A curriculum that skips pruned problems reaches its next epoch sooner.
        passes = self._curriculum.epochs
        pruned = self._pruning.pruned(epoch=int(self.epochs if passes is None else passes))
        drawn = self._curriculum.draw(num_problems, postponed=begun, pruned=pruned)
        self._begun += drawn
        return drawn, self._successes.of(drawn) if self._replays_visited else {}

    @property
    def epochs(self) -> float:
        """Problems that earlier steps trained on, divided by the number of problems."""
        return (self._step - 1) * self._batch_size / self._num_problems

    def select(self, visits: Sequence[Visit]) -> set[str]:
        """Return the instance ids of the visits that the update learns from; may be empty."""
        pass_rates = {visit.instance.instance_id: self._pass_rate(visit) for visit in visits}
        return set(self._selection.select(pass_rates, epoch=self.epochs))

    def learn(self, visits: Mapping[int, Visit], sizes: Mapping[int, Mapping[int, float]]) -> None:
        """Update all parts with the results of a step.

        Args:
            visits: The step's visits by problem.
            sizes: For the problems that were trained on, mean |advantage| over the tokens of each rollout, by
                rollout index. A curriculum observes their mean over the rollouts with an advantage, and 0 for
                groups that were left out because they have none.
        """
        without = [problem for problem, visit in visits.items() if self._has_no_advantage(visit)]
        self._curriculum.observe(
            dict.fromkeys(without, 0.0)
            | {problem: self._signal(visits[problem], of_rollout) for problem, of_rollout in sizes.items()}
        )
        # Solving a problem with hints does not show whether it needs them; failing it does.
        self._pruning.observe(
            {
                problem: visit.accuracy
                for problem, visit in visits.items()
                if visit.accuracy < 1.0 or _is_mostly_unhinted(visit)
            }
        )
        if self._replays:
            self._pool.observe({problem: visit.rollouts for problem, visit in visits.items()})
        if self._replays_visited:
            self._successes.observe({problem: visit.generated for problem, visit in visits.items()})

    def _has_no_advantage(self, visit: Visit) -> bool:
        """Return True if all advantages are surely 0: rewards are compared with each other, and agree."""
        config = self._settings
        if config.credit.gives_advantages or config.off_policy.source != "none" or config.advantage.shift:
            return False
        if config.advantage.baseline not in ("pooled", "per_round", "hinted_apart"):
            return False
        penalties = visit.penalties or (0.0,) * len(visit.rollouts)
        rewards = [each.reward + penalty for each, penalty in zip(visit.rollouts, penalties, strict=True)]
        return self._agree(visit.rollouts, rewards)

    def _pass_rate(self, visit: Visit) -> float:
        """Return the generated rollouts' mean reward; if their rewards agree wherever the baseline compares
        them, 0 or 1, by the first of them.
        """
        rewards = [rollout.reward for rollout in visit.generated]
        agree = len({*rewards}) == 1 or self._agree(visit.generated, rewards)
        return float(visit.generated[0].grade.correct) if agree else fmean(rewards)

    def _agree(self, rollouts: Sequence[Rollout], rewards: Sequence[float]) -> bool:
        """Return True if rewards are equal within each part of a group that the baseline compares; a part of
        one keeps its reward, which must be 0.
        """
        baseline = self._settings.advantage.baseline
        parts: dict[tuple[int, bool], list[float]] = defaultdict(list)
        for rollout, reward in zip(rollouts, rewards, strict=True):
            part = rollout.round_index if baseline == "per_round" else 0
            parts[part, baseline == "hinted_apart" and rollout.hint_ratio > 0.0].append(reward)
        return all(len({*part}) == 1 and (len(part) > 1 or part == [0.0]) for part in parts.values())

    def _signal(self, visit: Visit, size_of_rollout: Mapping[int, float]) -> float:
        """Return the mean over the rollouts whose loss has an advantage; a solution's likelihood has none."""
        counts_all = self._settings.off_policy.has_advantages
        return fmean(
            size_of_rollout[rollout.rollout_index]
            for rollout in visit.rollouts
            if rollout.rollout_index in size_of_rollout and (counts_all or rollout.origin is Origin.POLICY)
        )

    def metrics(self) -> dict[str, float]:
        """Return metrics for the log."""
        return {
            f"{name}/{metric}": value
            for name, part in self._parts().items()
            for metric, value in part.metrics().items()
        }

    def state_dict(self) -> State:
        """Return everything besides the settings that later steps depend on."""
        parts = {name: part.state_dict() for name, part in self._parts().items()}
        return {**parts, "problems_sha256": self._problems_sha256}

    def load_state_dict(self, state: State) -> None:
        """Continue from a ``state_dict``.

        Raises:
            CheckpointError: If the state is damaged, or was saved with other problems, or a part of it with
                other settings.
        """
        # States saved before the key existed lack it.
        if state.get("problems_sha256", self._problems_sha256) != self._problems_sha256:
            raise CheckpointError(f"saved state: {OTHER_PROBLEMS}")
        for name, part in self._parts().items():
            part.load_state_dict(state.get(name, {}))

    def _parts(self) -> dict[str, Any]:
        return {
            "curriculum": self._curriculum,
            "selection": self._selection,
            "pruning": self._pruning,
            **({"replay": self._pool} if self._replays else {}),
            **({"successes": self._successes} if self._replays_visited else {}),
        }


def _is_mostly_unhinted(visit: Visit) -> bool:
    """Return True if at least half of the visit's rollouts had no hint."""
    num_unhinted = sum(not rollout.hint_steps for rollout in visit.generated)
    return 2 * num_unhinted >= len(visit.generated)
