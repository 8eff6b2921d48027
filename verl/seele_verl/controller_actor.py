"""The run's single hint controller, in a named Ray actor that every rollout worker talks to.

The actor also keeps the visits of the current step until the trainer takes them. Metrics and rollout dump are
made from visits, which never travel with the training rows. It also counts what the step's rollouts cost,
including those of problems that the step leaves behind.
"""

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import ray

from seele.config import SeeleConfig
from seele.errors import PluginError
from seele.hints import configured_controller
from seele.records import AccuracyCurve, HintShare, RoundOutcome, RoundRequest, State, Visit

ACTOR_NAME = "seele_controller"


class _Outcomes:
    """Numbers of right and of all rollouts of a problem, by hint ratio."""

    def __init__(self) -> None:
        self._correct: Counter[float] = Counter()
        self._rollouts: Counter[float] = Counter()

    def add(self, outcome: RoundOutcome) -> None:
        """Count further rollouts."""
        self._correct[outcome.hint_ratio] += outcome.num_correct
        self._rollouts[outcome.hint_ratio] += outcome.num_rollouts

    def beyond(self, known: "_Outcomes", *, of: RoundOutcome) -> RoundOutcome:
        """Return what ``known`` lacks under the hint of an outcome; no right ones where it has more."""
        ratio = of.hint_ratio
        num_rollouts = max(self._rollouts[ratio] - known._rollouts[ratio], 0)
        num_correct = min(max(self._correct[ratio] - known._correct[ratio], 0), num_rollouts)
        return replace(of, num_correct=num_correct, num_rollouts=num_rollouts)


@dataclass
class _Told:
    """What the controller and one visit have told each other."""

    plans: dict[int, tuple[HintShare, ...]] = field(default_factory=dict)
    """By round."""
    observed: _Outcomes = field(default_factory=_Outcomes)
    repeated: _Outcomes | None = None
    """What a visit that began again has reported since."""


class ControllerActor:
    """Serialises the controller's calls; one per run.

    Problems end their visits whenever they are done. The controller is told of all of them at the end of the
    step, sorted by name, so that what it learns from a step does not depend on which problem was first.
    A visit goes by its ``uid``, verl's name for the prompt's group: a step may visit a problem twice.
    """

    def __init__(self, config: SeeleConfig) -> None:
        self._controller = configured_controller(
            config.hints, seed=config.seed, training_steps=config.training_steps
        )
        self._visits: dict[str, Visit] = {}
        self._ended: dict[str, str] = {}
        """Problems of the visits that are over, but of which the controller has not been told."""
        self._told: defaultdict[str, _Told] = defaultdict(_Told)
        """The step's visits, as far as the controller knows them."""
        self._tokens: Counter[str] = Counter()
        self._round_seconds: defaultdict[int, list[float]] = defaultdict(list)
        self._dropped: list[str] = []
        """Why prompts failed that the step skips."""
        self._proposal_seconds: list[float] = []
        self._fault: PluginError | None = None
        """The first fault of a user's own controller. It ends the run no later than the step."""

    def begin_step(self, step: int) -> None:
        """See ``seele.hints.Controller``."""
        self._controller.begin_step(step)

    def plan_round(self, uid: str, request: RoundRequest, *, num_rollouts: int) -> tuple[HintShare, ...]:
        """See ``seele.hints.Controller``."""
        start = time.perf_counter()
        plans, index = self._told[uid].plans, request.round_index
        with self._keeping_fault():
            if index == 0:
                # The step may have visited the problem before.
                self._end_visits([uid for uid, name in self._ended.items() if name == request.instance_id])
            if index not in plans:
                (plans[index],) = self._controller.plan_rounds([request], num_rollouts=num_rollouts)
        self._proposal_seconds.append(time.perf_counter() - start)
        return plans[index]

    def observe(self, uid: str, outcome: RoundOutcome) -> None:
        """See ``seele.hints.Controller``."""
        told = self._told[uid]
        if told.repeated is not None:
            told.repeated.add(outcome)
            outcome = told.repeated.beyond(told.observed, of=outcome)
            if not outcome.num_rollouts:
                return
        told.observed.add(outcome)
        with self._keeping_fault():
            self._controller.observe_rounds([outcome])

    def end_visit(self, uid: str, instance_id: str) -> None:
        """See ``seele.hints.Controller``."""
        self._ended[uid] = instance_id

    def begin_again(self, uids: Sequence[str]) -> None:
        """Restart visits whose rollouts are lost.

        Their plans stay. The new rollouts repeat the lost ones, so the controller is told only of those that
        it does not know yet.
        """
        for uid in uids:
            self._ended.pop(uid, None)
            self._told[uid].repeated = _Outcomes()

    def _end_visits(self, uids: Collection[str]) -> None:
        self._controller.end_visits(sorted(self._ended[uid] for uid in uids))
        self._ended = {uid: name for uid, name in self._ended.items() if uid not in uids}

    @contextmanager
    def _keeping_fault(self) -> Iterator[None]:
        """Keep a fault for ``take_step``: workers do not wait for every answer, and skip a prompt that gets
        none.
        """
        try:
            yield
        except PluginError as fault:
            self._fault = self._fault or fault
            raise

    def keep_visit(self, uid: str, visit: Visit) -> None:
        """Keep a finished visit for the trainer."""
        self._visits[uid] = visit

    def count_tokens(
        self, round_index: int, *, prompt: int, cached: int, generated: int, from_cache: bool
    ) -> None:
        """Count the tokens of rollouts that the engine returned, whatever becomes of their problem."""
        counts = {"prompt": prompt, "prefilled": prompt - cached, "generated": generated}
        if from_cache:
            counts["from_cache"] = generated
        self._tokens.update(counts)
        self._tokens.update({f"{name}_round_{round_index}": count for name, count in counts.items()})

    def time_round(self, round_index: int, seconds: float) -> None:
        """Record the time from the request for a round's rollouts under one hint until the last is graded."""
        self._round_seconds[round_index].append(seconds)

    def count_dropped_prompt(self, reason: str) -> None:
        """Count a prompt that the step skips because its rollouts failed for good."""
        self._dropped.append(reason)

    def first_reason(self) -> str:
        """Return why the step's first dropped prompt failed; empty if all prompts succeeded."""
        return next(iter(self._dropped), "")

    def take_step(self) -> tuple[dict[str, Visit], dict[str, float]]:
        """Return the visits since the last call, by uid in order of instance, and the step's own metrics.

        Raises:
            PluginError: A user's own controller failed in this step.
        """
        with self._keeping_fault():
            self._end_visits([*self._ended])
        if self._fault is not None:
            raise self._fault
        visits = dict(sorted(self._visits.items(), key=lambda item: item[1].instance.instance_id))
        metrics = {f"controller/{name}": value for name, value in self._controller.metrics().items()}
        for name in ("prompt", "prefilled", "generated", *self._tokens):
            metrics[f"tokens/{name}"] = float(self._tokens[name])
        for round_index, seconds in sorted(self._round_seconds.items()):
            metrics[f"rollout/seconds_round_{round_index}"] = statistics.fmean(seconds)
        metrics["rollout/dropped_prompts"] = float(len(self._dropped))
        if self._proposal_seconds:
            metrics["controller/ms_per_proposal"] = 1000.0 * statistics.fmean(self._proposal_seconds)
        self._visits, self._tokens, self._dropped, self._proposal_seconds = {}, Counter(), [], []
        self._round_seconds.clear()
        self._told.clear()
        return visits, metrics

    def curves(self, instance_ids: Collection[str]) -> list[AccuracyCurve]:
        """Return the curves that the controller keeps of these problems."""
        return self._controller.curves(instance_ids)

    def state_dict(self) -> State:
        """Return the controller's state, as JSON values."""
        return self._controller.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Restore what ``state_dict`` returned."""
        self._controller.load_state_dict(state)


def start_controller(config: SeeleConfig) -> Any:
    """Start the run's controller actor; workers find it with ``connect_controller``."""
    return ray.remote(ControllerActor).options(name=ACTOR_NAME, num_cpus=0).remote(config)


