"""Numerical equations stated in a text, and whether they are surely false. Pure; linear in the text's length.

``5 apples + $3 = 9 apples.`` is ``5+3=9``: numbers with + - * /, brackets and units, an equals sign, and one
number after it. It is surely false if no order of its operations, no rounding and no factor between two units
makes it true, and if nothing around it may change its meaning. A sum is only judged if all its numbers have
the same unit or none has. Anything unusual is never surely false. Where the value of a left side is known,
neither other orders nor units of a sum excuse another value.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
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
    """Both sides, without blanks and units, such as ``48/2=24``; empty without numbers on the left, or with a
    sign before them.
    """
    value: str | None
    """The number, without commas and trailing zeros; None if it is not the whole right side, as in ``3x``."""
    is_false: bool
    """True if the equation is surely false."""


def equations(text: str, known: Mapping[str, Sequence[str]] | None = None) -> Iterator[Equation]:
    """The equations of a text, in order.

    Args:
        text: Any text.
        known: The values of some left sides, both as in ``Equation.written``. Without these, orders and units
            of a sum are doubtful.
    """
    plain = _plain(text)
    doubted: re.Match[str] | None = None  # the equation before, unless it is surely false
    for found in _EQUATION.finditer(plain):
        left, value = _bare(found["left"] or ""), canonical_number(found["number"])
        is_negative = found["right"].startswith("-")
        # -6 + 10 = 4 does not say that 6 + 10 is 4.
        is_whole = not _SIGN_BEFORE.search(plain, max(found.start() - 10, 0), found.start())
        written = _NUMBER.sub(lambda number: canonical_number(number[0]), left)
        is_false = _is_surely_false(plain, found, left, (known or {}).get(written))
        is_false = is_false and not (doubted and _restates(plain, doubted, found))
        doubted = None if is_false else found
        yield Equation(
            *found.span("number"),
            f"{written}={'-' * is_negative}{value}" if left and is_whole else "",
            None if found["goes_on"] or is_negative else value,
            is_false,
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
_LETTER = r"[^\W\d_]"
_PER = r"(?<=[a-z]{2}/)[hs]\b(?! {0,9}[-+*/^])"
_GOES_ON = "|".join(
    (
        # = 8 * 2, but not = 60 km/h
        rf"[) ]{{0,9}}{_UNIT} {{0,9}}[-+*/^] {{0,9}}(?:[(0-9.]|(?!{_PER}){_LETTER}\b)",
        rf"{_LETTER}| {{1,9}}(?![aI] ){_LETTER}\b(?!')|[) ]{{0,9}}[A-Z]{{2,3}}\b",  # = 3x, = 3 AB
        r"[) ]{0,9}(?:[_!√]|\\(?!circ|end|text|mbox|implies|[a-zA-Z]*arrow)[a-zA-Z])",  # = 9\pi
        r"\^ {0,9}\\(?!circ)",  # = 2^\alpha
        r"[) ]{0,9}(?:hundred|thousand|million|billion|trillion|dozen|times (?:the|as))\b",
        r"[) ]{0,9}(?:sqrt|pi|sin|cos|tan|log|ln)\b",
        # = 5 1/2, = 10:30, = 4,5, = 2 ± 1, = 2 (x + 1)
        rf"[) ]{{0,9}}(?:[0-9]|[:,][0-9]| : |±|\((?! {{0,3}}{_WORD}))",
        rf" {{1,9}}(?:(?!(?:in|for|at|on|per|from|so|or)\b){_WORD},? {{1,9}})?+(?:and {{1,9}})?"
        rf"(?>{_NUMBER.pattern}(?:/{_NUMBER.pattern})?)(?! {{0,9}}[-+*/=])",  # = 1 hour 15 minutes
        r"(?(opened) {0,9},|(?!))",  # = (7, 8)
    )
)
"""What follows a number that is not the whole right side."""
_SIGN_BEFORE = re.compile(r"[-+]$|\S {0,9}[-+*/]\s{0,9}$")
"""Before a left side: it is the end of a longer one. Bullets do not count."""
_EQUATION = re.compile(
    rf"(?>(?P<left>(?<![0-9.,])(?! ){_OPERAND}(?: {{0,9}}[-+*/]{_OPERAND}){{0,30}}))?"
    r" {0,9}(?:\n {0,9})?(?<![=<>!:])=(?![=<>])"
    r"(?= {0,9}\n? {0,9}(?P<opened>\([( ]{0,9})?"
    rf"(?P<right>-? {{0,9}}(?P<number>(?>{_NUMBER.pattern}))(?: {{0,9}}%)?+)"
    rf"(?P<goes_on>{_GOES_ON})?)"
)

_PLAIN = [
    (re.compile(pattern), plain)
    for pattern, plain in (
        (r"\\\\(?:\[[^]\n]{0,9}\])?(?= {0,9}\n)", " "),
        (r"(?<=[0-9])(?:\{,\}|,?\\[,!])(?=[0-9]{3}(?![0-9]))", ","),
        (r"\\[dt]?frac\{([^{}\n]{1,80})\}\{([0-9]{1,15})\}", r"((\1)/\2)"),
        (r"\\(?:text|mathrm) ?\{([^{}\n]{0,80})\}", r"\1 "),
        (r"\\(?:times|cdot)(?![a-zA-Z])|\\\*|[\u00d7·⋅∙]", "*"),
        (r"\\(?:implies|(?:Long)?[Rr]ightarrow)(?![a-zA-Z])|[\u2192\u21d2]", ">"),
        (r"\\div(?![a-zA-Z])|÷", "/"),
        (r"[\u2212\u2013\u2014]", "-"),
        (r"\\(?:left|right|boxed|q?quad)(?![a-zA-Z])|\\[,;:!()\[\] ]|\\(?=[%$])", " "),
        (r"[&$£€`\t\r\u00a0]|(?<![0-9])\*\*|\*\*(?![0-9])", " "),
        (r"[{\[]", "("),
        (r"[}\]]", ")"),
        (r"(?<=[0-9)%])(?<!(?<![0-9.,])0)[xX](?= {0,3}[0-9.])|(?<= )[xX](?= {1,3}[0-9.(])", "*"),
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


_STOP = r"(?<=[\w)%'\"]) {0,4}[.,;:](?=\s)"
_BEFORE = re.compile(
    rf"(?:^|[^-+*/=~(\s]\s{{0,9}}\n|{_STOP}|[=<>]|\|(?=\s)|(?<![\w)])\()"
    rf"(?P<words>(?:[(/\s]{{0,9}}(?:{_WORD}|[aI]\b))*+)\s*+(?<!\w)$"
)
"""Only words between the last stop, line, bracket or equals sign and an equation."""
_BEHIND = re.compile(
    rf"(?!')[) ]{{0,9}}+(?P<words>(?:[(/ ]{{0,9}}(?:{_WORD}|[aI]\b))*+)"
    r"(?:(?<=[^\W\d])(?! {0,9}\?)|(?=[\n=~|>]|[.,;:](?![0-9])|$))"
)
"""After an equation: words, or a stop."""
_FAR = 120
_CONTEXT = re.compile(
    r"\b(?:about|around|nearly|almost|approx\w*|roughly|round(?:s|ed|ing)?|estimat\w*|nearest|significant|sf"
    r"|[bp]?mod|modul[oa]r?|clock|base|bases|binary|octal|hexadecimal|remainders?|equiv|mathbb"
    r"|not|cannot|\w{2,9}n['\u2019]t|nope|false|wrong|incorrect\w*|untrue|mistake\w*|errors?|invalid"
    r"|contradict\w*|inconsisten\w*|extraneous|violat\w*|reject\w*|discard\w*|no solutions?|impossible|absurd"
    r"|fails?|whether|true|carr(?:y|ied|ies|ying)|borrow\w*|digits?|[ZF](?:_|/|_\()?[0-9]{1,9}|GF"
    r"|for (?:each|all) of|[a-z] {0,9}\* {0,9}[a-z] {0,9}= {0,9}\(?[0-9]{0,9}[a-z])\b"
    r"|[\u2248\u2260\u2261\u2717\u2718\u274c]",
    re.IGNORECASE,
)
"""Words that may change the meaning of every equation in their line, and operations defined there."""
_TAKEN_BACK = re.compile(
    r"[-.,;(\s]{0,9}(?:(?:but|no|so|well)\b[.,]?\s{1,3})?(?:no[.,]"
    r"|(?:oh|ah|uh|hm+|oops|wait|hold on|sorry|actually|correction|i mean|scratch that"
    r"|let(?:['\u2019]s| me| us) (?:re\w*|double|check|verify))\b)",
    re.IGNORECASE,
)
"""Behind an equation: the writer doubts it."""
_TAKEN = re.compile(
    r"(?<!total )(?<!sum )\b(?:of|at)\s*$"
    r"|\b(?:day|week|month|year|case|step|part|page|chapter|level|round|row|room|tier|table|group|team|lane|unit"
    r"|box|store|class|grade|floor|gate|line|seat|stage|column)(?:e?s)?\s*$"
)
"""``the price of 3 shirts + 5``, ``Weeks 1 + 2``: the first number belongs to the words before it."""
_LABELLED = re.compile(r"(?:\b[A-Z]|\b(?i:in|for|from|on|the|both)\s{1,9})[^\W\d_]{1,20}[^\W\d_su]s\s*$")
"""``Groups 1 + 2``, ``in games 1-5``: a plural before the first number of a sum without units."""
_FUNCTION = re.compile(
    r"\b(?!(?:is|are|was|were|equals|has|have|gets?|gives?|and|so|then|thus|hence|therefore)\s*$)[^\W\d_]+\s*$"
)
"""``rev(12 + 3)``: brackets that belong to the word before them, unless it is a verb or a conjunction."""
_CUT_BEFORE = re.compile(r"(?<![0-9])[0-9]{1,3}, {1,2}$")
_CUT_BEHIND = re.compile(r", {1,2}[0-9]{3}(?![0-9])")
"""``14, 400 / 80``, ``= 1, 500``: a number with a blank after its comma."""
_DOUBTFUL = _words("""
    half halves twice double triple thrice times third thirds quarter quarters fourth fourths fifth fifths
    sixth sixths seventh eighth eighths ninth tenth tenths tens average mean median square squared cube cubed
    root power raised squaring doubling tripling percent percentage fraction ratio product difference
    log lg ln exp lim sin cos tan sec csc cot sqrt abs pi phi choose factorial
    dozen dozens gross score fortnight lakh crore morning afternoon evening noon midnight
    than as minus plus less more by over into from under negative between divided multiplied per
    if let suppose no does am pm o'clock two three four five six seven eight nine ten eleven twelve twenty
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
_NO_UNITS_OF_BARE_SUMS = _words("""
    cent january february march april may june july august september october november december
    """)
