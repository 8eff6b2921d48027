"""The inner loop of SEELE: the rounds of one problem (arXiv:2509.06923, section 4.2 and algorithm 1).

Choose a hint, sample, grade, observe; the next round's hint comes from the curve through what was observed.
Problems run side by side, each at its own pace: there is no barrier between rounds of different problems,
and with a quorum a round need not wait for the last rollouts of the one before.
No engine code here.
"""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Protocol

from seele.records import Completion, Grade, HintShare, Instance, Origin, Rollout, RoundRequest


class HintController(Protocol):
    """A hint controller as a coroutine sees it: local in tests, behind an actor in training."""

    async def plan_round(self, request: RoundRequest, *, num_rollouts: int) -> tuple[HintShare, ...]:
        """How the coming round's rollouts divide over hints, each one of the legal ratios."""
        ...

    async def observe(
        self, instance_id: str, *, hint_ratio: float, num_correct: int, num_rollouts: int
    ) -> None:
        """What one round at ``hint_ratio`` brought."""
        ...

    async def end_visit(self, instance_id: str) -> None:
        """The problem's rounds of this step are over."""
        ...


class Sampler(Protocol):
    """Anything that completes a problem's hinted prompt: vLLM behind Ray in training, a stub in tests."""

    def __call__(
        self, *, hint_steps: int, round_index: int, first_rollout: int, num_rollouts: int, quorum: int
    ) -> AsyncGenerator[Mapping[int, Completion], None]:
        """``num_rollouts`` completions after the first ``hint_steps`` steps of the worked solution, those
        from number ``first_rollout`` of the round on.

        They come in parts, by position among the ``num_rollouts``: first all that are there once ``quorum``
        of them are, then the others. Closing the generator stops what is not there yet.
        """
        ...


class Grader(Protocol):
    """Compares a completion's answer with the problem's reference answer."""

    async def __call__(self, completion: Completion, instance: Instance) -> Grade:
        """The verdict."""
        ...


class NoHintController:
    """Never reveals anything and remembers nothing: validation, whatever the method trains with."""

    async def plan_round(self, request: RoundRequest, *, num_rollouts: int) -> tuple[HintShare, ...]:
        """No hint."""
        return (HintShare(0.0, num_rollouts),)

    async def observe(
        self, instance_id: str, *, hint_ratio: float, num_correct: int, num_rollouts: int
    ) -> None:
        """Ignore it."""

    async def end_visit(self, instance_id: str) -> None:
        """Nothing to end."""


async def run_rounds(
    instance: Instance,
    *,
    controller: HintController,
    sample: Sampler,
    grade: Grader,
    rounds: int,
    rollouts_per_round: int,
    quorum: float = 1.0,
) -> list[Rollout]:
    """Roll out one problem for ``rounds`` rounds, letting the controller choose each round's hint.

    Where the controller has no more to learn it takes the remaining rollouts as one round.

    The visit ends for the controller even where sampling or grading fails, so that no half-visited problem
    stays behind.

    Args:
        instance: The problem.
        controller: Chooses the hints and hears of the outcomes.
        sample: Completes hinted prompts.
        grade: Compares answers.
        rounds: At least 1.
        rollouts_per_round: Rollouts of every round that does not take all that are left.
        quorum: Share in (0, 1] of the rollouts under a hint that must be graded before the next round begins;
            the controller hears of the others when they are. Probes are always waited for.

    Returns:
        ``rounds * rollouts_per_round`` rollouts, in order of round and rollout.

    Raises:
        ExceptionGroup: What went wrong in sampler, grader or controller. Nothing runs any more then.
    """
    begun, total = 0, rounds * rollouts_per_round
    rollouts: list[Rollout] = []

    async def roll_out(
        share: HintShare, *, round_index: int, before: int, first: int, needed: int, enough: asyncio.Event
    ) -> None:
        """The rollouts under one hint: number ``first`` and on of a round that has ``before`` before it."""
        hint_steps = instance.num_hint_steps(share.hint_ratio)
        sampled = sample(
            hint_steps=hint_steps,
            round_index=round_index,
            first_rollout=first,
            num_rollouts=share.num_rollouts,
            quorum=needed,
        )
        async with aclosing(sampled) as parts:
            async for part in parts:
                grades = await asyncio.gather(*(grade(each, instance) for each in part.values()))
                rollouts.extend(
                    Rollout(
                        round_index=round_index,
                        rollout_index=before + first + position,
                        share=share,
                        hint_steps=hint_steps,
                        completion=completion,
                        grade=verdict,
                    )
                    for (position, completion), verdict in zip(part.items(), grades, strict=True)
                )
                await controller.observe(
                    instance.instance_id,
                    hint_ratio=share.hint_ratio,
                    num_correct=sum(verdict.correct for verdict in grades),
                    num_rollouts=len(part),
                )
                enough.set()

    try:
        async with asyncio.TaskGroup() as tasks:
            for round_index in itertools.count():
                if begun >= total:
                    break
                request = RoundRequest(
                    instance.instance_id, round_index, instance.legal_hint_ratios, total - begun
                )
                plan = await controller.plan_round(request, num_rollouts=rollouts_per_round)
                size = sum(share.num_rollouts for share in plan)
                is_last = begun + size >= total
                first_of_share = itertools.accumulate((share.num_rollouts for share in plan), initial=0)
                enough_of_share = [asyncio.Event() for _ in plan]
                for share, first, enough in zip(plan, first_of_share, enough_of_share, strict=False):
                    tasks.create_task(
                        roll_out(
                            share,
                            round_index=round_index,
                            before=begun,
                            first=first,
                            needed=share.num_rollouts if is_last else share.num_awaited(quorum),
                            enough=enough,
                        )
                    )
                for enough in enough_of_share:
                    await enough.wait()
                begun += size
    finally:
        await controller.end_visit(instance.instance_id)
    return sorted(rollouts, key=lambda rollout: rollout.rollout_index)


async def append_supplied_rollouts(
    completions: Sequence[Completion],
    instance: Instance,
    *,
    first_index: int,
    origin: Origin,
    grade: Grader,
) -> list[Rollout]:
    """Completions that nobody had to generate, as further rollouts of a one-round visit.

    They are graded like all others, and the controller does not hear of them.
    """
    grades = await asyncio.gather(*(grade(completion, instance) for completion in completions))
    return [
        Rollout(
            round_index=0,
            rollout_index=first_index + position,
            share=HintShare(0.0, 1),
            hint_steps=0,
            completion=completion,
            grade=verdict,
            origin=origin,
        )
        for position, (completion, verdict) in enumerate(zip(completions, grades, strict=True))
    ]
