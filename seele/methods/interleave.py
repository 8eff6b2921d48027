"""Supervised updates between RL steps, on the solutions of problems that failed (ReLIFT, arXiv:2506.07527).

This module decides which problems wait and when an update takes them; the trainer performs the update
(``seele_verl.solutions``). A problem that fails again is added again, as in the authors' code.
"""

from collections.abc import Mapping
from typing import ClassVar

from seele.records import State, Visit
from seele.saved_state import read_count, read_state


class FailedProblems:
    """Problems without a correct rollout, in the order of their failures. Problems are indices into the data
    set.
    """

    _HEADER: ClassVar[State] = {"interleave": "failed", "version": 1}

    def __init__(self, num_problems: int) -> None:
        """Start with no problems waiting; an update takes ``num_problems``, at least 1."""
        self._num_problems = num_problems
        self._waiting: list[int] = []
        self._of_step: dict[str, float] = {}

    def take_step(self, visits: Mapping[int, Visit]) -> list[int]:
        """Record a step's failures, and return the problems of the update after it: the ``num_problems`` that
        have waited longest, or none if fewer wait.

        Args:
            visits: The step's visits by problem, in the order in which to queue them. A problem without a
                worked solution never waits.
        """
        failed = [problem for problem, visit in visits.items() if visit.instance.steps and not visit.accuracy]
        self._waiting += failed
        count = self._num_problems if len(self._waiting) >= self._num_problems else 0
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        self._of_step = {
            "failed": float(len(failed)),
            "learnt": float(len(taken)),
            "waiting": float(len(self._waiting)),
        }
        return taken

    def metrics(self) -> dict[str, float]:
        """Metrics of the last step, named without a prefix."""
        return self._of_step

    def state_dict(self) -> State:
        """All that later steps depend on; equal states give equal JSON."""
        return {**self._HEADER, "waiting": list(self._waiting)}

    def load_state_dict(self, state: State) -> None:
        """Continue from a ``state_dict``.

        Raises:
            CheckpointError: It is of another kind or version, or damaged; nothing changes then.
        """
        self._waiting = read_state(
            state, header=self._HEADER, read=lambda saved: [*map(read_count, saved["waiting"])]
        )
