"""Elementwise functions made of several ufuncs: division with Python's signs, floats taken apart, nan handling, complex.

Formulas are those of JAX, so that corner cases (division by zero, ±inf, nan, -0.0) agree with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import dtypes
from fuser.errors import TypeRuleError
from fuser.ir.types import BOOL, bfloat16, is_complex, is_inexact, is_key, kind_of
from fuser.lax.ranks import lenient
from fuser.lax.values import as_value, broadcast, convert, literal, promote
from fuser.numpy import ufuncs as U
from fuser.ops import elementwise as E
from fuser.ops import logarithms as L
from fuser.ops.special import bessel_i0e_p
from fuser.trace.core import bind


def select(condition: Any, x: Any, y: Any) -> Any:
    """`x` where the bool `condition` holds, else `y`; both already of one dtype, scalars in the dtype of the other."""
    if not hasattr(x, "dtype"):
        x = literal(x, y.dtype, y.weak_type)
    elif not hasattr(y, "dtype"):
        y = literal(y, x.dtype, x.weak_type)
    return bind(E.select_n_p, condition, y, x)


def i0(x: Any) -> Any:
    """The modified Bessel function of the first kind of order 0, as exp(|x|) times its scaled form."""
    x = U.real_operand("i0", x)
    size = bind(E.max_p, x, U.negative(x))  # |x|, with derivative 0 at 0 as the function has
    return U.multiply(U.exp(size), bind(bessel_i0e_p, x))


@lenient
def where(condition: Any, x: Any = None, y: Any = None, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """`x` where `condition` is nonzero, else `y`; with the condition alone, the positions where it is nonzero.

    Only what is chosen gets a derivative; where the other's own derivative is infinite or nan, 0 times it is nan.
    """
    if x is None and y is None:
        from fuser.numpy.sets import nonzero

        return nonzero(condition, size=size, fill_value=fill_value)
    if x is None or y is None:
        raise TypeRuleError("where takes both x and y, or neither")
    if size is not None or fill_value is not None:
        raise ValueError("where takes size and fill_value only without x and y")
    condition = U.truth(condition, "where")
    first, second = promote("where", x, y)
    condition, first, second = broadcast("where", [condition, first, second])
    return bind(E.select_n_p, condition, second, first)


def clip(
    arr: Any = None, /, min: Any = None, max: Any = None, *, a: Any = None, a_min: Any = None, a_max: Any = None
) -> Any:
    """`arr` with values below `min` raised to it, above `max` lowered; where equal, each has half the derivative."""
    x = as_value(a if arr is None else arr, "clip")
    low = a_min if min is None else min
    high = a_max if max is None else max
    if any(is_complex(dtypes.of(v)[0]) for v in (x, low, high) if v is not None):
        raise ValueError(
            "Complex values have no ordering and cannot be clipped. Clip the real and imaginary parts separately."
        )
    if low is not None:
        x = U.maximum(low, x)
    return x if high is None else U.minimum(high, x)


def floor_divide(x1: Any, x2: Any, /) -> Any:
    """The greatest integer ≤ x1 / x2."""
    x, y = U.operands("floor_divide", x1, x2)
    if x.dtype == BOOL:
        x, y = U.numeric(x), U.numeric(y)
    if kind_of(x.dtype) == "u":
        return bind(E.div_p, x, y)
    if not is_inexact(x.dtype):
        quotient = bind(E.div_p, x, y)
        apart = bind(E.ne_p, bind(E.sign_p, x), bind(E.sign_p, y))
        inexact = bind(E.ne_p, bind(E.rem_p, x, y), literal(0, x.dtype))
        one = literal(1, x.dtype, x.weak_type)
        return select(bind(E.and_p, apart, inexact), bind(E.sub_p, quotient, one), quotient)
    return _floor_divmod(x, y)[0]


def _floor_divmod(x: Any, y: Any) -> tuple[Any, Any]:
    remainder = bind(E.rem_p, x, y)
    whole = bind(E.sub_p, x, remainder)
    quotient = bind(E.div_p, select(U.equal(y, 0), x, whole), y)
    apart = bind(E.ne_p, bind(E.sign_p, y), bind(E.sign_p, remainder))
    adjust = bind(E.and_p, U.not_equal(remainder, 0), apart)
    remainder = select(adjust, bind(E.add_p, remainder, y), remainder)
    quotient = select(adjust, U.subtract(quotient, 1), quotient)
    return bind(E.round_p, quotient, rounding_method=0), remainder


def remainder(x1: Any, x2: Any, /) -> Any:
    """x1 - x2·floor(x1 / x2): it has the sign of x2, as Python's `%`."""
    x, y = U.operands("remainder", x1, x2)
    if x.dtype == BOOL:
        dtype = np.dtype("int32")
        x, y = convert(x, dtype), convert(y, dtype)
    if not is_inexact(x.dtype):
        y = select(U.equal(y, 0), 1, y)
    result = bind(E.rem_p, x, y)
    if kind_of(x.dtype) == "u":
        return result
    apart = bind(E.ne_p, U.less(result, 0), U.less(y, 0))
    return select(bind(E.and_p, apart, U.not_equal(result, 0)), bind(E.add_p, result, y), result)