"""``5 + 3 = 8 dollars`` is judged; ``5 + 75 = 80 cents`` and ``28 + 5 = 3 December`` are not."""
_COINS, _TENS = _words("dime nickel decade"), (5, 10, 20)
_UNSURE = re.compile(
    rf"[-+]{_NUMBER.pattern}%|^\(*{_NUMBER.pattern}%[-+]|(?<![0-9.,])0[0-9]|/.*/"
    r"|(?<![0-9])[0-9]{1,3}\.000(?![0-9])"
)
"""A percentage of something else, a time of day, a fraction of a fraction, perhaps a thousand."""
_NUMBERED = re.compile(r"(?:\([0-9]\)[-+])+\([0-9]\)")
"""``(2) - (1)``: equations by their numbers."""
_FRACTION = re.compile(r"\(*[0-9]{1,2}/[0-9]{1,2}\)*")
_LAST_FRACTION = re.compile(r"(.+)([-+])(\(?[0-9]{1,2}/[0-9]{1,2}\)?)")
_FRACTION_OF = re.compile(r"/ {0,9}[0-9]+[) ]{0,9}of\b")
"""``3/5 = 12 people``, ``3/5 of 20 + 1``: a fraction of something."""
_BINARY = re.compile(r"(?=.*[01]*1[01]*1)(?=.*[01]{3})[-+*/()01]+=[01]+")
"""``1010 + 110 = 10000``: perhaps binary. Powers of ten alone are not."""
_COUNTED = re.compile(rf"{_NUMBER.pattern}[%) ]{{0,9}}(/? {{0,9}}{_WORD})?")
"""A number and the first word after it."""


