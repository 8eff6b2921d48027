"""The protocols of a curriculum and a selection.

``seele.curriculum.build_curriculum`` builds a curriculum by name. A selection decides which groups of a step
the update learns from; a group is all rollouts of one problem in one step. It does not decide which problems
are rolled out (``seele.curriculum.pruning``).
"""

from collections.abc import Collection, Mapping
from typing import Protocol

from seele.records import State


class StatefulPart(Protocol):
    """What a curriculum and a selection have in common."""

    @property
    def name(self) -> str:
        """Name in the configuration and in saved states."""
        ...

    def state_dict(self) -> State:
        """Return what later choices depend on besides the settings; equal states give equal JSON."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Continue from a ``state_dict`` as if there had been no interruption.

        Raises:
            CheckpointError: If the state is damaged, or of another part, version or number of problems;
                nothing is changed then.
        """
        ...

    def metrics(self) -> dict[str, float]:
        """Return metrics for the log, without prefix. Reading changes nothing."""
        ...


class Curriculum(StatefulPart, Protocol):
    """Chooses the problems that a step rolls out.

    Problems are indices into the training data, from 0. A step is one or more ``draw`` calls, rollouts and an
    update, then ``observe``; a resumed run continues from a state saved after that.
    """

    @property
    def epochs(self) -> float | None:
        """Passes over all problems so far, such as 1.5 in the middle of the second; None if problems do not
        come in passes.
        """
        ...

    def draw(
        self, num_problems: int, *, postponed: Collection[int] = (), pruned: Collection[int] = ()
    ) -> list[int]:
        """Return the next problems to roll out, all distinct, none of them in ``postponed`` or ``pruned``.

        A full batch has priority over pruning: once all other problems are drawn, pruned ones are drawn after
        all.

        Args:
            num_problems: Number of problems to draw.
            postponed: Problems that are already being rolled out. They keep their place and come later.
            pruned: Problems that lose their current turn; their next turn is in the next epoch.

        Raises:
            DataError: If fewer than ``num_problems`` problems are not postponed; nothing is changed then.
        """
        ...

    def observe(self, signal_of_problem: Mapping[int, float]) -> None:
        """Update the curriculum with the signal of a training step.

        Args:
            signal_of_problem: For each problem trained on, the mean over its rollouts of the mean over their
                tokens of |advantage|, at least 0. For a problem left out because its rewards all agree, 0.
        """
        ...


class Selection(StatefulPart, Protocol):
    """Chooses groups after they were rolled out and graded, before the update."""

    def select(self, pass_rates: Mapping[str, float], *, epoch: float) -> list[str]:
        """Return the instance ids of the groups that the update learns from, in the mapping's order.

        All pass rates are observed, whether selected or not. An empty list means that there is nothing to
        learn from: the caller skips the update.

        Args:
            pass_rates: Mean reward, in [0, 1], of every group of the step, by instance id. For rewards of 0
                and 1 that is the share of correct rollouts. Where all rewards agree, it is 1 if the rollouts
                are correct, else 0.
            epoch: Epochs so far: problems trained on, divided by the number of problems.
        """
        ...
