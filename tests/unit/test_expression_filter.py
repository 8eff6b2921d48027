"""What of a text reaches ``eval``."""

import subprocess
import sys

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy.parsing import sympy_parser

from seele.reward.expression_filter import MAX_DEPTH, NotMathematicsError, check_code, is_too_deep

TRANSFORMATIONS = (
    *sympy_parser.standard_transformations,
    sympy_parser.implicit_multiplication_application,
)


def as_python(text: str) -> str:
    """The Python that sympy makes of a text, as MathRuler asks for it."""
    names: dict = {}
    exec("from sympy import *", names)
    unguarded = getattr(sympy_parser.stringify_expr, "__wrapped__", sympy_parser.stringify_expr)
    return unguarded(text.replace("^", "**"), {}, names, TRANSFORMATIONS)


@pytest.mark.parametrize(
    "text",
    [
        "(x+0.5)-(1/2+x)",
        "(5!)-(120)",
        "(2.x)-(2*x)",
        "(sqrt(2)x^2)-(.5)",
        "(x2)-(2x)",
        "-3 + +pi",
        "(f(x)+f(1))",
        "x_1+x_2",
        "2^9-10^6",
        "52!",
        "3.54e-07",
        "1_000",
        "0x1F",
        "3j",
        "ln(2)",
        "\u03b1+\u03b2",
        "9" * 900,
    ],
)
def test_mathematics_passes(text):
    check_code(as_python(text))


@pytest.mark.parametrize(
    "code",
    [
        "x",
        "5",
        "'5'",
        "b'5'",
        "f'{5}'",
        "Integer('5')",
        "Integer(5, 6)",
        "Integer(n=5)",
        "Integer(5.5)",
        "Float(5)",
        "Number('five')",
        "Symbol(x)",
        "Symbol('x y')",
        "Symbol('__import__')",
        "Symbol('x', positive=Integer(1))",
        "Function('f')",
        "Function('f')(*Integer(1))",
        "Function('f.g')(Integer(1))",
        "Symbol('x').is_real",
        "Symbol('x')[Integer(1)]",
        "Symbol('x')(Integer(1))",
        "(Integer(1), Integer(2))",
        "[Integer(1)]*Integer(2)",
        "{Integer(1)}",
        "Integer(1) if Integer(1) else Integer(2)",
        "Integer(1) < Integer(2)",
        "Integer(1) or Integer(2)",
        "Integer(1) << Integer(2)",
        "Integer(1) % Integer(2)",
        "Integer(1) // Integer(2)",
        "Integer(1) | Integer(2)",
        "~Integer(1)",
        "not Integer(1)",
        "lambda: Integer(1)",
        "(y := Integer(1))",
        "[Symbol('x') for x in Integer(1)]",
        "open(Integer(1))",
        "id(Integer(1))",
        "sympify('1')",
        "sqrt('1')",
        "sqrt(Integer(1), Integer(2))",
        "sqrt",
        "pi.evalf()",
        "__import__('os').system('true')",
        "().__class__",
        "Integer(1).__class__",
    ],
)
def test_everything_else_is_not_mathematics(code):
    with pytest.raises(NotMathematicsError):
        check_code(code)


@pytest.mark.parametrize("code", ["Integer(1", "import os", "x = 1", "Integer(1); Integer(2)", "", "\0"])
def test_statements_and_fragments_are_no_expressions(code):
    with pytest.raises((SyntaxError, ValueError)):
        check_code(code)


@pytest.mark.parametrize(
    "text",
    [
        "9^9^9",
        "9^9^9^9",
        "((9^999)^999)^999",
        "9^(9*9*9*9*9*9)",
        "2^(99!)",
        "99999!",
        "(9!)!",
        "1e999999",
        "1e-999999",
        "(x+1)^100000",
        "10^10^10*x",
    ],
)
def test_numbers_with_too_many_digits_are_not_worked_out(text):
    with pytest.raises(NotMathematicsError, match="too large"):
        check_code(as_python(text))


@pytest.mark.parametrize(("text", "value"), [("2^10", 1024), ("20!", sympy.factorial(20)), ("2^2^3", 256)])
def test_numbers_of_ordinary_size_are(text, value):
    check_code(as_python(text))
    assert sympy_parser.parse_expr(text.replace("^", "**"), transformations=TRANSFORMATIONS) == value


expressions = st.recursive(
    st.sampled_from(["x", "pi", "1", "2", "30", "0.5", "3.5e2"]),
    lambda inner: st.one_of(
        st.builds("({}+{})".format, inner, inner),
        st.builds("({}*{})".format, inner, inner),
        st.builds("sqrt({})".format, inner),
        st.builds("({}**{})".format, inner, st.sampled_from(["2", "3", "(-1)", "10"])),
    ),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(expressions)
def test_what_passes_is_no_larger_than_the_bound(text):
    try:
        check_code(as_python(text))
    except NotMathematicsError:
        return
    value = sympy_parser.parse_expr(text, transformations=TRANSFORMATIONS).subs("x", 2)
    assert abs(sympy.log(abs(value) + 1, 2).evalf()) <= 20_000


def test_depth_counts_open_brackets_only():
    assert not is_too_deep("(" * MAX_DEPTH + ")" * MAX_DEPTH)
    assert is_too_deep("([{" * (MAX_DEPTH // 3) + "(((")
    assert not is_too_deep("(1)[2]{3}" * 1000)
    assert not is_too_deep(")" * 1000 + "(")


def test_the_guard_stands_before_eval_for_everything_that_calls_sympy():
    # In a process of its own: what is guarded stays guarded. Control: without the guard the text is run.
    probe = """
import sys, sympy, sympy.parsing.sympy_parser as parser
from seele.reward.expression_filter import NotMathematicsError, guard
text = "__import__('sys').stdout.write('ran ')"
if sys.argv[1] == "guarded": guard(parser)
for read in (sympy.sympify, parser.parse_expr, lambda text: parser.parse_expr(text, evaluate=False)):
    try: read(text)
    except (NotMathematicsError, sympy.SympifyError): print("refused", end=" ")
    except Exception: pass
"""
    said = {
        mode: subprocess.run([sys.executable, "-c", probe, mode], capture_output=True, text=True, check=True)
        for mode in ("guarded", "unguarded")
    }
    assert said["guarded"].stdout.split() == ["refused"] * 3
    assert said["unguarded"].stdout.split() == ["ran"] * 3