mod = remainder


def fmod(x1: Any, x2: Any, /) -> Any:
    """x1 - x2·trunc(x1 / x2): it has the sign of x1, as C's fmod."""
    x, y = U.operands("fmod", x1, x2)
    if x.dtype == BOOL:  # what is divided by False stays as it is
        x, y = U.numeric(x), U.numeric(y)
    elif not is_inexact(x.dtype):
        y = select(U.equal(y, 0), 1, y)
    return bind(E.rem_p, x, y)


def divmod(x1: Any, x2: Any, /) -> tuple[Any, Any]:
    """(x1 // x2, x1 % x2)."""
    x, y = U.operands("divmod", x1, x2)
    return (floor_divide(x, y), remainder(x, y)) if not is_inexact(x.dtype) else _floor_divmod(x, y)


def fmax(x1: Any, x2: Any) -> Any:
    """The greater of x1 and x2, or the one that is not nan."""
    x, y = U.operands("fmax", x1, x2)
    return where(bind(E.or_p, U.greater(x, y), isnan(y)), x, y)


def fmin(x1: Any, x2: Any) -> Any:
    """The lesser of x1 and x2, or the one that is not nan."""
    x, y = U.operands("fmin", x1, x2)
    return where(bind(E.or_p, U.less(x, y), isnan(y)), x, y)


def hypot(x1: Any, x2: Any, /) -> Any:
    """√(x1² + x2²) without overflow on the way; inf where either is infinite. Derivatives at (0, 0) are 1/2."""
    x, y = U.strong(*U.inexact_operands("hypot", x1, x2))
    if is_complex(x.dtype):
        raise ValueError("hypot takes real numbers, got complex ones; take abs(x) first")
    x, y = U.abs(x), U.abs(y)
    infinite = bind(E.or_p, isinf(x), isinf(y))
    large, small = bind(E.max_p, x, y), bind(E.min_p, x, y)
    zero = U.equal(large, 0)
    ratio = bind(E.div_p, small, select(zero, 1.0, large))
    result = bind(E.mul_p, large, U.sqrt(U.add(1, U.square(ratio))))
    return select(infinite, np.inf, select(zero, large, result))


def logaddexp(x1: Any, x2: Any, /) -> Any:
    """log(exp(x1) + exp(x2)) without overflow; where both are inf, each has derivative 1."""
    x, y = U.inexact_operands("logaddexp", x1, x2)
    return _complex_log_of_sum(x, y, U.exp, 1.0) if is_complex(x.dtype) else bind(L.logaddexp_p, x, y)


def logaddexp2(x1: Any, x2: Any, /) -> Any:
    """log2(2**x1 + 2**x2) without overflow."""
    x, y = U.strong(*U.inexact_operands("logaddexp2", x1, x2))
    scale = float(1 / np.log(2))
    return _complex_log_of_sum(x, y, U.exp2, scale) if is_complex(x.dtype) else bind(L.logaddexp2_p, x, y)


