"""How much one update can lower the loss, given the accuracy of a prompt's rollouts.

SEELE (arXiv:2509.06923), Eq. 9 and App. A. The bound concerns the loss on the prompt as the policy saw it,
with its hint; it measures the signal, not the variance of its estimate. Only its shape is useful: at a KL
coefficient of 0.001 its value exceeds any possible decrease of a loss.
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


def descent_bound(accuracy: ArrayLike, *, kl_coefficient: float) -> Array:
    """Upper bound on the decrease of the loss in one update.

        L(theta_old) - L(theta_old + d) <= a (1 - a) / (2 beta)      Eq. 9

    Args:
        accuracy: Mean reward of each prompt, in [0, 1].
        kl_coefficient: beta > 0, the weight of the KL term.

    Returns:
        Bounds in units of the reward, same shape as ``accuracy``.

    Raises:
        ValueError: If ``kl_coefficient`` is not positive; without the KL term there is no bound.
    """
    if not kl_coefficient > 0.0:
        raise ValueError(f"kl_coefficient must be positive, got {kl_coefficient:g}")
    return reward_variance(accuracy) / (2.0 * kl_coefficient)
