"""The rollout workers' side of ``seele_verl.engine``, apart from it: importing vLLM's server is slow."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import ray
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput


async def generate_round(
    client: LLMServerClient,
    *,
    session_id: str,
    request_id: str,
    prompt_ids: list[int],
    sampling_params: Sequence[dict[str, Any]],
) -> list[TokenOutput]:
    """Generate one round on the replica that serves ``session_id``.

    Rounds of one problem share a session, so they land on one replica and find each other's prefix in its
    cache. Cancelling the call aborts the round on the engine.
    """
    server_id, server = await client._acquire_server(
        session_id, prompt_ids=prompt_ids, sampling_params=sampling_params[0]
    )
    call = server.generate_round.remote(prompt_ids, list(sampling_params), request_id)
    try:
        outputs: list[TokenOutput] = await call
        return outputs
    except asyncio.CancelledError:
        ray.cancel(call)
        with contextlib.suppress(ray.exceptions.RayError):
            await call  # until the engine has let go of it
        raise
    finally:
        client._release_server(server_id, request_id=session_id)
