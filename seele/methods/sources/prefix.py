"""A hint as part of the response (Prefix-RFT, arXiv:2507.01679; TRAPO, arXiv:2512.17636)."""

from typing import ClassVar

from seele.config import SeeleConfig
from seele.errors import ConfigError
from seele.maths.advantages import prefix_advantages
from seele.maths.irt import Array
from seele.methods.baselines import Group
from seele.methods.sources.source import OffPolicySource


class PrefixSource(OffPolicySource):
    """A hinted rollout's response begins with its hint, which is trained with its own advantage."""

    in_response: ClassVar[bool] = True
    has_log_probs: ClassVar[bool] = False

    def advantages(self, group: Group) -> tuple[Array, Array]:
        """As ``prefix_advantages``."""
        return prefix_advantages(group.rewards_G, group.hint_ratio_G > 0.0)


class ExpertPrefixSource(OffPolicySource):
    """A hinted rollout's response begins with its hint, whose likelihood is learnt; the rest has a rollout's
    usual advantage.
    """

    in_response: ClassVar[bool] = True
    has_log_probs: ClassVar[bool] = False

    @property
    def has_own_loss(self) -> bool:
        """Always True: a wrong continuation is not a reason to unlearn the hint."""
        return True

    def check(self, config: SeeleConfig) -> None:
        """Refuse settings that contradict the source.

        Raises:
            ConfigError: The message names the setting and a way out.
        """
        if config.off_policy.loss != "trust_region":
            raise ConfigError(
                f"seele.off_policy.loss: source 'expert_prefix' needs 'trust_region', got "
                f"{config.off_policy.loss!r}; method=trapo sets both"
            )
        super().check(config)
