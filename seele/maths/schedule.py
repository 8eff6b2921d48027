"""Curves over training steps that methods anneal their hints along. Pure functions of the step."""

import math


def cosine_decay(step: int, *, high: float, low: float, decay_steps: int) -> float:
    """Falls from ``high`` at step 0 along half a cosine to ``low`` at ``decay_steps``, and stays there.

        p(t) = high - (high - low) / 2 * (1 - cos(pi t / T)),  t <= T

    Args:
        step: Training step t, 0 or more.
        high: Value at step 0.
        low: Value from step T on.
        decay_steps: T, at least 1.
    """
    progress = min(step, decay_steps) / decay_steps
    return high - 0.5 * (high - low) * (1.0 - math.cos(math.pi * progress))
