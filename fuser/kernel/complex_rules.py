"""Functions of complex numbers by their parts.

In: the real and the imaginary part of each operand, as scalar expressions. Out: those of the result. No square overflows: parts
are scaled by powers of two before, or, of complex64, squared in float64, where products are exact. Infinities and nan are
those of C99, Annex G.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fuser.errors import UnsupportedError
from fuser.ir import scalar as S
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL

Pair = tuple[Scalar, Scalar]
DOUBLE = np.dtype("float64")


def _multiply(x: Pair, y: Pair) -> Pair:
    (a, b), (c, d) = x, y
    return a * c - b * d, a * d + b * c


def _wider(rule: Callable[..., Pair]) -> Callable[..., Pair]:
    """A rule for float32 parts alone, which computes some of it in float64."""

    def checked(*pairs: Pair) -> Pair:
        if pairs[0][0].dtype != np.float32:
            raise UnsupportedError("this function of complex128 has no rule for its parts")
        return rule(*pairs)

    return checked


def _same(x: Scalar, y: Scalar) -> Scalar:
    return S.constant(x.attr == y.attr, BOOL) if x.op == y.op == "const" else S.equal(x, y)


def _size_of(x: Scalar) -> Scalar:
    return S.constant(abs(x.attr), x.dtype) if x.op == "const" else S.absolute(x)


def _infinite(x: Scalar) -> Scalar:
    return S.constant(np.isinf(x.attr), BOOL) if x.op == "const" else _size_of(x).equals(math.inf)


def _finite(x: Scalar) -> Scalar:
    return S.constant(np.isfinite(x.attr), BOOL) if x.op == "const" else _size_of(x) < math.inf


def _nan(x: Scalar) -> Scalar:
    return S.not_equal(x, x)


def _bits(x: Scalar) -> Scalar:
    return S.bitcast(x, np.dtype(f"int{x.dtype.itemsize * 8}"))


def _sign(size: Scalar | float, x: Scalar) -> Scalar:
    """`size`, which is not negative, with the sign of `x`, that of a zero or nan too."""
    size = size if isinstance(size, Scalar) else S.constant(size, x.dtype)
    if x.op == "const":
        return -size if np.signbit(x.attr) else size
    bits = _bits(x)
    return S.bitcast(_bits(size) | (bits & np.iinfo(bits.dtype).min), x.dtype)


def _larger(x: Scalar, y: Scalar) -> Scalar:
    x, y = _size_of(x), _size_of(y)
    return S.where(x < y, y, x)


# By bytes of a part: up to which power of two its square is far from overflow (and from underflow, as a negative one), and
# the even power by which larger and smaller ones are scaled.
_SAFE = {4: (50, 100), 8: (400, 800)}


def _scale(x: Pair) -> Callable[[float], Scalar]:
    """The power of two by which parts are scaled before they are squared, as a function of what it is raised to."""
    size = _larger(*x)
    safe, power = _SAFE[size.dtype.itemsize]
    large, small = size > 2.0**safe, size < 2.0**-safe

    def scale(exponent: float) -> Scalar:
        down, up, none = (S.constant(2.0 ** (sign * exponent * power), size.dtype) for sign in (-1, 1, 0))
        return S.where(large, down, S.where(small, up, none))

    return scale


def _size(x: Pair) -> Scalar:
    """The absolute value of a number whose parts can be squared; infinite where one of them is, though the other be nan."""
    a, b = x
    return S.where(_infinite(a) | _infinite(b), math.inf, S.sqrt(a * a + b * b))


def _divide(x: Pair, y: Pair) -> Pair:
    """x / y by Smith's algorithm, and what infinities and zeros say where both parts are nan.

    Smith, "Algorithm 116: Complex division", Comm. ACM 5 (1962).
    """
    (a, b), (c, d) = x, y
    if d.op == "const" and d.attr == 0 and not np.signbit(d.attr):
        return _divide_by_real(x, c)
    steep = _size_of(c) < _size_of(d)
    larger, smaller = S.where(steep, d, c), S.where(steep, c, d)
    e, f = S.where(steep, b, a), S.where(steep, a, b)
    scale = S.where(_larger(_larger(a, b), larger) > float(np.finfo(a.dtype).max) / 4, S.constant(0.25, a.dtype), 1.0)
    larger, smaller, e, f = (v * scale for v in (larger, smaller, e, f))  # so that no sum overflows
    ratio = smaller / larger
    size = larger + smaller * ratio
    real, turned = (e + f * ratio) / size, (f - e * ratio) / size
    imaginary = S.where(steep, -turned, turned)
    lost = _nan(real) & _nan(imaginary)
    at_end = [S.where(lost, limit, plain) for limit, plain in zip(_ends(x, y), (real, imaginary), strict=True)]
    by_zero, endless = lost & c.equals(0) & d.equals(0), _sign(math.inf, c)
    return S.where(by_zero, endless * a, at_end[0]), S.where(by_zero, endless * b, at_end[1])


def _ends(x: Pair, y: Pair) -> Pair:
    """An infinite number divided by a finite one, and the reverse, in the directions of both; else nan."""
    (a, b), (c, d) = x, y
    above = (_infinite(a) | _infinite(b)) & _finite(c) & _finite(d)
    below = (_infinite(c) | _infinite(d)) & _finite(a) & _finite(b)
    e, f = (S.where(above, _unit(v), v) for v in x)
    g, h = (S.where(below, _unit(v), v) for v in y)
    size = S.where(above, math.inf, S.where(below, S.constant(0, a.dtype), S.constant(math.nan, a.dtype)))
    return size * (e * g + f * h), size * (f * g - e * h)


def _divide_by_real(x: Pair, c: Scalar) -> Pair:
    """x / (c + 0i): what 0i adds is nan where the other part is infinite."""
    a, b = x
    by_zero = c.equals(0)
    return (
        a / c + S.where(_infinite(a) | by_zero, 0.0, b * 0.0),
        b / c - S.where(_infinite(b) | by_zero, 0.0, a * 0.0),
    )


def _unit(x: Scalar) -> Scalar:
    """±1 for an infinity, else ±0."""
    return _sign(S.where(_infinite(x), S.constant(1, x.dtype), S.constant(0, x.dtype)), x)


# From where on an exponential may overflow whose product with a cosine does not, and the exact step back from there.
_LARGE = {4: (80.0, 40.0), 8: (700.0, 350.0)}


def _exp(x: Pair) -> Pair:
    a, b = x
    limit, step = _LARGE[a.dtype.itemsize]
    large = a > limit
    size, factor = S.exp(S.where(large, a - step, a)), S.where(large, S.constant(math.exp(step), a.dtype), 1.0)
    real, imaginary = size * S.cos(b) * factor, S.where(b.equals(0), b, size * S.sin(b) * factor)
    turning = ~_finite(b)
    none, endless = a.equals(-math.inf) & turning, a.equals(math.inf) & turning
    return (
        S.where(none, 0.0, S.where(endless, math.inf, real)),
        S.where(none, 0.0, imaginary),
    )


def _log(x: Pair) -> Pair:
    """The square, exact in float64 but for one rounding, as a sum of two float32 whose logarithm is to first order that of
    the larger one plus their quotient."""
    a, b = x
    wide, wider = S.cast(a, DOUBLE), S.cast(b, DOUBLE)
    square = wide * wide + wider * wider
    large, small = square > 2.0**100, square < 2.0**-100
    square = square * S.where(large, S.constant(2.0**-200, DOUBLE), S.where(small, 2.0**200, S.constant(1, DOUBLE)))
    high = S.cast(square, a.dtype)
    low = S.cast(square - S.cast(high, DOUBLE), a.dtype)
    rest = S.where(high > 0, low / high, 0.0)
    shift = S.where(
        large, S.constant(100 * math.log(2), DOUBLE), S.where(small, S.constant(-100 * math.log(2), DOUBLE), 0.0)
    )
    size = (S.log(high) + rest) * 0.5 + S.cast(shift, a.dtype)
    return S.where(_infinite(a) | _infinite(b), math.inf, size), S.atan2(b, a)


def _sqrt(x: Pair) -> Pair:
    a, b = x
    scale = _scale(x)
    c, d = (v * scale(1) for v in x)
    half = S.sqrt((_size((c, d)) + _size_of(c)) * 0.5) * scale(-0.5)
    other = b / (half * 2.0)
    right = ~(_bits(a) < 0)
    zero, endless = half.equals(0), _infinite(b)
    real = S.where(right, half, _size_of(other))
    imaginary = S.where(right, other, _sign(half, b))
    return (
        S.where(endless, math.inf, S.where(zero, 0.0, real)),
        S.where(endless | zero, b, imaginary),
    )


def _expm1(x: Pair) -> Pair:
    """Near 0 without the 1 that would swallow the real part: expm1(a) cos b - 2 sin(b / 2)^2."""
    a, b = x
    real, imaginary = _exp(x)
    half = S.sin(b * 0.5)
    near = S.expm1(S.where(S.absolute(a) < 1, a, 0.0)) * S.cos(b) - half * half * 2.0
    return S.where(S.absolute(a) < 1, near, real - 1.0), imaginary


def _log1p(x: Pair) -> Pair:
    """Near 0 by |1 + x|² - 1, which is added in float64: a (a + 2) + b²."""
    a, b = x
    far = _log((a + 1.0, b))
    near = (S.absolute(a) < 0.5) & (S.absolute(b) < 0.5)
    wide, wider = S.cast(S.where(near, a, 0.0), DOUBLE), S.cast(S.where(near, b, 0.0), DOUBLE)
    beyond = S.cast(wide * (wide + 2.0) + wider * wider, a.dtype)
    return S.where(near, S.log1p(beyond) * 0.5, far[0]), far[1]


def _in_double(x: Pair) -> Pair:
    return S.cast(x[0], DOUBLE), S.cast(x[1], DOUBLE)


def _pow(x: Pair, y: Pair) -> Pair:
    """exp(y log x), 1 where y is 0, and 0 where x is 0 and y is not to its left; in float64, as y multiplies the logarithm's error."""
    (a, b), (c, d) = x, y
    wide, wider = _in_double(x)
    size = S.where(_infinite(a) | _infinite(b), math.inf, S.log(wide * wide + wider * wider) * 0.5)
    real, imaginary = _exp(_multiply(_in_double(y), (size, S.atan2(wider, wide))))
    whole = S.cast(real, a.dtype), S.cast(imaginary, a.dtype)
    empty = _same(c, S.constant(0, c.dtype)) & _same(d, S.constant(0, d.dtype))
    none = a.equals(0) & b.equals(0) & (S.constant(c.attr > 0, BOOL) if c.op == "const" else c > 0)
    return (
        S.where(empty, 1.0, S.where(none, 0.0, whole[0])),
        S.where(empty | none, 0.0, whole[1]),
    )