_WHOLE_IN_BRACKETS = re.compile(r"\([^()]*(?:\([^()]*\)[^()]*)*\)")
"""An expression in brackets that are nested at most twice."""


def _is_surely_false(plain: str, found: re.Match[str], left: str, known: Sequence[str] | None) -> bool:
    if not re.search(r"[0-9%)][-+*/]", left) or found["goes_on"] or _UNSURE.search(left):
        return False
    right = found["right"].replace(" ", "")
    value, stated = _value(left), _value(right)
    if stated is None or value == stated or _NUMBERED.fullmatch(left) or _FRACTION_OF.search(found["left"]):
        return False
    if value and value < 1 <= stated and _FRACTION.fullmatch(left):
        return False
    start, end = found.start("left"), found.end("right")
    before = _BEFORE.search(plain, max(start - _FAR, 0), start)
    behind = _BEHIND.match(plain, end, end + _FAR)
    if before is None or behind is None or _TAKEN.search(before["words"].lower()):
        return False
    if (
        any(_TAKEN_BACK.match(plain, place) for place in (end, behind.end()))
        or _CUT_BEHIND.match(plain, end)
        or behind["words"].endswith(" of")
    ):
        return False
    if re.match(r"[0-9]{3}(?![0-9])", left) and _CUT_BEFORE.search(plain, max(start - 5, 0), start):
        return False
    if left.startswith("(") and _FUNCTION.search(before["words"].lower()):
        return False
    is_bare_sum = re.match(r"\(*[0-9]+[-+]", left) and not re.search(_WORD, found["left"])
    if is_bare_sum and _LABELLED.search(before["words"]):
        return False
    if known is None and not _same_units(left, f"{found['left']}={found['right']}{behind['words']}"):
        return False
    if _CONTEXT.search(plain, *_line_around(plain, start, end)):
        return False
    parts = (before["words"], found["left"], behind["words"])
    earlier, own, later = (re.findall(_WORD, part.lower()) for part in parts)
    words = {*earlier[-4:], *own, *later[:4]}
    measures = {word.removesuffix("s") for word in words} & _MEASURES
    if words & _DOUBTFUL or len(measures) > 1:
        return False
    factors = (100, 1000, 10**6, *(_FACTORS if measures else ()), *(_TENS if measures & _COINS else ()))
    if _BINARY.fullmatch(f"{left}={right}"):
        return False
    if "%" in left and "%" in right and re.search(r"[0-9%)][-+]", left):
        left, right = left.replace("%", ""), right.replace("%", "")
    readings = _readings(left) if known is None else map(_value, (left, *known))
    return not _may_agree(readings, right, factors, doubt=_doubt(left, right))


