"""Elementwise functions of `fuser.lax`: one primitive each, dtypes checked and never promoted.

A Python scalar takes the dtype of the arrays beside it where its kind fits; an operand of rank 0 goes with any shape.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.errors import TypeRuleError
from fuser.ir.primitive import Primitive
from fuser.ir.types import is_complex, kind_of
from fuser.lax.values import as_value, literal, spread, strict
from fuser.lax.values import convert as _convert
from fuser.ops import elementwise as E
from fuser.trace.core import bind, type_of


class RoundingMethod(enum.IntEnum):
    """Where halves go."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


_Made = Callable[[Primitive, str], Callable[..., Any]]


def _unary(primitive: Primitive, name: str) -> Callable[..., Any]:
    def function(x: Any) -> Any:
        return bind(primitive, *strict(name, x))

    return function


def _tunable(primitive: Primitive, name: str) -> Callable[..., Any]:
    """One whose `accuracy` may be asked for, in JAX's way: fuser has one form of each, which is accurate to a few ulp."""

    def function(x: Any, *, accuracy: Any = None) -> Any:
        return bind(primitive, *strict(name, x))

    return function


def _binary(primitive: Primitive, name: str) -> Callable[..., Any]:
    def function(x: Any, y: Any) -> Any:
        return bind(primitive, *spread(name, strict(name, x, y)))

    return function


def _function(made: _Made, primitive: Primitive, text: str, name: str = "") -> Callable[..., Any]:
    name = name or primitive.name
    function = made(primitive, name)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


def _table(made: _Made, **texts: str) -> list[Callable[..., Any]]:
    return [_function(made, getattr(E, f"{name}_p"), text) for name, text in texts.items()]


neg, sign, floor, ceil, is_finite = _table(
    _unary,
    neg="-x.",
    sign="The sign of x; its derivative is 0 everywhere.",
    floor="The greatest integer ≤ x; its derivative is 0 everywhere.",
    ceil="The least integer ≥ x; its derivative is 0 everywhere.",
    is_finite="Whether x is finite.",
)
exp, exp2, expm1, log, log1p, logistic = _table(
    _tunable,
    exp="e to the power x.",
    exp2="2 to the power x.",
    expm1="exp(x) - 1.",
    log="The natural logarithm.",
    log1p="log(1 + x).",
    logistic="1 / (1 + exp(-x)).",
)
sin, cos, tan, tanh, sqrt, rsqrt, cbrt = _table(
    _tunable,
    sin="The sine.",
    cos="The cosine.",
    tan="The tangent.",
    tanh="The hyperbolic tangent.",
    sqrt="The square root; its derivative at 0 is inf.",
    rsqrt="1 / sqrt(x).",
    cbrt="The cube root; its derivative at 0 is inf.",
)
asin, acos, atan = _table(
    _unary,
    asin="The inverse sine.",
    acos="The inverse cosine.",
    atan="The inverse tangent.",
)
sinh, cosh, asinh, acosh, atanh = _table(
    _unary,
    sinh="The hyperbolic sine.",
    cosh="The hyperbolic cosine.",
    asinh="The inverse hyperbolic sine.",
    acosh="The inverse hyperbolic cosine.",
    atanh="The inverse hyperbolic tangent.",
)
square, erf, erfc, lgamma = _table(
    _unary, square="x·x.", erf="The error function.", erfc="1 - erf(x).", lgamma="log|Γ(x)|."
)
real, imag = _table(_unary, real="The real part of a complex number.", imag="The imaginary part of a complex number.")
population_count, clz = _table(
    _unary, population_count="The number of one bits.", clz="The number of leading zero bits."
)
add, sub, div, rem = _table(
    _binary,
    add="x + y.",
    sub="x - y.",
    div="x / y; integers divide towards zero.",
    rem="The remainder, with the sign of x; its derivatives are 1 and -trunc(x / y).",
)
max, min, atan2, complex = _table(
    _binary,
    max="The greater; at a tie each has half the derivative.",
    min="The lesser; at a tie each has half the derivative.",
    atan2="The angle of the point (y, x); its derivatives at the origin are nan.",
    complex="x + i·y.",
)
shift_left, shift_right_logical, shift_right_arithmetic = _table(
    _binary,
    shift_left="x << y.",
    shift_right_logical="x >> y, filling with zeros.",
    shift_right_arithmetic="x >> y, keeping the sign.",
)
eq, ne, lt, le, gt, ge = _table(
    _binary,
    eq="Whether x == y.",
    ne="Whether x != y.",
    lt="Whether x < y.",
    le="Whether x <= y.",
    gt="Whether x > y.",
    ge="Whether x >= y.",
)
bitwise_not = _function(_unary, E.not_p, "~x.", "bitwise_not")
bitwise_and = _function(_binary, E.and_p, "x & y.", "bitwise_and")
bitwise_or = _function(_binary, E.or_p, "x | y.", "bitwise_or")
bitwise_xor = _function(_binary, E.xor_p, "x ^ y.", "bitwise_xor")


