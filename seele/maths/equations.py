"""Numerical equations stated in a text, and whether they are surely false. Pure; linear in the text's length.

``5 apples + $3 = 9 apples.`` is ``5+3=9``: numbers with + - * /, brackets and units, an equals sign, and one
number after it. It is surely false if no order of its operations, no rounding and no factor between two units
makes it true, and if nothing around it may change its meaning. Anything unusual is never surely false.
"""

import functools
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from seele.maths.arithmetic import SIGNS, NotArithmeticError, evaluate, parse
from seele.maths.boxed import canonical_number


class Equation(NamedTuple):
    """An equals sign and the number after it."""

    start: int
    """Where the number begins."""
    end: int
    """The position after its last digit."""
    written: str
    """Both sides, without blanks and units, such as ``48/2=24``; empty without numbers on the left."""
    value: str | None
    """The number, without commas and trailing zeros; None if the right side continues, as in ``8 * 2``."""
    is_false: bool
    """True if the equation is surely false."""


def equations(text: str) -> Iterator[Equation]:
    """The equations of a text, in order."""
    plain = _plain(text)
    for found in _EQUATION.finditer(plain):
        left, value = _bare(found["left"] or ""), canonical_number(found["number"])
        yield Equation(
            *found.span("number"),
            f"{_NUMBER.sub(lambda number: canonical_number(number[0]), left)}={value}" if left else "",
            None if found["goes_on"] or found["right"].startswith("-") else value,
            _is_surely_false(plain, found, left),
        )


def numbers_of(text: str) -> set[str]:
    """All numbers of a text, without commas and trailing zeros."""
    return {canonical_number(number) for number in _NUMBER.findall(_plain(text))}


_NUMBER = re.compile(
    r"(?:(?:[0-9]{1,3}(?: {0,2},[0-9]{3}){1,5}(?![0-9])|[0-9]{1,15})(?:\.[0-9]{1,15})?|\.[0-9]{1,15})"
)
_WORD = r"[^\W\d_]{2,20}+(?:['\u2019-][^\W\d_]{1,20}+)*+"
_UNIT = rf"(?: {{0,9}}(?:/ {{0,9}}|(?<= ))(?!(?:and|or)\b){_WORD}){{0,4}}"
_OPERAND = rf"(?>[( ]{{0,9}}{_NUMBER.pattern}(?: {{0,9}}%)?{_UNIT}(?: {{0,9}}\)){{0,5}})"
_EQUATION = re.compile(
    rf"(?>(?P<left>(?<![0-9.,])(?! ){_OPERAND}(?: {{0,9}}[-+*/]{_OPERAND}){{0,30}}))?"
    r" {0,9}\n?(?<![=<>!:])=(?![=<>])"
    rf"(?= {{0,9}}\n?[( ]{{0,9}}(?P<right>-? {{0,9}}(?P<number>{_NUMBER.pattern})(?: {{0,9}}%)?)"
    rf"(?P<goes_on>[) ]{{0,9}}{_UNIT} {{0,9}}[-+*/^] {{0,9}}(?:[(0-9.]|[^\W\d_]\b))?)"
)

_PLAIN = [
    (re.compile(pattern), plain)
    for pattern, plain in (
        (r"(?<=[0-9])(?:\{,\}|,?\\[,!])(?=[0-9]{3}(?![0-9]))", ","),
        (r"\\[dt]?frac\{([^{}\n]{1,80})\}\{([0-9]{1,15})\}", r"((\1)/\2)"),
        (r"\\(?:text|mathrm) ?\{([^{}\n]{0,80})\}", r"\1 "),
        (r"\\(?:times|cdot)(?![a-zA-Z])|[\u00d7·⋅∙]", "*"),
        (r"\\div(?![a-zA-Z])|÷", "/"),
        (r"[\u2212\u2013\u2014]", "-"),
        (r"\\(?:left|right|boxed|q?quad)(?![a-zA-Z])|\\[,;:!()\[\] ]|\\(?=[%$])", " "),
        (r"[&$£€`\t\r\u00a0]|(?<![0-9])\*\*|\*\*(?![0-9])", " "),
        (r"[{\[]", "("),
        (r"[}\]]", ")"),
        (r"(?<=[0-9)%])[xX](?= {0,3}[0-9.])|(?<= )[xX](?= {1,3}[0-9.(])", "*"),
    )
]


def _plain(text: str) -> str:
    """The text with the signs of ``arithmetic`` and without markup; every number keeps its position."""
    for pattern, plain in _PLAIN:
        text = pattern.sub(functools.partial(_in_place, plain), text)
    return text


def _in_place(plain: str, found: re.Match[str]) -> str:
    return found.expand(plain).rjust(len(found[0]))


def _bare(expression: str) -> str:
    """The expression without units, blanks and leading brackets that are never closed."""
    bare = re.sub(rf"/? *{_WORD}| ", "", expression)
    unclosed = bare.count("(") - bare.count(")")
    return bare[unclosed:] if bare.startswith("(" * unclosed) and unclosed > 0 else bare


