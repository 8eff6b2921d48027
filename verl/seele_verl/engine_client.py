"""The rollout workers' side of ``seele_verl.engine``, apart from it: importing vLLM's server is slow."""

from collections.abc import Sequence
from typing import Any

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
    cache.
    """
    server_id, server = await client._acquire_server(
        session_id, prompt_ids=prompt_ids, sampling_params=sampling_params[0]
    )
    try:
        outputs: list[TokenOutput] = await server.generate_round.remote(
            prompt_ids, list(sampling_params), request_id
        )
        return outputs
    finally:
        client._release_server(server_id, request_id=session_id)