def _complex_log_of_sum(x: Any, y: Any, exponential: Any, scale: float) -> Any:
    x, y = U.strong(x, y)
    larger = bind(E.max_p, x, y)
    difference = U.subtract(U.add(x, y), U.multiply(2.0, larger))
    result = U.add(larger, U.multiply(scale, U.log1p(exponential(difference))))
    return principal(result, 2 * np.pi * scale)


def principal(logarithm: Any, turn: float = 2 * np.pi) -> Any:
    """A complex logarithm with its imaginary part brought into (-turn/2, turn/2]."""
    part = imag(logarithm)
    part = U.subtract(part, U.multiply(turn, U.ceil(U.subtract(U.divide(part, turn), 0.5))))
    return bind(E.complex_p, real(logarithm), part)


def heaviside(x1: Any, x2: Any, /) -> Any:
    """0 for x1 < 0, 1 for x1 > 0, x2 at 0, nan for nan."""
    x, y = (U.real_operand("heaviside", v) for v in U.inexact_operands("heaviside", x1, x2))
    y = convert(y, y.dtype) if x.shape else y
    x, y = broadcast("heaviside", [*U.strong(x), y])
    middle = select(bind(E.ne_p, x, x), x, y)
    return select(U.less(x, 0), 0.0, select(U.greater(x, 0), 1.0, middle))


def isnan(x: Any, /) -> Any:
    """Whether x is nan."""
    x = U.inexact_operand("isnan", x)
    return bind(E.ne_p, x, x)


def isinf(x: Any, /) -> Any:
    """Whether x is inf or -inf."""
    x = as_value(x, "isinf")
    if not is_inexact(x.dtype):
        return convert(U.not_equal(x, x), BOOL)
    if is_complex(x.dtype):
        return bind(E.or_p, isinf(real(x)), isinf(imag(x)))
    return convert(U.equal(U.abs(x), np.inf), BOOL)


def isposinf(x: Any, /, out: None = None) -> Any:
    """Whether x is inf."""
    return convert(U.equal(U.real_operand("isposinf", x), np.inf), BOOL)


def isneginf(x: Any, /, out: None = None) -> Any:
    """Whether x is -inf."""
    return convert(U.equal(U.real_operand("isneginf", x), -np.inf), BOOL)


def isfinite(x: Any, /) -> Any:
    """Whether x is neither infinite nor nan."""
    x = as_value(x, "isfinite")
    if is_complex(x.dtype):
        return bind(E.and_p, isfinite(real(x)), isfinite(imag(x)))
    return bind(E.is_finite_p, x) if is_inexact(x.dtype) else convert(U.equal(x, x), BOOL)


def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """Whether |a - b| ≤ atol + rtol·|b|, or a == b; for random keys, whether they are equal."""
    if is_key(as_value(a, "isclose").dtype):
        return U.equal(a, b)
    a, b = U.inexact_operands("isclose", a, b)
    allowed = U.add(atol, U.multiply(rtol, U.abs(b)))
    close = U.logical_and(isfinite(b), U.less_equal(U.abs(U.subtract(a, b)), allowed))
    close = U.logical_or(U.equal(a, b), close)
    return U.logical_or(close, U.logical_and(isnan(a), isnan(b))) if equal_nan else close


def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """Whether every pair of elements is close; see `isclose`."""
    from fuser.numpy.reductions import all

    return all(isclose(a, b, rtol, atol, equal_nan))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """Whether both have one shape and equal elements."""
    a1, a2 = _array(a1), _array(a2)
    if a1.shape != a2.shape:
        return literal(False, BOOL)
    return _all_equal(a1, a2, equal_nan)


def array_equiv(a1: Any, a2: Any) -> Any:
    """Whether both have equal elements once broadcast to one shape."""
    a1, a2 = _array(a1), _array(a2)
    try:
        return _all_equal(a1, a2, False)
    except TypeError:
        return literal(False, BOOL)


def _array(x: Any) -> Any:
    from fuser.numpy.creation import asarray

    return asarray(x)


