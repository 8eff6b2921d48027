"""The rollout workers' side of ``seele_verl.engine.replica``, without the slow import of vLLM's server."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import ray
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput

from seele_verl.faults import DEATHS

WATCH = "seele_watch"
"""Key of a request's watch (``ErrorWatch.to_json``) among its ``extra_args``."""


async def generate_round(
    client: LLMServerClient,
    *,
    session_id: str,
    request_id: str,
    prompt_ids: list[int],
    sampling_params: Sequence[dict[str, Any]],
    quorum: int,
) -> AsyncGenerator[dict[int, TokenOutput], None]:
    """Generate one round on the replica that serves ``session_id``. Yields outputs by position: first all
    that are done once ``quorum`` of them are, then the others.

    Rounds of one problem share a session, so they land on one replica and find each other's prefix in its
    cache. Cancelling the consumer, or closing the generator, aborts the rest of the round on the engine.
    """
    server_id, server = await client._acquire_server(
        session_id, prompt_ids=prompt_ids, sampling_params=sampling_params[0]
    )
    request = prompt_ids, list(sampling_params), request_id
    if in_parts := quorum < len(sampling_params):
        call = server.generate_round_in_parts.options(num_returns="streaming").remote(*request, quorum)
        finished = call.completed()
    else:
        # A stream takes Ray longer than a single answer.
        call = finished = server.generate_round.remote(*request)
    try:
        if in_parts:
            async for part in call:
                yield await part
        else:
            yield dict(enumerate(await call))
    except (asyncio.CancelledError, GeneratorExit):
        ray.cancel(call)
        with contextlib.suppress(ray.exceptions.RayError):
            await finished  # until the engine has released it
        raise
    except DEATHS:
        # A dead server has no requests in flight, so the balancer would send the next attempt there again.
        client._load_balancer.remove_servers.remote([server_id])
        raise
    finally:
        client._release_server(server_id, request_id=session_id)
