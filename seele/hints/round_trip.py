"""Whether a controller that is restored from its state goes on as the saved one would."""

import json
from typing import Any

from seele.errors import ConfigError
from seele.hints.checked import KEY
from seele.hints.contract import Controller
from seele.plugins import where
from seele.records import RoundRequest

_LEGAL = (0.0, 0.25, 0.5, 0.75)
_PROBLEMS = ("probe-a", "probe-b")


def check_round_trip(
    part: Any, saved: Controller, restored: Controller, *, rounds: int, num_rollouts: int
) -> None:
    """Have one controller learn from made-up visits, restore another from its state, and compare the two.

    Args:
        part: What both are instances of, for messages.
        saved: A fresh controller.
        restored: Another one with the same settings.
        rounds: Rounds of a visit.
        num_rollouts: Rollouts of a round.

    Raises:
        ConfigError: Their states or their next plans differ.
        PluginError: The controller raised, or planned what it may not.
    """
    for step in (1, 2):
        saved.begin_step(step)
        for number, instance_id in enumerate(_PROBLEMS):
            for round_index in range(rounds):
                request = RoundRequest(instance_id, round_index, _LEGAL)
                (plan,) = saved.plan_rounds([request], num_rollouts=num_rollouts)
                for share in plan:
                    num_correct = share.num_rollouts * (number + step) // 3
                    saved.observe(
                        instance_id,
                        hint_ratio=share.hint_ratio,
                        num_correct=num_correct,
                        num_rollouts=share.num_rollouts,
                    )
            saved.end_visit(instance_id)
    state = json.loads(json.dumps(saved.state_dict()))
    restored.load_state_dict(state)
    if (again := restored.state_dict()) != state:
        raise ConfigError(
            f"{KEY}: {where(part)}: load_state_dict does not restore what state_dict returned: "
            f"{_short(state)} became {_short(again)}; a checkpoint of the run could not be resumed"
        )
    requests = [RoundRequest(instance_id, 0, _LEGAL) for instance_id in (*_PROBLEMS, "probe-c")]
    for controller in (saved, restored):
        controller.begin_step(3)
    plans, others = (each.plan_rounds(requests, num_rollouts=num_rollouts) for each in (saved, restored))
    if plans != others:
        raise ConfigError(
            f"{KEY}: {where(part)}: restored from its state, the controller plans {others[0]} where it would "
            f"have planned {plans[0]}; state_dict must hold all that plans depend on, and a random draw must "
            "follow from the seed, the problem and the round"
        )


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
