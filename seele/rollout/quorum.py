"""The rounds of one problem where a round need not wait for the last rollouts of the one before
(``seele.hints.round_quorum``).

At a quorum of 1, this is ``seele.rollout.rounds.run_rounds``.
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
    Succeeded,
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
    succeeded: Succeeded = is_correct,
) -> list[Rollout]:
    """Roll out one problem in rounds, each of which begins once a share of the one before is graded.

    Args:
        instance: The problem.
        controller: As for ``run_rounds``. It observes a round's last rollouts when they are graded.
        sample: As for ``run_rounds``.
        grade: As for ``run_rounds``.
        round_sizes: As for ``run_rounds``.
        quorum: Share in (0, 1] of the rollouts under a hint that the next round waits for. It waits for all
            probes. The last round's rollouts are awaited together, because nothing follows.
        succeeded: As for ``run_rounds``.

    Returns:
        As ``run_rounds``.

    Raises:
        ExceptionGroup: As in ``run_rounds``.
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
                hinted = divide_round(plan, round_index=round_index, begun=begun)
                begun += sum(share.num_rollouts for share in plan)
                enough_of_hint = []
                for each in hinted:
                    needed = each.share.num_awaited(quorum if begun < total else 1.0)
                    enough_of_hint.append(asyncio.Event())
                    tasks.create_task(roll_out(each, needed=needed, enough=enough_of_hint[-1]))
                for enough in enough_of_hint:
                    await enough.wait()
    finally:
        await controller.end_visit(instance.instance_id)
    return sorted(rollouts, key=lambda rollout: rollout.rollout_index)