def _all_equal(x: Any, y: Any, equal_nan: bool) -> Any:
    from fuser.numpy.reductions import all

    same = U.equal(x, y)
    return all(U.logical_or(same, U.logical_and(isnan(x), isnan(y))) if equal_nan else same)


# Floats taken apart.


def _layout(dtype: np.dtype) -> tuple[np.dtype, int, int]:
    """Of a float dtype: the integer dtype of its width, its mantissa's bits and its exponent's bias."""
    integer = np.dtype(f"int{dtype.itemsize * 8}")
    mantissa = 7 if dtype == bfloat16 else {2: 10, 4: 23, 8: 52}[dtype.itemsize]
    exponent_bits = dtype.itemsize * 8 - 1 - mantissa
    return integer, mantissa, (1 << (exponent_bits - 1)) - 1


def signbit(x: Any, /) -> Any:
    """Whether the sign bit is set: for negative numbers, and for -0.0."""
    x = as_value(x, "signbit")
    if kind_of(x.dtype) in "bu":
        return U.not_equal(x, x)
    if not is_inexact(x.dtype):
        return convert(U.less(x, 0), BOOL)
    bits = bind(E.bitcast_convert_type_p, U.real_operand("signbit", x), new_dtype=_layout(x.dtype)[0])
    return U.less(bits, 0)


def copysign(x1: Any, x2: Any, /) -> Any:
    """|x1| with the sign of x2."""
    x, y = U.inexact_operands("copysign", x1, x2)
    x = convert(x, x.dtype, x.weak_type and y.weak_type)
    return where(signbit(y), U.negative(U.abs(x)), U.abs(x))


def frexp(x: Any, /) -> tuple[Any, Any]:
    """(m, e) with x = m·2**e and 0.5 ≤ |m| < 1; (x, 0) for 0, ±inf and nan."""
    x = U.real_operand("frexp", x)
    integer, mantissa, bias = _layout(x.dtype)
    tiny = U.less(U.abs(x), float(dtypes.finfo(x.dtype).smallest_normal))
    scaled = select(tiny, U.multiply(x, float(2**mantissa)), x)
    bits = bind(E.bitcast_convert_type_p, scaled, new_dtype=integer)
    field = U.bitwise_and(U.right_shift(bits, mantissa), 2 * bias + 1)
    exponent = U.add(U.subtract(field, bias - 1), where(tiny, -mantissa, 0))
    exponent = select(U.logical_or(U.logical_not(isfinite(x)), U.equal(x, 0)), 0, exponent)
    # 2**-exponent as two powers of two, each within range: products with them are exact and have the right derivative.
    half = U.right_shift(exponent, 1)
    for part in (half, U.subtract(exponent, half)):
        power = U.left_shift(U.subtract(bias, part), mantissa)
        x = bind(E.mul_p, x, bind(E.bitcast_convert_type_p, power, new_dtype=x.dtype))
    return x, convert(exponent, np.dtype("int32"))


def ldexp(x1: Any, x2: Any, /) -> Any:
    """x1·2**x2, exact unless it leaves the range; x2 holds integers."""
    x2 = as_value(x2, "ldexp")
    if is_inexact(x2.dtype):
        raise ValueError(f"ldexp takes an integer exponent, got {x2.dtype.name}")
    x1 = U.inexact_operand("ldexp", x1)
    fraction, exponent = frexp(x1)
    exponent = U.add(exponent, convert(x2, np.dtype("int32")))
    above = U.greater(exponent, 0)
    fraction = where(above, U.multiply(fraction, 2.0), fraction)
    exponent = where(above, U.subtract(exponent, 1), exponent)
    scale = bind(E.pow_p, literal(2.0, x1.dtype), convert(exponent, x1.dtype))
    unchanged = U.logical_or(isinf(x1), U.equal(x1, 0))
    return where(unchanged, x1, U.multiply(fraction, scale))


def modf(x: Any, /, out: None = None) -> tuple[Any, Any]:
    """(fraction, whole part), both with the sign of x."""
    x = U.inexact_operand("modf", x)
    whole = select(U.greater_equal(x, 0), U.floor(x), U.ceil(x))
    return U.subtract(x, whole), whole


