"""How much of the worked solution is revealed: controllers that choose a hint ratio per problem and round.

Cutting the hint from the solution and rolling it out happen elsewhere; a controller sees ratios and counts
only. ``build_controller`` is the way in; a controller is added by one file and one entry in ``CONTROLLERS``.
"""

import inspect
from collections.abc import Callable
from typing import Any

from seele.config import SeeleConfig
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
    hints = settings.hints
    return build_controller(
        hints.controller,
        rounds=hints.rounds,
        rollouts_per_round=hints.rollouts_per_round,
        seed=settings.seed,
        target_accuracy=hints.target_accuracy,
        training_steps=settings.training_steps,
        **hints.settings,
    )


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

    A controller is given those of the five run-wide values that its constructor names. Its other constructor
    arguments are its own settings.

    Args:
        name: One of ``CONTROLLERS``.
        rounds: Rounds a visit has (m in the paper).
        rollouts_per_round: Rollouts a round has (n in the paper).
        seed: Seeds whatever the controller draws.
        target_accuracy: Accuracy a* in (0, 1) that a hint aims at; 0.5 in the paper (section 5.1).
        training_steps: Steps that the run is planned for; None where they are not known.
        **settings: The controller's own settings.

    Raises:
        ConfigError: If the name, a setting or a value is not allowed.
    """
    if name not in CONTROLLERS:
        raise ConfigError(f"seele.hints: unknown controller {name!r}; allowed are {sorted(CONTROLLERS)}")
    for key, count in {"rounds": rounds, "rollouts_per_round": rollouts_per_round}.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ConfigError(f"seele.hints.{key}: expected a whole number of at least 1, got {count!r}")
    if not isinstance(target_accuracy, int | float) or not 0.0 < target_accuracy < 1.0:
        raise ConfigError(
            f"seele.hints.target_accuracy: expected a number in (0, 1), got {target_accuracy!r}"
        )

    run_wide = {
        "rounds": rounds,
        "rollouts_per_round": rollouts_per_round,
        "seed": seed,
        "target_accuracy": target_accuracy,
        "training_steps": training_steps,
    }
    controller = CONTROLLERS[name]
    parameters = inspect.signature(controller).parameters
    allowed = sorted(parameters.keys() - run_wide.keys())
    for key in settings:
        if key not in allowed:
            raise ConfigError(
                f"seele.hints: unknown setting {key!r} of controller {name!r}; allowed are {allowed}"
            )
    return controller(**{key: value for key, value in run_wide.items() if key in parameters}, **settings)
