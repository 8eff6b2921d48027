"""An earlier success of the policy as one rollout of some groups (ExGRPO, arXiv:2510.02245)."""

from typing import ClassVar

from seele.methods.sources.source import OffPolicySource
from seele.records import Completion, Instance, Origin
from seele.rollout.solutions import EncodedProblem
from seele.rollout.templates import Tokenizer


class ReplaySource(OffPolicySource):
    """A group whose problem the pool has drawn is given the success, as it was written."""

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
        """The success, with the log-probabilities that it was written with."""
        return [replayed] if replayed else []
