"""Controllers, which choose a hint ratio (the share of the worked solution to reveal) per problem and round.

A controller sees only ratios and counts; other modules cut the hint from the solution and roll it out. Build
one with ``build_controller``. A controller of your own derives from ``SequentialController``, or from
``Controller`` if it decides for many problems at once, and is named by its import path.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from seele.config import HintConfig, RunWide, SeeleConfig
from seele.errors import ConfigError
from seele.hints.adaback import AdaBackController
from seele.hints.adaprefix import AdaPrefixController
from seele.hints.bayes import BayesController
from seele.hints.bisect import BisectController
from seele.hints.bread import BreadController
from seele.hints.checked import KEY, CheckedController, check_round_trip
from seele.hints.conditions import with_conditions
from seele.hints.contract import Controller, SequentialController, check_outcome, nearest_legal
from seele.hints.mfc import MfcController
from seele.hints.micro_groups import AdHintController, TrapoController
from seele.hints.next_milestone import NextMilestoneController
from seele.hints.paper import PaperController
from seele.hints.robbins_monro import RobbinsMonroController
from seele.hints.scheduled import EachHint, FixedHint, LadderController, NoHint
from seele.hints.schedules import (
    PrefixRftController,
    PrefixRlController,
    UftController,
    UniformController,
)
from seele.plugins import blame, find_part, require_members, where

__all__ = [
    "CONTROLLERS",
    "Controller",
    "SequentialController",
    "aims_at_target",
    "build_controller",
    "check_controller",
    "check_outcome",
    "configured_controller",
    "nearest_legal",
    "steers_on_milestones",
]

CONTROLLERS: dict[str, Callable[..., Controller]] = {
    cls.name: cls
    for cls in (
        AdaBackController,
        AdaPrefixController,
        AdHintController,
        BayesController,
        BisectController,
        BreadController,
        EachHint,
        FixedHint,
        LadderController,
        MfcController,
        NextMilestoneController,
        NoHint,
        PaperController,
        PrefixRftController,
        PrefixRlController,
        RobbinsMonroController,
        TrapoController,
        UftController,
        UniformController,
    )
}


OF_ONE_PROBLEM = ("next_hint_ratio", "observe", "end_visit")
"""What a ``SequentialController`` has instead of ``plan_rounds``, ``observe_rounds`` and ``end_visits``."""


def configured_controller(
    hints: HintConfig, *, seed: int = 0, training_steps: int | None = None
) -> Controller:
    """The controller that these settings ask for.

    Args:
        hints: ``seele.hints`` of a run.
        seed: See ``RunWide``.
        training_steps: See ``RunWide``.

    Raises:
        ConfigError: As ``build_controller``, or the controller needs whole rounds but the run has a quorum.
    """
    if hints.when == "rescue" and hints.controller in CONTROLLERS and hints.controller != EachHint.name:
        raise ConfigError(
            f"seele.hints.when: rescue tries every hint once, but controller {hints.controller!r} gives one; "
            f"set seele.hints.controller={EachHint.name}, or one of your own that gives all"
        )
    if hints.when == "until_success":
        _check_search(hints)
    run = RunWide(
        rounds=hints.rounds,
        rollouts_per_round=hints.rollouts_of_rounds[0],
        seed=seed,
        target_accuracy=hints.target_accuracy,
        training_steps=training_steps,
    )
    controller = with_conditions(
        _build(hints.controller, run, hints.settings),
        when=hints.when,
        failing_accuracy=hints.failing_accuracy,
        dropout=hints.dropout,
        seed=seed,
    )
    if hints.rounds == 1 and controller.begins_without_hint:
        raise ConfigError(
            f"seele.hints.rounds: controller {hints.controller!r} has no hint in its first round, got 1; "
            "allowed are 2 or more"
        )
    if hints.round_quorum < 1.0 and not controller.tolerates_partial_rounds:
        raise ConfigError(
            f"seele.hints.round_quorum: got {hints.round_quorum}, but a value below 1 needs a controller "
            "that counts rollouts rather than rounds, such as 'bayes' (tolerates_partial_rounds); got "
            f"{hints.controller!r}"
        )
    return controller


def _check_search(hints: HintConfig) -> None:
    """Refuse a search that discards a round as too easy and goes on with a longer hint, or the reverse."""
    failing, passing = hints.failing_accuracy, hints.passing_accuracy
    if hints.controller == BreadController.name and not failing < 0.5 <= passing:
        raise ConfigError(
            "seele.hints.failing_accuracy, passing_accuracy: controller 'bread' gives shorter hints from an "
            f"accuracy of 0.5 on, got {failing} and {passing}; allowed are failing_accuracy below 0.5 and "
            "passing_accuracy of 0.5 or more"
        )
    if hints.controller == LadderController.name and passing < 1.0:
        raise ConfigError(
            "seele.hints.passing_accuracy: controller 'ladder' gives no shorter hint after a round that was "
            f"too easy, got {passing}; allowed is 1, or set seele.hints.controller=bread"
        )


def check_controller(settings: SeeleConfig) -> None:
    """Check a run's controller before the run starts, and try out one that is not built in.

    Raises:
        ConfigError: As in ``configured_controller``, or the saved state does not restore the controller.
        PluginError: The controller raised, or returned an invalid plan.
    """
    hints = settings.hints
    build = partial(configured_controller, hints, seed=settings.seed, training_steps=settings.training_steps)
    controller = build()
    if hints.controller not in CONTROLLERS:
        check_round_trip(
            _find(hints.controller),
            controller,
            build(),
            rounds=hints.rounds,
            num_rollouts=min(hints.rollouts_of_rounds),
            rescues=hints.when == "rescue",
        )


def aims_at_target(name: str) -> bool:
    """Return True if hints of the controller called ``name`` aim at the target accuracy.

    Raises:
        ConfigError: There is no such controller.
    """
    return bool(getattr(_find(name), "aims_at_target", True))


def steers_on_milestones(name: str) -> bool:
    """Return True if the controller called ``name`` counts a rollout as correct when it passed the milestone
    behind its hint.

    Raises:
        ConfigError: There is no such controller.
    """
    return bool(getattr(_find(name), "steers_on_milestones", False))


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
    """Build the controller called ``name``, ready for its first visit.

    The constructor receives the ``RunWide`` values that it has parameters for. Its other parameters are the
    controller's own settings.

    Args:
        name: One of ``CONTROLLERS``, an entry point of ``seele.controllers``, ``package.module:Name`` or
            ``path/to/file.py:Name``.
        rounds: See ``RunWide``.
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


