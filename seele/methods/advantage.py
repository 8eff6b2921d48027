"""The advantages of one problem's rollouts, as the settings say."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from seele.config import SeeleConfig
from seele.maths.advantages import (
    hint_conditional_advantages,
    per_round_advantages,
    prefix_advantages,
    split_advantages,
)
from seele.maths.irt import Array
from seele.records import Origin, Rollout


@dataclass(frozen=True, slots=True)
class Advantage:
    """What the update multiplies the score functions of a rollout's tokens with."""

    generated: float
    """Of tokens that the policy wrote."""
    off_policy: float
    """Of the others in the rollout's row."""


def group_advantages(
    rollouts: Sequence[Rollout], settings: SeeleConfig, *, divide_by_std: bool
) -> Sequence[Advantage | None]:
    """Advantages of each rollout; None for all where the trainer's own pooled estimate serves.

    Under ``hint_conditional`` each round is judged by itself: whether a later round keeps its hint depends on
    the rewards of this one, which would let them into their own baseline. Where the controller expects
    nothing, the target accuracy stands in.
    """
    reward_G = np.array([rollout.reward for rollout in rollouts])
    if settings.off_policy.source == "prefix":
        prefixed_G = np.array([rollout.hint_steps > 0 for rollout in rollouts])
        return _both(*prefix_advantages(reward_G, prefixed_G))
    if settings.off_policy.statistics == "on_policy":
        on_policy_G = np.array([rollout.origin is Origin.POLICY for rollout in rollouts])
        advantage_G = split_advantages(reward_G, on_policy_G, divide_by_std=divide_by_std)
    elif settings.advantage.baseline == "pooled":
        return [None] * len(rollouts)
    else:
        advantage_G = _apart(rollouts, reward_G, settings, divide_by_std=divide_by_std)
    return _both(advantage_G, advantage_G)


def _apart(
    rollouts: Sequence[Rollout], reward_G: Array, settings: SeeleConfig, *, divide_by_std: bool
) -> Array:
    """(G,) advantages that keep rounds or hints apart."""
    round_G = np.array([rollout.round_index for rollout in rollouts])
    if settings.advantage.baseline == "per_round":
        return per_round_advantages(reward_G, round_G, divide_by_std=divide_by_std)
    ratio_G = np.array([rollout.hint_ratio for rollout in rollouts])
    target = settings.hints.target_accuracy
    predicted_G = np.array(
        [target if (p := rollout.share.predicted_accuracy) is None else p for rollout in rollouts]
    )
    advantage_G = np.empty(len(rollouts))
    for round_index in np.unique(round_G):
        rows = round_G == round_index
        advantage_G[rows] = hint_conditional_advantages(
            reward_G[rows],
            ratio_G[rows],
            predicted_G[rows],
            prior_rollouts=settings.advantage.prior_rollouts,
            divide_by_std=divide_by_std,
        )
    return advantage_G


def _both(generated_G: Iterable[float], off_policy_G: Iterable[float]) -> list[Advantage]:
    return [
        Advantage(float(generated), float(other))
        for generated, other in zip(generated_G, off_policy_G, strict=True)
    ]
