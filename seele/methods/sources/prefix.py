"""A hint as part of the response (Prefix-RFT, arXiv:2507.01679)."""

from typing import ClassVar

from seele.maths.advantages import prefix_advantages
from seele.maths.irt import Array
from seele.methods.baselines import Group
from seele.methods.sources.source import OffPolicySource


class PrefixSource(OffPolicySource):
    """A hinted rollout's response begins with its hint, which is trained with an advantage of its own."""

    in_response: ClassVar[bool] = True
    has_log_probs: ClassVar[bool] = False

    def advantages(self, group: Group) -> tuple[Array, Array]:
        """As ``prefix_advantages``."""
        return prefix_advantages(group.rewards_G, group.hint_ratio_G > 0.0)
