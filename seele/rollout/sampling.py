"""Seeds of single rollouts, the end of a response, and the positions of its tokens.

A seed is a pure function of the rollout's place in the run. A response ends at the first stop string, whether
or not the engine stopped there; ``seele.rollout.templates`` defines these strings. The prompt is never
searched: its own ``Assistant:`` is not part of the response.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence

from seele.records import Segment, Walk
from seele.seeds import seed_of

SEED_BITS = 63
"""vLLM and torch take signed 64-bit seeds."""


def rollout_seed(run_seed: int, step: int, instance_id: str, round_index: int, rollout_index: int) -> int:
    """Seed of one rollout, equal in every run that reaches the same place, whatever happened before.

    Args:
        run_seed: ``seele.seed``.
        step: Training step, or -1 - step for a validation at that step.
        instance_id: The problem.
        round_index: Round within the step.
        rollout_index: Rollout within the round.
    """
    return seed_of(run_seed, step, instance_id, round_index, rollout_index) >> (64 - SEED_BITS)


def text_before_stop(text: str, stop: Sequence[str]) -> str:
    """The response's text up to the first stop string, without it; all of it if there is none.

    As in vLLM, a stop string counts anywhere, even at the first character.
    """
    ends = [at for each in stop if (at := text.find(each)) >= 0]
    return text[: min(ends, default=len(text))]


def in_tokens(walk: Walk, token_ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> Walk:
    """Convert a walk over a response's text to one over its tokens.

    A token belongs to the segment in which it begins. The last segment of a walk without an error has all
    remaining tokens, including the end of the text.

    Args:
        walk: The walk in characters of ``decode(token_ids)``.
        token_ids: Token ids of the whole response.
        decode: Returns the text of leading tokens, without special ones.
    """
    ends = token_counts([segment.end for segment in walk.segments], token_ids, decode)
    if walk.first_error is None and ends:
        ends[-1] = len(token_ids)
    return Walk(
        tuple(
            Segment(start, end, segment.milestone_index, segment.passed)
            for segment, start, end in zip(walk.segments, [0, *ends], ends, strict=False)
        ),
        None if walk.first_error is None else token_counts([walk.first_error + 1], token_ids, decode)[0] - 1,
    )


BLOCK = 64
"""Number of tokens decoded at a time."""
CONTEXT = 8
"""Tokens before a block that are decoded with it: more than can share a character or a leading blank."""


def token_counts(
    chars: Sequence[int], token_ids: Sequence[int], decode: Callable[[Sequence[int]], str]
) -> list[int]:
    """The smallest number of leading tokens that contain each number of characters; ``chars`` is ascending.
    Linear in the tokens.
    """
    counts: list[int] = []
    first = held = 0  # tokens before the block, and their characters

    def held_by(count: int) -> int:
        context = max(0, first - CONTEXT)
        return held + len(decode(token_ids[context:count])) - len(decode(token_ids[context:first]))

    for wanted in chars:
        while first + BLOCK < len(token_ids) and (after := held_by(first + BLOCK)) < wanted:
            held, first = after, first + BLOCK
        block = range(first, min(first + BLOCK, len(token_ids)))
        counts.append(first + bisect_left(block, wanted, key=held_by))
    return counts