def _restates(plain: str, earlier: re.Match[str], found: re.Match[str]) -> bool:
    """True if an equation is a doubtful one of the line before with other signs, as when ``sqrt(9) + 4 = 1``
    becomes ``3 + 4 = 1``.
    """
    between = plain[earlier.end("right") : found.start()]
    right = earlier["right"].replace(" ", "")
    if right != found["right"].replace(" ", "") or not re.fullmatch(r"[^\w=]*\n[^\w=]*", between):
        return False
    return _value(_bare(earlier["left"] or "")) != _value(right)


def _line_around(plain: str, start: int, end: int) -> tuple[int, int]:
    """The part of the line around an equation that is looked at; with the lines before if they lead to it."""
    farthest, last = max(start - _FAR, 0), plain.find("\n", end, end + _FAR)
    first = max(plain.rfind("\n", farthest, start) + 1, farthest)
    line, before = plain[first : last if last >= 0 else end + _FAR], plain[farthest:first].rstrip()
    while before and (before.endswith((":", ",")) or not re.search(_LETTER, line)):
        cut = before.rfind("\n") + 1
        first, line, before = cut + farthest, before[cut:], before[:cut].rstrip()
        if re.search(_LETTER, line):
            break
    return first, last if last >= 0 else end + _FAR


def _same_units(left: str, equation: str) -> bool:
    """False for a sum or difference of numbers with units, unless the same unit follows all its numbers."""
    if not re.search(r"[0-9%)][-+]", left):
        return True
    *terms, total = (unit.lower().strip("/ ").removesuffix("s") for unit in _COUNTED.findall(equation))
    return (not any(terms) and total not in _NO_UNITS_OF_BARE_SUMS) or {*terms} == {total}


