"""How much of the worked solution is revealed: controllers that choose a hint ratio per problem and round.

Cutting the hint from the solution and rolling it out happen elsewhere; a controller sees ratios and counts
only. ``build_controller`` is the way in; a controller is added by one file and one entry in ``CONTROLLERS``.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from seele.config import RunWide, SeeleConfig
from seele.errors import ConfigError
from seele.hints.bayes import BayesController
from seele.hints.bisect import BisectController
from seele.hints.constant import FixedHint, NoHint
from seele.hints.contract import Controller
from seele.hints.paper import PaperController
from seele.hints.robbins_monro import RobbinsMonroController
from seele.hints.schedules import PrefixRftController, UftController, UniformController

__all__ = ["CONTROLLERS", "Controller", "build_controller", "configured_controller"]

CONTROLLERS: dict[str, Callable[..., Controller]] = {
    cls.name: cls
    for cls in (
        BayesController,
        BisectController,
        FixedHint,
        NoHint,
        PaperController,
        PrefixRftController,
        RobbinsMonroController,
        UftController,
        UniformController,
    )
}


def configured_controller(settings: SeeleConfig) -> Controller:
    """The controller that a run's settings ask for.

    Raises:
        ConfigError: As ``build_controller``.
    """
    return _build(settings.hints.controller, settings.run_wide, settings.hints.settings)


def build_controller(
    name: str,
    *,
    rounds: int,
    rollouts_per_round: int,
    seed: int = 0,
    target_accuracy: float = 0.5,
    training_steps: int | None = None,
    **settings: Any,
) -> Controller:
    """The controller called ``name``, ready for its first visit.

    A controller is given those of the values of ``RunWide`` that its constructor names. Its other constructor
    arguments are its own settings.

    Args:
        name: One of ``CONTROLLERS``.
        rounds: See ``RunWide``, like the four below.
        rollouts_per_round: See ``RunWide``.
        seed: See ``RunWide``.
        target_accuracy: See ``RunWide``.
        training_steps: See ``RunWide``.
        **settings: The controller's own settings.

    Raises:
        ConfigError: If the name, a setting or a value is not allowed.
    """
    run = RunWide(
        rounds=rounds,
        rollouts_per_round=rollouts_per_round,
        seed=seed,
        target_accuracy=target_accuracy,
        training_steps=training_steps,
    )
    return _build(name, run, settings)


def _build(name: str, run: RunWide, settings: Mapping[str, Any]) -> Controller:
    if name not in CONTROLLERS:
        raise ConfigError(f"seele.hints: unknown controller {name!r}; allowed are {sorted(CONTROLLERS)}")
    controller = CONTROLLERS[name]
    parameters = inspect.signature(controller).parameters
    run_wide = asdict(run)
    allowed = sorted(parameters.keys() - run_wide.keys())
    for key in settings:
        if key not in allowed:
            raise ConfigError(
                f"seele.hints: unknown setting {key!r} of controller {name!r}; allowed are {allowed}"
            )
    return controller(**{key: value for key, value in run_wide.items() if key in parameters}, **settings)
