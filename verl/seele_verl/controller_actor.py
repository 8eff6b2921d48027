"""The run's one hint controller, in one named Ray actor that every rollout worker talks to.

Beside the controller it keeps the visits of the current step until the trainer takes them: they are what
the metrics and the rollout dump are made of, and never travel with the training rows. It also counts what the
step's rollouts cost, those of problems that the step does not end with included.
"""

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray

from seele.config import SeeleConfig
from seele.errors import PluginError
from seele.hints import configured_controller
from seele.records import HintShare, RoundRequest, State, Visit

ACTOR_NAME = "seele_controller"


class ControllerActor:
    """Serialises the controller's calls; one per run.

    Problems end their visits whenever they are done. The controller hears of all at the end of the step, by
    name, so that what it learns of a step does not depend on which was first.
    """

    def __init__(self, config: SeeleConfig) -> None:
        self._controller = configured_controller(config)
        self._visits: dict[str, Visit] = {}
        self._ended: set[str] = set()
        """Problems whose visits are over, and of which the controller has not heard so."""
        self._plans: defaultdict[str, dict[int, tuple[HintShare, ...]]] = defaultdict(dict)
        """The step's plans, by problem and round, of its last visit."""
        self._observations: Counter[str] = Counter()
        """Observations of a problem's last visit."""
        self._known: Counter[str] = Counter()
        """Observations to come that the controller has had; a key for each problem that is begun again."""
        self._tokens: Counter[str] = Counter()
        self._round_seconds: defaultdict[int, list[float]] = defaultdict(list)
        self._dropped = 0
        self._proposal_seconds: list[float] = []
        self._fault: PluginError | None = None
        """The first of a user's own controller. It ends the run at the latest with the step."""

    def begin_step(self, step: int) -> None:
        """See ``seele.hints.Controller``."""
        self._controller.begin_step(step)

    def plan_round(self, request: RoundRequest, *, num_rollouts: int) -> tuple[HintShare, ...]:
        """See ``seele.hints.Controller``."""
        start = time.perf_counter()
        name, index = request.instance_id, request.round_index
        if index == 0 and name not in self._known:
            self._plans.pop(name, None)
            self._observations.pop(name, None)
        with self._keeping_fault():
            if index == 0:
                # The step begins the problem once more.
                self._end_visits({name} & self._ended)
            if index not in self._plans[name]:
                (self._plans[name][index],) = self._controller.plan_rounds(
                    [request], num_rollouts=num_rollouts
                )
        self._proposal_seconds.append(time.perf_counter() - start)
        return self._plans[name][index]

    def observe(self, instance_id: str, *, hint_ratio: float, num_correct: int, num_rollouts: int) -> None:
        """See ``seele.hints.Controller``."""
        if self._known[instance_id] > 0:
            self._known[instance_id] -= 1
            return
        self._observations[instance_id] += 1
        with self._keeping_fault():
            self._controller.observe(
                instance_id, hint_ratio=hint_ratio, num_correct=num_correct, num_rollouts=num_rollouts
            )

    def end_visit(self, instance_id: str) -> None:
        """See ``seele.hints.Controller``."""
        self._ended.add(instance_id)
        self._known.pop(instance_id, None)

    def begin_again(self, instance_ids: Sequence[str]) -> None:
        """These problems' rollouts are lost, and begin again in the same visit.

        Their plans stay. The new rollouts are the lost ones once more, so the controller hears of those only
        that it has not heard of.
        """
        for name in instance_ids:
            self._ended.discard(name)
            self._known[name] = self._observations[name]

    def _end_visits(self, instance_ids: set[str]) -> None:
        self._controller.end_visits(sorted(instance_ids))
        self._ended -= instance_ids

    @contextmanager
    def _keeping_fault(self) -> Iterator[None]:
        """Workers do not wait for every answer, and leave a prompt out where they get none."""
        try:
            yield
        except PluginError as fault:
            self._fault = self._fault or fault
            raise

    def keep_visit(self, uid: str, visit: Visit) -> None:
        """Keep a finished visit for the trainer; ``uid`` is verl's name of the prompt's group."""
        self._visits[uid] = visit

    def count_tokens(
        self, round_index: int, *, prompt: int, cached: int, generated: int, from_cache: bool
    ) -> None:
        """What the engine handed over has cost so much, whatever becomes of its problem."""
        counts = {"prompt": prompt, "prefilled": prompt - cached, "generated": generated}
        if from_cache:
            counts["from_cache"] = generated
        self._tokens.update(counts)
        self._tokens.update({f"{name}_round_{round_index}": count for name, count in counts.items()})

    def time_round(self, round_index: int, seconds: float) -> None:
        """The last of a round's rollouts under one hint was graded so long after they were asked for."""
        self._round_seconds[round_index].append(seconds)

    def count_dropped_prompt(self) -> None:
        """A prompt whose rollouts failed for good was left out of the step."""
        self._dropped += 1

    def take_step(self) -> tuple[dict[str, Visit], dict[str, float]]:
        """The visits kept since the last call, by uid in order of instance, and the step's own metrics.

        Raises:
            PluginError: A user's own controller failed in this step.
        """
        with self._keeping_fault():
            self._end_visits(set(self._ended))
        if self._fault is not None:
            raise self._fault
        visits = dict(sorted(self._visits.items(), key=lambda item: item[1].instance.instance_id))
        metrics = {f"controller/{name}": value for name, value in self._controller.metrics().items()}
        for name in ("prompt", "prefilled", "generated", *self._tokens):
            metrics[f"tokens/{name}"] = float(self._tokens[name])
        for round_index, seconds in sorted(self._round_seconds.items()):
            metrics[f"rollout/seconds_round_{round_index}"] = statistics.fmean(seconds)
        metrics["rollout/dropped_prompts"] = float(self._dropped)
        if self._proposal_seconds:
            metrics["controller/ms_per_proposal"] = 1000.0 * statistics.fmean(self._proposal_seconds)
        self._visits, self._tokens, self._dropped, self._proposal_seconds = {}, Counter(), 0, []
        for of_step in (self._round_seconds, self._plans, self._observations, self._known):
            of_step.clear()
        return visits, metrics

    def state_dict(self) -> State:
        """The controller's state, JSON."""
        return self._controller.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Restore what ``state_dict`` returned."""
        self._controller.load_state_dict(state)


def start_controller(config: SeeleConfig) -> Any:
    """Start the run's controller actor; workers find it with ``connect_controller``."""
    return ray.remote(ControllerActor).options(name=ACTOR_NAME, num_cpus=0).remote(config)


