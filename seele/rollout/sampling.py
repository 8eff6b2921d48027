"""Seeds of single rollouts, and where a response ends.

A seed is a pure function of where the rollout stands in the run. A response ends at the first stop string,
whether or not the engine stopped there; which strings these are is in ``seele.rollout.templates``. The prompt
is never looked at: its own ``Assistant:`` is no part of the response.
"""

import hashlib
from collections.abc import Sequence

SEED_BITS = 63
"""vLLM and torch take signed 64-bit seeds."""


def rollout_seed(run_seed: int, step: int, instance_id: str, round_index: int, rollout_index: int) -> int:
    """Seed of one rollout, equal in every run that comes to the same place, whatever happened in between.

    Args:
        run_seed: ``seele.seed``.
        step: Training step, or -1 - step for a validation at that step.
        instance_id: The problem.
        round_index: Round within the step.
        rollout_index: Rollout within the round.
    """
    place = "\x1f".join(map(str, (run_seed, step, instance_id, round_index, rollout_index)))
    digest = hashlib.sha256(place.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - SEED_BITS)


def text_before_stop(text: str, stop: Sequence[str]) -> str:
    """The response's text up to the first stop string, without it; all of it where there is none.

    As vLLM ends it: a stop string counts wherever it stands, also at the very start.
    """
    ends = [at for each in stop if (at := text.find(each)) >= 0]
    return text[: min(ends, default=len(text))]