def _grown(a: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """sinh a and cosh a, or, beyond where they may overflow though their products with a sine do not, both over the factor that
    comes third."""
    limit, step = _LARGE[a.dtype.itemsize]
    large = _size_of(a) > limit
    half = S.exp(_size_of(a) - step) * 0.5
    factor = S.where(large, S.constant(math.exp(step), a.dtype), 1.0)
    return S.where(large, _sign(half, a), S.sinh(a)), S.where(large, half, S.cosh(a)), factor


def _sinh(x: Pair) -> Pair:
    a, b = x
    first, second, factor = _grown(a)
    turning = ~_finite(b)
    real = first * S.cos(b) * factor
    return (
        S.where(turning & _infinite(a), math.inf, S.where(turning & a.equals(0), a, real)),
        S.where(b.equals(0), b, second * S.sin(b) * factor),
    )


def _cosh(x: Pair) -> Pair:
    a, b = x
    first, second, factor = _grown(a)
    turning = ~_finite(b)
    real = second * S.cos(b) * factor
    imaginary = S.where(turning & a.equals(0), 0.0, first * S.sin(b) * factor)
    return (
        S.where(turning & _infinite(a), math.inf, real),
        S.where(b.equals(0), b * _sign(1.0, a), imaginary),
    )


# From where on a hyperbolic tangent is 1, and a size whose hyperbolic sine is finite.
_FLAT = {4: (20.0, 88.0), 8: (40.0, 700.0)}


def _tanh(x: Pair) -> Pair:
    """(sinh a cosh a + i sin b cos b) / (sinh² a + cos² b), in which nothing cancels."""
    a, b = x
    flat, most = _FLAT[a.dtype.itemsize]
    size = _size_of(a)
    far = size > flat
    sine, cosine = S.sin(b), S.cos(b)
    near = S.sinh(S.where(far, S.constant(0, a.dtype), a))
    below = near * near + cosine * cosine
    real = near * S.sqrt(near * near + 1.0) / below
    steep = S.sinh(S.where(far, S.where(size < most, size, most), S.constant(1, a.dtype)))
    turn, endless = sine * cosine, _infinite(a)
    beyond = S.where(_finite(b) | ~endless, turn / steep / steep, 0.0)
    return (
        S.where(far & (_finite(b) | endless), _sign(1.0, a), S.where(a.equals(0), a, real)),
        S.where(b.equals(0), b, S.where(far, beyond, turn / below)),
    )


def _turned(rule: Callable[[Pair], Pair]) -> Callable[[Pair], Pair]:
    """-i f(i z): the circular function of a hyperbolic one that is odd."""

    def function(x: Pair) -> Pair:
        real, imaginary = rule((-x[1], x[0]))
        return imaginary, -real

    return function


def _sin(x: Pair) -> Pair:
    """An infinity whose sign C99 leaves open is positive, as the hyperbolic sine's."""
    real, imaginary = _turned(_sinh)(x)
    return real, S.where(~_finite(x[0]) & _infinite(x[1]), math.inf, imaginary)


def _absolute(node: Scalar, x: Pair) -> Scalar:
    scale = _scale(x)
    first, second = (v * scale(1) for v in x)
    return _size((first, second)) * scale(-1)


IN_DOUBLE = ("log", "log1p", "pow")  # what has a rule of complex64 alone
TO_COMPLEX: dict[str, Callable[..., Pair]] = {
    "add": lambda x, y: (x[0] + y[0], x[1] + y[1]),
    "sub": lambda x, y: (x[0] - y[0], x[1] - y[1]),
    "neg": lambda x: (-x[0], -x[1]),
    "conj": lambda x: (x[0], -x[1]),
    "mul": _multiply,
    "div": _divide,
    "exp": _exp,
    "log": _wider(_log),
    "sqrt": _sqrt,
    "expm1": _expm1,
    "log1p": _wider(_log1p),
    "pow": _wider(_pow),
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": _tanh,
    "sin": _sin,
    "cos": lambda x: _cosh((-x[1], x[0])),
    "tan": _turned(_tanh),
}
TO_REAL: dict[str, Callable[..., Scalar]] = {
    "real": lambda node, x: x[0],
    "imag": lambda node, x: x[1],
    "abs": _absolute,
    "cast": lambda node, x: S.cast(x[0], node.dtype),
    "eq": lambda node, x, y: _same(x[0], y[0]) & _same(x[1], y[1]),
    "ne": lambda node, x, y: S.not_equal(x[0], y[0]) | S.not_equal(x[1], y[1]),
}
