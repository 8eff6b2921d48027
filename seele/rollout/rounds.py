"""The inner loop of SEELE: the rounds of one problem (arXiv:2509.06923, section 4.2 and algorithm 1).

Choose a hint, sample, grade, observe; the next round's hint comes from the curve through the observations.
Problems run concurrently, each at its own pace: there is no barrier between rounds of different problems.
This module has no engine code.
"""

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol, Self

from seele.records import Completion, Grade, HintShare, Instance, Origin, Rollout, RoundRequest


class HintController(Protocol):
    """A hint controller as a coroutine sees it: local in tests, behind an actor in training."""

    async def plan_round(self, request: RoundRequest, *, num_rollouts: int) -> tuple[HintShare, ...]:
        """How the coming round's rollouts divide over hints, each one of the legal ratios."""
        ...

    async def observe(
        self, instance_id: str, *, hint_ratio: float, num_correct: int, num_rollouts: int
    ) -> None:
        """Record the outcome of one round at ``hint_ratio``."""
        ...

    async def end_visit(self, instance_id: str) -> None:
        """End the problem's visit: its rounds of this step are over."""
        ...


class Sampler(Protocol):
    """Anything that completes a problem's hinted prompt: vLLM behind Ray in training, a stub in tests."""

    def __call__(
        self, *, hint_steps: int, round_index: int, first_rollout: int, num_rollouts: int, quorum: int
    ) -> AsyncGenerator[Mapping[int, Completion], None]:
        """Yield ``num_rollouts`` completions after the first ``hint_steps`` steps of the worked solution,
        numbered in the round from ``first_rollout``.

        They come in parts, by position among the ``num_rollouts``: first all that are complete once
        ``quorum`` of them are, then the others. Closing the generator stops those that are incomplete.
        """
        ...


class Grader(Protocol):
    """Compares a completion's answer with the problem's reference answer."""

    async def __call__(self, completion: Completion, instance: Instance, *, hint_steps: int) -> Grade:
        """The verdict on a completion whose prompt showed the first ``hint_steps`` steps."""
        ...


Succeeded = Callable[[Rollout], bool]


def is_correct(rollout: Rollout) -> bool:
    """Return True if the answer is correct: the default success that controllers steer on."""
    return rollout.grade.correct