# --- What is surely false


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CLAUSE = rf"(?P<words>(?:[(/\s]{{0,9}}(?:{_WORD}|[aI]\b))*+)"
_BEFORE = re.compile(
    r"(?:^|[^-+*/=~(\s]\s{0,9}\n|(?<=[\w)%'\"])[.,;:](?=\s)|[=>]|(?<![\w)])\("
    rf"|= {{0,9}}{_NUMBER.pattern}(?= {_WORD})){_CLAUSE}\s*+(?<!\w)$"
)
"""Only words between the last stop, line, bracket or result and an equation."""
_BEHIND = re.compile(rf"(?![\w(^!'])[) ]{{0,9}}+{_CLAUSE}(?:(?<=[^\W\d])|(?=[\n=~|]|[.,;:](?![0-9])|$))")
"""After an equation: words, or a stop."""
_FAR = 120
_TAKEN = re.compile(r"(?<!total )(?<!sum )\b(?:of|days?|weeks?|months?|years?|hours?|steps?)\s*$")
"""``the price of 3 shirts + 5``, ``Day 2 - 5 * 3``: the first number belongs to the words before it."""
_DOUBTFUL = _words("""
    about approximately approx roughly around nearly almost rounded rounding round estimate
    mod modulo base binary remainder am pm o'clock clock not wrong incorrect mistake cannot isn't doesn't
    half halves twice double triple thrice times third thirds quarter quarters fourth fourths fifth fifths
    sixth sixths seventh eighth eighths ninth tenth tenths average mean median square squared cube cubed root
    percent percentage fraction ratio product difference log ln sin cos tan pi choose factorial dozen
    than as minus plus less more by over into from under negative between divided multiplied per
    """)
"""Words near an equation that may be part of it."""
_MEASURES = _words("""
    second sec minute min hour hr day night week weekend month year decade century mph
    inch inche foot feet ft yard mile mm cm km meter metre kilometer centimeter millimeter
    ounce oz pound lb ton gram kg kilogram milligram mg cup pint quart gallon liter litre ml milliliter
    tablespoon teaspoon cent penny pennie dime nickel pair couple each both team twin
    hundred thousand million billion trillion degree radian
    """)
_FACTORS = (2, 3, 4, 7, 8, 12, 16, 24, 30, 36, 48, 52, 60, 144, 365, 1760, 2000, 3600, 5280)
"""Factors between two units of ``_MEASURES``."""
_UNSURE = re.compile(rf"[-+]{_NUMBER.pattern}%|(?<![0-9.,])0[0-9]|/.*/")
"""A percentage of what precedes it, a time of day, a fraction of a fraction."""


def _is_surely_false(plain: str, found: re.Match[str], left: str) -> bool:
    if not re.search(r"[0-9%)][-+*/]", left) or found["goes_on"] or _UNSURE.search(left):
        return False
    right = found["right"].replace(" ", "")
    if _value(right) in (None, _value(left)):
        return False
    start, end = found.start("left"), found.end("right")
    before = _BEFORE.search(plain, max(start - _FAR, 0), start)
    behind = _BEHIND.match(plain, end, end + _FAR)
    if before is None or behind is None or _TAKEN.search(before["words"].lower()):
        return False
    parts = (before["words"], found["left"], behind["words"])
    earlier, own, later = (re.findall(_WORD, part.lower()) for part in parts)
    words = {*earlier[-4:], *own, *later[:4]}
    measures = {word.removesuffix("s") for word in words} & _MEASURES
    if words & _DOUBTFUL or len(measures) > 1:
        return False
    return not _may_agree(left, right, (100, 1000, 10**6, *(_FACTORS if measures else ())))


def _may_agree(left: str, right: str, factors: Sequence[int]) -> bool:
    """True if the right side may be the value of the left, rounded to its decimals or in another unit."""
    stated = abs(_value(right) or Fraction(0))
    place = Fraction(1, 10 ** len(right.partition(".")[2].rstrip("%")))
    for known in _readings(left):
        if known is None:
            return True
        small, large = sorted((abs(known), stated))
        if large - small <= abs(known) * _doubt(left) + (place if known % place else 0):
            return True
        if any(abs(large - small * factor) <= large / 50 for factor in factors):
            return True
    return False


def _doubt(expression: str) -> Fraction:
    """The relative error that rounded decimals may cause in the value; amounts of money are not rounded."""
    doubt = Fraction(0)
    for number in _NUMBER.findall(expression):
        decimals = number.partition(".")[2]
        if decimals.strip("0") and not (len(decimals) <= 2 and decimals[-1] in "05"):
            doubt += Fraction(1, 10 ** len(decimals)) / Fraction(canonical_number(number))
    return doubt


def _readings(expression: str) -> Iterator[Fraction | None]:
    """The values with the usual precedence of operations, and with each operation done last."""
    yield _value(expression)
    depth = 0
    for place, sign in enumerate(expression):
        depth += (sign == "(") - (sign == ")")
        if sign in SIGNS and place and not depth:
            yield _value(f"({expression[:place]}){sign}({expression[place + 1 :]})")


def _value(expression: str) -> Fraction | None:
    """The expression's value; None if it is not an expression or has no value."""
    try:
        return evaluate(parse(re.sub(rf"({_NUMBER.pattern})(%?)", _as_fraction, expression)))
    except (NotArithmeticError, ZeroDivisionError):
        return None


def _as_fraction(number: re.Match[str]) -> str:
    """The number as a fraction: ``1.5%`` becomes ``(15/1000)``."""
    whole, _, decimals = canonical_number(number[1]).partition(".")
    return f"({whole}{decimals}/1{'0' * (len(decimals) + 2 * len(number[2]))})"
