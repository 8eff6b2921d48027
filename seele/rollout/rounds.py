"""The inner loop of SEELE: the rounds of one problem (arXiv:2509.06923, section 4.2 and algorithm 1).

Choose a hint, sample, grade, observe; the next round's hint comes from the curve through what was observed.
Problems run side by side, each at its own pace: there is no barrier between rounds of different problems.
No engine code here.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from seele.records import Completion, Grade, Instance, Rollout


class HintController(Protocol):
    """A hint controller as a coroutine sees it: local in tests, behind an actor in training."""

    async def next_hint_ratio(
        self, instance_id: str, *, round_index: int, legal_ratios: Sequence[float]
    ) -> float:
        """Hint ratio of the coming round, one of ``legal_ratios``."""
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

    async def __call__(self, *, hint_steps: int, round_index: int, num_rollouts: int) -> list[Completion]:
        """``num_rollouts`` completions after the first ``hint_steps`` steps of the worked solution."""
        ...


class Grader(Protocol):
    """Compares a completion's answer with the reference answer."""

    async def __call__(self, completion: Completion, answer: str) -> Grade:
        """The verdict."""
        ...


class Unhinted:
    """Never reveals anything and remembers nothing: validation, whatever the method trains with."""

    async def next_hint_ratio(
        self, instance_id: str, *, round_index: int, legal_ratios: Sequence[float]
    ) -> float:
        """No hint."""
        return 0.0

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

    The visit ends for the controller even where sampling or grading fails, so that no half-visited problem
    stays behind.

    Returns:
        ``rounds * rollouts_per_round`` rollouts, in order of round and rollout.
    """
    rollouts: list[Rollout] = []
    try:
        for round_index in range(rounds):
            hint_ratio = await controller.next_hint_ratio(
                instance.instance_id, round_index=round_index, legal_ratios=instance.legal_hint_ratios
            )
            hint_steps = instance.num_hint_steps(hint_ratio)
            completions = await sample(
                hint_steps=hint_steps, round_index=round_index, num_rollouts=rollouts_per_round
            )
            grades = await asyncio.gather(*(grade(completion, instance.answer) for completion in completions))
            rollouts += [
                Rollout(
                    round_index=round_index,
                    rollout_index=round_index * rollouts_per_round + position,
                    hint_ratio=hint_ratio,
                    hint_steps=hint_steps,
                    completion=completion,
                    grade=verdict,
                )
                for position, (completion, verdict) in enumerate(zip(completions, grades, strict=True))
            ]
            await controller.observe(
                instance.instance_id,
                hint_ratio=hint_ratio,
                num_correct=sum(verdict.correct for verdict in grades),
                num_rollouts=len(grades),
            )
    finally:
        await controller.end_visit(instance.instance_id)
    return rollouts