def connect_controller() -> Any:
    """Return the run's controller actor."""
    return ray.get_actor(ACTOR_NAME)


@dataclass(frozen=True)
class RemoteVisit:
    """The controller as the rounds of one visit see it (``seele.rollout.rounds.HintController``)."""

    actor: Any
    uid: str

    async def plan_round(self, request: RoundRequest, *, num_rollouts: int) -> tuple[HintShare, ...]:
        """Ask the actor."""
        plan: tuple[HintShare, ...] = await self.actor.plan_round.remote(
            self.uid, request, num_rollouts=num_rollouts
        )
        return plan

    async def observe(
        self, instance_id: str, *, hint_ratio: float, num_correct: int, num_rollouts: int
    ) -> None:
        """Tell the actor without waiting for its answer: calls of one worker arrive in order."""
        outcome = RoundOutcome(instance_id, hint_ratio, num_correct, num_rollouts)
        self.actor.observe.remote(self.uid, outcome)

    async def end_visit(self, instance_id: str) -> None:
        """Tell the actor."""
        self.actor.end_visit.remote(self.uid, instance_id)


class RemoteController:
    """The controller actor as a rollout worker sees it."""

    def __init__(self) -> None:
        self._actor = connect_controller()

    def of_visit(self, uid: str) -> RemoteVisit:
        """Return the controller for the rounds of one visit."""
        return RemoteVisit(self._actor, uid)

    async def has_been_told(self) -> None:
        """Wait until the actor has been told all that this worker told it before."""
        await self._actor.first_reason.remote()

    async def keep_visit(self, uid: str, visit: Visit) -> None:
        """Tell the actor, and wait for its answer: the trainer asks it once the group counts as done."""
        await self._actor.keep_visit.remote(uid, visit)

    def count_tokens(
        self, round_index: int, *, prompt: int, cached: int, generated: int, from_cache: bool
    ) -> None:
        """Tell the actor, before it may be told of the problem's end."""
        self._actor.count_tokens.remote(
            round_index, prompt=prompt, cached=cached, generated=generated, from_cache=from_cache
        )

    def time_round(self, round_index: int, seconds: float) -> None:
        """Tell the actor."""
        self._actor.time_round.remote(round_index, seconds)

    async def count_dropped_prompt(self, reason: str) -> None:
        """Tell the actor, and wait for its answer: the trainer asks it once all groups have ended."""
        await self._actor.count_dropped_prompt.remote(reason)
