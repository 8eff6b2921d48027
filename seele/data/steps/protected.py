r"""Where a text must not be cut: within maths, code, tables and braces.

A cut is legal where everything that was opened before it has been closed: ``$..$``, ``$$..$$``, ``\(..\)``,
``\[..\]``, environments (``\begin{align}``, ``tabular``, ...), braces (``\boxed{..}`` among them), ``[asy]``
drawings, fenced and inline code, HTML and markdown tables. So what stands before a legal cut is balanced, and
what stands after it too where the whole text is: nothing is cut after a mark that is never closed, or that
closes what was never opened. Time grows linearly with the text, whatever it holds.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from seele.data.steps.dollar_math import dollar_spans

Span = tuple[int, int]

_CODE = re.compile(r"`{3,}|^[ \t>]*~{3,}|\[/?asy\]|</?(?:table|pre)\b|`[^`\n]+`(?!`)", re.MULTILINE)
_CLOSING = {"[asy]": "[/asy]", "<table": "</table", "<pre": "</pre"}
# Any \end closes any environment: what matters here is that none is left open.
_MARK = re.compile(r"(?P<environment>\\begin|\\end)\s*\{[^{}\n]*\}|\\.|[{}]|\$\$?", re.DOTALL)
_OPENING = {"}": "{", r"\)": r"\(", r"\]": r"\[", r"\end": r"\begin"}
_LINE_WITH_BAR = re.compile(r"^[^\n|]*\|[^\n]*$", re.MULTILINE)
_RULE_OF_TABLE = re.compile(r"[ \t\r|:+=-]*-[ \t\r|:+=-]*")


def protected_spans(text: str) -> list[Span]:
    """Stretches of ``text`` within which no cut is legal, in order and without overlap. A cut at the start
    or the end of one is legal.
    """
    code = _merged(_code_spans(text))
    return _merged([*code, *_latex_spans(text, code), *_table_spans(text)])


def legal_cuts(candidates: Iterable[int], spans: Sequence[Span]) -> list[int]:
    """Those of the positions that lie within no span. Both come in order."""
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
            # Closes what was never opened: nothing after it is balanced.
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
    """Neighbouring lines with bars: with a rule among them, or two of them framed by bars."""
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
