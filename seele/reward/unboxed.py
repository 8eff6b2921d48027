r"""What a text without any box answers: its last "answer is ...", else the last number in it. Pure functions.

Whether such an answer counts is for the caller: by default none of ours does. Texts that open a box never
come here, because an answer that was cut off is not replaced by an earlier one.

The rules, on the text without Markdown's ``**`` and backticks:

1. What follows the last ``answer is``, ``answers are``, ``answer:`` or ``answer =`` (in the next line where
   nothing follows in its own) up to the end of its sentence, or to ", because ...".
2. Where that is a number or a formula, and behind it stand at most words such as a unit, the answer is that
   number or formula alone: ``12`` of "12 apples.", ``\frac{1}{2}`` of "$\frac{1}{2}$ metres". Of a sum, a
   list or words the whole is the answer.
3. Numbers lose the commas of their thousands, their currency and a plus: ``$1,234.50`` is ``1234.50``. A
   percent sign stays, written ``\%``: what it means is for the grader to say.
4. Without such a phrase the last number counts: an integer, a decimal, ``3/4``, ``\frac{3}{4}``, ``1.5e-7``
   or ``1.5 \times 10^{-7}``.
"""

import re

_DIGITS = r"(?:\d{1,3}(?:(?:,|\{,\}|,\\!)\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
_VALUE = (
    r"(?:\\[dt]?frac\s*\{\s*-?\d+\s*\}\s*\{\s*\d+\s*\}"
    rf"|(?:{_DIGITS})"
    r"(?:\s?/\s?\d+(?![\d.]*/)|[eE][-+]?\d+(?!\w)|\^(?:\{-?\d+\}|-?\d+))?"
    r"(?:\s?(?:\\times|\\cdot|\N{MULTIPLICATION SIGN})\s?10\^(?:\{-?\d+\}|-?\d+))?)"
)
_SIGN = r"[-+\N{MINUS SIGN}]"
_NUMBER = rf"(?:{_SIGN}?(?:\\?[$€£]\s?)?{_SIGN}?{_VALUE}(?:\s?\\?%)?)"

# A sign behind a number, a letter or a bracket is a minus between two things; x2 holds no number.
_NUMBER_IN_TEXT = re.compile(
    rf"(?:(?<![\w)\]}}.])(?={_SIGN})|(?<![\w.])(?!{_SIGN}))({_NUMBER})", re.IGNORECASE
)

_PHRASE = re.compile(
    r"\banswers?\b(?:\s+(?:to|of|for)\b[^.:=\n]{1,80}?)?\s*"
    r"(?:\b(?:is|are|would be|must be|should be)\b\s*:?|[:=])\s*"
    r"(?:(?:therefore|thus|then|hence|simply|indeed|exactly|approximately|about|equal to)\b[,:]?\s*)*",
    re.IGNORECASE,
)
_FORMULA = re.compile(
    r"\$\$(.+?)\$\$|\\\[(.+?)\\\]|\\\((.+?)\\\)|\$(?!\s)([^$\n]+?)(?<!\s)\$(?!\d)", re.DOTALL
)
# Words, or a unit of one letter that is no usual name of a variable; behind them the sentence may go on.
_WORDS = (
    r"(?:\s+(?:(?!and\b|or\b|pi\b)[A-Za-z]{2,}|[mgshJKLNVW]\b)(?:/[A-Za-z]+)?(?:\^\{?-?\d\}?|[²³])?|\s?°)"
)
_REST = re.compile(rf"{_WORDS}*\s*(?:$|,\s(?!\s*(?:and|or)\b)(?=[A-Za-z]))")
_QUANTITY = re.compile(rf"({_NUMBER}){_REST.pattern}")
_SENTENCE = re.compile(r"(.*?)(?:[.!?;](?=\s|$)|,?\s(?:because|since|as|which)\b|$)")


def unboxed_answer(text: str) -> str | None:
    """The answer of a text to an open question; None where it has neither the phrase nor a number."""
    text = _without_marks(text)
    for phrase in reversed(list(_PHRASE.finditer(text))):
        if said := _quantity(text[phrase.end() :]):
            return said
    numbers = _NUMBER_IN_TEXT.findall(text)
    return _plain_number(numbers[-1]) if numbers else None


def answer_sentence(text: str) -> str | None:
    """What the last "answer is" says, up to the end of its sentence; None where nothing does."""
    text = _without_marks(text)
    sentences = (_sentence(text[phrase.end() :]) for phrase in reversed(list(_PHRASE.finditer(text))))
    return next((sentence for sentence in sentences if sentence), None)


def last_line(text: str) -> str:
    """The last line that is not blank, without Markdown's marks; blank where there is none."""
    return _without_marks(text).rstrip().rpartition("\n")[2].strip()


def _without_marks(text: str) -> str:
    return text.replace("**", "").replace("`", "")


def _quantity(tail: str) -> str:
    """The number or the formula that the tail begins with, if that is all it says; else its sentence."""
    sentence = _sentence(tail)
    if quantity := _QUANTITY.match(sentence):
        return _plain_number(quantity[1])
    formula = _FORMULA.match(tail)
    if formula is None:
        return sentence
    inside = next(each for each in formula.groups() if each is not None).strip().rstrip(".,;").rstrip()
    if not _REST.match(f" {_sentence(tail[formula.end() :])}"):
        return sentence
    return _plain_number(inside) if re.fullmatch(_NUMBER, inside) else inside


def _sentence(tail: str) -> str:
    found = _SENTENCE.match(tail.partition("\n")[0])
    return found[1].strip(" \t\r,:") if found else ""


def _plain_number(number: str) -> str:
    plain = re.sub(r"\\?[$€£]\s?|\{,\}|,\\!|,", "", number).replace("\N{MINUS SIGN}", "-").lstrip("+")
    return re.sub(r"\s?\\?%", r"\\%", plain)
