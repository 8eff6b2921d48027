"""A whole round of one problem as one call to the engine.

verl calls its vLLM server once per rollout, and the server streams every token of every request through its
event loop. Here the server takes all rollouts of a round in one Ray call and asks vLLM for final outputs
only, or for pieces of those that may end early; generation itself stays verl's ``vLLMHttpServer.generate``.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from typing import Any

import ray
from verl.workers.rollout.replica import TokenOutput
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica
from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind

from seele.reward.walks import ErrorWatch
from seele_verl.engine.client import FLAGGED
from seele_verl.engine.weight_socket import receive_on_own_socket

# No output per token.
FINAL = {"output_kind": RequestOutputKind.FINAL_ONLY}
PIECEWISE = {"output_kind": RequestOutputKind.DELTA}


class RoundServer(vLLMHttpServer):
    """verl's vLLM server with one more method, and a socket of its own for weights."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        receive_on_own_socket()

    async def run_server(self, *args: Any, **kwargs: Any) -> None:
        """verl's, which makes the engine."""
        await super().run_server(*args, **kwargs)
        self.engine: WatchedEngine = WatchedEngine(self.engine)  # type: ignore[has-type]

    async def generate_round(
        self,
        prompt_ids: list[int],
        sampling_params: Sequence[dict[str, Any]],
        request_id: str,
        watches: Sequence[ErrorWatch | None],
    ) -> list[TokenOutput]:
        """One completion of ``prompt_ids`` per entry of ``sampling_params``, in order; the prompt is
        prefilled once. A completion with a watch ends where that finds an error (``FLAGGED``).
        """
        return await asyncio.gather(*self._requests(prompt_ids, sampling_params, request_id, watches))

    async def generate_round_in_parts(
        self,
        prompt_ids: list[int],
        sampling_params: Sequence[dict[str, Any]],
        request_id: str,
        watches: Sequence[ErrorWatch | None],
        quorum: int,
    ) -> AsyncGenerator[dict[int, TokenOutput], None]:
        """The same completions by position: those that are there once ``quorum`` are, then the others."""
        requests = self._requests(prompt_ids, sampling_params, request_id, watches)
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
            for task in positions:
                task.cancel()
            await asyncio.gather(*positions, return_exceptions=True)

    def _requests(
        self,
        prompt_ids: list[int],
        sampling_params: Sequence[dict[str, Any]],
        request_id: str,
        watches: Sequence[ErrorWatch | None],
    ) -> list[Coroutine[Any, Any, TokenOutput]]:
        return [
            self._request(prompt_ids, params, f"{request_id}-{index}", watch)
            for index, (params, watch) in enumerate(zip(sampling_params, watches, strict=True))
        ]

    async def _request(
        self, prompt_ids: list[int], params: dict[str, Any], request_id: str, watch: ErrorWatch | None
    ) -> TokenOutput:
        if watch is None:
            # The rollout worker decodes whole completions; here only stop strings need the text.
            how = {**FINAL, "detokenize": "stop" in params}
        else:
            how = {**PIECEWISE, "detokenize": True}
            self.engine.watches[request_id] = watch
        try:
            return await self.generate(
                prompt_ids=prompt_ids, sampling_params={**params, **how}, request_id=request_id
            )
        finally:
            self.engine.watches.pop(request_id, None)


class WatchedEngine:
    """vLLM's engine as verl's server sees it; it ends requests that are watched at their first error."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.watches: dict[str, ErrorWatch] = {}
        """By request, whose outputs come in pieces then."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def generate(self, *, request_id: str, **request: Any) -> AsyncGenerator[RequestOutput, None]:
        """As vLLM's, of which verl's server keeps the last output."""
        outputs: AsyncGenerator[RequestOutput, None] = self._engine.generate(request_id=request_id, **request)
        watch = self.watches.get(request_id)
        return outputs if watch is None else _until_error(outputs, watch)


async def _until_error(
    outputs: AsyncGenerator[RequestOutput, None], watch: ErrorWatch
) -> AsyncGenerator[RequestOutput, None]:
    """One output of all pieces up to the first error. The engine drops what it has computed behind it."""
    whole: RequestOutput | None = None
    async with aclosing(outputs):
        async for output in outputs:
            piece = output.outputs[0]
            if whole is None:
                whole = output
            else:
                whole.add(output, aggregate=True)
            if not output.finished and watch.finds_error(piece.text):
                whole.outputs[0].finish_reason = FLAGGED
                break
    if whole is not None:
        yield whole


class RoundReplica(vLLMReplica):
    """verl's vLLM replica, serving with ``RoundServer``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.server_class = ray.remote(RoundServer)
