"""The rollout worker of ``benchmarks/rounds.py``: the number of rounds, a barrier between them and the
lengths of all responses are given, and change from step to step.
"""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import ray
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ

from seele_verl import rounds_worker
from seele_verl.engine_client import generate_round

LONGEST = 400
PROMPTS, ROLLOUTS = 32, 32

LENGTHS = {"even": (44, 0.1), "heavy-tailed": (44, 1.5), "even, 4 times as long": (176, 0.1)}
"""Kind -> mean and coefficient of variation of a log-normal distribution, cut at ``LONGEST``."""

ROUNDS = {"1 round": (1, False), "4 rounds": (4, False), "4 rounds, barrier": (4, True)}
"""Name -> number of rounds, and whether each waits until all problems have ended the one before."""

VARIANTS = (*product(("even", "heavy-tailed"), ROUNDS), ("even, 4 times as long", "1 round"))


def variant_of_step(step: int) -> tuple[str, str]:
    """Kind of lengths and of rounds; the variants take turns."""
    return VARIANTS[(step - 1) % len(VARIANTS)]


def lengths_of_step(step: int) -> np.ndarray:
    """(PROMPTS, ROLLOUTS) tokens of each response: the same for all variants of one turn."""
    mean, variation = LENGTHS[variant_of_step(step)[0]]
    sigma = np.sqrt(np.log(1 + variation**2))
    turn = (step - 1) // len(VARIANTS)
    drawn = np.random.default_rng([turn, int(100 * variation)]).lognormal(
        np.log(mean) - sigma**2 / 2, sigma, (PROMPTS, ROLLOUTS)
    )
    return np.clip(np.rint(drawn), 1, LONGEST).astype(int)


class ForcedRoundsWorker(rounds_worker.RoundsWorker):
    """Our rollout worker under the settings of the step's variant."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.step, self.sampled = 0, Counter()
        rounds_worker.generate_round = self._generate_round

    async def _run_prompt(self, prompt: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        if prompt["global_steps"] != self.step:
            self.step = prompt["global_steps"]
            rounds, self.waits = ROUNDS[variant_of_step(self.step)[1]]
            self.seele = dataclasses.replace(
                self.seele, hints=dataclasses.replace(self.seele.hints, rounds=rounds)
            )
            self.lengths, self.barrier = lengths_of_step(self.step), asyncio.Barrier(PROMPTS)
        await super()._run_prompt(prompt, *args, **kwargs)

    async def _generate_round(
        self, client: Any, *, session_id: str, sampling_params: Sequence[dict[str, Any]], **request: Any
    ) -> list[Any]:
        if self.waits:
            await self.barrier.wait()
        first = self.sampled[session_id]
        self.sampled[session_id] += len(sampling_params)
        lengths = self.lengths[int(session_id.rsplit("-", 1)[1]), first:]
        forced = [
            {**params, "max_tokens": int(length), "ignore_eos": True}
            for params, length in zip(sampling_params, lengths, strict=False)
        ]
        return await generate_round(client, session_id=session_id, sampling_params=forced, **request)


class ForcedRoundsManager(AgentLoopManagerTQ):
    """verl's manager of rollout workers, with the one above."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(ForcedRoundsWorker)
