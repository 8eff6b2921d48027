r"""Where a worked solution reveals its answer: a longer hint leaves nothing to find.

*Stated*: the answer appears as a result, in ``\boxed{}``, after "the answer is", "Answer:" or ``####``, or as
a whole side of a relation (``= 12``, ``is 12 apples``, ``\geq 12``, ``12 = x``, but not ``= 12 + 3``); or it
appears anywhere, if it is too long to do so by chance. *Mentioned*: it appears anywhere. docs/steps.md
reports how often these rules err.

Notation does not matter: ``1234`` is also ``1,234``, ``1{,}234`` and ``\$1234.00``; ``\frac{1}{2}`` is also
``\dfrac12`` and ``1/2``; blanks, braces, ``\left`` and ``\text`` are ignored. ``12`` does not occur in
``123``, ``1.12``, ``12/5`` or ``x^{12}``; ``5`` is not ``-5``. A single capital is an option, found in
``(A)``, ``A)`` and at the end of a line. Values are not compared: ``0.5`` is not ``1/2``. Repetitions are
possessive or bounded, so that a search takes time linear in the text.
"""

import bisect
import dataclasses
import functools
import itertools
import re
from collections.abc import Iterator, Sequence

from seele.maths.boxed import canonical_number
from seele.records import Instance

MINUS = r"[-\u2212]"
_SILENT = r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|text|textbf|mathrm|mathbf|mbox)(?![a-zA-Z])"
BLANKS = rf"(?:[\s~]|\\[,;:!\s]|{_SILENT})*+"
"""Pattern for text between two parts of an answer that has no meaning."""

_OUTER = re.compile(
    r"(?:\$++|\\\(|\\\[|\\boxed\{)(?P<inner>.*?)(?:(?<!\$)\$++|\\\)|\\\]|\})\s*\.?", re.DOTALL
)
_SIDE = re.compile(r"[A-Za-z]\w*\s*=(?P<side>[^=]+)")
_OPTION = re.compile(r"\(?(?P<letter>[A-Z])\)?")
_NUMBER = re.compile(
    rf"(?P<sign>{MINUS}?)\s*(?:\\?\$)?\s*"
    r"(?P<digits>(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)\s*(?:\\?%)?"
)
_FRACTION = re.compile(
    rf"(?P<sign>{MINUS}?)\s*(?:\\[dt]?frac\s*\{{\s*(?P<a>\d+)\s*\}}\s*\{{\s*(?P<b>\d+)\s*\}}"
    r"|\\[dt]?frac\s*(?P<e>\d)\s*(?P<f>\d)|(?P<c>\d+)\s*/\s*(?P<d>\d+))"
)
_WORD = re.compile(r"(?=.*[a-z])[^\W\d_]{2,}")
"""``Yes``, which a text may write in another case; the line ``AB`` keeps its own."""
_TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|\d+|[^\W\d_]+|\S", re.DOTALL)
_IGNORED = re.compile(rf"[~${{}}]|\\[,;:!\s]|{_SILENT}")
_MOST_TOKENS = 400

_UNIT = r"(?:[kcm]?m|kg|g|mg|ml|L|lbs?|oz|ft|in|mph|hrs?|h|min|s|sec|am|pm)\b"
# Not part of a longer number or word, and not an exponent or an index.
_NUMBER_IN_TEXT = re.compile(
    r"(?<![\w.^\\])(?<!\d,)(?<![\^_]\{)"
    r"(?P<digits>(?:\d{1,3}(?:(?:,|\{,\}|,?\\[,!])\d{3}(?!\d))++|\d++)(?:\.\d++)?+|\.\d++)"
    rf"(?![\d_]|\^(?!\{{?\s?\\circ)|[.,]\d|\{{,\}}\d|\s?/\s?[\d(]|:\d|(?!{_UNIT})[^\W\d_])"
)
_UNARY_MINUS = re.compile(
    rf"(?:\A|[=(,\s{{\[$:<>*_]|\\(?:[lg]eq?q?|approx|equiv|to|times|cdot|div)){MINUS}\s?\Z|={MINUS}\s\Z"
)
_MOST_BEFORE_MINUS = 12  # characters


