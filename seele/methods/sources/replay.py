"""An earlier success of the policy as one rollout of a group."""

from typing import ClassVar

from seele.config import SeeleConfig
from seele.errors import ConfigError
from seele.methods.sources.source import OffPolicySource
from seele.records import Completion, Instance, Origin
from seele.rollout.solutions import EncodedProblem
from seele.rollout.templates import Tokenizer


class ReplaySource(OffPolicySource):
    """A group whose problem was drawn from the pool receives the success as it was written (ExGRPO,
    arXiv:2510.02245).
    """

    adds_rollouts: ClassVar[bool] = True
    replays: ClassVar[bool] = True
    origin: ClassVar[Origin] = Origin.REPLAY

    def given(
        self,
        instance: Instance,
        encoded: EncodedProblem,
        tokenizer: Tokenizer,
        *,
        replayed: Completion | None = None,
    ) -> list[Completion]:
        """The success, with its original log-probabilities."""
        return [replayed] if replayed else []


class SuccessesSource(ReplaySource):
    """A group whose problem the policy has solved before receives that success, after the hint that it had.
    Its likelihood is learnt on the tokens that the policy wrote, as if it were a rollout with advantage 1.
    """

    replays: ClassVar[bool] = False
    replays_visited: ClassVar[bool] = True

    def check(self, config: SeeleConfig) -> None:
        """Refuse settings that contradict the source.

        Raises:
            ConfigError: The message names the setting and a way out.
        """
        super().check(config)
        needed = {"loss": "likelihood", "statistics": "on_policy"}
        for name, value in needed.items():
            if (found := getattr(config.off_policy, name)) != value:
                raise ConfigError(
                    f"seele.off_policy.{name}: source 'successes' needs {value!r}, got {found!r}; "
                    "replay=successes sets both"
                )
