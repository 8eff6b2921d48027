"""Checks of a user's own controller: of what it returns, with its faults reported by file and line.

Before the run, a controller restored from a saved state must continue as the saved one would.
"""

import inspect
import json
import math
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import numpy as np

from seele.errors import ConfigError, PluginError
from seele.hints.contract import Controller, take_over_attributes
from seele.maths.irt import Array
from seele.plugins import CheckedPart, check_restores, where
from seele.records import AccuracyCurve, HintShare, RoundOutcome, RoundRequest

KEY = "seele.hints.controller"


class CheckedController(CheckedPart, Controller):
    """The wrapped controller. Its invalid return values and its exceptions become a ``PluginError``."""

    def __init__(self, controller: Controller) -> None:
        super().__init__(controller, KEY)
        take_over_attributes(self, controller)

    def begin_step(self, step: int) -> None:
        """See ``Controller``."""
        with self._blame(f"begin_step({step})"):
            self._part.begin_step(step)

    def plan_rounds(
        self, requests: Sequence[RoundRequest], *, num_rollouts: int
    ) -> list[tuple[HintShare, ...]]:
        """See ``Controller``."""
        with self._blame("plan_rounds", *(request.instance_id for request in requests)):
            plans = [tuple(plan) for plan in self._part.plan_rounds(requests, num_rollouts=num_rollouts)]
        if len(plans) != len(requests):
            raise self._fault(f"plan_rounds: returned {len(plans)} values for {len(requests)} requests")
        for plan, request in zip(plans, requests, strict=True):
            self._check_plan(plan, request, num_rollouts)
        return plans

    def observe_rounds(self, outcomes: Sequence[RoundOutcome]) -> None:
        """See ``Controller``."""
        with self._blame("observe_rounds", *(seen.instance_id for seen in outcomes)):
            self._part.observe_rounds(outcomes)

    def predicted_accuracy(self, instance_id: str, hint_ratios: Sequence[float]) -> Array | None:
        """See ``Controller``."""
        with self._blame("predicted_accuracy", instance_id):
            given = self._part.predicted_accuracy(instance_id, hint_ratios)
            if given is None:
                return None
            expected: Array = np.asarray(given, dtype=np.float64)
        if expected.shape != (len(hint_ratios),) or not ((expected >= 0.0) & (expected <= 1.0)).all():
            raise self._fault(
                f"predicted_accuracy, problem {instance_id!r}: expected {len(hint_ratios)} numbers in "
                f"[0, 1], got {expected.tolist()!r}"
            )
        return expected

    def end_visits(self, instance_ids: Sequence[str]) -> None:
        """See ``Controller``."""
        with self._blame("end_visits", *instance_ids):
            self._part.end_visits(instance_ids)

    def curves(self, instance_ids: Collection[str] | None = None) -> list[AccuracyCurve]:
        """See ``Controller``. The user's method may take no argument and return all curves."""
        with self._blame("curves"):
            takes_ids = inspect.signature(self._part.curves).parameters
            curves = self._part.curves(instance_ids) if takes_ids else self._part.curves()
            return [each for each in curves if instance_ids is None or each.instance_id in instance_ids]

    def _check_plan(self, plan: tuple[Any, ...], request: RoundRequest, num_rollouts: int) -> None:
        """Check one plan: its hints must be legal and its shares add up to the rollouts requested."""
        for share in plan:
            if not isinstance(share, HintShare):
                raise self._bad_plan(request, f"a share must be a HintShare, got {share!r}")
            self._check_ratio(share.hint_ratio, request)
            if not _is_whole(share.num_rollouts) or share.num_rollouts < 1:
                raise self._bad_plan(
                    request, f"a share needs at least one rollout, got {share.num_rollouts!r}"
                )
            predicted = share.predicted_accuracy
            if predicted is not None and not (_is_number(predicted) and 0.0 <= predicted <= 1.0):
                raise self._bad_plan(
                    request,
                    f"a predicted accuracy must be None or lie in [0, 1], got {predicted!r}",
                )
        planned = sum(share.num_rollouts for share in plan)
        allowed = [num_rollouts, *([request.rollouts_left] if request.rollouts_left > num_rollouts else [])]
        if planned not in allowed:
            raise self._bad_plan(
                request,
                f"the shares have {planned} rollouts in total, allowed are {' or '.join(map(str, allowed))}",
            )

    def _check_ratio(self, ratio: Any, request: RoundRequest) -> None:
        if not _is_number(ratio) or ratio not in request.legal_ratios:
            raise self._bad_plan(
                request,
                f"the hint ratio {ratio!r} is not one of the legal ratios {list(request.legal_ratios)}; "
                "seele.hints.nearest_legal finds the nearest one",
            )

    def _bad_plan(self, request: RoundRequest, what: str) -> PluginError:
        return self._fault(
            f"plan_rounds, problem {request.instance_id!r}, round {request.round_index}: {what}"
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_PROBLEMS = {
    "probe-a": (0.0, 0.25, 0.5, 0.75),
    "probe-b": (0.0, 0.25, 0.5, 0.75),
    "probe-without-hints": (0.0,),
}
"""Made-up problems and their legal hint ratios; the policy never solves the last one."""


def check_round_trip(
    part: Any,
    saved: Controller,
    restored: Controller,
    *,
    rounds: int,
    num_rollouts: int,
    rescues: bool = False,
) -> None:
    """Have one controller learn from made-up visits, restore another from its state, and compare the two.

    Args:
        part: The class of both controllers, for messages.
        saved: A fresh controller.
        restored: Another one with the same settings.
        rounds: Rounds of a visit.
        num_rollouts: Rollouts of a round.
        rescues: Whether later rounds have a rollout for each hint (``seele.hints.when=rescue``).

    Raises:
        ConfigError: Their states or their next plans differ.
        PluginError: The controller raised, or returned an invalid plan.
    """
    make_step = partial(_make_step, rounds=rounds, num_rollouts=num_rollouts, rescues=rescues)
    for step in (1, 2):
        make_step(saved, step)
    check_restores(saved, restored, part=part, key=KEY)
    plans, others = (make_step(each, 3) for each in (saved, restored))
    if differ := [(plan, other) for plan, other in zip(plans, others, strict=True) if plan != other]:
        plan, other = differ[0]
        raise ConfigError(
            f"{KEY}: {where(part)}: restored from its state, the controller plans {other} where it would "
            f"have planned {plan}; state_dict must hold all that plans depend on, and a random draw must "
            "depend only on the seed, the problem and the round"
        )
    now, again = (each.state_dict() for each in (saved, restored))
    if now != again:
        raise ConfigError(
            f"{KEY}: {where(part)}: after a further step, the restored controller has the state "
            f"{json.dumps(again)[:200]} where it would have had {json.dumps(now)[:200]}; in JSON, keys "
            "become texts"
        )
    saved.metrics()
    saved.curves([*_PROBLEMS])
    saved.predicted_accuracy("probe-a", [0.0, 0.5])


def _make_step(
    controller: Controller, step: int, *, rounds: int, num_rollouts: int, rescues: bool
) -> list[tuple[HintShare, ...]]:
    """Visit each made-up problem in a step, and return the plans of all rounds."""
    controller.begin_step(step)
    plans = []
    for number, (instance_id, legal_ratios) in enumerate(_PROBLEMS.items()):
        for round_index in range(rounds):
            size = len(legal_ratios) - 1 if rescues and round_index else num_rollouts
            if not size:
                continue
            request = RoundRequest(instance_id, round_index, legal_ratios)
            (plan,) = controller.plan_rounds([request], num_rollouts=size)
            plans.append(plan)
            for share in plan:
                solves = share.num_rollouts * (number + step) // 5 if len(legal_ratios) > 1 else 0
                controller.observe_rounds(
                    [RoundOutcome(instance_id, share.hint_ratio, solves, share.num_rollouts)]
                )
        controller.end_visits([instance_id])
    return plans
