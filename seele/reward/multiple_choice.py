r"""Multiple choice: which option an answer names, by its letter, text or number. A pure function.

Options are lettered A to J. The first of these rules that finds an option applies:

1. a label alone: ``C``, ``(C)``, ``c.``, ``\text{C}``, ``option C``, ``the answer is C``;
2. the text of an option, ignoring blanks, ``$``, ``\text{}``, double quotes, the backslash of ``\%``, the
   braces of ``6{,}000``, the size of fractions and a full stop, and ignoring case if that leaves one option
   (the genotypes Rr and RR are different options);
3. a label and its text: ``C. Paris``, ``(C) Paris``, ``C Paris``, ``C (Paris)``, ``C, Paris``, ``C = Paris``,
   ``C - Paris``. If the words are the text of another option, begin with "and" or "or", or contain another
   label as in ``(A), (C)``, the answer names no option;
4. the last sentence that says ``answer is C`` or ``answer: C``; no option if it continues with ``or D``.

A number from 1 is also a label. It applies before rule 2 only if the reference answer is a number (22
questions of ARC-C are numbered, not lettered); otherwise after it, because ``2`` is then more likely the text
of an option. If another option contains that number, as ``2.0 m/s`` does, it names no option.
"""

import re
from collections.abc import Sequence

from seele.errors import DataError
from seele.maths.boxed import TEXT_COMMAND
from seele.records import Grade, GradeReason
from seele.reward.extract import answer_in

LETTERS = "ABCDEFGHIJ"
"""Labels of the options; MMLU-Pro has up to ten."""

UNKNOWN_OPTIONS = ("",) * len(LETTERS)

# Markup around an answer that does not change it.
_BRACE = re.compile(rf"(?P<command>(?:{TEXT_COMMAND}|\\boxed)\s*\{{)|[{{}}]")
_ESCAPED = re.compile(r"\\([%$&#_])|\{(,)\}")
_DRESSING = re.compile(
    r"\\(?:left|right)(?=[()\[\].|])|\\[ ,;:!()\[\]]|[$~*\"\N{LEFT DOUBLE QUOTATION MARK}"
    r"\N{RIGHT DOUBLE QUOTATION MARK}]"
)
_SAME = {"\\dfrac": "\\frac", "\\tfrac": "\\frac", "\N{MINUS SIGN}": "-"}
_PREFIX = re.compile(
    r"^(?:(?:the\s+)?(?:correct\s+|final\s+)?(?:answer|option|choice)(?:\s+is)?\s*:?\s*)", re.I
)
_LABEL = re.compile(r"[(\[]?([A-Ja-j]|10|[1-9])[)\]]?[.:]?")
# A number of its own: neither part of a fraction or a formula, nor an index or a power.
_NUMBER = re.compile(r"(?<![\w.,/^{\\])\d[\d,]*(?:\.\d+)?(?![\d/])")
_BETWEEN = r"(?:[\s:,=\u2013\u2014]|-\s)*"  # en or em dash; a hyphen may be a minus
_LABEL_AND_TEXT = re.compile(rf"(?:\(([A-J])\)|([A-J])[.:)]|([A-J])(?=[\s,=\u2013\u2014]|-\s)){_BETWEEN}(.*)")
_NUMBER_AND_TEXT = re.compile(rf"(?:\((10|[1-9])\)|(10|[1-9])[.:)](?=\s)|([1-9])(?=\s)){_BETWEEN}(.*)")
_IN_BRACKETS = re.compile(r"\((.*)\)")
_SEVERAL = re.compile(r"(?:and|or|&|/)(?:\s|$)", re.I)
# Labels among the words after a label. P(A) is not one, and a full stop after a letter may end a sentence.
_OTHER_LETTER = re.compile(r"(?<!\w)\([A-J]\)|(?<![\w(])[A-J](?:\)|[.:](?=\s))|^[A-J]$")
_OTHER_NUMBER = re.compile(r"(?<!\w)\((?:10|[1-9])\)|(?<![\w(.,])(?:10|[1-9])\)")
_SAID = re.compile(
    r"\b(?i:answer|option|choice)\s*(?i:is|:)\s*\(?([A-J])\b(\)?,?\s*(?i:and\b|or\b|&|/)\s*\(?[A-J]\b)?"
)

# How much of the end of a text without a box is read; a longer box does not hold an option.
_MAX_CHARS = 2000


