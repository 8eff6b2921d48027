"""What a curriculum and a selection promise, and the one way in which a curriculum's problems can run out.

The curricula themselves are made by name in ``seele.curriculum.build_curriculum``. A selection says which
groups of a step the update learns from; a group is all rollouts of one problem in one step. Which problems
are rolled out at all is not decided here (``seele.curriculum.pruning``).
"""

from collections.abc import Collection, Mapping
from typing import Protocol

from seele.records import State


class Curriculum(Protocol):
    """Chooses the problems that a step rolls out.

    Problems are indices into the training data, from 0. A step is one ``draw`` or more, rollouts and an
    update, then ``observe``; a state saved after that is where a resumed run goes on.
    """

    @property
    def name(self) -> str:
        """What the configuration and saved states call this curriculum."""
        ...

    @property
    def epochs(self) -> float | None:
        """Passes over all problems so far, such as 1.5 in the middle of the second; None where problems do
        not come in passes.
        """
        ...

    def draw(
        self, num_problems: int, *, postponed: Collection[int] = (), pruned: Collection[int] = ()
    ) -> list[int]:
        """The next problems to roll out, all distinct, none of them in ``postponed`` or ``pruned``.

        A full batch matters more than pruning: once all other problems are drawn, pruned ones are drawn all
        the same.

        Args:
            num_problems: How many.
            postponed: Problems that are being rolled out already. They keep their place and come later.
            pruned: Problems that lose the turn that has come to them; their next one is in the next epoch.

        Raises:
            DataError: If fewer than ``num_problems`` problems are not postponed. Nothing is changed then.
        """
        ...

    def observe(self, signal_of_problem: Mapping[int, float]) -> None:
        """Take note of what a step was trained on.

        Args:
            signal_of_problem: For each problem trained on, the mean over its rollouts of the mean over their
                tokens of |advantage|, at least 0.
        """
        ...

    def state_dict(self) -> State:
        """All that later draws depend on beside the settings; equal states give equal JSON."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Continue from a ``state_dict`` as if there had been no interruption.

        Raises:
            CheckpointError: If it is of another curriculum, version or number of problems, or damaged.
                Nothing is changed then.
        """
        ...

    def metrics(self) -> dict[str, float]:
        """Numbers for the log, without prefix. Reading changes nothing."""
        ...


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