def mul(x: Any, y: Any, *, out_dtype: Any = None) -> Any:
    """x·y, of the operands converted to `out_dtype` where that is given."""
    if out_dtype is not None:
        x, y = (convert_element_type(v, out_dtype) for v in (x, y))
    return bind(E.mul_p, *spread("mul", strict("mul", x, y)))


def nextafter(x1: Any, x2: Any) -> Any:
    """The float next to x1 towards x2; its derivatives are 1 and 0."""
    return bind(E.nextafter_p, *spread("nextafter", strict("nextafter", x1, x2)))


def abs(x: Any) -> Any:
    """|x|; its derivative at 0 is 1, for complex numbers 0. Unsigned integers stay as they are."""
    x = as_value(x, "abs")
    return x if x.dtype.kind == "u" else bind(E.abs_p, x)


def conj(x: Any) -> Any:
    """The complex conjugate."""
    x = as_value(x, "conj")
    if is_complex(x.dtype):
        return bind(E.conj_p, x)
    return bind(E.complex_p, x, literal(0, x.dtype, x.weak_type))


def round(x: Any, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Any:
    """The nearest integer; `rounding_method` says where halves go. Its derivative is 0 everywhere."""
    return bind(E.round_p, as_value(x, "round"), rounding_method=int(rounding_method))


def integer_pow(x: Any, y: int) -> Any:
    """x to the power of a Python integer."""
    x = as_value(x, "integer_pow")
    if y < 0 and kind_of(x.dtype) in "iu":
        raise TypeRuleError(
            f"integers cannot be raised to a negative power, got integer_pow of {type_of(x)} to {y}; convert to floats first"
        )
    return x if y == 1 else bind(E.integer_pow_p, x, y=int(y))


def pow(x: Any, y: Any) -> Any:
    """x to the power y, of the dtype of x or an integer. At x = 0 the derivative by y is 0; by x, 0 for an integer y of 0."""
    if type(y) is int:
        return bind(E.pow_p, as_value(x, "pow"), as_value(y, "pow"))
    return bind(E.pow_p, *spread("pow", strict("pow", x, y)))


def reciprocal(x: Any) -> Any:
    """1 / x."""
    return integer_pow(x, -1)


def select_n(which: Any, *cases: Any) -> Any:
    """cases[which] at each position; `which` holds bools or int32 numbers. Only the case that is chosen gets a derivative."""
    return bind(E.select_n_p, as_value(which, "select_n"), *strict("select_n", *cases))


def select(pred: Any, on_true: Any, on_false: Any) -> Any:
    """`on_true` where `pred`, else `on_false`."""
    return select_n(pred, on_false, on_true)


def clamp(min: Any, x: Any, max: Any) -> Any:
    """`x` brought into min … max; the bounds have its shape or rank 0. Where x equals a bound all derivatives are 0."""
    low, x, high = strict("clamp", min, x, max)
    return bind(E.clamp_p, low, x, high)


def convert_element_type(operand: Any, new_dtype: Any) -> Any:
    """The operand in another dtype, which is not weak; complex numbers lose their imaginary part."""
    wanted = dtypes.requested(new_dtype, "convert_element_type")
    if type(operand) is int and wanted.kind not in "iu":  # of any size
        operand = float(operand) if wanted.kind != "b" else operand != 0
    operand = as_value(operand, "convert_element_type")
    if is_complex(operand.dtype) and not is_complex(wanted):
        operand = bind(E.real_p, operand)
    return _convert(operand, wanted)


def bitcast_convert_type(operand: Any, new_dtype: Any) -> Any:
    """The operand's bits as another dtype; a last dimension holds the parts where sizes differ. Its derivative is 0."""
    operand = as_value(operand, "bitcast_convert_type")
    wanted = dtypes.canonical(new_dtype)
    return bind(E.bitcast_convert_type_p, operand, new_dtype=wanted)


def reduce_precision(operand: Any, exponent_bits: int, mantissa_bits: int) -> Any:
    """The operand rounded to a float format of fewer bits, in its own dtype; its derivatives are rounded likewise."""
    operand = as_value(operand, "reduce_precision")
    return bind(E.reduce_precision_p, operand, exponent_bits=exponent_bits, mantissa_bits=mantissa_bits)


def dtype(x: Any) -> np.dtype:
    """The dtype that `x` has as an array."""
    return dtypes.of(x)[0]
