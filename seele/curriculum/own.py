"""A user's own curriculum and selection: their return values are checked, and errors name the file and line
of the user's code.
"""

import inspect
from collections.abc import Collection, Mapping
from typing import Any

from seele.curriculum.contract import Curriculum, Selection
from seele.errors import ConfigError
from seele.plugins import CheckedPart, blame, require_members, where

CURRICULUM, SELECTION = "seele.curriculum.name", "seele.selection.name"

MEMBERS = {
    key: [name for name in dir(contract) if not name.startswith("_")]
    for key, contract in ((CURRICULUM, Curriculum), (SELECTION, Selection))
}
"""Required members of ``Curriculum`` and ``Selection``, by the setting that names one."""


def build_own(
    part: Any, *positional: Any, key: str, given: Mapping[str, Any], settings: Mapping[str, Any]
) -> Any:
    """Return an instance of a user's part.

    Args:
        part: The class, or a function that makes an instance.
        *positional: Its positional arguments.
        key: The setting that names it.
        given: Values from the run, passed to parameters of the same names.
        settings: Its own settings.

    Raises:
        ConfigError: If it lacks a member, does not accept a setting, or raises an error.
    """
    if not callable(part):
        raise ConfigError(f"{key}: {part!r} is not a class (docs/extending.md)")
    require_members(part, getattr(part, "__abstractmethods__", ()), key=key)
    parameters = inspect.signature(part).parameters
    arguments = {name: value for name, value in given.items() if name in parameters} | dict(settings)
    with blame(part, "building it", key=key, error=ConfigError):
        built = part(*positional, **arguments)
    require_members(built, MEMBERS[key], key=key)
    return built


class CheckedCurriculum(CheckedPart):
    """A curriculum whose invalid return values and errors become ``PluginError``s."""

    def __init__(self, curriculum: Curriculum, num_problems: int) -> None:
        super().__init__(curriculum, CURRICULUM)
        self._num_problems = num_problems

    @property
    def epochs(self) -> float | None:
        """See ``Curriculum``."""
        with self._blame("epochs"):
            epochs = self._part.epochs
            return None if epochs is None else float(epochs)

    def draw(
        self, num_problems: int, *, postponed: Collection[int] = (), pruned: Collection[int] = ()
    ) -> list[int]:
        """See ``Curriculum``."""
        with self._blame(f"draw({num_problems})"):
            drawn = list(self._part.draw(num_problems, postponed=postponed, pruned=pruned))
            problems = [int(problem) for problem in drawn if problem == int(problem)]
        taken, allowed = set(postponed), range(self._num_problems)
        fresh = {problem for problem in problems if problem in allowed and problem not in taken}
        if not len(drawn) == len(problems) == len(fresh) == num_problems:
            raise self._fault(
                f"draw({num_problems}) returned {len(drawn)} problems, first {drawn[:8]}; "
                f"allowed are {num_problems} different problems from 0 to {self._num_problems - 1}, none of "
                "them postponed"
            )
        return problems

    def observe(self, signal_of_problem: Mapping[int, float]) -> None:
        """See ``Curriculum``."""
        with self._blame(f"observe, problems {sorted(signal_of_problem)[:3]} ..."):
            self._part.observe(signal_of_problem)


class CheckedSelection(CheckedPart):
    """A selection whose invalid return values and errors become ``PluginError``s."""

    def __init__(self, selection: Selection) -> None:
        super().__init__(selection, SELECTION)

    def select(self, pass_rates: Mapping[str, float], *, epoch: float) -> list[str]:
        """See ``Selection``."""
        with self._blame("select"):
            selected = list(self._part.select(pass_rates, epoch=epoch))
            unknown = [instance_id for instance_id in selected if instance_id not in pass_rates]
        if unknown:
            raise self._fault(f"select returned problem {unknown[0]!r}, which is not among the step's groups")
        return selected


def check_same(now: object, again: object, *, part: Any, key: str) -> None:
    """Raise ``ConfigError`` if a restored part chose other than the one whose state it has."""
    if now != again:
        raise ConfigError(
            f"{key}: {where(part)}: restored from its state, it chooses {again!r} where it would have chosen "
            f"{now!r}; state_dict must hold everything that choices depend on, and random draws must depend "
            "only on the seed and the saved state"
        )