class NoHintController:
    """Never reveals a hint and keeps no state: for validation, whatever the method trains with."""

    async def plan_round(self, request: RoundRequest, *, num_rollouts: int) -> tuple[HintShare, ...]:
        """No hint."""
        return (HintShare(0.0, num_rollouts),)

    async def observe(
        self, instance_id: str, *, hint_ratio: float, num_correct: int, num_rollouts: int
    ) -> None:
        """Ignore the outcome."""

    async def end_visit(self, instance_id: str) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemVisit:
    """One problem in one step, with the parts that all its rounds share.

    Inside ``async with`` it goes on for the controller. It ends even if sampling or grading fails, so that no
    problem is left half-visited.
    """

    instance: Instance
    """The problem."""
    controller: HintController
    """Chooses the hints and observes the outcomes."""
    sample: Sampler
    """Completes hinted prompts."""
    grade: Grader
    """Compares answers."""
    succeeded: Succeeded = is_correct
    """Which rollouts are reported to the controller as correct."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.controller.end_visit(self.instance.instance_id)

    async def plan(self, round_index: int, size: int, *, left: int) -> tuple[HintShare, ...]:
        """Return the hints of a round of ``size`` rollouts, or of all that are ``left``."""
        request = RoundRequest(self.instance.instance_id, round_index, self.instance.legal_hint_ratios, left)
        return await self.controller.plan_round(request, num_rollouts=size)

    async def roll_out(self, plan: Sequence[HintShare], round_index: int, begun: int) -> list[Rollout]:
        """Return a planned round's rollouts in order, after ``begun`` of the visit."""
        rollouts: list[Rollout] = []
        async with asyncio.TaskGroup() as tasks:
            self.begin(plan, round_index, tasks, rollouts, begun)
        return sorted(rollouts, key=attrgetter("rollout_index"))

    def begin(
        self,
        plan: Sequence[HintShare],
        round_index: int,
        tasks: asyncio.TaskGroup,
        rollouts: list[Rollout],
        begun: int,
        *,
        quorum: float = 1.0,
    ) -> list[asyncio.Event]:
        """Begin all hints of a planned round, whose rollouts are appended to ``rollouts``, after ``begun`` of
        the visit; return an event for each hint, set once a share ``quorum`` of its rollouts is graded.
        """
        events, first = [], 0
        for share in plan:
            events.append(asyncio.Event())
            tasks.create_task(
                self._roll_out_hint(
                    share,
                    round_index,
                    rollouts,
                    first_in_round=first,
                    first_in_visit=begun + first,
                    needed=share.num_awaited(quorum),
                    enough=events[-1],
                )
            )
            first += share.num_rollouts
        return events

    async def _roll_out_hint(
        self,
        share: HintShare,
        round_index: int,
        rollouts: list[Rollout],
        *,
        first_in_round: int,
        first_in_visit: int,
        needed: int,
        enough: asyncio.Event,
    ) -> None:
        """Append the graded rollouts under one hint, in the sampler's parts, and tell the controller."""
        hint_steps = self.instance.num_hint_steps(share.hint_ratio)
        sampled = self.sample(
            hint_steps=hint_steps,
            round_index=round_index,
            first_rollout=first_in_round,
            num_rollouts=share.num_rollouts,
            quorum=needed,
        )
        left = share.num_rollouts
        async with aclosing(sampled) as parts:
            async for part in parts:
                numbered = {first_in_visit + position: completion for position, completion in part.items()}
                graded = await _graded(numbered, self.instance, self.grade, share, hint_steps, round_index)
                rollouts += graded
                await self.controller.observe(
                    self.instance.instance_id,
                    hint_ratio=share.hint_ratio,
                    num_correct=sum(map(self.succeeded, graded)),
                    num_rollouts=len(graded),
                )
                left -= len(graded)
                if share.num_rollouts - left >= needed:
                    enough.set()
        if left:
            raise RuntimeError(f"the sampler left out {left} of {share.num_rollouts} completions")


async def run_rounds(
    visit: ProblemVisit, round_sizes: Sequence[int], *, quorum: float = 1.0
) -> list[Rollout]:
    """Roll out one problem round by round, letting the controller choose each round's hint.

    A round's rollouts may divide over several hints, which are rolled out at the same time. If the controller
    has no more to learn, it takes the remaining rollouts as one round.

    Args:
        visit: The problem.
        round_sizes: Rollouts of each round, at least one round; a round may also take all that are left.
        quorum: Share in (0, 1] of the rollouts under a hint that the next round waits for
            (``seele.hints.round_quorum``). It waits for all probes. The controller observes the others when
            they are graded. The last round's rollouts are awaited together, because nothing follows.

    Returns:
        ``sum(round_sizes)`` rollouts, in order of round and rollout.

    Raises:
        ExceptionGroup: Errors of sampler, grader or controller. All tasks have then ended.
    """
    rollouts: list[Rollout] = []
    begun, total = 0, sum(round_sizes)
    async with visit, asyncio.TaskGroup() as tasks:
        for round_index, size in enumerate(round_sizes):
            if begun >= total:
                break
            plan = await visit.plan(round_index, size, left=total - begun)
            first, begun = begun, begun + sum(share.num_rollouts for share in plan)
            share_awaited = quorum if begun < total else 1.0
            for enough in visit.begin(plan, round_index, tasks, rollouts, first, quorum=share_awaited):
                await enough.wait()
    return sorted(rollouts, key=attrgetter("rollout_index"))


