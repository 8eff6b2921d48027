r"""The graders by name: functions that compare an answer with its reference answer.

- ``mathruler``: MathRuler 0.1.0 on the last ``\boxed{}``, as in the SEELE paper. Training and evaluation use
  it.
- ``math_verify``: Math-Verify 0.9 on the unchanged text, as a second opinion.
- ``strict+``: MathRuler first, then Math-Verify if MathRuler rejects. Accepts what either of the two accepts.
- ``multiple_choice``: ``seele.reward.multiple_choice``, if the texts of the options are unknown.

The first three pass text to sympy, which evaluates it as Python. Only ``seele.reward.worker`` loads them, in
a separate process and behind ``seele.reward.expression_filter``. The process also enforces time limits: those
of the libraries are alarms, which do not fire in threads and which MathRuler swallows.

MathRuler asks sympy whether an expression simplifies to 0. This module answers faster. Most evaluated answers
are wrong, and ``sympy.simplify`` works longest where there is nothing to simplify. It never changes a value,
so an expression that is not 0 somewhere does not simplify to 0; and for a polynomial with exact coefficients,
``expand`` decides. The rest goes to ``simplify``. The tests compare with it.
"""

import functools
import os
import re
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NoReturn, ParamSpec, TypeVar

from seele.reward.expression_filter import guard
from seele.reward.extract import answer_in
from seele.reward.multiple_choice import LETTERS, grade_choice

# No expression simplifies at these points only; exact, so that nothing is rounded.
_PLACES = ((17, 11), (29, 13), (41, 17), (23, 19), (37, 23))

# Values have 15 digits; one smaller than this may be 0.
_SMALLEST = 1e-9


def simplify(expression: Any) -> Any:
    """A replacement for ``sympy.simplify`` that is valid for comparison with 0."""
    import sympy

    if not isinstance(expression, sympy.Expr) or expression.has(sympy.Float):
        return sympy.simplify(expression)
    symbols = sorted(expression.free_symbols, key=str)
    if len(symbols) <= len(_PLACES):
        place = {symbol: sympy.Rational(*number) for symbol, number in zip(symbols, _PLACES, strict=False)}
        value = expression.xreplace(place).evalf(15)
        if value.is_Number and value.is_finite and abs(value) > _SMALLEST:
            return value
    is_exact = all(atom.is_Rational for atom in expression.atoms(sympy.Number, sympy.NumberSymbol))
    if is_exact and expression.is_polynomial(*symbols):
        return expression.expand()
    return sympy.simplify(expression)


P = ParamSpec("P")
R = TypeVar("R")

Judge = Callable[[str, str], bool]
"""Answer and gold in, verdict out. Either may be a text with the answer in a box."""

# Where Math-Verify looks for mathematics; a text without any of these is itself mathematics. \$ is money.
_ENVIRONMENT = re.compile(r"(?<!\\)\$|\\\(|\\\[|\\boxed")
_SCIENTIFIC = re.compile(r"(?<![\w.])([+-]?\d+(?:\.\d*)?)[eE]([+-]?\d+)(?!\w)")
_LETTER_ALONE = re.compile(r"\s*\(?[A-J]\)?\.?\s*")
_LETTER_IN_BRACKETS = re.compile(r"\(([A-J])\)")


def load_judge(grader: str) -> Judge:
    """Load the grader of that name; takes a second or two.

    Raises:
        KeyError: If the name is not in ``GRADERS``.
    """
    return GRADERS[grader]()


def die_of_memory() -> NoReturn:
    """End the process: after a failed allocation its verdict would be a guess."""
    os._exit(os.EX_OSERR)


@functools.cache  # changes functions of the imported modules: once
def _load_mathruler() -> Judge:
    library: Any = import_module("mathruler.grader")
    parser: Any = import_module("sympy.parsing.sympy_parser")
    guard(parser)

    for name in ("latex2text", "latexwalker"):
        # pylatexenc rebuilds its tables for every text, which takes longer than reading it.
        module: Any = import_module(f"pylatexenc.{name}")
        module.get_default_latex_context_db = functools.cache(module.get_default_latex_context_db)
    parse = functools.partial(parser.parse_expr, global_dict=_names_of(parser))
    # The two calls inside MathRuler's bare ``except``, which would turn a lack of memory into "wrong".
    library.sympy_parser = SimpleNamespace(**vars(parser) | {"parse_expr": _fatal_without_memory(parse)})
    library.sympy = SimpleNamespace(simplify=_fatal_without_memory(simplify))
    grade_answer: Judge = library.grade_answer
    return lambda answer, gold: grade_answer(answer_in(answer) or "", answer_in(gold) or gold)


@functools.cache
def _load_math_verify() -> Judge:
    library: Any = import_module("math_verify")
    guard(import_module("sympy.parsing.sympy_parser"))
    letters = (library.StringExtractionConfig(strings=tuple(LETTERS)),)

    def agree(gold: str, answer: str, **extraction: Any) -> bool:
        parsed_gold, parsed_answer = (
            library.parse(text, parsing_timeout=None, **extraction) for text in (gold, answer)
        )
        return bool(library.verify(parsed_gold, parsed_answer, timeout_seconds=None))

    def judge(answer: str, gold: str) -> bool:
        if agree(_as_mathematics(gold), _as_mathematics(answer)):
            return True
        if not any(map(_LETTER_ALONE.fullmatch, (answer, gold))):
            return False
        bare_gold, bare_answer = (_LETTER_IN_BRACKETS.sub(r"\1", text) for text in (gold, answer))
        return agree(bare_gold, bare_answer, extraction_config=letters)

    return judge


def _load_strict_plus() -> Judge:
    first, second = _load_mathruler(), _load_math_verify()
    return lambda answer, gold: first(answer, gold) or second(answer, gold)


GRADERS: dict[str, Callable[[], Judge]] = {
    "mathruler": _load_mathruler,
    "math_verify": _load_math_verify,
    "strict+": _load_strict_plus,
    "multiple_choice": lambda: lambda answer, gold: grade_choice(answer, gold).correct,
}


def holds_formula(text: str) -> bool:
    """Return True if Math-Verify finds marked mathematics in the text: a formula or a box."""
    return _ENVIRONMENT.search(text) is not None


def _as_mathematics(text: str) -> str:
    """The text as Math-Verify expects it, with a formula: if it has none, the whole text becomes one."""
    return text if holds_formula(text) else "$" + _SCIENTIFIC.sub(r"\1\\times 10^{\2}", text) + "$"


def _names_of(parser: Any) -> dict[str, Any]:
    """The names that ``parse_expr`` knows, which it rebuilds at each call unless they are passed in."""
    names: dict[str, Any] = {}

    def keep(tokens: Any, local_names: Any, global_names: dict[str, Any]) -> Any:
        names.update(global_names)
        return tokens

    parser.parse_expr("1", transformations=(*parser.standard_transformations, keep))
    return names


def _fatal_without_memory(function: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except MemoryError:
            die_of_memory()

    return call
