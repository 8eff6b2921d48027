r"""Where a reference answer stands in a text by itself, however it is written there.

``1234`` is also ``1,234``, ``1{,}234`` and ``\$1234.00``; ``\frac{1}{2}`` is also ``\dfrac12`` and ``1/2``;
blanks, braces, ``\left`` and ``\text`` count for nothing. ``12`` is found neither in ``123``, ``1.12`` and
``12/5`` nor in ``x^{12}``; ``5`` is not ``-5``. A single capital is an option, found in ``(A)``, ``A)`` and
at the end of a line. Values are not compared: ``0.5`` is not ``1/2``. Repetitions are possessive or bounded,
so that a search takes time linear in the text.
"""

import functools
import re
from collections.abc import Iterator

MINUS = r"[-\u2212]"
_SILENT = r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|text|textbf|mathrm|mathbf|mbox)(?![a-zA-Z])"
BLANKS = rf"(?:[\s~]|\\[,;:!\s]|{_SILENT})*+"
"""What may stand between two parts of an answer without meaning anything."""

_OUTER = re.compile(r"(?:\$+|\\\(|\\\[|\\boxed\{)(?P<inner>.*?)(?:\$+|\\\)|\\\]|\})\s*\.?", re.DOTALL)
_SIDE = re.compile(r"[A-Za-z]\w*\s*=(?P<side>[^=]+)")
_OPTION = re.compile(r"\(?(?P<letter>[A-Z])\)?")
_NUMBER = re.compile(rf"(?P<sign>{MINUS}?)\s*(?:\\?\$)?\s*(?P<digits>\d[\d,]*(?:\.\d+)?|\.\d+)\s*(?:\\?%)?")
_FRACTION = re.compile(
    rf"(?P<sign>{MINUS}?)\s*(?:\\[dt]?frac\s*\{{\s*(?P<a>\d+)\s*\}}\s*\{{\s*(?P<b>\d+)\s*\}}"
    r"|(?P<c>\d+)\s*/\s*(?P<d>\d+))"
)
_TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|\d+|[^\W\d_]+|\S", re.DOTALL)
_IGNORED = re.compile(rf"[~${{}}]|\\[,;:!\s]|{_SILENT}")
_MOST_TOKENS = 400

_UNIT = r"(?:[kcm]?m|kg|g|mg|ml|L|lbs?|oz|ft|in|mph|hrs?|h|min|s|sec|am|pm)\b"
# Neither part of a longer number or word nor an exponent or an index.
_NUMBER_IN_TEXT = re.compile(
    r"(?<![\w.^\\])(?<!\d,)(?<![\^_]\{)"
    r"(?P<digits>(?:\d{1,3}(?:(?:,|\{,\}|,?\\[,!])\d{3}(?!\d))++|\d++)(?:\.\d++)?+|\.\d++)"
    rf"(?![\d_]|\^(?!\{{?\s?\\circ)|[.,]\d|\{{,\}}\d|\s?/\s?[\d(]|:\d|(?!{_UNIT})[^\W\d_])"
)
_UNARY_MINUS = re.compile(rf"(?:\A|[=(,\s{{\[$:<>]){MINUS}\s?\Z|={MINUS}\s\Z")


def mentions(text: str, answer: str) -> Iterator[tuple[int, int]]:
    """Start and end of each place at which ``answer`` stands in ``text``, in order."""
    answer = bare_answer(answer)
    if number := _NUMBER.fullmatch(answer):
        yield from _number_mentions(text, _canonical(number["digits"]), is_negative=bool(number["sign"]))
    else:
        yield from (match.span() for match in _pattern(answer).finditer(text))


def bare_answer(answer: str) -> str:
    r"""``answer`` without what merely encloses it: ``$x = \frac{1}{2}$`` is ``\frac{1}{2}``."""
    answer = answer.strip()
    while (outer := _OUTER.fullmatch(answer)) and outer["inner"].strip():
        answer = outer["inner"].strip()
    side = _SIDE.fullmatch(answer)
    return side["side"].strip() if side else answer


def _number_mentions(text: str, digits: str, *, is_negative: bool) -> Iterator[tuple[int, int]]:
    for match in _NUMBER_IN_TEXT.finditer(text):
        if _canonical(match["digits"]) == digits:
            before = text[max(0, match.start() - 4) : match.start()].rstrip("$\\")
            if is_negative == (_UNARY_MINUS.search(before) is not None):
                yield match.span()


def _canonical(digits: str) -> str:
    """``"012,300.50"`` as ``"12300.5"``."""
    whole, _, part = re.sub(r"[^\d.]", "", digits).partition(".")
    return f"{whole.lstrip('0') or '0'}.{part.rstrip('0')}".rstrip(".")


@functools.lru_cache(maxsize=4096)
def _pattern(answer: str) -> re.Pattern[str]:
    if option := _OPTION.fullmatch(answer):
        letter = option["letter"]
        return re.compile(rf"(?:\({letter}\)|(?<![\w(]){letter}(?=[).:*}}\]]|[ \t]*+(?:\n|\Z)))")
    if fraction := _FRACTION.fullmatch(answer):
        above, below = fraction["a"] or fraction["c"], fraction["b"] or fraction["d"]
        written = rf"(?:\\[dt]?frac\s?\{{?\s?{above}\s?\}}?\s?\{{?\s?{below}\s?\}}?|{above}\s?/\s?{below})"
        sign = rf"{MINUS}\s?" if fraction["sign"] else rf"(?<![=(,\s{{\[$:]{MINUS})(?<!= {MINUS} )"
        return re.compile(rf"(?<![\w.^]){sign}{written}(?![\w^])")
    return re.compile(_expression(answer))


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