def grade_choice(answer: str | None, gold: str, options: Sequence[str] = UNKNOWN_OPTIONS) -> Grade:
    r"""Grade whether the answer names the same option as the reference answer.

    Args:
        answer: Bare, or a text with the answer in its last ``\boxed{}``; ``None`` or blank for none.
        gold: Letter, number from 1 or text of the correct option.
        options: The 1 to 10 texts of the options, in order. Without them only labels can be read. Two options
            with the same text are the same.

    Raises:
        DataError: If there are not 1 to 10 options, or ``gold`` names none of them.
    """
    if not 1 <= len(options) <= len(LETTERS):
        raise DataError(f"multiple choice needs 1 to {len(LETTERS)} options, got {len(options)}")
    texts = [_bare(option) for option in options]
    numbered = _bare(gold).isdecimal()
    right = _find(gold, texts, numbered=numbered)
    if right is None:
        raise DataError(f"the reference answer {gold!r} names none of the {len(options)} options")
    read = None if answer is None else answer_in(answer)
    if read is None or not read.strip():
        return Grade(False, GradeReason.NO_ANSWER)
    named = _find(read[-_MAX_CHARS:], texts, numbered=numbered)
    correct = named is not None and (named == right or (texts[named] == texts[right] != ""))
    return Grade(correct, GradeReason.CORRECT if correct else GradeReason.WRONG)


def _find(text: str, texts: Sequence[str], *, numbered: bool) -> int | None:
    """Index of the option that ``text`` names, or None; ``texts`` are bare."""
    bare = _bare(text)
    said = _PREFIX.sub("", bare)
    label = _label(said, len(texts))
    number = said.strip("()[].:")
    if label is not None and (numbered or not number.isdecimal()):
        return label
    for each in (bare, said, number) if number.isdecimal() else (bare, said):
        if (meant := _meant(each, texts)) is not None:
            return meant
    if label is not None:
        holding = {index for index, each in enumerate(texts) if int(number) in _numbers(each)}
        return label if holding <= {label} else None
    labelled = (_NUMBER_AND_TEXT if numbered else _LABEL_AND_TEXT).fullmatch(
        _PREFIX.sub("", _unwrapped(text))
    )
    if labelled:
        bracketed, delimited, spaced, words = labelled.groups()
        meant = _meant(_bare(words), texts)
        if meant is None and (inside := _IN_BRACKETS.fullmatch(_bare(words))):
            meant = _meant(inside[1], texts)
        if meant is not None or not spaced:
            label = _label(bracketed or delimited or spaced, len(texts))
            others = (_OTHER_NUMBER if numbered else _OTHER_LETTER).findall(_bare(words))
            named = {_label(each, len(texts)) for each in others} if meant is None else {meant}
            return None if _SEVERAL.match(words) or named - {None, label} else label
    for letter, another in _SAID.findall(_unwrapped(text))[-1:]:
        return None if another else _label(letter, len(texts))
    return None


def _numbers(bare: str) -> set[float]:
    return {float(each.replace(",", "")) for each in _NUMBER.findall(bare)}


def _meant(bare: str, texts: Sequence[str]) -> int | None:
    """Index of the option with this text, or None; the first of several equal ones; all bare."""
    alike = {text for text in texts if text and text.casefold() == bare.casefold()}
    if bare in alike:
        return texts.index(bare)
    return texts.index(alike.pop()) if len(alike) == 1 else None


def _label(text: str, num_options: int) -> int | None:
    """Index of the option whose letter or number is the whole text, or None."""
    found = _LABEL.fullmatch(text)
    if found is None:
        return None
    label = found[1].upper()
    index = int(label) - 1 if label.isdecimal() else LETTERS.index(label)
    return index if index < num_options else None


def _unwrapped(text: str) -> str:
    """The text without markup: LaTeX commands for text, sizes and blanks, and outer braces; runs of
    blanks become one.
    """
    text = _ESCAPED.sub(r"\1\2", text).strip()
    for form, same in _SAME.items():
        text = text.replace(form, same)
    opened: list[re.Match[str]] = []
    dropped: list[tuple[int, int]] = []
    for brace in _BRACE.finditer(text):
        if brace[0] != "}":
            opened.append(brace)
        elif opened:
            opening = opened.pop()
            if opening["command"] or (opening.start(), brace.end()) == (0, len(text)):
                dropped += (opening.span(), brace.span())
    for start, end in sorted(dropped, reverse=True):
        text = text[:start] + text[end:]
    return " ".join(_DRESSING.sub(" ", text).split())


def _bare(text: str) -> str:
    """``_unwrapped`` without a full stop at the end."""
    return _unwrapped(text).rstrip(".").strip()
