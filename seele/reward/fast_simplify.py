"""What MathRuler asks sympy, answered sooner: whether an expression simplifies to 0.

Most answers that are worked out are wrong, and ``sympy.simplify`` tries hardest where nothing is to be found.
It never changes a value, so an expression that is not 0 somewhere does not simplify to 0; and of a polynomial
with exact coefficients, ``expand`` decides it. The rest goes to ``simplify``. The tests compare with it.
"""

from typing import Any

# Nothing simplifies at these places only; exact, so that nothing is rounded.
_PLACES = ((17, 11), (29, 13), (41, 17), (23, 19), (37, 23))

# Worked out to 15 digits; what is smaller than this may be 0.
_SMALLEST = 1e-9


def simplify(expression: Any) -> Any:
    """``sympy.simplify`` as far as a comparison with 0 goes."""
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
