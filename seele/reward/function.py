"""A user's own reward function: how it is called, and what it may return.

It has verl's signature, by keyword, and may be a coroutine function::

    def compute_score(data_source, solution_str, ground_truth, extra_info): ...

It returns a number in [0, 1], a boolean, or a dict with such a ``score``. Of the dict's other values, numbers
are logged and texts are kept with the rollout. Any other return value and any exception is the function's
fault: a ``PluginError`` with its file and line and the problem's id.
"""

import inspect
import math
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

from seele.errors import ConfigError, PluginError
from seele.plugins import find_part, where, where_raised
from seele.records import Grade, GradeReason, Instance
from seele.reward.graders import GRADERS

KEY = "seele.reward.grader"
ARGUMENTS = ("data_source", "solution_str", "ground_truth", "extra_info")

LOGGED = ("ungraded_share", "no_answer_share", "malformed_share", "format_share", "mean")
"""Names below ``reward/`` that a run itself logs: a function's numbers must have other names."""

Item = Mapping[str, Any]
"""The keyword arguments of one call, as JSON values."""

RewardFunction = Callable[..., Any]


def load_function(spec: str, kwargs: Mapping[str, Any]) -> RewardFunction:
    """Return the function that a setting names.

    Args:
        spec: ``path/to/file.py:function``, ``package.module:function`` or an entry point of
            ``seele.rewards``.
        kwargs: Further arguments of every call, besides ``ARGUMENTS``.

    Raises:
        ConfigError: There is no such function, or it does not take these arguments.
    """
    function: RewardFunction = find_part(spec, key=KEY, group="rewards", built_in=GRADERS)
    if not callable(function) or inspect.isclass(function):
        raise ConfigError(
            f"{KEY}: {where(function)}: {spec!r} is not a function; name one that can be called"
        )
    try:
        inspect.signature(function).bind(**dict.fromkeys((*ARGUMENTS, *kwargs)))
    except (TypeError, ValueError) as error:  # ValueError: a function written in C
        raise ConfigError(
            f"{KEY}: {where(function)}: {spec!r} cannot be called with the keywords "
            f"{[*ARGUMENTS, *kwargs]}: {error}; give it these parameters, or **kwargs"
        ) from error
    return function


def item_of(text: str, instance: Instance, *, hint_steps: int) -> Item:
    """The arguments of the call for one response.

    Args:
        text: The text that the model wrote, without the hint that it continues.
        instance: The problem.
        hint_steps: Steps of the worked solution that the model was shown.
    """
    return {
        "data_source": instance.data_source,
        "solution_str": text,
        "ground_truth": instance.answer,
        "extra_info": {
            "instance_id": instance.instance_id,
            "data_source": instance.data_source,
            "question": instance.question,
            "level": instance.level,
            "steps": list(instance.steps),
            "hint": instance.hint(hint_steps),
            "hint_ratio": hint_steps / max(instance.num_hint_units, 1),
        },
    }


def grade_of(score: float, extra: Mapping[str, float | str], *, correct_from: float) -> Grade:
    """The verdict that a reward represents."""
    correct = score >= correct_from
    return Grade(correct, GradeReason.CORRECT if correct else GradeReason.WRONG, score, extra)


def read_result(result: Any, function: RewardFunction, item: Item) -> tuple[float, dict[str, float | str]]:
    """The reward and the further values in a function's result.

    Raises:
        PluginError: The result is not one that a reward function may return.
    """
    values = result if isinstance(result, Mapping) else {"score": result}
    if "score" not in values:
        raise fault(function, item, f"returned a dict without 'score' but with {sorted(map(str, values))}")
    score = _number(values["score"])
    if score is None:
        raise fault(function, item, f"returned the score {values['score']!r}, which is not a number")
    if not 0.0 <= score <= 1.0:  # also not a number
        raise fault(function, item, f"returned the score {score}")
    extra: dict[str, float | str] = {}
    for name, value in values.items():
        number = _number(value)
        if name == "score" or (number is None and not isinstance(value, str)):
            continue
        if name in LOGGED or not isinstance(name, str):
            raise fault(function, item, f"returned a value named {name!r}, which a run logs itself")
        if number is not None and not math.isfinite(number):
            raise fault(function, item, f"returned {number} as {name!r}")
        # Half of a surrogate pair, as in a judge's JSON, cannot be written to a file.
        extra[name] = value.encode(errors="replace").decode() if number is None else number
    return score, extra


def fault(function: RewardFunction, item: Item, what: str) -> PluginError:
    """The error that states what a function did wrong, and on which problem and response."""
    return PluginError(
        f"{KEY}: {where(function)} {what} on problem {item['extra_info']['instance_id']!r}, "
        f"response {reprlib.repr(item['solution_str'])}; allowed is a number from 0 to 1 (scale others), "
        "a boolean, or a dict with such a 'score' (docs/grading.md)"
    )


def raised(function: RewardFunction, item: Item, error: Exception) -> PluginError:
    """The error for a function that raised."""
    return fault(function, item, f"raised {type(error).__name__}: {error} ({where_raised(error)})")


def _number(value: Any) -> float | None:
    """The value as a float if it is a number or an array of one number; None otherwise."""
    if not isinstance(value, (int, float)) and hasattr(value, "item"):
        try:
            value = value.item()
        except (TypeError, ValueError, RuntimeError):
            return None
    if not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number beyond the floats
        return math.inf if value > 0 else -math.inf