def sinc(x: Any, /) -> Any:
    """sin(πx) / (πx), and 1 at 0, where it has its derivatives up to the seventh."""
    x = U.inexact_operand("sinc", x)
    zero = U.equal(x, 0)
    angle = U.multiply(np.pi, x)
    squared = U.square(angle)
    series: Any = 1.0
    for k in (42, 20, 6):
        series = U.subtract(1.0, U.divide(U.multiply(squared, series), k))
    safe = select(zero, 1.0, angle)
    return select(zero, series, U.divide(U.sin(safe), safe))


def deg2rad(x: Any, /) -> Any:
    """Degrees to radians."""
    x = U.inexact_operand("deg2rad", x)
    return U.multiply(x, np.pi / 180)


def rad2deg(x: Any, /) -> Any:
    """Radians to degrees."""
    x = U.inexact_operand("rad2deg", x)
    return U.multiply(x, 180 / np.pi)


radians, degrees = deg2rad, rad2deg


def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """`x` with nan, inf and -inf replaced: by 0 and the greatest and least finite number unless given."""
    x = as_value(x, "nan_to_num")
    if not is_inexact(x.dtype):
        return x
    if is_complex(x.dtype):
        return bind(E.complex_p, *(nan_to_num(part, copy, nan, posinf, neginf) for part in (real(x), imag(x))))
    info = dtypes.finfo(x.dtype)
    x = where(isnan(x), convert(as_value(nan), x.dtype), x)
    x = where(isposinf(x), convert(as_value(float(info.max) if posinf is None else posinf), x.dtype), x)
    return where(isneginf(x), convert(as_value(float(info.min) if neginf is None else neginf), x.dtype), x)


def bitwise_count(x: Any, /) -> Any:
    """The number of one bits in |x|, as uint8."""
    x = as_value(x, "bitwise_count")
    if x.dtype == BOOL:
        return convert(x, np.dtype("uint8"))
    return convert(bind(E.population_count_p, U.abs(x)), np.dtype("uint8"))


# Complex numbers.


def real(val: Any, /) -> Any:
    """The real part."""
    x = as_value(val, "real")
    return bind(E.real_p, x) if is_complex(x.dtype) else x


def imag(val: Any, /) -> Any:
    """The imaginary part; zeros for real numbers."""
    x = as_value(val, "imag")
    if is_complex(x.dtype):
        return bind(E.imag_p, x)
    from fuser.numpy.creation import zeros_like

    return zeros_like(x)


def conjugate(x: Any, /) -> Any:
    """The complex conjugate."""
    x = as_value(x, "conjugate")
    return bind(E.conj_p, x) if is_complex(x.dtype) else x


conj = conjugate


def angle(z: Any, deg: bool = False) -> Any:
    """The angle of a complex number with the positive real axis, in radians (degrees with `deg`)."""
    z = as_value(z, "angle")
    y, x = imag(z), real(z)
    if not is_inexact(x.dtype) or (not is_complex(z.dtype) and not z.ndim):
        y, x = (convert(part, dtypes.canonical(float)) for part in (y, x))
    result = U.arctan2(y, x)
    return rad2deg(result) if deg else result


def isreal(x: Any) -> Any:
    """Whether the imaginary part is zero."""
    x = imag(x)
    return U.equal(x, literal(0, x.dtype, x.weak_type))


def iscomplex(x: Any) -> Any:
    """Whether the imaginary part is not zero."""
    x = imag(x)
    return U.not_equal(x, literal(0, x.dtype, x.weak_type))


def iscomplexobj(x: Any) -> bool:
    """Whether the dtype is complex."""
    if isinstance(x, (list, tuple)):
        return any(map(iscomplexobj, x))
    return x is not None and is_complex(dtypes.of(x)[0])


def isrealobj(x: Any) -> bool:
    """Whether the dtype is real."""
    return not iscomplexobj(x)


def isscalar(element: Any) -> bool:
    """Whether it is a Python or NumPy scalar, or an array of rank 0."""
    return np.isscalar(element) or (hasattr(element, "shape") and hasattr(element, "dtype") and element.shape == ())
