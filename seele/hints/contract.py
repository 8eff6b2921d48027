"""What a hint controller promises, and the one rule all of them share: a hint ratio must be legal.

The controllers themselves are one file each; ``seele.hints.build_controller`` makes them by name.
"""

from collections.abc import Sequence
from typing import ClassVar, Protocol

from seele.records import State

TIE = 1e-3
"""Two distances that differ by less, in units of hint ratio, are equal: fits are not more exact than that.

Symmetric outcomes put the fitted ratio midway between two steps, and a solver's last digits must not decide.
"""


class Controller(Protocol):
    """Chooses the hint ratio of every round of every problem.

    A visit is what happens to one problem in one training step: ``next_hint_ratio`` with ``round_index`` 0,
    rollouts, ``observe``, ``next_hint_ratio`` with ``round_index`` 1, and so on, then ``end_visit``. Visits
    of different problems interleave in any order and do not influence each other; one problem has at most one
    visit at a time.
    """

    name: ClassVar[str]
    """What the configuration and saved states call this controller."""

    def next_hint_ratio(self, instance_id: str, *, round_index: int, legal_ratios: Sequence[float]) -> float:
        """The hint ratio of the coming round, one of ``legal_ratios``. ``round_index`` 0 begins a new visit.

        Args:
            instance_id: The problem.
            round_index: Counts the rounds of the visit from 0.
            legal_ratios: Ratios that end at a step of the solution, not empty
                (``Instance.legal_hint_ratios``).
        """
        ...

    def observe(self, instance_id: str, *, hint_ratio: float, num_correct: int, num_rollouts: int) -> None:
        """Take note that ``num_correct`` of ``num_rollouts`` rollouts under ``hint_ratio`` were correct."""
        ...

    def end_visit(self, instance_id: str) -> None:
        """The problem's rounds of this step are over."""
        ...

    def state_dict(self) -> State:
        """All that the controller has learnt, visits under way included; equal states give equal JSON."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Continue from a ``state_dict`` as if there had been no interruption.

        Raises:
            CheckpointError: If it is of another controller or version, or damaged. Nothing is changed then.
        """
        ...

    def metrics(self) -> dict[str, float]:
        """Numbers for the log, without prefix. Counters run since training began; reading changes nothing."""
        ...


def nearest_legal(hint_ratio: float, legal_ratios: Sequence[float]) -> float:
    """The legal ratio nearest to ``hint_ratio``: l = round(p |y|) of paper Alg. 1, kept to what is allowed.

    Of two ratios about equally near the smaller one, so that a doubt is settled for less help.
    """
    smallest_distance = min(abs(legal - hint_ratio) for legal in legal_ratios)
    return min(legal for legal in legal_ratios if abs(legal - hint_ratio) <= smallest_distance + TIE)