def connect_controller() -> Any:
    """The run's controller actor."""
    return ray.get_actor(ACTOR_NAME)


class RemoteController:
    """The controller as a rollout worker's coroutines see it (``seele.rollout.rounds.HintController``)."""

    def __init__(self) -> None:
        self._actor = connect_controller()

    async def plan_round(self, request: RoundRequest, *, num_rollouts: int) -> tuple[HintShare, ...]:
        """Ask the actor."""
        plan: tuple[HintShare, ...] = await self._actor.plan_round.remote(request, num_rollouts=num_rollouts)
        return plan

    async def observe(
        self, instance_id: str, *, hint_ratio: float, num_correct: int, num_rollouts: int
    ) -> None:
        """Tell the actor. Calls of one worker arrive in order, so the answer is not waited for."""
        self._actor.observe.remote(
            instance_id, hint_ratio=hint_ratio, num_correct=num_correct, num_rollouts=num_rollouts
        )

    async def end_visit(self, instance_id: str) -> None:
        """Tell the actor."""
        self._actor.end_visit.remote(instance_id)

    async def keep_visit(self, uid: str, visit: Visit) -> None:
        """Tell the actor, and wait until it knows: the trainer asks it once the group counts as done."""
        await self._actor.keep_visit.remote(uid, visit)

    def count_tokens(
        self, round_index: int, *, prompt: int, cached: int, generated: int, from_cache: bool
    ) -> None:
        """Tell the actor, before it may hear of the problem's end."""
        self._actor.count_tokens.remote(
            round_index, prompt=prompt, cached=cached, generated=generated, from_cache=from_cache
        )

    def time_round(self, round_index: int, seconds: float) -> None:
        """Tell the actor."""
        self._actor.time_round.remote(round_index, seconds)

    def count_dropped_prompt(self) -> None:
        """Tell the actor."""
        self._actor.count_dropped_prompt.remote()
