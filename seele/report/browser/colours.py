"""Colours of a response's tokens, as classes of the page's style. Pure."""

import math
from collections.abc import Callable, Iterator
from itertools import groupby

from seele.report.rollout_lines import ShownRollout

COLOURS = ("advantage", "log-probability ratio", "milestones", "none")
"""Quantities by which tokens may be coloured."""
FULL_ADVANTAGE, FULL_LOG_RATIO = 2.0, 0.5
"""Absolute values at which the colour is strongest."""
_LEVELS = 5


def coloured(rollout: ShownRollout, colour: str) -> Iterator[tuple[str, str, str]]:
    """Yield the response in pieces: class, or an empty text; tooltip; text.

    If the run did not keep tokens, the whole response is one piece without colour.
    """
    mark = _marker(rollout, colour)
    if mark is None:
        yield "", "", rollout.text
        return
    marked = ((*mark(index), token) for index, token in enumerate(rollout.tokens))
    for (kind, title), tokens in groupby(marked, key=lambda each: each[:2]):
        yield kind, title, "".join(token for *_, token in tokens)


def _marker(rollout: ShownRollout, colour: str) -> Callable[[int], tuple[str, str]] | None:
    """Return a function from a token's index to its class and tooltip."""
    if colour == "advantage" and len(rollout.token_advantages) == len(rollout.tokens) > 0:
        values, full = rollout.token_advantages, FULL_ADVANTAGE
    elif colour == "log-probability ratio" and len(rollout.token_log_ratios) == len(rollout.tokens) > 0:
        values, full = rollout.token_log_ratios, FULL_LOG_RATIO
    elif colour == "milestones" and rollout.tokens:
        return lambda index: _milestone(rollout, index)
    else:
        return None
    return lambda index: (_signed(values[index] / full), f"{values[index]:+.3f}")


def _milestone(rollout: ShownRollout, index: int) -> tuple[str, str]:
    for start, end, milestone, passed in rollout.segments:
        if start <= index < end:
            verdict = "passed" if passed else "failed"
            return f"{'plus' if passed else 'minus'}-3", f"milestone {milestone + 1} {verdict}"
    return "", ""


def _signed(share: float) -> str:
    level = 0 if math.isnan(share) else round(min(1.0, abs(share)) * _LEVELS)
    return f"{'plus' if share > 0 else 'minus'}-{level}" if level else ""
