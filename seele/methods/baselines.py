"""The baseline that a rollout's reward is compared with: ``seele.advantage.baseline``.

A baseline turns the arrays of one problem's group into (G,) advantages; a user's own baseline is a function
of ``Group``. G counts the group's rollouts.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seele.config import AdvantageConfig, SeeleConfig
from seele.errors import ConfigError
from seele.maths.advantages import (
    hint_conditional_advantages,
    leave_one_out_advantages,
    per_round_advantages,
    pooled_advantages,
    split_advantages,
)
from seele.maths.irt import Array
from seele.plugins import blame, find_part, where
from seele.records import Origin, Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One problem's rollouts in a step as arrays, in order of round and rollout; given rows come last."""

    instance_id: str
    graded_G: Array
    """(G,) the grader's rewards, in [0, 1]."""
    penalties_G: Array
    """(G,) the overlong penalties added to them, at most 0."""
    round_G: NDArray[np.int64]
    """(G,) round of each rollout, from 0."""
    hint_ratio_G: Array
    """(G,) share of the solution that was revealed, in [0, 1]."""
    predicted_G: Array
    """(G,) accuracy that the controller predicted under the hint; the target accuracy where it predicted
    none.
    """
    on_policy_G: NDArray[np.bool_]
    """(G,) true where the policy wrote the rollout in this step."""

    @property
    def rewards_G(self) -> Array:
        """(G,) rewards including penalties, from which the update learns."""
        return self.graded_G + self.penalties_G


KEY = "seele.advantage.baseline"

BASELINES = ("pooled", "per_round", "hinted_apart", "hint_conditional")

Baseline = Callable[[Group], Array]
"""From a group to (G,) advantages."""


def group_of(
    instance_id: str, rollouts: Sequence[Rollout], *, penalties: Sequence[float], target_accuracy: float
) -> Group:
    """Return the group of a problem's rollouts, with ``penalties`` to add to their rewards."""
    predictions = [rollout.share.predicted_accuracy for rollout in rollouts]
    return Group(
        instance_id=instance_id,
        graded_G=np.array([rollout.reward for rollout in rollouts]),
        penalties_G=np.array(penalties),
        round_G=np.array([rollout.round_index for rollout in rollouts]),
        hint_ratio_G=np.array([rollout.hint_ratio for rollout in rollouts]),
        predicted_G=np.array([target_accuracy if p is None else p for p in predictions]),
        on_policy_G=np.array([rollout.origin is Origin.POLICY for rollout in rollouts]),
    )


def build_baseline(settings: SeeleConfig, *, leave_one_out: bool, divide_by_std: bool) -> Baseline:
    """Return the run's baseline, one of SEELE's or a user's own function.

    Args:
        settings: The run's settings.
        leave_one_out: Whether the method's estimator excludes a rollout from its own baseline (RLOO), which
            does not divide by a standard deviation.
        divide_by_std: Whether advantages are otherwise divided by a standard deviation.

    Raises:
        ConfigError: There is no such baseline, or it does not take a group.
    """
    divide_by_std = divide_by_std and not leave_one_out
    if settings.off_policy.statistics == "on_policy":
        return lambda group: split_advantages(
            group.rewards_G, group.on_policy_G, divide_by_std=divide_by_std, leave_one_out=leave_one_out
        )
    built_in = _built_in(settings.advantage, leave_one_out=leave_one_out, divide_by_std=divide_by_std)
    baseline: Baseline = find_part(
        settings.advantage.baseline, key=KEY, group="advantages", built_in=built_in
    )
    return baseline if settings.advantage.baseline in built_in else _checked(baseline)


def _checked(baseline: Baseline) -> Baseline:
    """Wrap the user's function so that its faults end the run."""
    try:
        inspect.signature(baseline).bind(None)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{KEY}: {where(baseline)} must be a function of one group (seele.methods.baselines.Group)"
        ) from error

    def checked(group: Group) -> Array:
        with blame(baseline, f"problem {group.instance_id!r}", key=KEY):
            advantage_G = np.asarray(baseline(group), dtype=np.float64)
            check_advantages(advantage_G, group)
        return advantage_G

    return checked


def check_advantages(advantage_G: Array, group: Group) -> None:
    """Raise ``ValueError`` unless there is a finite advantage for each rollout of the group."""
    if advantage_G.shape != group.graded_G.shape:
        raise ValueError(f"advantages must have shape {group.graded_G.shape}, got {advantage_G.shape}")
    if not np.isfinite(advantage_G).all():
        raise ValueError(f"advantages must be finite, got {advantage_G.tolist()}")


def _built_in(settings: AdvantageConfig, *, leave_one_out: bool, divide_by_std: bool) -> dict[str, Baseline]:
    def pooled(group: Group) -> Array:
        if leave_one_out:
            return leave_one_out_advantages(group.rewards_G) - settings.shift
        return pooled_advantages(group.rewards_G, divide_by_std=divide_by_std) - settings.shift

    def per_round(group: Group) -> Array:
        return per_round_advantages(
            group.rewards_G, group.round_G, divide_by_std=divide_by_std, leave_one_out=leave_one_out
        )

    def hinted_apart(group: Group) -> Array:
        return per_round_advantages(
            group.rewards_G, group.hint_ratio_G > 0, divide_by_std=divide_by_std, leave_one_out=leave_one_out
        )

    def hint_conditional(group: Group) -> Array:
        """Each round separately: whether a later round keeps its hint depends on the rewards of this one,
        which would then enter their own baseline.
        """
        advantage_G = np.empty(len(group.rewards_G))
        for round_index in np.unique(group.round_G):
            rows_G = group.round_G == round_index
            advantage_G[rows_G] = hint_conditional_advantages(
                group.graded_G[rows_G],
                group.hint_ratio_G[rows_G],
                group.predicted_G[rows_G],
                prior_rollouts=settings.prior_rollouts,
                divide_by_std=divide_by_std,
                penalties_G=group.penalties_G[rows_G],
            )
        return advantage_G

    return {
        "pooled": pooled,
        "per_round": per_round,
        "hinted_apart": hinted_apart,
        "hint_conditional": hint_conditional,
    }
