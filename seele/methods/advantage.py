"""The advantages of one problem's rollouts, as the settings say."""

from collections.abc import Sequence

import numpy as np

from seele.config import SeeleConfig
from seele.maths.advantages import hint_conditional_advantages, per_round_advantages
from seele.records import Rollout


def group_advantages(
    rollouts: Sequence[Rollout], settings: SeeleConfig, *, divide_by_std: bool
) -> Sequence[float | None]:
    """Advantage of each rollout; None for all where the trainer's own pooled estimate serves.

    Under ``hint_conditional`` each round is judged by itself: whether a later round keeps its hint depends on
    the rewards of this one, which would let them into their own baseline. Where the controller expects
    nothing, the target accuracy stands in.
    """
    if settings.advantage.baseline == "pooled":
        return [None] * len(rollouts)
    reward_G = np.array([rollout.reward for rollout in rollouts])
    round_G = np.array([rollout.round_index for rollout in rollouts])
    if settings.advantage.baseline == "per_round":
        return [*map(float, per_round_advantages(reward_G, round_G, divide_by_std=divide_by_std))]
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
    return [*map(float, advantage_G)]
