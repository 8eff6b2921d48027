"""The inner loop of SEELE: the rounds of one problem (arXiv:2509.06923, section 4.2 and algorithm 1).

Choose a hint, sample, grade, observe; the next round's hint comes from the curve through the observations.
Problems run concurrently, each at its own pace: there is no barrier between rounds of different problems.
This module has no engine code.
"""

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
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


async def run_rounds(
    instance: Instance,
    *,
    controller: HintController,
    sample: Sampler,
    grade: Grader,
    round_sizes: Sequence[int],
    succeeded: Succeeded = is_correct,
) -> list[Rollout]:
    """Roll out one problem round by round, letting the controller choose each round's hint.

    A round's rollouts may divide over several hints, which are rolled out at the same time. If the controller
    has no more to learn, it takes the remaining rollouts as one round.

    The visit ends for the controller even if sampling or grading fails, so that no problem is left
    half-visited.

    Args:
        instance: The problem.
        controller: Chooses the hints and observes the outcomes.
        sample: Completes hinted prompts.
        grade: Compares answers.
        round_sizes: Rollouts of each round, at least one round; a round may also take all that are left.
        succeeded: Which rollouts are reported to the controller as correct.

    Returns:
        ``sum(round_sizes)`` rollouts, in order of round and rollout.

    Raises:
        ExceptionGroup: Errors of sampler, grader or controller. All tasks have then ended.
    """
    rollouts: list[Rollout] = []
    begun, total = 0, sum(round_sizes)
    try:
        for round_index, size in enumerate(round_sizes):
            if begun >= total:
                break
            request = RoundRequest(
                instance.instance_id, round_index, instance.legal_hint_ratios, total - begun
            )
            plan = await controller.plan_round(request, num_rollouts=size)
            hinted = divide_round(plan, round_index=round_index, begun=begun)
            rollouts += await roll_out_round(
                instance, hinted, controller=controller, sample=sample, grade=grade, succeeded=succeeded
            )
            begun += sum(share.num_rollouts for share in plan)
    finally:
        await controller.end_visit(instance.instance_id)
    return sorted(rollouts, key=lambda rollout: rollout.rollout_index)


async def run_until_success(
    instance: Instance,
    *,
    controller: HintController,
    sample: Sampler,
    grade: Grader,
    round_sizes: Sequence[int],
    failing_accuracy: float,
    passing_accuracy: float = 1.0,
    succeeded: Succeeded = is_correct,
) -> list[Rollout]:
    """Roll a problem out again, with the controller's next hint, until a round does not fail (GHPO,
    arXiv:2507.10628), nor is too easy with its hint (BREAD, arXiv:2506.17211).

    All rounds but the last one are discarded. It is also the last if the controller's next hint was tried.

    Args:
        instance: The problem.
        controller: As for ``run_rounds``.
        sample: As for ``run_rounds``.
        grade: As for ``run_rounds``.
        round_sizes: Rollouts of each round, all of one size.
        failing_accuracy: The largest share of successes at which a round counts as failed.
        passing_accuracy: The largest share of successes at which a round with a hint is not too easy.
        succeeded: Which rollouts are successes.

    Returns:
        The rollouts of one round.

    Raises:
        ExceptionGroup: As in ``run_rounds``.
    """
    rollouts: list[Rollout] = []
    tried: set[float] = set()
    try:
        for round_index, size in enumerate(round_sizes):
            request = RoundRequest(instance.instance_id, round_index, instance.legal_hint_ratios, size)
            plan = await controller.plan_round(request, num_rollouts=size)
            hints = {share.hint_ratio for share in plan}
            if hints <= tried:
                break
            tried |= hints
            hinted = divide_round(plan, round_index=round_index, begun=0)
            rollouts = await roll_out_round(
                instance, hinted, controller=controller, sample=sample, grade=grade, succeeded=succeeded
            )
            accuracy = sum(map(succeeded, rollouts)) / len(rollouts)
            if failing_accuracy < accuracy <= (passing_accuracy if round_index else 1.0):
                break
    finally:
        await controller.end_visit(instance.instance_id)
    return sorted(rollouts, key=lambda rollout: rollout.rollout_index)


