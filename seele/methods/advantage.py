"""The advantages of one problem's rollouts: the one place where a run without a critic computes them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seele.config import SeeleConfig
from seele.maths.advantages import prefix_advantages
from seele.methods.baselines import Baseline, Group


@dataclass(frozen=True, slots=True)
class Advantage:
    """What the update multiplies the score functions of a rollout's tokens with."""

    generated: float
    """Of tokens that the policy wrote."""
    off_policy: float
    """Of the others in the rollout's row."""


def group_advantages(group: Group, settings: SeeleConfig, *, baseline: Baseline) -> Sequence[Advantage]:
    """Advantages of each of the group's rollouts."""
    if settings.off_policy.source == "prefix":
        return _both(*prefix_advantages(group.rewards_G, group.hint_ratio_G > 0.0))
    advantage_G = baseline(group)
    return _both(advantage_G, advantage_G)


def _both(generated_G: Iterable[float], off_policy_G: Iterable[float]) -> list[Advantage]:
    return [
        Advantage(float(generated), float(off_policy))
        for generated, off_policy in zip(generated_G, off_policy_G, strict=True)
    ]
