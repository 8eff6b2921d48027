"""The inner loop of SEELE: the rounds of one problem (arXiv:2509.06923, section 4.2 and algorithm 1).

Choose a hint, sample, grade, observe; the next round's hint comes from the curve through what was observed.
Problems run side by side, each at its own pace: there is no barrier between rounds of different problems.
No engine code here.
"""

import asyncio
import itertools
from collections.abc import Sequence
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

    async def __call__(
        self, *, hint_steps: int, round_index: int, first_rollout: int, num_rollouts: int
    ) -> list[Completion]:
        """``num_rollouts`` completions after the first ``hint_steps`` steps of the worked solution, the first
        of which is number ``first_rollout`` of the round.
        """
        ...


class Grader(Protocol):
    """Compares a completion's answer with the problem's reference answer."""

    async def __call__(self, completion: Completion, instance: Instance) -> Grade:
        """The verdict."""
        ...


class Unhinted:
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
) -> list[Rollout]:
    """Roll out one problem for ``rounds`` rounds, letting the controller choose each round's hint.

    Where the controller has no more to learn it takes the remaining rollouts as one round.

    The visit ends for the controller even where sampling or grading fails, so that no half-visited problem
    stays behind.

    Returns:
        ``rounds * rollouts_per_round`` rollouts, in order of round and rollout.
    """
    total = rounds * rollouts_per_round
    rollouts: list[Rollout] = []
    try:
        for round_index in itertools.count():
            first = len(rollouts)
            if first >= total:
                break
            request = RoundRequest(
                instance.instance_id, round_index, instance.legal_hint_ratios, total - first
            )
            plan = await controller.plan_round(request, num_rollouts=rollouts_per_round)
            first_of_share = itertools.accumulate((share.num_rollouts for share in plan), initial=0)
            shares = await asyncio.gather(
                *(
                    _roll_out(instance, share, round_index, first, sample=sample, grade=grade)
                    for share, first in zip(plan, first_of_share, strict=False)
                )
            )
            rollouts += [
                Rollout(
                    round_index=round_index,
                    rollout_index=first + position,
                    share=share,
                    hint_steps=instance.num_hint_steps(share.hint_ratio),
                    completion=completion,
                    grade=verdict,
                )
                for position, (share, completion, verdict) in enumerate(itertools.chain(*shares))
            ]
            for share, graded in zip(plan, shares, strict=True):
                await controller.observe(
                    instance.instance_id,
                    hint_ratio=share.hint_ratio,
                    num_correct=sum(verdict.correct for _, _, verdict in graded),
                    num_rollouts=share.num_rollouts,
                )
    finally:
        await controller.end_visit(instance.instance_id)
    return rollouts


async def add_given(
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


async def _roll_out(
    instance: Instance,
    share: HintShare,
    round_index: int,
    first_rollout: int,
    *,
    sample: Sampler,
    grade: Grader,
) -> list[tuple[HintShare, Completion, Grade]]:
    completions = await sample(
        hint_steps=instance.num_hint_steps(share.hint_ratio),
        round_index=round_index,
        first_rollout=first_rollout,
        num_rollouts=share.num_rollouts,
    )
    grades = await asyncio.gather(*(grade(completion, instance) for completion in completions))
    return [(share, completion, verdict) for completion, verdict in zip(completions, grades, strict=True)]
