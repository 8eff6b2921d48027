"""The rollout worker of ``benchmarks/rounds.py``: the number of rounds, the barrier between them, the quorum
and the lengths of all responses are given, and change from step to step.
"""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import ray

from benchmarks.lengths import PROMPTS, ROUNDS, lengths_of_step, variant_of_step
from seele_verl.engine import completions
from seele_verl.engine.client import generate_round
from seele_verl.rollout_workers import RoundsManager
from seele_verl.rounds_worker import RoundsWorker


class ForcedRoundsWorker(RoundsWorker):
    """Our rollout worker under the settings of the step's variant."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.step, self.sampled = 0, Counter()
        completions.generate_round = self._generate_round

    async def _run_prompt(self, prompt: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        if prompt["global_steps"] != self.step:
            self.step = prompt["global_steps"]
            rounds, self.waits, quorum = ROUNDS[variant_of_step(self.step)[1]]
            # The run's controller gives no hints; under its name a quorum would be refused.
            changed = {"rounds": rounds, "round_quorum": quorum, "controller": "bayes"}
            self.seele = dataclasses.replace(
                self.seele, hints=dataclasses.replace(self.seele.hints, **changed)
            )
            self.lengths, self.barrier = lengths_of_step(self.step), asyncio.Barrier(PROMPTS)
        await super()._run_prompt(prompt, *args, **kwargs)

    async def _generate_round(
        self, client: Any, *, session_id: str, sampling_params: Sequence[dict[str, Any]], **request: Any
    ) -> AsyncGenerator[dict[int, Any], None]:
        if self.waits:
            await self.barrier.wait()
        first = self.sampled[session_id]
        self.sampled[session_id] += len(sampling_params)
        lengths = self.lengths[int(session_id.rsplit("-", 1)[1]), first:]
        forced = [
            {**params, "max_tokens": int(length), "ignore_eos": True}
            for params, length in zip(sampling_params, lengths, strict=False)
        ]
        generated = generate_round(client, session_id=session_id, sampling_params=forced, **request)
        async with aclosing(generated) as parts:
            async for part in parts:
                yield part


class ForcedRoundsManager(RoundsManager):
    """verl's manager of rollout workers, with the worker above."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(ForcedRoundsWorker)
