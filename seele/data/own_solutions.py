"""Solutions that the policy wrote itself while it trained (``seele.hints.refresh``), verified by the grader,
as PrefixRL makes them before training (arXiv:2601.18795).
"""

import dataclasses
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, ClassVar

from seele.data.steps.cutting import split_steps
from seele.records import Instance, State, Visit
from seele.saved_state import read_count, read_state


class OwnSolutions:
    """Each problem's right response of its last visit that had one: of those behind the shortest hint the one
    that the policy was surest of. The hint is its beginning.
    """

    _HEADER: ClassVar[State] = {"solutions": "own", "version": 1}

    def __init__(self) -> None:
        self._steps: dict[int, tuple[str, ...]] = {}

    def learn(self, visits: Mapping[int, Visit]) -> None:
        """Take over the solutions of a step's visits, by problem."""
        for problem, visit in visits.items():
            right = [rollout for rollout in visit.generated if rollout.grade.correct]
            if right:
                best = min(right, key=attrgetter("preference"))
                hint = visit.instance.steps[: best.hint_steps]
                self._steps[problem] = (*hint, *split_steps(best.completion.text))

    def applied(self, problem: int, instance: Instance) -> Instance:
        """The problem with the policy's own solution in place of its worked one, where there is one."""
        if problem not in self._steps:
            return instance
        return dataclasses.replace(instance, steps=self._steps[problem], revealed_at=None, milestones=None)

    def state_dict(self) -> State:
        """All that is kept; equal states give equal JSON."""
        kept = sorted(self._steps.items())
        return {**self._HEADER, "steps": {str(problem): list(steps) for problem, steps in kept}}

    def load_state_dict(self, state: State) -> None:
        """Continue from a ``state_dict``.

        Raises:
            CheckpointError: If it is of another kind or version, or damaged. Nothing is changed then.
        """
        self._steps = read_state(state, header=self._HEADER, read=_read)

    def __len__(self) -> int:
        """Problems with a solution of the policy's own."""
        return len(self._steps)


def _read(state: Mapping[str, Any]) -> dict[int, tuple[str, ...]]:
    return {read_count(int(problem)): tuple(map(str, steps)) for problem, steps in state["steps"].items()}
