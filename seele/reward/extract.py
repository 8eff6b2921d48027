r"""The final answer of a generated text: the content of its last ``\boxed{}``.

A text without any box can also be searched for an answer: its last "answer is ...", else the last number in
it. The caller decides whether such an answer counts; by default none of ours does. Texts that open a box are
never searched this way, because a truncated answer is not replaced by an earlier one.

The rules, on the text without backticks and without Markdown's ``**``, which between digits is a power:

1. The answer follows the last ``answer is``, ``answers are``, ``answer:`` or ``answer =`` (on the next line
   if nothing follows on the same one), up to the end of its sentence. A sentence that begins with "not", or
   without a digit, formula or operator, such as "The answer is wrong.", states nothing, and the phrase before
   it counts.
2. If a sentence begins with a number or a formula, followed by at most a unit or a remark, that number or
   formula is taken: ``12`` of "12 apples a day (see above)" and of "12 when n = 3". Of a single equation the
   right side is taken, of words around a single number that number; "minus 8" is -8. A sum, a list, or a
   number with a word that changes it ("5 million") stays whole. Longer sentences with several numbers state
   nothing.
3. Numbers lose thousands separators, currency signs and a plus: ``$1,234.50`` is ``1234.50``. A percent sign
   stays, written ``\%``: the grader decides what it means.
4. Without such a phrase the last number counts, or the formula that contains it. Numbers of list items, of
   references such as ``[1]`` and after "not" do not count.
"""

import re
from collections.abc import Iterator
from itertools import islice

from seele.maths.boxed import OPENING, last_boxed

__all__ = ["answer_in", "last_boxed", "opens_thoughts", "text_after_thinking"]

THINK, END_OF_THINKING = "<think>", "</think>"


def answer_in(text: str) -> str | None:
    """Return ``last_boxed`` of a text with a box; a text without any box is itself the answer."""
    return last_boxed(text) if OPENING in text else text


def opens_thoughts(prompt: str) -> bool:
    """Return True if the prompt ends with ``<think>``, so that a response begins inside the thoughts."""
    return prompt.rstrip().endswith(THINK)


def text_after_thinking(text: str, *, begun: bool) -> str | None:
    """The text after the last ``</think>``; None if the thoughts never end.

    Without a ``</think>`` the thoughts continue to the end if ``begun``, because the prompt ends with
    ``<think>``, or if the text itself begins with it; otherwise there are none, and the whole text counts.
    LUFFY's evaluation (arXiv:2504.14945, eval_scripts/generate_vllm.py) considers only the prompt, and takes
    the text between the first and the second ``</think>``.
    """
    _, end, behind = text.rpartition(END_OF_THINKING)
    if end:
        return behind
    return None if begun or text.lstrip().startswith(THINK) else text


_DIGITS = r"(?:\d{1,3}(?:(?:,|\{,\}|,\\!)\d{3})++(?!\d)|\d++)(?:\.\d++)?|\.\d++"
_FRACTION = r"\\[dt]?frac\s*\{\s*-?\d+\s*\}\s*\{\s*\d+\s*\}"
_VALUE = (
    rf"(?:\d++\s?{_FRACTION}|{_FRACTION}|\d++\s\d++/\d++|\d{{1,2}}:\d\d(?!\d)"
    rf"|(?:{_DIGITS})"
    r"(?:\s?/\s?\d++(?![\d.]*+/)|[eE][-+]?\d++(?!\w)|\^(?:\{-?\d+\}|-?\d++))?"
    r"(?:\s?(?:\\times|\\cdot|\N{MULTIPLICATION SIGN})\s?10\^(?:\{-?\d+\}|-?\d++))?)"
)
_SIGN = r"[-+\N{MINUS SIGN}]"
_NUMBER = rf"(?:{_SIGN}?(?:\\?[$€£¥]\s?)?{_SIGN}?{_VALUE}(?:\s?\\?%|\spercent\b)?)"

# A sign after a number, a letter or a bracket is a minus between two things; x2 and x^2 contain no number.
_NUMBER_IN_TEXT = re.compile(
    rf"(?:(?<![\w)\]}}.])(?={_SIGN})|(?<![\w.^:])(?!{_SIGN}))({_NUMBER})", re.IGNORECASE
)
_NOT_COUNTED = re.compile(
    rf"^[^\S\n]*\d+[.)][^\S\n]+(?=\S)|\[\d+\]|\bnot\s+(?:\${_NUMBER}\$|{_NUMBER})",
    re.MULTILINE | re.IGNORECASE,
)

_PHRASE = re.compile(
    r"\banswers?\b(?:\s+(?:to|of|for)\b[^.:\n]{1,80}?\s(?:is|are)\b|"
    r"\s*(?:\b(?:is|are|would be|must be|should be)\b|[:=]))\s*:?\s*(?:[*•-]\s+)?"
    r"(?:(?:therefore|thus|then|hence|simply|indeed|exactly|approximately|about|equal to)\b[,:]?\s*)*",
    re.IGNORECASE,
)
_MAX_PHRASES = 20
"""The number of last phrases that are searched for one that states something."""
# No \[ stands in another, nor \( in \(: each of many open ones would be searched to the end. \\[ ends a line.
_FORMULA = re.compile(
    r"\$\$(.+?)\$\$|(?<!\\)\\\[((?:(?!(?<!\\)\\\[).)+?)\\\]|(?<!\\)\\\(((?:(?!(?<!\\)\\\().)+?)\\\)"
    r"|\$(?!\s)([^$\n]+?)(?<!\s)\$(?!\d)",
    re.DOTALL,
)
_SENTENCE = re.compile(r"(.*?)(?:[.!?](?=\s|$)|;\s(?=[A-Za-z])|,?\s(?:because|since|as|which)\b|$)")
_STATES_SOMETHING = re.compile(r"[\d$\\+*/^=<>]|^\W*[A-Za-z]\W*$")
_LABEL = re.compile(r"\([A-Z]\)\s")
_WORD = re.compile(r"(?<!\\)\b(?!and\b|or\b)[A-Za-z]{2,}")

