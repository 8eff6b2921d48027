"""Multiple choice: whether an answer names the right option, by its label, by its text or by both.

TODO: drop for ``seele.reward.multiple_choice.grade_choice``, which has this signature, once that is there.
"""

import re
import string
from collections.abc import Sequence

from seele.records import Grade, GradeReason

_COMMAND = re.compile(r"\\(?:text(?:bf|rm|it)?|math(?:rm|bf)|boldsymbol)\s*\{([^{}]*)\}")
_DRESSING = re.compile(r"\\(?:left|right)(?=[()\[\].|])|\\[,;:! ]|[$~*]")
_INTRODUCTION = re.compile(
    r"(?:the )?(?:correct |final )?(?:answer|option|choice)(?: is)?:?\s+", re.IGNORECASE
)

_NUMBERS = "123456789"

# No option is as long.
_MAX_CHARS = 4000


def grade_choice(answer: str | None, gold: str, options: Sequence[str]) -> Grade:
    """Whether ``answer`` names the option that ``gold`` names.

    ``C``, ``(c)``, ``C.``, ``option C``, ``C) days become shorter`` and ``Days become shorter.`` name the
    same option. A label goes before a text: where the gold is a number, ``3`` is the third option whatever
    it says.

    Args:
        answer: What stands in the box; None or blank is no answer.
        gold: Letter, or number from 1, of the right option.
        options: Their texts, in order.
    """
    if answer is None or not answer.strip():
        return Grade(False, GradeReason.NO_ANSWER)
    if len(answer) > _MAX_CHARS:
        return Grade(False, GradeReason.TOO_LONG)
    labels = list(_NUMBERS if gold.isdecimal() else string.ascii_uppercase)[: len(options)]
    named = _find(_plain(answer), labels, [_plain(option) for option in options])
    is_right = named == gold.upper()
    return Grade(is_right, GradeReason.CORRECT if is_right else GradeReason.WRONG)


def _find(said: str, labels: Sequence[str], texts: Sequence[str]) -> str | None:
    bare = _INTRODUCTION.sub("", said, count=1).strip("()[].: ")
    if bare.upper() in labels:
        return bare.upper()
    # In small letters only where that leaves one: of the genotypes Rr and RR each is an option of its own.
    for known, meant in ((list(texts), said), ([text.casefold() for text in texts], said.casefold())):
        if known.count(meant) == 1:
            return labels[known.index(meant)]
    both = re.fullmatch(r"(\w+)\s*[).:\]]+\s*(.+)", bare)
    if both and both[1].upper() in labels:
        text = texts[labels.index(both[1].upper())]
        return both[1].upper() if text.casefold() == _plain(both[2]).casefold() else None
    return None


def _plain(text: str) -> str:
    """The words alone."""
    return " ".join(_DRESSING.sub(" ", _COMMAND.sub(r"\1", text)).split()).strip(". ")