async def run_with_rescue(
    instance: Instance,
    *,
    controller: HintController,
    sample: Sampler,
    grade: Grader,
    round_sizes: Sequence[int],
    failing_accuracy: float,
    succeeded: Succeeded = is_correct,
) -> list[Rollout]:
    """Roll a problem out without hints, and if that fails, try every hint once: the success under the weakest
    one replaces the last failure (Scaf-GRPO, arXiv:2510.19807).

    Args:
        instance: The problem.
        controller: As for ``run_rounds``; plans no hint for the first round and every hint for the second. If
            it plans none for the second either, nothing more is rolled out.
        sample: As for ``run_rounds``.
        grade: As for ``run_rounds``.
        round_sizes: Rollouts of the first round, as the only element.
        failing_accuracy: As for ``run_until_success``.
        succeeded: Which rollouts are successes.

    Returns:
        As many rollouts as the first round has, in order.

    Raises:
        ExceptionGroup: As in ``run_rounds``.
    """
    (size,) = round_sizes
    num_hints = len(instance.legal_hint_ratios) - 1

    async def roll_out(round_index: int, num_rollouts: int) -> list[Rollout]:
        request = RoundRequest(instance.instance_id, round_index, instance.legal_hint_ratios, num_rollouts)
        plan = await controller.plan_round(request, num_rollouts=num_rollouts)
        if round_index and not any(share.hint_ratio for share in plan):
            return []
        hinted = divide_round(plan, round_index=round_index, begun=round_index * size)
        rollouts = await roll_out_round(
            instance, hinted, controller=controller, sample=sample, grade=grade, succeeded=succeeded
        )
        return sorted(rollouts, key=lambda rollout: (rollout.hint_steps, rollout.rollout_index))

    try:
        rollouts = await roll_out(0, size)
        if num_hints and sum(map(succeeded, rollouts)) <= failing_accuracy * size:
            rescue = next(filter(succeeded, await roll_out(1, num_hints)), None)
            if rescue is not None:
                failed = next(each for each in reversed(rollouts) if not succeeded(each))
                rollouts.remove(failed)
                rollouts.append(dataclasses.replace(rescue, rollout_index=failed.rollout_index))
    finally:
        await controller.end_visit(instance.instance_id)
    return sorted(rollouts, key=lambda rollout: rollout.rollout_index)


@dataclass(frozen=True, slots=True, kw_only=True)
class HintedRollouts:
    """The rollouts of a round that share a hint, before they are sampled."""

    share: HintShare
    round_index: int
    first_in_round: int
    """Index of the first of them among the round's rollouts."""
    first_in_visit: int
    """Index of the first of them among all of the problem's rollouts in this step."""

    @property
    def num_rollouts(self) -> int:
        """The number of rollouts."""
        return self.share.num_rollouts


def divide_round(plan: Sequence[HintShare], *, round_index: int, begun: int) -> list[HintedRollouts]:
    """Split a planned round by hint and number its rollouts; ``begun`` counts those of earlier rounds."""
    firsts = itertools.accumulate((share.num_rollouts for share in plan), initial=0)
    return [
        HintedRollouts(
            share=share, round_index=round_index, first_in_round=first, first_in_visit=begun + first
        )
        for share, first in zip(plan, firsts, strict=False)
    ]


async def roll_out_round(
    instance: Instance,
    hinted: Sequence[HintedRollouts],
    *,
    controller: HintController,
    sample: Sampler,
    grade: Grader,
    succeeded: Succeeded,
) -> list[Rollout]:
    """Roll out a planned round, its hints at the same time, and report the outcomes to the controller."""
    rollouts: list[Rollout] = []

    async def roll_out(each: HintedRollouts) -> None:
        graded = sample_and_grade(instance, each, sample=sample, grade=grade, quorum=each.num_rollouts)
        async with aclosing(graded) as parts:
            async for part in parts:
                rollouts.extend(part)
                await tell(controller, instance, each, part, succeeded)

    async with asyncio.TaskGroup() as tasks:
        for each in hinted:
            tasks.create_task(roll_out(each))
    return rollouts


async def sample_and_grade(
    instance: Instance, hinted: HintedRollouts, *, sample: Sampler, grade: Grader, quorum: int
) -> AsyncGenerator[list[Rollout], None]:
    """Yield the graded rollouts under one hint, in the same parts as the sampler (``Sampler``)."""
    hint_steps = instance.num_hint_steps(hinted.share.hint_ratio)
    sampled = sample(
        hint_steps=hint_steps,
        round_index=hinted.round_index,
        first_rollout=hinted.first_in_round,
        num_rollouts=hinted.num_rollouts,
        quorum=quorum,
    )
    async with aclosing(sampled) as parts:
        async for part in parts:
            grades = await asyncio.gather(
                *(grade(completion, instance, hint_steps=hint_steps) for completion in part.values())
            )
            yield [
                Rollout(
                    round_index=hinted.round_index,
                    rollout_index=hinted.first_in_visit + position,
                    share=hinted.share,
                    hint_steps=hint_steps,
                    completion=completion,
                    grade=verdict,
                )
                for (position, completion), verdict in zip(part.items(), grades, strict=True)
            ]


async def tell(
    controller: HintController,
    instance: Instance,
    hinted: HintedRollouts,
    part: Sequence[Rollout],
    succeeded: Succeeded,
) -> None:
    """Report the outcomes of some of the rollouts under a hint to the controller."""
    await controller.observe(
        instance.instance_id,
        hint_ratio=hinted.share.hint_ratio,
        num_correct=sum(map(succeeded, part)),
        num_rollouts=len(part),
    )


async def append_supplied_rollouts(
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
    grades = await asyncio.gather(*(grade(each, instance, hint_steps=hint_steps) for each in completions))
    share = HintShare(hint_steps / max(instance.num_hint_units, 1), 1)
    return [
        Rollout(
            round_index=0,
            rollout_index=first_index + position,
            share=share,
            hint_steps=hint_steps,
            completion=completion,
            grade=verdict,
            origin=origin,
        )
        for position, (completion, verdict) in enumerate(zip(completions, grades, strict=True))
    ]
