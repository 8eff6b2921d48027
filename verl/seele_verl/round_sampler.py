"""How a prompt's rounds are sampled: what the engine is asked, and what the run notes of its answers."""

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seele.records import Completion
from seele.reward.walks import ErrorWatch
from seele.rollout.solutions import EncodedProblem
from seele_verl.controller_actor import RemoteController
from seele_verl.engine.completions import CompletionClient
from seele_verl.rollout_cache import Part, RolloutCache
from seele_verl.runs.watchdog import show_life


@dataclass(kw_only=True)
class RoundSampler:
    """Samples one prompt's rounds (``seele.rollout.rounds.Sampler``), as in validation."""

    engine: CompletionClient
    run: Path
    """The run's folder."""
    uid: str
    """Id of the visit."""
    encoded: EncodedProblem
    sampling_params: Mapping[str, Any]
    max_tokens: int
    """Longest response, with the hint if that is a part of it."""
    seed_of: Callable[[int, int], int]
    """Round, rollout in the round -> seed."""
    stop: tuple[str, ...] = ()
    """Texts that end a response."""
    in_response: bool = False
    """True if a hint is the beginning of the response."""
    model_version: int = -1
    """The step whose weights generated the last completions."""

    async def __call__(
        self, *, hint_steps: int, round_index: int, first_rollout: int, num_rollouts: int, quorum: int
    ) -> AsyncGenerator[dict[int, Completion], None]:
        """Ask the engine for a round under one hint."""
        request = self._request(hint_steps, round_index, range(first_rollout, first_rollout + num_rollouts))
        sampled = self.engine.complete(request, session_id=self.uid, quorum=quorum, stop=self.stop)
        async with aclosing(sampled) as parts:
            async for part in parts:
                yield self._take(part)

    def _request(self, hint_steps: int, round_index: int, rollouts: range) -> dict[str, Any]:
        prompt_ids = self.encoded.before_response(hint_steps)
        prefix_tokens = len(prompt_ids) - len(self.encoded.prompt_ids) if self.in_response else 0
        return {
            "prompt_ids": prompt_ids,
            "sampling_params": self.sampling_params,
            "max_tokens": self.max_tokens - prefix_tokens,
            "seeds": [self.seed_of(round_index, rollout) for rollout in rollouts],
        }

    def _take(self, part: Part) -> dict[int, Completion]:
        completions, self.model_version = part
        with suppress(OSError):  # a full disk does not end a rollout
            show_life(self.run)
        return completions


@dataclass(kw_only=True)
class TrainingSampler(RoundSampler):
    """Samples one prompt's rounds in training: responses may end at their first sure error or come from the
    cache of rollouts, and the controller hears of tokens and seconds.
    """

    controller: RemoteController
    step: int
    cache: RolloutCache | None = None
    watch_of: Callable[[int, int, int], ErrorWatch | None] | None = None
    """Steps of the hint, round, rollout in the round -> what ends the response at a sure error."""

    async def __call__(
        self, *, hint_steps: int, round_index: int, first_rollout: int, num_rollouts: int, quorum: int
    ) -> AsyncGenerator[dict[int, Completion], None]:
        """Find a round under one hint in the cache, or ask the engine for it and fill the cache."""
        start = time.perf_counter()
        rollouts = range(first_rollout, first_rollout + num_rollouts)
        request, watches = self._request(hint_steps, round_index, rollouts), None
        if self.watch_of is not None:
            watches = [self.watch_of(hint_steps, round_index, rollout) for rollout in rollouts]
            # The cache's key includes the watch: under another one, responses end elsewhere.
            last = watches[-1].to_json() if watches[-1] else {}
            request["watch"] = {"from": watches.count(None), **last}
        kept = self.cache.find(self.step, request) if self.cache else None
        if kept is None:
            sampled = self.engine.complete(request, session_id=self.uid, quorum=quorum, watches=watches)
        else:
            # Another run may have divided the round for its quorum.
            sampled = _one_by_one([_joined(kept)] if quorum == num_rollouts else kept)
        found = []
        async with aclosing(sampled) as parts:
            async for part in parts:
                completions = self._take(part)
                self.controller.count_tokens(
                    round_index,
                    prompt=len(completions) * len(request["prompt_ids"]),
                    cached=sum(each.cached_prompt_tokens for each in completions.values()),
                    generated=sum(len(each.token_ids) for each in completions.values()),
                    from_cache=kept is not None,
                )
                found.append(part)
                yield completions
        if self.cache and kept is None:
            with suppress(OSError):  # nor does it here: the round is sampled again where it is needed
                self.cache.keep(self.step, request, found)
        self.controller.time_round(round_index, time.perf_counter() - start)


def _joined(parts: Sequence[Part]) -> Part:
    """Return a round in one part, with the step of the last one's weights."""
    return {at: each for part, _ in parts for at, each in part.items()}, parts[-1][1]


async def _one_by_one(parts: Sequence[Part]) -> AsyncGenerator[Part, None]:
    for part in parts:
        yield part
