"""Seeds of single rollouts: a pure function of where the rollout stands in the run."""

import hashlib

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
