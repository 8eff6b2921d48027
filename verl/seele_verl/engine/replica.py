"""Sends a whole round of one problem to the engine in one call.

verl calls its vLLM server once per rollout, and the server streams every token of every request through its
event loop. Here the server takes all rollouts of a round in one Ray call and asks vLLM for final outputs
only; generation itself stays verl's ``vLLMHttpServer.generate``.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Coroutine, Iterable, Sequence
from typing import Any

import ray
from verl.workers.rollout.replica import TokenOutput
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.exceptions import EngineDeadError

from seele_verl.engine.weight_socket import receive_on_own_socket

CORE_POLL_S = 1.0

# No output per token.
FINAL = {"output_kind": RequestOutputKind.FINAL_ONLY}


class RoundServer(vLLMHttpServer):
    """verl's vLLM server with methods that generate a round, and its own socket for weights."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        receive_on_own_socket()

    async def live(self) -> None:
        """Never end: a caller that waits for this learns of the server's death.

        vLLM computes in processes of its own. When one of them dies, this process ends, too, so that callers
        meet one kind of death.
        """
        while not self._core_has_died():
            await asyncio.sleep(CORE_POLL_S)
        os._exit(1)

    def _core_has_died(self) -> bool:
        # In a replica of several nodes, only the first node's server has an engine.
        engine = getattr(self, "engine", None)
        return engine is not None and engine.errored

    async def generate(self, *args: Any, **kwargs: Any) -> TokenOutput:
        """Return verl's output of a request."""
        try:
            return await super().generate(*args, **kwargs)
        except EngineDeadError:
            os._exit(1)

    async def generate_round(
        self,
        prompt_ids: list[int],
        sampling_params: Sequence[dict[str, Any]],
        request_id: str,
    ) -> list[TokenOutput]:
        """Return one completion of ``prompt_ids`` per entry of ``sampling_params``, in order; the prompt is
        prefilled once.
        """
        requests = self._requests(prompt_ids, sampling_params, request_id)
        tasks = [asyncio.create_task(request) for request in requests]
        try:
            return await asyncio.gather(*tasks)
        finally:
            await _abort(tasks)

    async def generate_round_in_parts(
        self,
        prompt_ids: list[int],
        sampling_params: Sequence[dict[str, Any]],
        request_id: str,
        quorum: int,
    ) -> AsyncGenerator[dict[int, TokenOutput], None]:
        """Yield the same completions by position: those done once ``quorum`` are done, then the others."""
        requests = self._requests(prompt_ids, sampling_params, request_id)
        positions = {asyncio.create_task(request): position for position, request in enumerate(requests)}
        try:
            running = set(positions)
            while len(positions) - len(running) < quorum:
                _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            yield {positions[task]: task.result() for task in positions.keys() - running}
            if running:
                await asyncio.wait(running)
                yield {positions[task]: task.result() for task in running}
        finally:
            await _abort(positions)

    def _requests(
        self,
        prompt_ids: list[int],
        sampling_params: Sequence[dict[str, Any]],
        request_id: str,
    ) -> list[Coroutine[Any, Any, TokenOutput]]:
        # The rollout worker decodes whole completions; here only stop strings need the text.
        return [
            self.generate(
                prompt_ids=prompt_ids,
                sampling_params={**params, **FINAL, "detokenize": "stop" in params},
                request_id=f"{request_id}-{index}",
            )
            for index, params in enumerate(sampling_params)
        ]


async def _abort(tasks: Iterable[asyncio.Task[TokenOutput]]) -> None:
    """Cancel those that still run, and return when the engine has released them."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class RoundReplica(vLLMReplica):
    """verl's vLLM replica, serving with ``RoundServer``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.server_class = ray.remote(RoundServer)
