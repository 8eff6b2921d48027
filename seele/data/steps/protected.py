r"""Where a text must not be cut: within maths, code, tables and braces.

A cut is legal where everything that was opened before it has been closed: ``$..$``, ``$$..$$``, ``\(..\)``,
``\[..\]``, environments (``\begin{align}``, ``tabular``, ...), braces (``\boxed{..}`` among them), ``[asy]``
drawings, fenced and inline code, HTML and markdown tables. So the text before a legal cut is balanced, and so
is the text after it if the whole text is: nothing is cut after a mark that is never closed, or that closes
what was never opened. Time is linear in the length of any text.

Some dollar signs enclose maths, others are money: ``It costs $5, and $x$ is free`` has one formula. The
dollars are read from left to right, each as opening, closing or literal, so as to minimise the cost over the
whole text: a literal dollar is free before a number, and a formula is expensive if it holds prose or a blank
line. Costs only serve to choose between readings. A dollar that is escaped (``\$``) or in code does not
count.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence

_TEXT, _INLINE, _DISPLAY = range(3)

# "$5", "$ 1,200.50", "$.75", "$3 million", but not "$5x$" or "$5^2$".
_MONEY = re.compile(r"\$ ?(?:\d[\d,]*+(?:\.\d++)?+|\.\d++)(?:[kKmMbB]\b|(?![\w\\^_{]))")
_PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}[,;:.]? +[A-Za-z]{2,}")
_WORDS_OF_MATHS = re.compile(r"\\(?:text\w*|mbox|mathrm|operatorname)\s*\{[^{}]*\}")
_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")

_LITERAL = 1.0
_LITERAL_AFTER_NUMBER = 0.5  # "12$", which may equally close a formula
_LITERAL_DOUBLE = 3.0
_WITHIN_DISPLAY = 0.25  # \text{where $x$ is ...}
_UNCLOSED = (0.0, 0.9, 2.0)
_WITH_PROSE = 2.0
_ACROSS_LINES = 0.75
_ACROSS_BLANK_LINE = 1.5
_BEFORE_DIGIT = _AFTER_NUMBER = _EMPTY = 1.0


def dollar_spans(text: str, marks: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the start and end of each formula in ``$`` or ``$$``, dollars included, in order; one that is
    never closed ends with the text.

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
            # Among equal costs, prefer the reading with the formula.
            min((costs[before] + cost, -before) for before, cost in options[state])
            for state in (_TEXT, _INLINE, _DISPLAY)
        ]
        costs = [cost for cost, _ in best]
        came_from.append((-best[0][1], -best[1][1], -best[2][1]))
        formula_start = start + width
    states = _states(costs, came_from)
    return _spans(text, marks, states)


def _readings(text: str, formula_start: int, start: int, width: int) -> list[list[tuple[int, float]]]:
    """Return, for each state after the mark, the states from which it can be reached and the costs."""
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
    """Return the state after each mark on the cheapest path to the end of the text."""
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


Span = tuple[int, int]

_CODE = re.compile(r"`{3,}|^[ \t>]*~{3,}|\[/?asy\]|</?(?:table|pre)\b|`[^`\n]+`(?!`)", re.MULTILINE)
_CLOSING = {"[asy]": "[/asy]", "<table": "</table", "<pre": "</pre"}
# Any \end closes any environment: what matters here is that none is left open.
_MARK = re.compile(r"(?P<environment>\\begin|\\end)\s*\{[^{}\n]*\}|\\.|[{}]|\$\$?", re.DOTALL)
_OPENING = {"}": "{", r"\)": r"\(", r"\]": r"\[", r"\end": r"\begin"}
_LINE_WITH_BAR = re.compile(r"^[^\n|]*\|[^\n]*$", re.MULTILINE)
_RULE_OF_TABLE = re.compile(r"[ \t\r|:+=-]*-[ \t\r|:+=-]*")


def protected_spans(text: str) -> list[Span]:
    """Return the spans of ``text`` within which no cut is legal, in order and without overlap. A cut at the
    start or the end of a span is legal.
    """
    code = _merged(_code_spans(text))
    return _merged([*code, *_latex_spans(text, code), *_table_spans(text)])


def legal_cuts(candidates: Iterable[int], spans: Sequence[Span]) -> list[int]:
    """Return the positions that lie within no span. Both arguments are sorted."""
    legal = []
    remaining = iter(spans)
    start, end = next(remaining, (0, 0))
    for cut in candidates:
        while end <= cut and (span := next(remaining, None)):
            start, end = span
        if not start < cut < end:
            legal.append(cut)
    return legal


def _merged(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _code_spans(text: str) -> Iterator[Span]:
    opened: tuple[int, str] | None = None
    for match in _CODE.finditer(text):
        mark = match[0].lstrip(" \t>")
        if opened is None:
            if mark[0] == "`" and mark[-1] == "`" and not mark.startswith("```"):
                yield match.span()
            elif "/" not in mark:
                opened = (match.start(), mark)
        elif mark == _CLOSING.get(opened[1]) or (mark[0] in "`~" and mark.startswith(opened[1])):
            yield opened[0], match.end()
            opened = None
    if opened is not None:
        yield opened[0], len(text)


def _latex_spans(text: str, code: Sequence[Span]) -> Iterator[Span]:
    dollars: list[tuple[int, int]] = []
    opened: dict[str, list[int]] = {"{": [], r"\(": [], r"\[": [], r"\begin": []}
    for match in _marks_outside(text, code):
        mark = match["environment"] or match[0]
        if mark in opened:
            opened[mark].append(match.start())
        elif mark in _OPENING:
            starts = opened[_OPENING[mark]]
            # A closing mark that was never opened: nothing after it is balanced.
            yield (starts.pop(), match.end()) if starts else (match.start(), len(text))
        elif mark[0] == "$":
            dollars.append((match.start(), len(mark)))
    yield from ((starts[0], len(text)) for starts in opened.values() if starts)
    yield from dollar_spans(text, dollars)


def _marks_outside(text: str, code: Sequence[Span]) -> Iterator[re.Match[str]]:
    position = 0
    for start, end in (*code, (len(text), len(text))):
        # endpos hides what follows, so a mark that begins before code cannot reach into it.
        yield from _MARK.finditer(text, position, start)
        position = end


def _table_spans(text: str) -> Iterator[Span]:
    """Yield runs of adjacent lines with bars, if one of them is a rule or two are framed by bars."""
    start, end, num_framed, has_rule = 0, -1, 0, False
    for match in _LINE_WITH_BAR.finditer(text):
        line = match[0].strip()
        if match.start() != end + 1:
            if has_rule or num_framed >= 2:
                yield start, end
            start, num_framed, has_rule = match.start(), 0, False
        end = match.end()
        num_framed += len(line) > 1 and line[0] in "|+" and line[-1] in "|+"
        has_rule |= _RULE_OF_TABLE.fullmatch(line) is not None
    if has_rule or num_framed >= 2:
        yield start, end