async def run_until_success(
    visit: ProblemVisit,
    round_sizes: Sequence[int],
    *,
    failing_accuracy: float,
    passing_accuracy: float = 1.0,
) -> list[Rollout]:
    """Roll a problem out again, with the controller's next hint, until a round does not fail (GHPO,
    arXiv:2507.10628), nor is too easy with its hint (BREAD, arXiv:2506.17211).

    All rounds but the last one are discarded. It is also the last if the controller's next hint was tried.

    Args:
        visit: The problem.
        round_sizes: Rollouts of each round, all of one size.
        failing_accuracy: The largest share of successes at which a round counts as failed.
        passing_accuracy: The largest share of successes at which a round with a hint is not too easy.

    Returns:
        The rollouts of one round, in order.

    Raises:
        ExceptionGroup: As in ``run_rounds``, but an error of planning is raised as it is.
    """
    rollouts: list[Rollout] = []
    tried: set[float] = set()
    async with visit:
        for round_index, size in enumerate(round_sizes):
            plan = await visit.plan(round_index, size, left=size)
            hints = {share.hint_ratio for share in plan}
            if hints <= tried:
                break
            tried |= hints
            rollouts = await visit.roll_out(plan, round_index, 0)
            num_correct, most = sum(map(visit.succeeded, rollouts)), passing_accuracy if round_index else 1.0
            # As the controller computes it (``seele.hints.conditions``).
            has_failed = num_correct <= failing_accuracy * len(rollouts)
            if not has_failed and num_correct / len(rollouts) <= most:
                break
    return rollouts


async def run_with_rescue(
    visit: ProblemVisit, round_sizes: Sequence[int], *, failing_accuracy: float
) -> list[Rollout]:
    """Roll a problem out without hints, and if that fails, try every hint once: the success under the weakest
    one replaces the last failure (Scaf-GRPO, arXiv:2510.19807).

    Args:
        visit: The problem. Its controller plans no hint for the first round and every hint for the second. If
            it plans none for the second either, nothing more is rolled out.
        round_sizes: Rollouts of the first round, as the only element.
        failing_accuracy: As for ``run_until_success``.

    Returns:
        As many rollouts as the first round has, in order.

    Raises:
        ExceptionGroup: As in ``run_rounds``, but an error of planning is raised as it is.
    """
    (size,) = round_sizes
    num_hints = len(visit.instance.legal_hint_ratios) - 1
    async with visit:
        rollouts = await visit.roll_out(await visit.plan(0, size, left=size), 0, 0)
        if num_hints and sum(map(visit.succeeded, rollouts)) <= failing_accuracy * size:
            plan = await visit.plan(1, num_hints, left=num_hints)
            hinted = any(share.hint_ratio for share in plan)
            tried = await visit.roll_out(plan, 1, size) if hinted else []
            # A rollout may have lost its hint (``seele.hints.dropout``).
            solved = [each for each in tried if each.hint_steps and visit.succeeded(each)]
            rescue = min(solved, key=attrgetter("hint_steps"), default=None)
            if rescue is not None:
                failed = next(each for each in reversed(rollouts) if not visit.succeeded(each))
                rescue = dataclasses.replace(rescue, rollout_index=failed.rollout_index)
                rollouts[rollouts.index(failed)] = rescue
    return rollouts


async def _graded(
    completions: Mapping[int, Completion],
    instance: Instance,
    grade: Grader,
    share: HintShare,
    hint_steps: int,
    round_index: int = 0,
    origin: Origin = Origin.POLICY,
) -> list[Rollout]:
    """Return completions under one hint, by index in the visit, as graded rollouts."""
    grades = await asyncio.gather(
        *(grade(each, instance, hint_steps=hint_steps) for each in completions.values())
    )
    return [
        Rollout(
            round_index=round_index,
            rollout_index=index,
            share=share,
            hint_steps=hint_steps,
            completion=completion,
            grade=verdict,
            origin=origin,
        )
        for (index, completion), verdict in zip(completions.items(), grades, strict=True)
    ]


async def grade_given(
    completions: Sequence[Completion],
    instance: Instance,
    *,
    first_index: int,
    origin: Origin,
    grade: Grader,
    hint_steps: int = 0,
) -> list[Rollout]:
    """Turn completions that were given, not generated, after a number of steps of the worked solution, into
    further rollouts of a one-round visit.

    They are graded like all others, but not reported to the controller.
    """
    share = HintShare(hint_steps / max(instance.num_hint_units, 1), 1)
    numbered = dict(enumerate(completions, first_index))
    return await _graded(numbered, instance, grade, share, hint_steps, origin=origin)