def _may_agree(
    readings: Iterable[Fraction | None], right: str, factors: Sequence[int], *, doubt: Fraction
) -> bool:
    """True if the right side may be one of the values, rounded to its decimals or in another unit."""
    stated = abs(_value(right) or Fraction(0))
    place = Fraction(1, 10 ** len(right.partition(".")[2].rstrip("%")))
    for value in readings:
        if value is None:
            return True
        small, large = sorted((abs(value), stated))
        if large - small <= doubt + (place if value % place else 0):
            return True
        if any(abs(large - small * factor) <= large / 50 for factor in factors):
            return True
    return False


def _doubt(expression: str, total: str) -> Fraction:
    """How far the value may be off because its decimals and percentages are rounded; quarters are not.

    Numbers that add up to 100 may be rounded percentages.
    """
    value, doubt = _value(expression) or Fraction(0), Fraction(0)
    for number in re.finditer(rf"({_NUMBER.pattern})(%?)", expression):
        decimals = number[1].partition(".")[2]
        exact = Fraction(canonical_number(number[1]))
        if (exact * 4).denominator > 1 or (number[2] and exact % 5):
            more = f"{Decimal(canonical_number(number[1])) + Decimal(1).scaleb(-len(decimals)):f}{number[2]}"
            other = _value(expression[: number.start()] + more + expression[number.end() :])
            doubt += abs((other or Fraction(0)) - value)
    return doubt + (Fraction(len(_NUMBER.findall(expression)), 2) if total == "100" else 0)


def _readings(expression: str) -> Iterator[Fraction | None]:
    """The values with the usual precedence of operations, from left to right, and with each one done last.

    Also without a label, as in ``Case 1 - 4 * 3``, with both ends counted, as in ``Weeks 3-4``, and with a
    last fraction of what stands before it, as in ``60 - 1/3 = 40``.
    """
    value = _value(expression)
    yield value
    while _WHOLE_IN_BRACKETS.fullmatch(expression):
        expression = expression[1:-1]
    if value is not None and value < 0:
        yield value - 1
    if label := re.match(r"(?:[0-9]+|\([0-9]+\))-(?=.*[-+*/])", expression):
        yield _value(expression[label.end() :])
    if of_it := _LAST_FRACTION.fullmatch(expression):
        yield _value(f"({of_it[1]})*(1{of_it[2]}{of_it[3]})")
    depth, in_order = 0, ""
    for place, sign in enumerate(expression):
        depth += (sign == "(") - (sign == ")")
        if sign in SIGNS and place and not depth:
            yield _value(f"({expression[:place]}){sign}({expression[place + 1 :]})")
            in_order = f"({in_order})"
        in_order += sign
    yield _value(in_order)


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
