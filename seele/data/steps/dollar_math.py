r"""Which dollar signs of a text enclose maths, and which are money.

``It costs $5, and $x$ is free`` has one formula. The dollars are read from left to right, each as opening,
closing or literal, in the way that costs least over the whole text: a literal dollar is free before a number,
a formula is dear when it holds prose or a blank line. Costs decide between readings and mean nothing else.
What is escaped (``\$``) or stands in code is no dollar to begin with: see ``seele.data.steps.protected``.
"""

import math
import re
from collections.abc import Sequence

_TEXT, _INLINE, _DISPLAY = range(3)

# "$5", "$ 1,200.50", "$.75", "$3 million", but not "$5x$" or "$5^2$".
_MONEY = re.compile(r"\$ ?(?:\d[\d,]*+(?:\.\d++)?+|\.\d++)(?:[kKmMbB]\b|(?![\w\\^_{]))")
_PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}[,;:.]? +[A-Za-z]{2,}")
_WORDS_OF_MATHS = re.compile(r"\\(?:text\w*|mbox|mathrm|operatorname)\s*\{[^{}]*\}")
_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")

_LITERAL = 1.0
_LITERAL_AFTER_NUMBER = 0.5  # "12$", which may as well close a formula
_LITERAL_DOUBLE = 3.0
_WITHIN_DISPLAY = 0.25  # \text{where $x$ is ...}
_UNCLOSED = (0.0, 0.9, 2.0)
_WITH_PROSE = 2.0
_ACROSS_LINES = 0.75
_ACROSS_BLANK_LINE = 1.5
_BEFORE_DIGIT = _AFTER_NUMBER = _EMPTY = 1.0


def dollar_spans(text: str, marks: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Start and end of each formula in ``$`` or ``$$``, dollars included, in order; one that is never closed
    ends with the text.

    Args:
        text: The whole text.
        marks: Start and width (1 or 2) of each dollar sign or pair of dollar signs, in order.
    """
    costs = [0.0, math.inf, math.inf]
    came_from: list[tuple[int, int, int]] = []
    formula_start = 0
    for start, width in marks:
        options = _readings(text, formula_start, start, width)
        best = [
            # Of two equal ways the one with the formula.
            min((costs[before] + cost, -before) for before, cost in options[state])
            for state in (_TEXT, _INLINE, _DISPLAY)
        ]
        costs = [cost for cost, _ in best]
        came_from.append((-best[0][1], -best[1][1], -best[2][1]))
        formula_start = start + width
    states = _states(costs, came_from)
    return _spans(text, marks, states)


def _readings(text: str, formula_start: int, start: int, width: int) -> list[list[tuple[int, float]]]:
    """For each state after the mark, from which states it can be reached and at what cost."""
    formula = _formula_cost(text, formula_start, start)
    if width == 1:
        formula += _BEFORE_DIGIT * text[start + 1 : start + 2].isdigit()
        return [
            [(_INLINE, formula), (_TEXT, _literal_cost(text, start))],
            [(_TEXT, 0.0)],
            [(_DISPLAY, _WITHIN_DISPLAY)],
        ]
    # "$$" within a formula in single dollars closes it and opens the next.
    literal = _LITERAL if _MONEY.match(text, start + 1) else _LITERAL_DOUBLE
    return [[(_DISPLAY, 0.0), (_TEXT, literal)], [(_INLINE, formula)], [(_TEXT, 0.0)]]


def _formula_cost(text: str, start: int, end: int) -> float:
    content = text[start:end]
    if not content.strip():
        return _EMPTY
    cost = _ACROSS_LINES * ("\n" in content)
    if _BLANK_LINE.search(content):
        cost = _ACROSS_BLANK_LINE
    cost += _AFTER_NUMBER * (content[0].isspace() and text[max(0, start - 2) : start - 1].isdigit())
    return cost + _WITH_PROSE * (_PROSE.search(_WORDS_OF_MATHS.sub(" ", content)) is not None)


def _literal_cost(text: str, start: int) -> float:
    if _MONEY.match(text, start):
        return 0.0
    return _LITERAL_AFTER_NUMBER if text[start - 1 : start].isdigit() else _LITERAL


def _states(costs: Sequence[float], came_from: Sequence[tuple[int, int, int]]) -> list[int]:
    """State after each mark on the cheapest way to the end of the text."""
    state = min(range(3), key=lambda last: costs[last] + _UNCLOSED[last])
    states = []
    for previous in reversed(came_from):
        states.append(state)
        state = previous[state]
    return states[::-1]


def _spans(text: str, marks: Sequence[tuple[int, int]], states: Sequence[int]) -> list[tuple[int, int]]:
    spans = []
    before, opened = _TEXT, 0
    for (start, width), state in zip(marks, states, strict=True):
        if before == _TEXT:
            opened = start
        elif state == _TEXT:
            spans.append((opened, start + width))
        before = state
    if before != _TEXT:
        spans.append((opened, len(text)))
    return spans
