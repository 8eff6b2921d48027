"""The rounds of one problem when a round need not wait for the last rollouts of the one before.

This is ``run_rounds`` of ``seele.rollout.rounds`` with a quorum; see there for what is the same at quorum 1.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from seele.records import Instance, Rollout, RoundRequest
from seele.rollout.rounds import (
    Grader,
    HintController,
    HintedRollouts,
    Sampler,
    Success,
    divide_round,
    is_correct,
    sample_and_grade,
    tell,
)


async def run_rounds_with_quorum(
    instance: Instance,
    *,
    controller: HintController,
    sample: Sampler,
    grade: Grader,
    round_sizes: Sequence[int],
    quorum: float,
    succeeded: Success = is_correct,
) -> list[Rollout]:
    """Roll out one problem in rounds, each of which begins once ``quorum`` of the one before is graded.

    Args:
        instance: The problem.
        controller: Chooses the hints and observes the outcomes, those of a round's last rollouts when they
            are graded.
        sample: Completes hinted prompts.
        grade: Compares answers.
        round_sizes: Rollouts of each round, at least one round; a round may also take all that are left.
        quorum: Share in (0, 1] of the rollouts under a hint that the next round waits for. It waits for all
            probes. The last round's rollouts are awaited together, because nothing follows.
        succeeded: Which rollouts are reported to the controller as correct.

    Returns:
        ``sum(round_sizes)`` rollouts, in order of round and rollout.

    Raises:
        ExceptionGroup: Errors of sampler, grader or controller. All tasks have then ended.
    """
    rollouts: list[Rollout] = []

    async def roll_out(hinted: HintedRollouts, *, needed: int, enough: asyncio.Event) -> None:
        graded = sample_and_grade(instance, hinted, sample=sample, grade=grade, quorum=needed)
        async with aclosing(graded) as parts:
            async for part in parts:
                rollouts.extend(part)
                await tell(controller, instance, hinted, part, succeeded)
                enough.set()

    begun, total = 0, sum(round_sizes)
    try:
        async with asyncio.TaskGroup() as tasks:
            for round_index, size in enumerate(round_sizes):
                if begun >= total:
                    break
                request = RoundRequest(
                    instance.instance_id, round_index, instance.legal_hint_ratios, total - begun
                )
                plan = await controller.plan_round(request, num_rollouts=size)
                begun_after = begun + sum(share.num_rollouts for share in plan)
                quorum_of_round = 1.0 if begun_after >= total else quorum
                enough_of_hint = []
                for hinted in divide_round(plan, round_index=round_index, begun=begun):
                    needed, enough = hinted.share.num_awaited(quorum_of_round), asyncio.Event()
                    tasks.create_task(roll_out(hinted, needed=needed, enough=enough))
                    enough_of_hint.append(enough)
                for enough in enough_of_hint:
                    await enough.wait()
                begun = begun_after
    finally:
        await controller.end_visit(instance.instance_id)
    return sorted(rollouts, key=lambda rollout: rollout.rollout_index)
