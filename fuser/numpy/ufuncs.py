"""Elementwise functions that are one primitive: NumPy's names in, promotion and broadcasting, then one `bind`.

Operands of one dtype and shape reach `bind` almost directly: that path is what tracing and eager code run most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.config import config
from fuser.errors import TypeRuleError
from fuser.ir.primitive import Primitive
from fuser.ir.types import BOOL, is_complex, is_inexact, is_integer, kind_of
from fuser.lax.replayed import replayed
from fuser.lax.values import ADAPTS, VALUES, as_value, broadcast, convert, literal, promote, promote_inexact
from fuser.ops import elementwise as E
from fuser.runtime.array import Array
from fuser.trace.core import bind, type_of

Ufunc = Callable[..., Any]
_SCALARS = frozenset((bool, int, float, complex))


def _is_bool(x: Any) -> bool:
    """Whether the dtype is bool and stays so beside a Python bool; a weak one, which comparisons give, is made strong."""
    return x.dtype == BOOL and not x.weak_type


def operands(function: str, x: Any, y: Any) -> tuple[Any, Any]:
    """Two operands in their common dtype, and in one shape unless one has rank 0."""
    if isinstance(x, VALUES):
        if isinstance(y, VALUES):
            if x.dtype != y.dtype or (x.weak_type and y.weak_type and x.dtype == BOOL):
                x, y = promote(function, x, y)
        elif type(y) in _SCALARS and type(y) in ADAPTS.get(x.dtype, ()) and (type(y) is not bool or _is_bool(x)):
            return x, literal(y, x.dtype, x.weak_type)
        else:
            x, y = promote(function, x, y)
    elif (
        isinstance(y, VALUES)
        and type(x) in _SCALARS
        and type(x) in ADAPTS.get(y.dtype, ())
        and (type(x) is not bool or _is_bool(y))
    ):
        return literal(x, y.dtype, y.weak_type), y
    else:
        x, y = promote(function, x, y)
    left, right = x.shape, y.shape
    if left == right or not left or not right:
        return x, y
    first, second = broadcast(function, [x, y])
    return first, second


def inexact_operands(function: str, x: Any, y: Any) -> tuple[Any, Any]:
    """As `operands`, with integers and bools made the default float."""
    if isinstance(x, VALUES) and is_inexact(x.dtype):
        return operands(function, x, y)
    first, second = broadcast(function, promote_inexact(function, x, y))
    return first, second


def inexact_operand(function: str, x: Any) -> Any:
    """One operand, as the default float if it is an integer or bool."""
    if not isinstance(x, VALUES):
        x = as_value(x, function)
    return x if is_inexact(x.dtype) else promote_inexact(function, x)[0]


def _documented(function: Ufunc, name: str, text: str) -> Ufunc:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


def numeric(x: Any) -> Any:
    """`x` with bools made int32."""
    return convert(x, np.dtype("int32"), x.weak_type) if x.dtype == BOOL else x


def strong(*operands: Any) -> tuple[Any, ...]:
    """The operands with types that are not weak, unless all have rank 0: what a formula with constants in it gives."""
    return tuple(convert(x, x.dtype) for x in operands) if any(x.shape for x in operands) else operands


def real_operand(function: str, x: Any) -> Any:
    """One operand as a real float; an error for complex numbers."""
    x = inexact_operand(function, x)
    if is_complex(x.dtype):
        raise TypeRuleError(f"{function} takes real numbers, got {type_of(x)}; take the real or imaginary part first")
    return x


def _binary(name: str, primitive: Primitive, text: str, for_bool: Primitive | None = None) -> Ufunc:
    def function(x: Any, y: Any, /) -> Any:
        x, y = operands(name, x, y)
        if for_bool is not None and x.dtype == BOOL:
            return bind(for_bool, x, y)
        return bind(primitive, x, y)

    return _documented(function, name, text)


def _bits(name: str, primitive: Primitive, text: str) -> Ufunc:
    def function(x: Any, y: Any, /) -> Any:
        x, y = operands(name, x, y)
        if is_inexact(x.dtype):
            raise TypeError(f"{name} takes integers and bools, got {x.dtype.name}")
        return bind(primitive, numeric(x), numeric(y)) if primitive is E.shift_left_p else bind(primitive, x, y)

    return _documented(function, name, text)


def _inexact_binary(name: str, primitive: Primitive, text: str) -> Ufunc:
    def function(x: Any, y: Any, /) -> Any:
        x, y = inexact_operands(name, x, y)
        return bind(primitive, x, y)

    return _documented(function, name, text)


def _unary(name: str, primitive: Primitive, text: str) -> Ufunc:
    def function(x: Any, /) -> Any:
        return bind(primitive, x if isinstance(x, VALUES) else as_value(x, name))

    return _documented(function, name, text)


def _inexact(name: str, primitive: Primitive, text: str) -> Ufunc:
    def function(x: Any, /) -> Any:
        return bind(primitive, inexact_operand(name, x))

    return _documented(function, name, text)


def _rounding(name: str, primitive: Primitive, text: str) -> Ufunc:
    def function(x: Any, /) -> Any:
        x = as_value(x, name)
        return x if not is_inexact(x.dtype) else bind(primitive, x)

    return _documented(function, name, text)


def _comparison(name: str, primitive: Primitive, text: str) -> Ufunc:
    def function(x: Any, y: Any, /) -> Any:
        x, y = operands(name, x, y)
        if is_complex(x.dtype) and primitive not in (E.eq_p, E.ne_p):
            return _compare_complex(primitive, x, y)
        return bind(primitive, x, y)

    return _documented(function, name, text)


def _compare_complex(primitive: Primitive, x: Any, y: Any) -> Any:
    """By the real parts, then by the imaginary ones."""
    xr, yr = bind(E.real_p, x), bind(E.real_p, y)
    by_imaginary = bind(primitive, bind(E.imag_p, x), bind(E.imag_p, y))
    return bind(E.select_n_p, bind(E.eq_p, xr, yr), bind(primitive, xr, yr), by_imaginary)


def _logical(name: str, primitive: Primitive, text: str) -> Ufunc:
    def function(x: Any, y: Any, /) -> Any:
        x, y = as_value(x, name), as_value(y, name)
        if not x.shape and not y.shape:
            x, y = operands(name, x, y)
        elif config.numpy_dtype_promotion == "strict":
            promote(name, x, y)
        x, y = broadcast(name, [truth(x, name), truth(y, name)])
        return bind(primitive, x, y)

    return _documented(function, name, text)


def truth(x: Any, function: str = "logical") -> Any:
    """Whether each element differs from zero."""
    x = as_value(x, function)
    return x if x.dtype == BOOL else bind(E.ne_p, x, literal(0, x.dtype, x.weak_type))


add = _binary("add", E.add_p, "x + y; bools are or-ed.", E.or_p)
subtract = _binary("subtract", E.sub_p, "x - y.")
multiply = _binary("multiply", E.mul_p, "x * y; bools are and-ed.", E.and_p)


def divide(x1: Any, x2: Any, /) -> Any:
    """x1 / x2, in floating point."""
    x, y = inexact_operands("divide", x1, x2)
    return bind(E.div_p, x, y)


true_divide = divide
maximum = _binary(
    "maximum", E.max_p, "The greater of x and y; nan where either is nan. At a tie each has half the derivative."
)
minimum = _binary(
    "minimum", E.min_p, "The lesser of x and y; nan where either is nan. At a tie each has half the derivative."
)
bitwise_and = _bits("bitwise_and", E.and_p, "x & y, bit by bit.")
bitwise_or = _bits("bitwise_or", E.or_p, "x | y, bit by bit.")
bitwise_xor = _bits("bitwise_xor", E.xor_p, "x ^ y, bit by bit.")
left_shift, bitwise_left_shift = (
    _bits(name, E.shift_left_p, "x << y; zero once all bits are shifted out.")
    for name in ("left_shift", "bitwise_left_shift")
)


def _integers(name: str, primitive: Primitive, text: str) -> Ufunc:
    def function(x1: Any, x2: Any) -> Any:
        x, y = strong(*operands(name, x1, x2))
        if kind_of(x.dtype) not in "iu":
            raise ValueError(f"{name} takes integers, got {type_of(x)} and {type_of(y)}; convert them first")
        return bind(primitive, x, y)

    return _documented(function, name, text)


gcd = _integers("gcd", E.gcd_p, "The greatest common divisor, never negative; gcd(0, 0) is 0.")
lcm = _integers("lcm", E.lcm_p, "The least common multiple, never negative.")
nextafter = _inexact_binary("nextafter", E.nextafter_p, "The float next to x in the direction of y.")

equal = _comparison("equal", E.eq_p, "Whether x == y.")
not_equal = _comparison("not_equal", E.ne_p, "Whether x != y.")
less = _comparison("less", E.lt_p, "Whether x < y; complex numbers compare by real part, then imaginary part.")
less_equal = _comparison("less_equal", E.le_p, "Whether x <= y.")
greater = _comparison("greater", E.gt_p, "Whether x > y.")
greater_equal = _comparison("greater_equal", E.ge_p, "Whether x >= y.")

logical_and = _logical("logical_and", E.and_p, "Whether both are nonzero.")
logical_or = _logical("logical_or", E.or_p, "Whether either is nonzero.")
logical_xor = _logical("logical_xor", E.xor_p, "Whether exactly one is nonzero.")

negative = _unary("negative", E.neg_p, "-x.")
sign = _unary("sign", E.sign_p, "-1, 0 or 1 by the sign of x; x/|x| for complex x. Its derivative is 0.")
bitwise_not = invert = bitwise_invert = _unary("bitwise_not", E.not_p, "~x: every bit flipped; logical not for bools.")

floor = _rounding("floor", E.floor_p, "The greatest integer ≤ x; integers stay as they are.")
ceil = _rounding("ceil", E.ceil_p, "The least integer ≥ x; integers stay as they are.")

exp = _inexact("exp", E.exp_p, "e to the power x.")
exp2 = _inexact("exp2", E.exp2_p, "2 to the power x.")
expm1 = _inexact("expm1", E.expm1_p, "exp(x) - 1, exact for small x.")
log = _inexact("log", E.log_p, "The natural logarithm.")
log1p = _inexact("log1p", E.log1p_p, "log(1 + x), exact for small x.")
sqrt = _inexact("sqrt", E.sqrt_p, "The square root; nan for negative x. Its derivative at 0 is inf.")
cbrt = _inexact("cbrt", E.cbrt_p, "The cube root; its derivative at 0 is inf.")
sin = _inexact("sin", E.sin_p, "The sine of x radians.")
cos = _inexact("cos", E.cos_p, "The cosine of x radians.")
tan = _inexact("tan", E.tan_p, "The tangent of x radians.")
arcsin = asin = _inexact("arcsin", E.asin_p, "The inverse sine.")
arccos = acos = _inexact("arccos", E.acos_p, "The inverse cosine.")
arctan = atan = _inexact("arctan", E.atan_p, "The inverse tangent.")
sinh = _inexact("sinh", E.sinh_p, "The hyperbolic sine.")
cosh = _inexact("cosh", E.cosh_p, "The hyperbolic cosine.")
tanh = _inexact("tanh", E.tanh_p, "The hyperbolic tangent.")
arcsinh = asinh = _inexact("arcsinh", E.asinh_p, "The inverse hyperbolic sine.")
arccosh = acosh = _inexact("arccosh", E.acosh_p, "The inverse hyperbolic cosine.")
arctanh = atanh = _inexact("arctanh", E.atanh_p, "The inverse hyperbolic tangent.")


def right_shift(x1: Any, x2: Any, /) -> Any:
    """x1 >> x2: signed numbers keep their sign, unsigned ones fill with zeros."""
    x, y = operands("right_shift", x1, x2)
    if is_inexact(x.dtype):
        raise TypeError(f"right_shift takes integers and bools, got {x.dtype.name}")
    return bind(
        E.shift_right_logical_p if kind_of(x.dtype) == "u" else E.shift_right_arithmetic_p, numeric(x), numeric(y)
    )


def bitwise_right_shift(x1: Any, x2: Any, /) -> Any:
    """x1 >> x2, as `right_shift`."""
    return right_shift(x1, x2)


def square(x: Any, /) -> Any:
    """x·x."""
    return bind(E.square_p, numeric(as_value(x, "square")))


def logical_not(x: Any, /) -> Any:
    """Whether x is zero."""
    return bind(E.not_p, truth(x, "logical_not"))


def absolute(x: Any, /) -> Any:
    """|x|; the modulus of a complex number. The derivative at 0 is 1, for complex numbers 0."""
    x = as_value(x, "absolute")
    return x if kind_of(x.dtype) in "bu" else bind(E.abs_p, x)


abs = absolute


def fabs(x: Any, /) -> Any:
    """|x| in floating point, for real numbers."""
    return bind(E.abs_p, real_operand("fabs", x))


def positive(x: Any, /) -> Any:
    """x itself, as an array."""
    return as_value(x, "positive")


def rint(x: Any, /) -> Any:
    """The nearest integer, halves to even, in floating point."""
    x = as_value(x, "rint")
    if not is_inexact(x.dtype):
        return convert(x, dtypes.canonical(float))
    return _each_part(x, lambda part: bind(E.round_p, part, rounding_method=1))


def trunc(x: Any) -> Any:
    """x without its fraction; integers stay as they are."""
    x = as_value(x, "trunc")
    if not is_inexact(x.dtype):
        return x
    return bind(E.select_n_p, less(x, 0), bind(E.floor_p, x), bind(E.ceil_p, x))


def round(a: Any, decimals: int = 0, out: None = None) -> Any:
    """`a` rounded to `decimals` places, halves to even."""
    a = as_value(a, "round")
    if a.dtype == BOOL:
        raise ValueError("round takes numbers, got bools")
    if is_integer(a.dtype):
        if decimals < 0:
            raise NotImplementedError("round of integers takes decimals >= 0")
        return a
    if not decimals:
        return _each_part(a, lambda part: bind(E.round_p, part, rounding_method=1))
    if decimals > np.log10(float(dtypes.finfo(a.dtype).max)):
        return a  # no number of this dtype has so many places
    x = convert(a, np.dtype("float32"), a.weak_type) if a.dtype.itemsize < 4 else a
    factor = literal(10.0**decimals, x.dtype, x.weak_type)
    scaled = bind(E.mul_p, x, factor)
    whole = _each_part(scaled, lambda part: bind(E.round_p, part, rounding_method=1))
    return convert(bind(E.div_p, whole, factor), a.dtype, a.weak_type)


around = round


def _each_part(x: Any, function: Ufunc) -> Any:
    if not is_complex(x.dtype):
        return function(x)
    return bind(E.complex_p, function(bind(E.real_p, x)), function(bind(E.imag_p, x)))


def reciprocal(x: Any, /) -> Any:
    """1 / x."""
    return bind(E.integer_pow_p, inexact_operand("reciprocal", x), y=-1)


def log2(x: Any, /) -> Any:
    """The logarithm to base 2."""
    return _logarithm("log2", x, float(np.log(2.0)))


def log10(x: Any, /) -> Any:
    """The logarithm to base 10."""
    return _logarithm("log10", x, float(np.log(10.0)))


def _logarithm(function: str, x: Any, base: float) -> Any:
    """log(x) / base, part by part: a quotient of complex numbers makes nan of an infinite part. Never weak, as JAX has it."""
    x = bind(E.log_p, inexact_operand(function, x))
    x = convert(x, x.dtype)
    return _each_part(x, lambda part: bind(E.div_p, part, literal(base, part.dtype, part.weak_type)))


def arctan2(x1: Any, x2: Any, /) -> Any:
    """The angle of the point (x2, x1), in radians within [-π, π]; its derivatives at the origin are nan."""
    y, x = inexact_operands("arctan2", x1, x2)
    if not is_complex(y.dtype):
        return bind(E.atan2_p, y, x)
    turn = literal(1j, y.dtype, y.weak_type and x.weak_type)
    rotated = bind(E.div_p, bind(E.add_p, x, bind(E.mul_p, turn, y)), sqrt(add(square(x), square(y))))
    return bind(E.mul_p, bind(E.neg_p, turn), bind(E.log_p, rotated))


atan2 = arctan2


def power(x1: Any, x2: Any, /) -> Any:
    """x1 to the power x2; a known integer exponent becomes repeated multiplication. At x1 = 0 the derivative by x2 is 0."""
    exponent = _known_integer(x2)
    if exponent is not None:
        base = as_value(x1, "power")
        return _integer_power(convert(base, np.dtype("int32")) if base.dtype == BOOL else base, exponent)
    return _power(x1, x2)


@replayed
def _power(x1: Any, x2: Any) -> Any:
    """The power by an exponent that is no known integer."""
    base, by = as_value(x1, "power"), as_value(x2, "power")
    if is_inexact(base.dtype) and is_integer(by.dtype):  # the primitive takes both, and its gradient at 0 is right
        if config.numpy_dtype_promotion == "strict":
            promote("power", base, by)
        base, by = broadcast("power", [base, by])
        return bind(E.pow_p, base, by)
    x, y = operands("power", x1, x2)
    if x.dtype == BOOL:
        x, y = convert(x, np.dtype("int32")), convert(y, np.dtype("int32"))
    return bind(E.pow_p, x, y) if is_inexact(x.dtype) else _power_of_integers(x, y)


def _known_integer(value: Any) -> int | None:
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (Array, np.ndarray)) and not value.shape and kind_of(value.dtype) in "iu":
        return int(np.asarray(value))
    return None


pow = power


@replayed
def _integer_power(x: Any, exponent: int) -> Any:
    if exponent < 0 and not is_inexact(x.dtype):
        raise TypeError(
            f"integers cannot be raised to the negative power {exponent}; make them floats first, with x.astype(float)"
        )
    if exponent == 0:
        return bind(E.integer_pow_p, x, y=0)
    return x if exponent == 1 else bind(E.integer_pow_p, x, y=exponent)


def _power_of_integers(x: Any, y: Any) -> Any:
    """Repeated squaring over the six low bits of the exponent, which are all that do not overflow."""
    x, y = broadcast("power", [x, y])
    one, zero = literal(1, x.dtype), literal(0, x.dtype)
    vanishes = bind(E.and_p, bind(E.eq_p, x, zero), bind(E.ne_p, y, zero))  # whatever the low bits of the exponent
    result = bind(E.select_n_p, vanishes, one, zero)
    for bit in range(6):
        if bit:
            y = bind(E.shift_right_logical_p, y, one)
            x = bind(E.mul_p, x, x)
        odd = bind(E.ne_p, bind(E.and_p, y, one), zero)
        result = bind(E.select_n_p, odd, result, bind(E.mul_p, result, x))
    return result


def float_power(x: Any, y: Any, /) -> Any:
    """x to the power y, in floating point."""
    x, y = inexact_operands("float_power", x, y)
    return bind(E.pow_p, x, y)
