"""Solutions that the policy itself wrote during training (``seele.hints.refresh``), verified by the grader;
PrefixRL collects them before training (arXiv:2601.18795).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, ClassVar

from seele.data.steps.cutting import split_steps
from seele.records import Instance, State, Visit
from seele.saved_state import read_count, read_state


def continued(hint: Sequence[str], response: str) -> tuple[str, ...]:
    """Return the steps of a hint and of the response that continues it.

    Where a token holds a step's last blank and the next step's first word, the blank is not in the hint that
    the policy saw, and the response begins with it.
    """
    if hint and hint[-1].endswith(" ") and response.startswith(" "):
        hint = (*hint[:-1], hint[-1][:-1])
    return (*hint, *split_steps(response))


class OwnSolutions:
    """One correct response per problem, with the hint in front, from the last visit that had any.

    Among the correct responses to the shortest hint that ended by themselves, the one that the policy was
    surest of is kept: a truncated response may repeat itself, and the policy is surest of repetitions.

    Args:
        goes_on_from_hint: Whether responses continue their hint. Otherwise the user states it, and each
            response is a whole solution.
    """

    _HEADER: ClassVar[State] = {"solutions": "own", "version": 1}

    def __init__(self, *, goes_on_from_hint: bool = True) -> None:
        self._goes_on_from_hint = goes_on_from_hint
        self._steps: dict[int, tuple[str, ...]] = {}

    def learn(self, visits: Mapping[int, Visit]) -> None:
        """Store the solutions of a step's visits, by problem."""
        for problem, visit in visits.items():
            right = [rollout for rollout in visit.generated if rollout.is_complete_and_correct]
            if right:
                best = min(right, key=attrgetter("preference"))
                hint = visit.instance.steps[: best.hint_steps] if self._goes_on_from_hint else ()
                self._steps[problem] = continued(hint, best.completion.text)

    def applied(self, problem: int, instance: Instance) -> Instance:
        """Return the problem with the policy's own solution, if any, in place of the worked solution."""
        if problem not in self._steps:
            return instance
        return dataclasses.replace(instance, steps=self._steps[problem], revealed_at=None, milestones=None)

    def state_dict(self) -> State:
        """Return everything stored; equal states give equal JSON."""
        kept = sorted(self._steps.items())
        return {**self._HEADER, "steps": {str(problem): list(steps) for problem, steps in kept}}

    def load_state_dict(self, state: State) -> None:
        """Continue from a ``state_dict``.

        Raises:
            CheckpointError: If it is of another kind or version, or damaged; nothing is changed then.
        """
        self._steps = read_state(state, header=self._HEADER, read=_read)

    def __len__(self) -> int:
        """Number of problems with a solution of the policy's own."""
        return len(self._steps)


def _read(state: Mapping[str, Any]) -> dict[int, tuple[str, ...]]:
    return {read_count(int(problem)): tuple(map(str, steps)) for problem, steps in state["steps"].items()}
