"""Advantages of one prompt's rollouts in one training step, from their outcome rewards.

Three baselines: the mean over all rounds, the mean of the round, and the mean of the other rollouts under the
same hint, shrunk towards a predicted accuracy. With hint ratios fixed beforehand and no division by the
standard deviation, each preserves the direction of the expected policy gradient under a hint. They differ in
noise. On tokens that do not decide the reward, noise grows with the second moment of the advantage, which is
q (1 - q) + (q - c)^2 in a round of accuracy q under a baseline c, least at c = q. On the one choice that
decides the reward, c = 1 - q has the least noise, and there the mean over all rounds can be the better
baseline.

Other modules decide which tokens carry an advantage and how it enters the loss. G counts the prompt's
rollouts.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seele.maths.irt import Array
from seele.rounding import at_least

# Added to the standard deviation of a group by verl 0.9.1.
STD_EPSILON = 1e-6


def pooled_advantages(rewards_G: ArrayLike, *, divide_by_std: bool) -> Array:
    """Advantage of each rollout relative to all of the prompt's rollouts, whatever their hint.

        A = r - mean_G r                         Dr. GRPO (arXiv:2503.20783) and SEELE (arXiv:2509.06923)
        A = (r - mean_G r) / (std_G r + 1e-6)    GRPO (arXiv:2402.03300), divide_by_std=True

    As ``compute_grpo_outcome_advantage`` of verl 0.9.1: the standard deviation is that of a sample (ddof=1),
    and a group of one counts as mean 0 and standard deviation 1, so that it keeps its reward.

    A group of two or more whose rewards are all equal gets exactly zero. The mean includes each rollout's
    own reward, which with hint ratios fixed beforehand scales the expected gradient of A = r - mean by
    (G - 1) / G.

    Args:
        rewards_G: (G,) outcome rewards.

    Returns:
        (G,) advantages.

    Raises:
        ValueError: If there are no rollouts.
    """
    rewards_G = np.asarray(rewards_G, dtype=np.float64)
    _check_group(rewards_G)
    mean, std = (_mean(rewards_G), rewards_G.std(ddof=1)) if rewards_G.size > 1 else (0.0, 1.0)
    centred_G: Array = rewards_G - mean
    return centred_G / (std + STD_EPSILON) if divide_by_std else centred_G


def _mean(values_G: Array) -> float:
    """The mean; of equal values, exactly that value, which rounding may miss."""
    return float(values_G[0] if np.ptp(values_G) == 0.0 else values_G.mean())


def leave_one_out_advantages(rewards_G: ArrayLike) -> Array:
    """Advantage of each rollout relative to the mean of the prompt's others.

        A = r - sum of the others / (G - 1) = G / (G - 1) (r - mean_G r)       RLOO (arXiv:2402.14740)

    As ``compute_rloo_outcome_advantage`` of verl 0.9.1: a group of one keeps its reward.

    Args:
        rewards_G: (G,) outcome rewards.

    Returns:
        (G,) advantages.

    Raises:
        ValueError: If there are no rollouts.
    """
    rewards_G = np.asarray(rewards_G, dtype=np.float64)
    _check_group(rewards_G)
    if rewards_G.size == 1:
        return rewards_G.copy()
    advantages_G: Array = (rewards_G - _mean(rewards_G)) * (rewards_G.size / (rewards_G.size - 1))
    return advantages_G


def per_round_advantages(
    rewards_G: ArrayLike, round_G: ArrayLike, *, divide_by_std: bool, leave_one_out: bool = False
) -> Array:
    """``pooled_advantages`` or ``leave_one_out_advantages`` within each round.

    A round of two or more whose rewards are all equal gets exactly zero, so it adds no gradient. A round
    of one keeps its reward, as verl's groups of one do.

    Args:
        rewards_G: (G,) outcome rewards.
        round_G: (G,) labels; rollouts with equal labels share a baseline.
        divide_by_std: As in ``pooled_advantages``; ignored with ``leave_one_out``.
        leave_one_out: Whether to exclude a rollout's own reward from its baseline.

    Returns:
        (G,) advantages.

    Raises:
        ValueError: If there are no rollouts or the shapes differ.
    """
    rewards_G = np.asarray(rewards_G, dtype=np.float64)
    round_G = np.asarray(round_G)
    _check_group(rewards_G, round_G=round_G)
    advantages_G = np.empty_like(rewards_G)
    for label in np.unique(round_G):
        in_round_G = round_G == label
        advantages_G[in_round_G] = (
            leave_one_out_advantages(rewards_G[in_round_G])
            if leave_one_out
            else pooled_advantages(rewards_G[in_round_G], divide_by_std=divide_by_std)
        )
    return advantages_G


def hint_conditional_advantages(
    rewards_G: ArrayLike,
    hint_ratio_G: ArrayLike,
    predicted_G: ArrayLike,
    *,
    prior_rollouts: float,
    divide_by_std: bool,
    penalties_G: ArrayLike = 0.0,
) -> Array:
    """Advantage of each rollout relative to the others under the same hint ratio and a predicted accuracy.

        b_i = (sum_j r_j + m f_i) / (n_i + m)      over the n_i other rollouts j with the hint ratio of i
        A_i = r_i - b_i
        A_i = (r_i - b_i) / s_i                    s_i = sqrt(c_i (1 - c_i)), divide_by_std=True

    f is ``predicted_G``, m is ``prior_rollouts`` and k_i = n_i + m counts the rollouts behind the baseline.
    If k_i would be 0, b_i = f_i and k_i = 1. m = 0 is the leave-one-out baseline of RLOO
    (arXiv:2402.14740). s_i is the standard deviation of a 0/1 reward of accuracy
    c_i = (k_i b_i + 1) / (k_i + 2), which is b_i after Laplace's rule of succession; so
    |A_i| <= (k_i + 2) / sqrt(k_i + 1).

    b_i and s_i do not contain r_i, so the expected gradient is the true one, with ``divide_by_std`` up to a
    positive factor per hint ratio and prediction. This holds under two conditions:

    - f_i must not depend on r_i. A curve fitted to earlier visits or earlier rounds will do; one fitted to
      the same rollouts for which it serves as a baseline adds a small bias.
    - n_i must not depend on r_i. If a later round keeps or leaves the hint ratio because of r_i, the bias is
      small, and a call per round avoids it.

    For a 0/1 reward, undivided, either bias is a scale: the expected gradient of rollout i is the true one
    times 1 - (E[b_i | r_i = 1] - E[b_i | r_i = 0]), given the rounds before.

    Penalties p enter rewards and baselines, with r_i + p_i for r_i in the first three lines, but not
    predictions and s_i, which are about accuracies.

    Args:
        rewards_G: (G,) outcome rewards in [0, 1], without penalties.
        hint_ratio_G: (G,) fractions of the solution revealed; the same hint means exactly equal ratios.
        predicted_G: (G,) predicted accuracy at each rollout's hint ratio, in [0, 1].
        prior_rollouts: Number of rollouts that a prediction counts as, at least 0.
        divide_by_std: Whether to divide advantages by s_i.
        penalties_G: (G,) values added to the rewards, or one number for all.

    Returns:
        (G,) advantages.

    Raises:
        ValueError: If there are no rollouts, the shapes differ, a reward or a prediction is outside [0, 1],
            or ``prior_rollouts`` is negative or not finite.
    """
    rewards_G = np.asarray(rewards_G, dtype=np.float64)
    hint_ratio_G = np.asarray(hint_ratio_G, dtype=np.float64)
    predicted_G = np.asarray(predicted_G, dtype=np.float64)
    penalties_G = np.broadcast_to(np.asarray(penalties_G, dtype=np.float64), rewards_G.shape)
    _check_group(rewards_G, hint_ratio_G=hint_ratio_G, predicted_G=predicted_G)
    _check_accuracies(rewards_G=rewards_G, predicted_G=predicted_G)
    if not 0.0 <= prior_rollouts < math.inf:
        raise ValueError(f"prior_rollouts must be finite and at least 0, got {prior_rollouts:g}")

    _, level_G = np.unique(hint_ratio_G, return_inverse=True)
    num_others_G = np.bincount(level_G)[level_G] - 1.0
    sum_others_G = np.bincount(level_G, weights=rewards_G)[level_G] - rewards_G
    prior_G = np.where(num_others_G + prior_rollouts > 0.0, prior_rollouts, 1.0)
    support_G = num_others_G + prior_G
    baseline_G = (sum_others_G + prior_G * predicted_G) / support_G
    penalty_of_others_G = np.bincount(level_G, weights=penalties_G)[level_G] - penalties_G
    advantages_G: Array = rewards_G - baseline_G + penalties_G - penalty_of_others_G / support_G
    if not divide_by_std:
        return advantages_G
    # Not c (1 - c): the difference cancels if many rollouts support a baseline near 1.
    products_G = (support_G * baseline_G + 1.0) * (support_G * (1.0 - baseline_G) + 1.0)
    advantages_G *= (support_G + 2.0) / np.sqrt(products_G)
    return advantages_G


def split_advantages(
    rewards_G: ArrayLike, on_policy_G: ArrayLike, *, divide_by_std: bool, leave_one_out: bool = False
) -> Array:
    """``pooled_advantages`` of all rollouts, with the mean and deviation of the on-policy ones alone.

    LUFFY's code computes them this way where it adds an SFT loss (arXiv:2504.14945), so that a solution that
    is always correct does not lower the advantages of the policy's own rollouts. As there, equal on-policy
    rewards count as standard deviation 1: otherwise the solution's advantage would be divided by nearly 0.

    Args:
        rewards_G: (G,) outcome rewards.
        on_policy_G: (G,) booleans, at least one of them true.
        divide_by_std: Whether to divide by the standard deviation; not with ``leave_one_out``.
        leave_one_out: Whether an on-policy rollout is compared with the other on-policy ones alone
            (``leave_one_out_advantages``).

    Returns:
        (G,) advantages.

    Raises:
        ValueError: If there are no rollouts, the shapes differ, or none is on-policy.
    """
    rewards_G, on_policy_G = np.asarray(rewards_G, dtype=np.float64), np.asarray(on_policy_G, dtype=bool)
    _check_group(rewards_G, on_policy_G=on_policy_G)
    if not on_policy_G.any():
        raise ValueError("at least one rollout must be on-policy")
    own_G = rewards_G[on_policy_G]
    mean = _mean(own_G) if own_G.size > 1 else 0.0
    std = own_G.std(ddof=1) if np.ptp(own_G) > 0.0 else 1.0
    centred_G: Array = rewards_G - mean
    if leave_one_out:
        centred_G[on_policy_G] = leave_one_out_advantages(own_G)
        return centred_G
    return centred_G / (std + STD_EPSILON) if divide_by_std else centred_G


def prefix_advantages(rewards_G: ArrayLike, prefixed_G: ArrayLike) -> tuple[Array, Array]:
    """Prefix-RFT's advantages (arXiv:2507.01679, as in its code), without standard deviation.

        generated tokens, no prefix:    A = r - mean of the rollouts without prefix
        generated tokens after prefix:  A = r - m
        tokens of the prefix:           A = (r - m - mean of the rollouts without prefix) / K

    K rollouts continue the prefix and m is the mean of their rewards. The mean over fewer than two rollouts
    is 0: a single one keeps its reward.

    Args:
        rewards_G: (G,) outcome rewards.
        prefixed_G: (G,) booleans, true for rollouts that continue the prefix.

    Returns:
        Two (G,) arrays: advantages of generated tokens, and of prefix tokens, 0 without a prefix.

    Raises:
        ValueError: If there are no rollouts or the shapes differ.
    """
    rewards_G, prefixed_G = np.asarray(rewards_G, dtype=np.float64), np.asarray(prefixed_G, dtype=bool)
    _check_group(rewards_G, prefixed_G=prefixed_G)
    num_prefixed = int(prefixed_G.sum())
    own = _mean(rewards_G[prefixed_G]) if num_prefixed > 1 else 0.0
    others = _mean(rewards_G[~prefixed_G]) if rewards_G.size - num_prefixed > 1 else 0.0
    generated_G: Array = rewards_G - np.where(prefixed_G, own, others)
    prefix_G: Array = np.where(prefixed_G, rewards_G - own - others, 0.0) / max(num_prefixed, 1)
    return generated_G, prefix_G


def highest(values_T: ArrayLike, share: float) -> NDArray[np.bool_]:
    """(T,) booleans: true for the largest ``share`` of the values, rounded up to whole values; ties go by
    position.
    """
    values_T = np.asarray(values_T, dtype=np.float64)
    keep = at_least(share, values_T.size)
    chosen_T = np.zeros(values_T.size, dtype=np.bool_)
    chosen_T[np.argsort(-values_T, kind="stable")[:keep]] = True
    return chosen_T


def _check_group(rewards_G: Array, **aligned: NDArray[Any]) -> None:
    if rewards_G.ndim != 1 or rewards_G.size == 0:
        raise ValueError(f"rewards_G must be a non-empty (G,) array, got shape {rewards_G.shape}")
    for name, array in aligned.items():
        if array.shape != rewards_G.shape:
            raise ValueError(f"{name} must have the shape {rewards_G.shape} of rewards_G, got {array.shape}")


def _check_accuracies(**accuracies: Array) -> None:
    for name, accuracy_G in accuracies.items():
        outside_G = ~((accuracy_G >= 0.0) & (accuracy_G <= 1.0))
        if outside_G.any():
            raise ValueError(f"{name} must lie in [0, 1], got {accuracy_G[outside_G][0]:g}")
