"""Selections by name: SEELE's own, one per file except the one that keeps every group, and a user's own."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from seele.config.settings import SelectionConfig
from seele.curriculum.contract import Selection
from seele.curriculum.lze import LearningZoneSelection
from seele.curriculum.own import SELECTION, CheckedSelection, build_own, check_same
from seele.errors import ConfigError
from seele.plugins import check_restores, find_part
from seele.records import State
from seele.saved_state import read_state

__all__ = ["SELECTIONS", "NoSelection", "Selection", "build_selection", "check_selection"]


class NoSelection:
    """Selects every group, as GRPO does. A selection of your own without state can derive from it and
    override ``select``.
    """

    name: ClassVar[str] = "none"
    version: ClassVar[int] = 1
    """Version of the saved state."""

    def __init_subclass__(cls) -> None:
        if "name" not in cls.__dict__:
            cls.name = cls.__name__

    def select(self, pass_rates: Mapping[str, float], *, epoch: float) -> list[str]:
        """See ``Selection``."""
        return list(pass_rates)

    def state_dict(self) -> State:
        """See ``Selection``: only the header."""
        return {"selection": self.name, "version": self.version}

    def load_state_dict(self, state: State) -> None:
        """See ``Selection``: check the header."""
        header = {"selection": self.name, "version": self.version}
        read_state(state, header=header, read=dict)

    def metrics(self) -> dict[str, float]:
        """See ``Selection``: always empty."""
        return {}


SELECTIONS: dict[str, Any] = {"none": NoSelection, "lze": LearningZoneSelection}


def build_selection(config: SelectionConfig, seed: int) -> Selection:
    """Return the selection that ``config.name`` names, ready for its first step.

    Raises:
        ConfigError: If there is no such selection, or it does not implement ``Selection``.
    """
    part = _find(config)
    if config.name in SELECTIONS:
        if config.settings:
            raise ConfigError(
                f"seele.selection.settings: got {dict(config.settings)}, but seele.selection.name="
                f"{config.name} takes its settings from seele.selection; these are for one of your own"
            )
        return LearningZoneSelection(config, seed=seed) if part is LearningZoneSelection else NoSelection()
    return CheckedSelection(build_own(part, key=SELECTION, given={"seed": seed}, settings=config.settings))


def check_selection(config: SelectionConfig, *, seed: int, instance_ids: Sequence[str]) -> None:
    """Check the selection of a run before it starts. If it is not one of SEELE's own, let it select among
    made-up pass rates of these problems, restore another from its state, and compare the two.

    Raises:
        ConfigError: As in ``build_selection``, or if its state does not restore it.
        PluginError: If the selection raised an error or returned an invalid result.
    """
    saved = build_selection(config, seed)
    if config.name in SELECTIONS:
        return
    restored, part = build_selection(config, seed), _find(config)
    rates = [{name: (index + step) % 5 / 4 for index, name in enumerate(instance_ids)} for step in range(3)]
    for step in (0, 1):
        saved.select(rates[step], epoch=0.5 * step)
        saved.metrics()
    check_restores(saved, restored, part=part, key=SELECTION)
    now, again = (each.select(rates[2], epoch=1.0) for each in (saved, restored))
    check_same(now, again, part=part, key=SELECTION)


def _find(config: SelectionConfig) -> Any:
    return find_part(config.name, key=SELECTION, group="selections", built_in=SELECTIONS)
