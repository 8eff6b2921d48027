"""The advantages of one problem's rollouts: the only place where a run without a critic computes them."""

from collections.abc import Sequence
from dataclasses import dataclass

from seele.methods.baselines import Baseline, Group, check_advantages
from seele.methods.sources import OffPolicySource
from seele.methods.sources.source import KEY
from seele.plugins import blame


@dataclass(frozen=True, slots=True)
class Advantage:
    """The factors by which the update multiplies the score functions of a rollout's tokens."""

    generated: float
    """Advantage of the tokens that the policy wrote."""
    off_policy: float
    """Advantage of the other tokens in the rollout's row."""


def group_advantages(group: Group, *, source: OffPolicySource, baseline: Baseline) -> Sequence[Advantage]:
    """Return the advantages of the group's rollouts: the source's, or else the baseline's for all tokens.

    Raises:
        PluginError: A source or baseline of the user's own raised, or its advantages are not finite or not
            (G,).
    """
    with blame(source, f"advantages, problem {group.instance_id!r}", key=KEY):
        of_source = source.advantages(group)
        for advantage_G in of_source or ():
            check_advantages(advantage_G, group)
    both = (baseline(group),) * 2 if of_source is None else of_source
    return [Advantage(float(written), float(off_policy)) for written, off_policy in zip(*both, strict=True)]
