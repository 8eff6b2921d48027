"""A filter for what may be evaluated of an answer.

sympy reads a text by turning it into Python and calling ``eval``. ``guard`` sits between the two: it reads
the Python that sympy is about to run and lets it through only if it is a tree of

- numbers and symbols: ``Integer(5)``, ``Number('5')``, ``Float('0.5')``, ``Symbol('x')``, the ``CONSTANTS``;
- sums, differences, products, quotients, powers and signs of such trees;
- ``FUNCTIONS`` of such trees, and undefined functions, ``Function('f')(...)``;

whose value, as far as can be determined in advance, has at most ``MAX_BITS`` bits. Everything else is not
mathematics and is never run: attributes, indices, comparisons, texts, lists, calls of anything else. Whatever
is evaluated still runs in a process with limits (``seele.reward.sandbox``).
"""

import ast
import functools
import math
from types import ModuleType
from typing import Any

from seele.errors import SeeleError

CONSTANTS = frozenset({"pi", "E", "I", "oo"})
FUNCTIONS = frozenset({"sqrt", "ln", "csc", "frac"})
"""Functions of sympy; apart from sqrt and frac, MathRuler evaluates nothing with more than two different
letters."""

_FACTORIALS = frozenset({"factorial", "factorial2"})

MAX_BITS = 20_000.0
"""Size of the largest result allowed, 6,000 decimal digits. A symbol counts as one bit."""

MAX_DEPTH = 50
"""Deepest nesting of brackets; more than any answer has, less than makes any parser fail."""


class NotMathematicsError(SeeleError, ValueError):
    """The text would run as Python rather than be read as a formula, or is too large to evaluate."""


def is_too_deep(text: str) -> bool:
    """Return True if brackets of any kind are nested deeper than ``MAX_DEPTH``."""
    if text.count("(") + text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    depth = 0
    for character in text:
        if character in "([{":
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif character in ")]}":
            depth = max(0, depth - 1)
    return False


def guard(sympy_parser: ModuleType) -> None:
    """Make ``sympy.parsing.sympy_parser`` check what it is about to evaluate, for all its callers."""
    generate = sympy_parser.stringify_expr

    @functools.wraps(generate)
    def stringify_expr(*args: Any) -> str:
        code: str = generate(*args)
        check_code(code)
        return code

    sympy_parser.__dict__["stringify_expr"] = stringify_expr


def check_code(code: str) -> None:
    """Return if the Python that sympy made of a text is mathematics.

    Raises:
        NotMathematicsError: If it is not, or too large.
        SyntaxError: If it is not a Python expression.
    """
    _bits(ast.parse(code.strip(), mode="eval").body)


def _bits(node: ast.expr) -> float:
    """Upper bound of log2 of the node's magnitude, at least 1, if the node is allowed.

    Only powers and factorials make a short text's value large:

        bits(a b) = bits(a) + bits(b)    bits(a^b) = bits(a) 2^bits(b)    bits(n!) = 2^bits(n) bits(n)
    """
    match node:
        case ast.Call(func=ast.Name(id="Integer"), args=[ast.Constant(value=int(number))], keywords=[]):
            bits = float(max(1, number.bit_length()))
        case ast.Call(func=ast.Name(id="Number"), args=[ast.Constant(value=str(number))], keywords=[]) if (
            number.isdecimal()
        ):
            bits = _float_bits(number)
        case ast.Call(func=ast.Name(id="Float"), args=[ast.Constant(value=str(number))], keywords=[]):
            bits = _float_bits(number)
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name))], keywords=[]):
            bits = _named(name)
        case ast.Call(
            func=ast.Call(func=ast.Name(id="Function"), args=[ast.Constant(value=str(name))], keywords=[]),
            args=arguments,
            keywords=[],
        ):
            bits = _named(name) + sum(map(_bits, arguments))
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in FUNCTIONS:
            bits = _bits(argument)
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _FACTORIALS:
            bits = _bits(argument)
            bits *= 2.0 ** min(bits, 64.0)
        case ast.Name(id=name) if name in CONSTANTS:
            bits = 2.0
        case ast.UnaryOp(op=ast.UAdd() | ast.USub(), operand=operand):
            bits = _bits(operand)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            bits = max(_bits(left), _bits(right)) + 1.0
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div(), right=right):
            bits = _bits(left) + _bits(right)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            bits = _bits(left) * 2.0 ** min(_bits(right), 64.0)
        case _:
            raise NotMathematicsError(f"not mathematics: {ast.unparse(node)[:80]!r}")
    if bits > MAX_BITS:
        raise NotMathematicsError(f"too large: {ast.unparse(node)[:80]!r}")
    return bits


def _float_bits(number: str) -> float:
    """Bits of the number as a fraction of integers, which sympy may turn it into."""
    mantissa, _, exponent = number.lower().partition("e")
    return math.log2(10.0) * (len(mantissa) + abs(int(exponent or 0)))


def _named(name: str) -> float:
    # sympy gives names that are not identifiers a meaning of its own.
    if not name.isidentifier() or "__" in name:
        raise NotMathematicsError(f"not a name: {name[:80]!r}")
    return 1.0
