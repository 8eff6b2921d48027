r"""Where a worked solution shows its answer: hints beyond that leave nothing to be found.

*Stated*: the answer stands as a result, in ``\boxed{}``, after "the answer is", "Answer:" or ``####``, or as
a whole side of a relation (``= 12``, ``is 12 apples``, ``\geq 12``, ``12 = x``, but not ``= 12 + 3``); or it
stands anywhere, if it is too long to do so by chance. *Mentioned*: it stands anywhere. How an answer may be
written is in ``seele.data.steps.answer_matching``, how often these rules err in docs/steps.md.
"""

import bisect
import itertools
import re
from collections.abc import Sequence

from seele.data.steps.answer_matching import BLANKS, bare_answer, mentions

# What may stand between "the answer is" or "=" and the answer itself; a dozen of them at most.
_FILLER = (
    rf"(?:{BLANKS}(?:[$€£*_`:(\[{{\"']|\\[$(\[]|\\boxed|Rs\.?"
    r"|(?i:the|a|an|of|to|option|choice|equal|exactly|about|approximately|only|simply|total|value)\b)){0,12}?"
    rf"{BLANKS}"
)
_AFTER_ANSWER_IS = re.compile(
    r"(?:(?i:\b(?:answer|ans|result|solution)\b(?:\s(?:choice|option))?[*_\s]*+"
    r"(?:is|are|was|be|equals|=|:|-|\u2013|\u2014|\.)?|\b(?:option|choice)\b|\#\#\#\#|<answer>)"
    rf"|\\boxed\s?\{{){_FILLER}\Z"
)
_AFTER_RELATION = re.compile(
    r"(?:=|≈|≡|⇒|→|≤|≥|\\(?:approx|equiv|Rightarrow|implies|to|[lg]eq?q?)(?![a-zA-Z])"
    rf"|\b(?:is|are|equals?|gives|get|obtain|yields)\b){_FILLER}(?:[-\u2212]\s?)?\Z"
)
_LOOK_BACK = 80  # characters before the answer that are looked at
_BLANK_MATHS = r"(?:\s|\\[,;:! ]|[$]|\\\)|\\(?:text|mathrm)\s?\{[^{}]{0,40}\})*+"
_OPERATOR = re.compile(
    rf"{_BLANK_MATHS}(?:x\s?\d|[-+*/\u00d7÷·<>\u2212]|\^(?!\{{?\s?\\circ)"
    r"|\\(?:times|cdot|div|frac|sqrt|pm|[lg]eq?q?)(?![a-zA-Z]))"
)
_EQUALS_UNKNOWN = re.compile(r"\s?=\s?[A-Za-z](?=\s*+(?:[.,;$\n]|\\[)\]]|\Z))")
_AFTER_OPERATOR = re.compile(r"[-+*/\u00d7·^\d]\s?\Z")

_TELLING_CHARS = 6  # letters and digits; shorter answers also occur by chance


def revealed_at(steps: Sequence[str], answer: str) -> int:
    """The fewest leading steps that state the answer.

    Returns:
        1 to ``len(steps)``; ``len(steps)`` also where only the last step states it, or none does. 0 without
        steps.
    """
    return fewest_steps(steps, stated_end("".join(steps), answer))


def mentioned_at(steps: Sequence[str], answer: str) -> int:
    """As ``revealed_at``, for the first place at which the answer stands at all: never more steps."""
    return fewest_steps(steps, mentioned_end("".join(steps), answer))


def stated_end(text: str, answer: str) -> int | None:
    """Where the first statement of the answer ends in ``text``, or None."""
    bare = re.sub(r"\\[a-zA-Z]+", "", bare_answer(answer))
    is_telling = sum(map(str.isalnum, bare)) >= _TELLING_CHARS
    return next(
        (end for start, end in mentions(text, answer) if is_telling or _is_result(text, start, end)), None
    )


def mentioned_end(text: str, answer: str) -> int | None:
    """Where the first mention of the answer ends in ``text``, or None."""
    return next((end for _, end in mentions(text, answer)), None)


def _is_result(text: str, start: int, end: int) -> bool:
    before = text[max(0, start - _LOOK_BACK) : start]
    if _AFTER_ANSWER_IS.search(before):
        return True
    if _EQUALS_UNKNOWN.match(text, end) and not _AFTER_OPERATOR.search(before):
        return True
    return _AFTER_RELATION.search(before) is not None and not _OPERATOR.match(text, end)


def fewest_steps(steps: Sequence[str], end: int | None) -> int:
    """The fewest leading steps that hold the first ``end`` characters; all for None."""
    if end is None:
        return len(steps)
    ends = list(itertools.accumulate(map(len, steps)))
    return bisect.bisect_left(ends, end) + 1
