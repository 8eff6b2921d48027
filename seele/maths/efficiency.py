"""The learning signal of a prompt's rollouts, given their accuracy a: a(1 - a).

SEELE (arXiv:2509.06923), Eq. 9 and App. A: one update lowers the loss on the prompt, with its hint, by at
most a(1 - a) / (2 beta). Only the shape is useful: at a KL coefficient beta of 0.001 the bound exceeds any
possible decrease of a loss. It measures the signal, not the variance of its estimate.
"""

import numpy as np
from numpy.typing import ArrayLike

from seele.maths.irt import Array


def reward_variance(accuracy: ArrayLike) -> Array:
    """Variance a(1 - a) of a 0/1 reward with mean ``accuracy`` in [0, 1]: at most 1/4, reached at 1/2.

    Same shape as ``accuracy``.
    """
    mean = np.asarray(accuracy, dtype=np.float64)
    return mean * (1.0 - mean)


def unbiased_reward_variance(accuracy: ArrayLike, num_rollouts: ArrayLike) -> Array:
    """Estimate of ``reward_variance`` of the true accuracy from the mean of a few 0/1 rewards.

        n / (n - 1) * a (1 - a)

    On average, a(1 - a) of the mean of n rewards is too small by the factor (n - 1) / n. A single rollout
    shows no variance and gives 0. Same shape as the arguments.
    """
    count = np.asarray(num_rollouts, dtype=np.float64)
    unbiased: Array = reward_variance(accuracy) * count / np.maximum(count - 1.0, 1.0)
    return unbiased