# Words after a number that are not units: they change it, or it continues after them.
_NO_UNIT = (
    r"(?:and|or|pi|plus|minus|times|over|base|mod|squared|cubed|dozen|hundred|thousand|[mb]illion|trillion|"
    r"half|halves|thirds?|quarters?|[a-z]+ths?|alpha|beta|gamma|delta|theta|lambda|sqrt)\b"
)
# Words, or a unit of one letter that is not a usual variable name.
_UNIT = (
    rf"(?:(?:\s+(?:an?\s+)?(?:(?!{_NO_UNIT})[A-Za-z]{{2,}}|[mgshJKLNVW]\b)|(?:kg|mg|cm|mm|km|ml|lbs?|mph)\b)"
    r"(?:/[A-Za-z]+)?(?:\^\{?-?\d\}?|[²³])?|\s?°)"
)
# What may follow an answer: the end, a unit, a remark.
_REMARK = (
    r"\s*(?:$|[(\[]|(?:for|if|when|where)\s+\$?[A-Za-z]\s*=|:\)|[\N{EN DASH}\N{EM DASH}]|\s-\s(?=[A-Za-z]{2})"
    r"|,\s(?!(?:and|or|plus|minus|times)\b)[A-Za-z]{2,}\s+[A-Za-z]{2}|\band\s+(?:it|this|that|the)\b)"
)
_REST = re.compile(rf"{_UNIT}*?{_REMARK}", re.IGNORECASE)
_QUANTITY = re.compile(rf"({_NUMBER}){_REST.pattern}", re.IGNORECASE)


def unboxed_answer(text: str) -> str | None:
    """The answer of a text to an open question; None if it has neither the phrase nor a number."""
    text = _without_marks(text)
    for tail in _tails(text):
        if said := _said(tail):
            return said
    return _last_value(text) or next(answer_sentences(text), None)


def answer_sentences(text: str) -> Iterator[str]:
    """What follows each "answer is", up to the end of its sentence, the last one first."""
    return filter(None, map(_sentence, _tails(_without_marks(text))))


def last_line(text: str) -> str:
    """The last line that is not blank, without Markdown's marks; empty if there is none."""
    return _without_marks(text).rstrip().rpartition("\n")[2].strip()


def _without_marks(text: str) -> str:
    return re.sub(r"(?<!\d)\*\*|\*\*(?!\d)|`", "", text)


def _tails(text: str) -> Iterator[str]:
    """The text after each phrase, the last one first."""
    phrases = list(_PHRASE.finditer(text))
    return (text[phrase.end() :] for phrase in islice(reversed(phrases), _MAX_PHRASES))


def _said(tail: str) -> str | None:
    """The answer in a phrase's sentence; None if it states nothing."""
    if formula := _FORMULA.match(tail):
        inside = _inside(formula)
        if inside and _REST.match(f" {_sentence(tail[formula.end() :])}"):
            return _right_side(inside) or (_plain_number(inside) if re.fullmatch(_NUMBER, inside) else inside)
    sentence = re.sub(r"^(?:minus|negative)\s+(?=\\?[$€£¥]?\d)", "-", _sentence(tail), flags=re.IGNORECASE)
    if not _STATES_SOMETHING.search(sentence) or re.match(r"not\b", sentence, re.IGNORECASE):
        return None
    if quantity := _QUANTITY.match(sentence):
        return _plain_number(quantity[1])
    if right := _right_side(sentence):
        return right
    begins_with_it = re.match(rf"{_NUMBER}|\$|\\", sentence)
    num_words, numbers = len(_WORD.findall(sentence)), _NUMBER_IN_TEXT.findall(sentence)
    has_words = num_words > 0 or _LABEL.match(sentence)
    if has_words and not begins_with_it and not _FORMULA.search(sentence) and len(numbers) == 1:
        return _plain_number(numbers[0])
    return None if num_words > 3 and not begins_with_it else sentence


def _right_side(text: str) -> str | None:
    """The number that a single equation ends in; None if the text is something else."""
    quantity = _QUANTITY.match(text.partition("=")[2].strip()) if text.count("=") == 1 else None
    return _plain_number(quantity[1]) if quantity else None


def _last_value(text: str) -> str | None:
    """The last number, or the formula that contains it."""
    text = _NOT_COUNTED.sub("", text)
    last = None
    for last in _NUMBER_IN_TEXT.finditer(text):  # noqa: B007 - the last one is what counts
        pass
    if last is None:
        return None
    for formula in _FORMULA.finditer(text):
        if formula.start() <= last.start() < formula.end() and (inside := _inside(formula)):
            value = inside.rpartition("=")[2].strip()
            return _plain_number(value) if re.fullmatch(_NUMBER, value) else value or None
    return _plain_number(last[1])


def _inside(formula: re.Match[str]) -> str:
    return next(each for each in formula.groups() if each is not None).strip().rstrip(".,;").rstrip()


def _sentence(tail: str) -> str:
    found = _SENTENCE.match(tail.partition("\n")[0])
    return found[1].strip(" \t\r,:").rstrip(" -") if found else ""


def _plain_number(number: str) -> str:
    plain = re.sub(r"\\?[$€£¥]\s?|\{,\}|,\\!|,", "", number).replace("\N{MINUS SIGN}", "-").lstrip("+")
    return re.sub(r"\s?\\?%|\spercent$", r"\\%", plain)
