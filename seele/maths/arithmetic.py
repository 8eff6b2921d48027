r"""Expressions of + - * / over whole numbers: text to tree, exact value, and back to text.

The text is parsed by the following grammar, in time linear in its length, and never executed:

    sum      = product (("+" | "-") product)*
    product  = signed (("*" | "/") signed)*
    signed   = ("+" | "-")* atom
    atom     = number | "(" sum ")" | ("\frac" | "\dfrac" | "\tfrac") "{" sum "}" "{" sum "}"

where a number has 1 to 18 of the digits 0 to 9. Values are exact rationals. The caller checks the rules of a
task, such as which numbers may be used.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from seele.errors import SeeleError

SIGNS = "+-*/"
MAX_DEPTH = 50
"""Deepest nesting of brackets."""

_TOKEN = re.compile(r"\s*([0-9]{1,18}|[-+*/(){}]|\\[dt]?frac)")
_STRENGTH = {"+": 1, "-": 1, "*": 2, "/": 2}


class NotArithmeticError(SeeleError, ValueError):
    """The text does not follow the grammar."""


class TooDeepError(NotArithmeticError):
    """Brackets are nested deeper than ``MAX_DEPTH``."""


@dataclass(frozen=True, slots=True)
class Operation:
    """Two expressions joined by one of ``SIGNS``."""

    sign: str
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True, slots=True)
class Negation:
    """An expression with a minus sign before it."""

    operand: "Expression"


Expression = int | Operation | Negation


def parse(text: str) -> Expression:
    """The tree of an expression; operations of equal precedence associate from left to right.

    Raises:
        NotArithmeticError: If the text does not follow the grammar.
        TooDeepError: If its brackets are nested too deeply; also a ``NotArithmeticError``.
    """
    return _Reader(text).whole()


def evaluate(expression: Expression) -> Fraction:
    """The exact value of the expression.

    Raises:
        ZeroDivisionError: If the expression divides by zero.
    """
    chain: list[Operation] = []
    while isinstance(expression, Operation):
        chain.append(expression)  # a long sum is deep on its left, only brackets are on its right
        expression = expression.left
    first = expression
    value = -evaluate(first.operand) if isinstance(first, Negation) else Fraction(first)
    for each in reversed(chain):
        value = apply(each.sign, value, evaluate(each.right))
    return value


def apply(sign: str, left: Fraction, right: Fraction) -> Fraction:
    """The value of ``left sign right``, for one of ``SIGNS``.

    Raises:
        ZeroDivisionError: If ``right`` is zero and the sign divides.
    """
    match sign:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case _:
            return left / right


def numbers_in(expression: Expression) -> Iterator[int]:
    """The numbers from left to right, each as often as it occurs."""
    waiting = [expression]
    while waiting:
        match waiting.pop():
            case Operation(_, left, right):
                waiting += (right, left)
            case Negation(operand):
                waiting.append(operand)
            case number:
                yield number


def write(expression: Expression, *, blanks: bool = True) -> str:
    """The expression as text with no more brackets than needed; ``parse`` reads it back to the same value.

    Args:
        expression: The expression to write.
        blanks: Whether to put a blank on either side of a sign.
    """
    around = " {} " if blanks else "{}"
    match expression:
        case Operation(sign, left, right):
            strength = _STRENGTH[sign]
            first = _bracketed(left, strength, blanks)
            second = _bracketed(right, strength + (sign in "-/"), blanks)
            return first + around.format(sign) + second
        case Negation(operand):
            return "-" + _bracketed(operand, 3, blanks)
        case number:
            return str(number)


def without_negations(expression: Expression) -> Expression | None:
    """An equal expression over the same numbers in which a minus sign only ever subtracts.

    None if changing signs and order is not enough, as for ``-(2 * 3)``.
    """
    negative, positive = _signed(expression)
    return _negated(positive) if negative else positive


def _bracketed(expression: Expression, strength: int, blanks: bool) -> str:
    text = write(expression, blanks=blanks)
    own = 3 if isinstance(expression, int) else 0
    if isinstance(expression, Operation):
        own = _STRENGTH[expression.sign]
    return text if own >= strength else f"({text})"


def _signed(expression: Expression) -> tuple[bool, Expression]:
    """The expression as a sign, true if negative, and an expression without negations."""
    match expression:
        case Negation(operand):
            negative, positive = _signed(operand)
            return not negative, positive
        case Operation(sign, left, right):
            (minus_left, left), (minus_right, right) = _signed(left), _signed(right)
            if sign in "*/":
                return minus_left != minus_right, Operation(sign, left, right)
            minus_right ^= sign == "-"
            if minus_left == minus_right:
                return minus_left, Operation("+", left, right)
            return False, Operation("-", right, left) if minus_left else Operation("-", left, right)
        case number:
            return False, number


def _negated(expression: Expression) -> Expression | None:
    """An expression of the negated value, if a difference can be reversed; else None."""
    match expression:
        case Operation("-", left, right):
            return Operation("-", right, left)
        case Operation("+", left, right):
            turned, other = _negated(left), right
            if turned is None:
                turned, other = _negated(right), left
            return None if turned is None else Operation("-", turned, other)
        case Operation(sign, left, right):
            turned = _negated(left)
            if turned is not None:
                return Operation(sign, turned, right)
            turned = _negated(right)
            return None if turned is None else Operation(sign, left, turned)
        case _:
            return None


class _Reader:
    """Reads a text from left to right, with one method per rule of the grammar."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        text, position = text.rstrip(), 0
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise NotArithmeticError(f"not arithmetic starting at {text[position : position + 20]!r}")
            self._tokens.append(found[1])
            position = found.end()
        self._place = 0
        self._depth = 0

    def whole(self) -> Expression:
        expression = self._sum()
        if self._place < len(self._tokens):
            raise NotArithmeticError(f"expected the end, got {self._tokens[self._place]!r}")
        return expression

    def _sum(self) -> Expression:
        self._depth += 1
        if self._depth > MAX_DEPTH + 1:
            raise TooDeepError(f"brackets are nested more than {MAX_DEPTH} deep")
        expression = self._product()
        while sign := self._take("+-"):
            expression = Operation(sign, expression, self._product())
        self._depth -= 1
        return expression

    def _product(self) -> Expression:
        expression = self._signed()
        while sign := self._take("*/"):
            expression = Operation(sign, expression, self._signed())
        return expression

    def _signed(self) -> Expression:
        negative = False
        while sign := self._take("+-"):
            negative ^= sign == "-"
        atom = self._atom()
        return Negation(atom) if negative else atom

    def _atom(self) -> Expression:
        token = self._tokens[self._place] if self._place < len(self._tokens) else ""
        self._place += 1
        if token.isdecimal():
            return int(token)
        if token == "(":
            return self._closed(")")
        if token.endswith("frac"):
            numerator, denominator = (self._opened() for _ in range(2))
            return Operation("/", numerator, denominator)
        raise NotArithmeticError(f"expected a number or a bracket, got {token!r}")

    def _opened(self) -> Expression:
        if not self._take("{"):
            raise NotArithmeticError("expected '{' after \\frac")
        return self._closed("}")

    def _closed(self, bracket: str) -> Expression:
        expression = self._sum()
        if not self._take(bracket):
            raise NotArithmeticError(f"expected {bracket!r}")
        return expression

    def _take(self, tokens: str) -> str:
        """The next token if it is one of these characters, else an empty text."""
        if self._place < len(self._tokens) and self._tokens[self._place] in tokens:
            self._place += 1
            return self._tokens[self._place - 1]
        return ""
