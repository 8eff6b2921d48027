"""The rounds that an engine generates, as completions; what it fails at, it is asked for again."""

import logging
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import ray
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput

from seele.records import Completion, Finish
from seele.reward.walks import ErrorWatch
from seele.rollout.sampling import text_before_stop, token_counts
from seele.rollout.templates import Tokenizer
from seele_verl.engine.client import WATCH, generate_round
from seele_verl.rollout_cache import Part

logger = logging.getLogger(__name__)

# An engine request fails when its replica is restarted or a node drops out; a prompt is given up after this
# many tries.
MAX_ATTEMPTS = 3


class CompletionClient:
    """A rollout worker's way to the engine."""

    def __init__(self, client: LLMServerClient, tokenizer: Tokenizer) -> None:
        self._client, self._tokenizer = client, tokenizer

    async def complete(
        self,
        request: Mapping[str, Any],
        *,
        session_id: str,
        quorum: int,
        stop: tuple[str, ...] = (),
        watches: Sequence[ErrorWatch | None] | None = None,
    ) -> AsyncGenerator[Part, None]:
        """Yield one completion per seed, by position, and the step whose weights generated them; in parts, as
        ``generate_round`` does.

        Args:
            request: ``prompt_ids``, ``sampling_params``, ``max_tokens`` and ``seeds``.
            session_id: The problem's visit: its rounds land on one replica.
            quorum: Completions of the first part.
            stop: Texts that end a response.
            watches: What ends each response at its first sure error.

        Raises:
            ray.exceptions.RayError: The engine failed each time.
            RuntimeError: It returned empty completions each time.
        """
        seeds, max_tokens = request["seeds"], request["max_tokens"]
        watches = watches or [None] * len(seeds)
        missing = dict(enumerate(seeds))
        held: dict[int, Completion] = {}  # completions of a part that had empty ones, too
        # Marks such as <|im_end|> are special tokens, which vLLM would omit from the text that it
        # searches.
        ends = {"stop": list(stop), "skip_special_tokens": False} if stop else {}
        for attempt in range(1, MAX_ATTEMPTS + 1):
            positions = [*missing]
            generated = generate_round(
                self._client,
                session_id=session_id,
                # Unique: the engine may still be busy with an earlier request, of a worker that died.
                request_id=f"{session_id}-{seeds[0]}-{attempt}-{uuid.uuid4().hex}",
                prompt_ids=request["prompt_ids"],
                sampling_params=[
                    {
                        **request["sampling_params"],
                        **ends,
                        **_watched(watches[position]),
                        "max_tokens": max_tokens,
                        "seed": seed,
                    }
                    for position, seed in missing.items()
                ],
                quorum=max(quorum - len(held), 1) if len(missing) + len(held) == len(seeds) else len(missing),
            )
            try:
                async with aclosing(generated) as parts:
                    async for part in parts:
                        for index, output in part.items():
                            if output.token_ids:
                                position = positions[index]
                                held[position] = self.completion(output, max_tokens, stop, watches[position])
                                del missing[position]
                        if not all(output.token_ids for output in part.values()):
                            break
                        completions, held = held, {}
                        yield completions, next(iter(part.values())).extra_fields["global_steps"]
            except ray.exceptions.RayError:
                if attempt == MAX_ATTEMPTS:
                    raise
                logger.warning("generation failed, attempt %d of %d", attempt, MAX_ATTEMPTS, exc_info=True)
            if not missing:
                return
        raise RuntimeError(f"the engine returned empty completions {MAX_ATTEMPTS} times (aborted requests)")

    def completion(
        self, output: TokenOutput, max_tokens: int, stop: tuple[str, ...], watch: ErrorWatch | None
    ) -> Completion:
        """Return what the engine generated, up to its first stop string or watched error."""
        token_ids = list(output.token_ids)
        # verl's server reports a response that hit the length limit as "completed".
        is_full = len(token_ids) >= max_tokens and token_ids[-1] != self._tokenizer.eos_token_id
        text, finish = self._decode(token_ids), Finish.LENGTH if is_full else Finish.STOP
        if stop:
            whole = self._tokenizer.decode(token_ids, skip_special_tokens=False)
            if (before := text_before_stop(whole, stop)) != whole:
                text, finish = before, Finish.STOP
        # The engine writes the end-of-text token after the line with the error.
        if watch and watch.finds_error(text):
            token_ids = token_ids[: token_counts([watch.chars_read], token_ids, self._decode)[0]]
            text, finish = self._decode(token_ids), Finish.FLAGGED
        return Completion(
            text=text,
            token_ids=tuple(token_ids),
            log_probs=tuple(output.log_probs or ())[: len(token_ids)],
            finish=finish,
            cached_prompt_tokens=output.extra_fields.get("num_cached_tokens") or 0,
        )

    def _decode(self, token_ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(token_ids, skip_special_tokens=True)
        return text


def _watched(watch: ErrorWatch | None) -> dict[str, Any]:
    """Return the sampling parameters that end a response at its first error (``engine/stopping.py``)."""
    return {} if watch is None else {"extra_args": {WATCH: watch.to_json()}}