def mentions(text: str, answer: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each occurrence of ``answer`` in ``text``, in order."""
    answer = bare_answer(answer)
    if number := _NUMBER.fullmatch(answer):
        yield from _number_mentions(
            text, canonical_number(number["digits"]), is_negative=bool(number["sign"])
        )
    else:
        yield from (match.span() for match in _pattern(answer).finditer(text))


def bare_answer(answer: str) -> str:
    r"""Return ``answer`` without what merely encloses it: ``$x = \frac{1}{2}$`` becomes ``\frac{1}{2}``."""
    answer = answer.strip()
    while (outer := _OUTER.fullmatch(answer)) and outer["inner"].strip():
        answer = outer["inner"].strip()
    side = _SIDE.fullmatch(answer)
    return side["side"].strip() if side else answer


def _number_mentions(text: str, digits: str, *, is_negative: bool) -> Iterator[tuple[int, int]]:
    for match in _NUMBER_IN_TEXT.finditer(text):
        if canonical_number(match["digits"]) == digits:
            before = text[max(0, match.start() - _MOST_BEFORE_MINUS) : match.start()].rstrip("$\\")
            if is_negative == (_UNARY_MINUS.search(before) is not None):
                yield match.span()


@functools.lru_cache(maxsize=4096)
def _pattern(answer: str) -> re.Pattern[str]:
    if option := _OPTION.fullmatch(answer):
        letter = option["letter"]
        return re.compile(rf"(?:\({letter}\)|(?<![\w(]){letter}(?=[).:*}}\]]|[ \t]*+(?:\n|\Z)))")
    if fraction := _FRACTION.fullmatch(answer):
        above, below = (next(filter(None, map(fraction.group, names))) for names in ("ace", "bdf"))
        written = rf"(?:\\[dt]?frac\s?\{{?\s?{above}\s?\}}?\s?\{{?\s?{below}\s?\}}?|{above}\s?/\s?{below})"
        sign = rf"{MINUS}\s?" if fraction["sign"] else rf"(?<![=(,\s{{\[$:]{MINUS})(?<!= {MINUS} )"
        return re.compile(rf"(?<![\w.^]){sign}{written}(?![\w^])")
    return re.compile(_expression(answer), re.IGNORECASE if _WORD.fullmatch(answer) else 0)


def _expression(answer: str) -> str:
    tokens = [token for token in _TOKEN.findall(answer)[:_MOST_TOKENS] if not _IGNORED.fullmatch(token)]
    if not tokens:
        return r"(?!)"
    left = r"(?<![\w\\.])" if tokens[0].isalnum() else ""
    right = r"(?!\w)" if tokens[-1].isalnum() else ""
    return left + rf"(?:{_IGNORED.pattern}|\s)*+".join(map(_written, tokens)) + right


def _written(token: str) -> str:
    if token in ("-", "\N{MINUS SIGN}"):
        return MINUS
    if token in (r"\frac", r"\dfrac", r"\tfrac"):
        return r"\\[dt]?frac"
    return re.escape(token)


# What may come between "the answer is" or "=" and the answer itself; at most a dozen of them.
_FILLER = (
    rf"(?:{BLANKS}(?:[$€£*_`:(\[{{\"']|\\[$(\[]|\\boxed|Rs\.?"
    r"|(?i:the|a|an|of|to|option|choice|equal|exactly|about|approximately|only|simply|total|value)\b)){0,12}?"
    rf"{BLANKS}"
)
_MINUS_BEFORE = r"(?:[-\u2212]\s?)?"  # of a negative answer, whose mention begins with its digits
_AFTER_ANSWER_IS = re.compile(
    r"(?:(?i:\b(?:answer|ans|result|solution)\b(?:\s(?:choice|option))?[*_\s]*+"
    r"(?:is|are|was|be|equals|=|:|-|\u2013|\u2014|\.)?|\b(?:option|choice)\b|\#\#\#\#|<answer>)"
    rf"|\\boxed\s?\{{){_FILLER}{_MINUS_BEFORE}\Z"
)
_AFTER_RELATION = re.compile(
    r"(?:=|≈|≡|⇒|→|≤|≥|\\(?:approx|equiv|Rightarrow|implies|to|[lg]eq?q?)(?![a-zA-Z])"
    rf"|\b(?:is|are|equals?|gives|get|obtain|yields)\b){_FILLER}{_MINUS_BEFORE}\Z"
)
_LOOK_BACK = 80  # characters examined before the answer
_BLANK_MATHS = r"(?:\s|\\[,;:! ]|[$]|\\\)|\\(?:text|mathrm)\s?\{[^{}]{0,40}\})*+"
_OPERATOR = re.compile(
    rf"{_BLANK_MATHS}(?:x\s?\d|\*(?!\*)|[-+/\u00d7÷·<>\u2212]|\^(?!\{{?\s?\\circ)"
    r"|\\(?:times|cdot|div|frac|sqrt|pm|[lg]eq?q?)(?![a-zA-Z]))"
)
_EQUALS_UNKNOWN = re.compile(r"\s?=\s?[A-Za-z](?=\s*+(?:[.,;$\n]|\\[)\]]|\Z))")
_AFTER_OPERATOR = re.compile(r"(?:[+*/\u00d7·^\d]|(?:\b[A-Za-z]|\d[A-Za-z]?|[)\]}])\s?[-\u2212])\s?\Z")

_TELLING_CHARS = 6  # letters and digits; shorter answers also occur by chance


def revealed_at(steps: Sequence[str], answer: str) -> int:
    """Return the smallest number of leading steps that state the answer.

    Returns:
        1 to ``len(steps)``; ``len(steps)`` if only the last step states the answer or none does; 0 if there
        are no steps.
    """
    return fewest_steps(steps, stated_end("".join(steps), answer))


def with_revelation(instance: Instance) -> Instance:
    """Return the problem with ``revealed_at`` computed if it is not stored and there are steps."""
    if instance.revealed_at is not None or not instance.steps:
        return instance
    return dataclasses.replace(instance, revealed_at=revealed_at(instance.steps, instance.answer))


def mentioned_at(steps: Sequence[str], answer: str) -> int:
    """Like ``revealed_at``, for the first place at which the answer appears at all: never more steps."""
    return fewest_steps(steps, mentioned_end("".join(steps), answer))


def stated_end(text: str, answer: str) -> int | None:
    """Return where the first statement of the answer ends in ``text``, or None."""
    bare = re.sub(r"\\[a-zA-Z]+", "", bare_answer(answer))
    is_telling = sum(map(str.isalnum, bare)) >= _TELLING_CHARS
    return next(
        (end for start, end in mentions(text, answer) if is_telling or _is_result(text, start, end)), None
    )


def mentioned_end(text: str, answer: str) -> int | None:
    """Return where the first mention of the answer ends in ``text``, or None."""
    return next((end for _, end in mentions(text, answer)), None)


def _is_result(text: str, start: int, end: int) -> bool:
    before = text[max(0, start - _LOOK_BACK) : start]
    if _AFTER_ANSWER_IS.search(before):
        return True
    if _EQUALS_UNKNOWN.match(text, end) and not _AFTER_OPERATOR.search(before):
        return True
    return _AFTER_RELATION.search(before) is not None and not _OPERATOR.match(text, end)


def fewest_steps(steps: Sequence[str], end: int | None) -> int:
    """Return the smallest number of leading steps that hold the first ``end`` characters; all for None."""
    if end is None:
        return len(steps)
    ends = list(itertools.accumulate(map(len, steps)))
    return bisect.bisect_left(ends, end) + 1