def _find(name: str) -> Any:
    return find_part(name, key=KEY, group="controllers", built_in=CONTROLLERS)


def _build(name: str, run: RunWide, settings: Mapping[str, Any]) -> Controller:
    part = _find(name)
    is_own = name not in CONTROLLERS
    if is_own:
        if not callable(part):
            raise ConfigError(f"{KEY}: {name!r} is {part!r}; expected a class (docs/extending.md)")
        require_members(part, getattr(part, "__abstractmethods__", ()), key=KEY)
    parameters = inspect.signature(part).parameters
    run_wide = asdict(run)
    allowed = sorted(parameters.keys() - run_wide.keys())
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    for key in settings:
        if key not in allowed and not takes_any:
            raise ConfigError(
                f"seele.hints: unknown setting {key!r} of controller {name!r}; allowed are {allowed}"
            )
    arguments = {key: value for key, value in run_wide.items() if key in parameters} | dict(settings)
    if not is_own:
        controller: Controller = part(**arguments)
        return controller
    with blame(part, "building it", key=KEY, error=ConfigError):
        own = part(**arguments)
    if not isinstance(own, Controller):
        raise ConfigError(
            f"{KEY}: {where(part)} gives a {type(own).__name__}, which is not derived from "
            "seele.hints.Controller or SequentialController; docs/extending.md has the contract"
        )
    uncalled = ("next_hint_ratios", *(() if isinstance(own, SequentialController) else OF_ONE_PROBLEM))
    if found := [name for name in uncalled if hasattr(own, name)]:
        raise ConfigError(
            f"{KEY}: {where(part)} has {found}, which a run would never call; write plan_rounds, "
            "observe_rounds and end_visits, or derive from SequentialController"
        )
    return CheckedController(own)
