"""The rounds of one problem where a round need not wait for the last rollouts of the one before.

``run_rounds`` of ``seele.rollout.rounds`` with a quorum: what is the same at quorum 1 is described there.
"""

import asyncio
import itertools
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
    rounds: int,
    rollouts_per_round: int,
    quorum: float,
    succeeded: Success = is_correct,
) -> list[Rollout]:
    """Roll out one problem for ``rounds`` rounds, each of which begins once ``quorum`` of the one before is
    graded.

    Args:
        instance: The problem.
        controller: Chooses the hints and hears of the outcomes, those of the last rollouts of a round when
            they are graded.
        sample: Completes hinted prompts.
        grade: Compares answers.
        rounds: At least 1.
        rollouts_per_round: Rollouts of every round that does not take all that are left.
        quorum: Share in (0, 1] of the rollouts under a hint that the next round waits for. It waits for all
            probes. The last round's rollouts are waited for together, because nothing follows.
        succeeded: Which rollouts the controller hears of as correct.

    Returns:
        ``rounds * rollouts_per_round`` rollouts, in order of round and rollout.

    Raises:
        ExceptionGroup: What went wrong in sampler, grader or controller. Nothing runs any more then.
    """
    rollouts: list[Rollout] = []

    async def roll_out(hinted: HintedRollouts, *, needed: int, enough: asyncio.Event) -> None:
        graded = sample_and_grade(instance, hinted, sample=sample, grade=grade, quorum=needed)
        async with aclosing(graded) as parts:
            async for part in parts:
                rollouts.extend(part)
                await tell(controller, instance, hinted, part, succeeded)
                enough.set()

    begun, total = 0, rounds * rollouts_per_round
    try:
        async with asyncio.TaskGroup() as tasks:
            for round_index in itertools.count():
                if begun >= total:
                    break
                request = RoundRequest(
                    instance.instance_id, round_index, instance.legal_hint_ratios, total - begun
                )
                plan = await controller.plan_round(request, num_rollouts=rollouts_per_round)
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
