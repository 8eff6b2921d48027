"""What a selection promises: which groups of a step the update learns from. A group is all rollouts of one
problem in one step.

Which problems are rolled out at all is not decided here (``seele.curriculum.pruning``).
"""

from collections.abc import Mapping
from typing import Protocol

from seele.records import State


class Selection(Protocol):
    """Chooses groups after they were rolled out and graded, before the update."""

    @property
    def name(self) -> str:
        """What the configuration and saved states call this selection."""
        ...

    def select(self, pass_rates: Mapping[str, float], *, epoch: float) -> list[str]:
        """Instance ids of the groups that the update learns from, whole groups, in the mapping's order.

        All pass rates are observed, whether selected or not. An empty list means that there is nothing to
        learn from: the caller skips the update.

        Args:
            pass_rates: Share of correct rollouts, in [0, 1], of every group of the step by instance id.
            epoch: Epochs begun so far: problems rolled out, divided by the number of problems.
        """
        ...

    def state_dict(self) -> State:
        """All that the selection has learnt; equal states give equal JSON."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Continue from a ``state_dict`` as if there had been no interruption.

        Raises:
            CheckpointError: If it is of another selection or version, or damaged. Nothing is changed then.
        """
        ...

    def metrics(self) -> dict[str, float]:
        """Numbers on the last selection, without prefix; reading changes nothing."""
        ...
