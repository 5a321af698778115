"""The closed scalar vocabulary: the operations that kernels are made of, and expressions over them.

A primitive's `lower` rule takes `Scalar`s and gives a `Scalar`; kernels are made of nothing else. `VOCABULARY` holds each
operation's arity, result and NumPy spelling. A backend has one table of spellings for those names that its target has; the
others are decomposed into these (`kernel/decompose.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from fuser.ir.index import Affine
from fuser.ir.types import BOOL, SMALL_INTEGERS, is_complex, is_inexact
from fuser.runtime.core import native


@dataclass(frozen=True, slots=True)
class Operation:
    """One scalar operation: number of operands; result "same" as the first operand, "bool", or "given"; NumPy's form."""

    arity: int
    result: str
    numpy: Callable[..., Any] | None


def _integer_division(a: Any, b: Any) -> Any:
    quotient = np.floor_divide(a, np.where(b == 0, 1, b))
    remainder = a - quotient * b
    quotient = quotient + ((remainder != 0) & (quotient < 0)).astype(quotient.dtype)  # towards zero
    return np.where(b == 0, np.array(-1).astype(quotient.dtype), quotient)


def _division(a: Any, b: Any) -> Any:
    if is_complex(a.dtype):
        return _complex_division(np.asarray(a), np.asarray(b))
    return np.true_divide(a, b) if is_inexact(a.dtype) else _integer_division(a, b).astype(a.dtype)


def _complex_division(a: Any, b: Any) -> Any:
    """NumPy's quotient, with the infinities and zeros of C99's Annex G where that is nan: 1/0 is inf, 1/inf is 0."""
    a, b = np.broadcast_arrays(a, b)
    quotient = np.true_divide(a, b, dtype=np.complex128).astype(a.dtype)
    lost = np.isnan(quotient.real) & np.isnan(quotient.imag)
    by_zero = lost & (b == 0) & ~(np.isnan(a.real) & np.isnan(a.imag))
    infinite = lost & np.isinf(a) & np.isfinite(b)
    vanishing = lost & np.isfinite(a) & np.isinf(b)
    direction = np.where(infinite, _unit(a), a) * np.conj(np.where(vanishing, _unit(b), b))
    size = np.where(vanishing, 0, np.inf).astype(a.real.dtype)
    zero = np.copysign(size, b.real)
    limit = np.where(
        by_zero, compose(zero * a.real, zero * a.imag), compose(size * direction.real, size * direction.imag)
    )
    return np.where(by_zero | infinite | vanishing, limit, quotient)


def _unit(x: Any) -> Any:
    """Infinite parts as ±1 and finite ones as ±0."""
    return compose(*(np.copysign(np.isinf(part).astype(part.dtype), part) for part in (x.real, x.imag)))


def _maximum(a: Any, b: Any) -> Any:
    """The larger one, nan if either is; 0.0 is larger than -0.0 (IEEE 754-2019)."""
    larger = np.maximum(a, b)
    if larger.dtype.kind in "iub" or not (larger == 0).any():
        return larger
    return np.where((a == 0) & (b == 0), a + b, larger)


def _minimum(a: Any, b: Any) -> Any:
    smaller = np.minimum(a, b)
    if smaller.dtype.kind in "iub" or not (smaller == 0).any():
        return smaller
    return np.where((a == 0) & (b == 0), -(-a + -b), smaller)


def _remainder(a: Any, b: Any) -> Any:
    return np.fmod(a, b) if is_inexact(a.dtype) else np.where(b == 0, a, np.fmod(a, np.where(b == 0, 1, b)))


def _vectorized(function: Callable[[float], float]) -> Callable[..., Any]:
    wrapped = np.frompyfunc(function, 1, 1)
    return lambda x: np.asarray(wrapped(x)).astype(x.dtype)


def _lgamma(x: float) -> float:
    if math.isinf(x) or (x <= 0 and x == math.floor(x)):
        return math.inf
    try:
        return math.lgamma(x)
    except OverflowError:
        return math.inf


def _shift(function: Callable[..., Any], fill: Callable[[Any], Any]) -> Callable[..., Any]:
    def shift(a: Any, b: Any) -> Any:
        bits = a.dtype.itemsize * 8
        if not b.ndim and 0 <= b < bits:
            return function(a, b)
        count = b.astype(np.dtype(f"u{a.dtype.itemsize}"), copy=False)
        inside = count < bits
        return np.where(inside, function(a, np.where(inside, count, 0).astype(a.dtype)), fill(a)).astype(a.dtype)

    return shift


def _shift_right_logical(a: Any, b: Any) -> Any:
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    return np.right_shift(a.view(unsigned), b.view(unsigned)).view(a.dtype)


def _shift_right_arithmetic(a: Any, b: Any) -> Any:
    """The top bit is the sign, in unsigned integers too."""
    bits = a.dtype.itemsize * 8
    signed, count = a.view(np.dtype(f"i{a.dtype.itemsize}")), b.view(np.dtype(f"u{b.dtype.itemsize}"))
    return np.right_shift(signed, np.minimum(count, bits - 1).astype(signed.dtype)).view(a.dtype)


def _clz(x: Any) -> Any:
    bits = x.dtype.itemsize * 8
    return np.asarray(np.frompyfunc(lambda v: bits - (int(v) & ((1 << bits) - 1)).bit_length(), 1, 1)(x)).astype(
        x.dtype
    )


def _popcount(x: Any) -> Any:
    return np.bitwise_count(x.view(np.dtype(f"u{x.dtype.itemsize}"))).astype(x.dtype)


def _whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """A comparison, of random keys too, whose words NumPy does not compare."""

    def compare(a: Any, b: Any) -> Any:
        if not a.dtype.names:
            return function(a, b)
        words = a.dtype.itemsize // 8
        found = function(*(np.ascontiguousarray(v).view(np.uint64).reshape(*v.shape, words) for v in (a, b)))
        return found.any(-1) if function is np.not_equal else found.all(-1)

    return compare


THREEFRY_TURNS = ((13, 15, 26, 6), (17, 29, 16, 24)) * 2 + ((13, 15, 26, 6),)


def threefry(k0: Any, k1: Any, x0: Any, x1: Any) -> tuple[Any, Any]:
    """Threefry-2x32 with 20 rounds: the two words that stand for the counter (x0, x1) under the key (k0, k1), all uint32.

    Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
    """
    keys = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
    with np.errstate(over="ignore"):
        x0, x1 = x0 + k0, x1 + k1
        for number, turns in enumerate(THREEFRY_TURNS):
            for turn in turns:
                x0 = x0 + x1
                x1 = ((x1 << np.uint32(turn)) | (x1 >> np.uint32(32 - turn))) ^ x0
            x0 = x0 + keys[(number + 1) % 3]
            x1 = x1 + (keys[(number + 2) % 3] + np.uint32(number + 1))
    return x0, x1


def fused(x: Any, y: Any, z: Any) -> Any:
    """x·y + z rounded once, in arithmetic that rounds each step.

    Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd" (2008).
    """
    if native is not None and x.dtype in _FUSED:
        return _fused_natively(x, y, z)
    x, y, z = (np.asarray(v) for v in np.broadcast_arrays(x, y, z))
    with np.errstate(all="ignore"):
        if x.dtype.itemsize == 4:  # products are exact in float64
            return _odd_sum(x.astype(np.float64) * y, z.astype(np.float64)).astype(x.dtype)
        high, low = _two_product(x, y)
        top, rest = _two_sum(z, low)
        total, left = _two_sum(high, top)
        result = total + _odd_sum(rest, left)
        plain = (np.abs(result) < 1e290) & (np.abs(high) > 1e-250) & (np.maximum(np.abs(x), np.abs(y)) < 1e290)
        return np.where(plain, result, _exactly(x, y, z) if not plain.all() else 0)


_FUSED = (np.dtype(np.float32), np.dtype(np.float64))


def _fused_natively(x: Any, y: Any, z: Any) -> np.ndarray:
    shape = np.shape(x) if np.shape(x) == np.shape(y) == np.shape(z) else np.broadcast(x, y, z).shape
    out = np.empty(shape, x.dtype)
    native.fma(*(_filled(np.asarray(v, x.dtype), shape) for v in (x, y, z)), out)
    return out


def _filled(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """`x` over the shape, dense."""
    if x.shape == shape:
        return np.asarray(x, order="C")
    out = np.empty(shape, x.dtype)
    out[...] = x
    return out


@np.vectorize
def _exactly(x: float, y: float, z: float) -> float:
    """x·y + z of numbers so large or small that the algorithm above would overflow or lose bits."""
    near = x * y + z
    if not (math.isfinite(x) and math.isfinite(y) and math.isfinite(z)):
        return near
    from fractions import Fraction  # needed so rarely that `import fuser` need not wait for it

    exact = Fraction(x) * Fraction(y) + Fraction(z)
    try:
        return float(exact) if exact else near
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _two_product(x: Any, y: Any) -> tuple[Any, Any]:
    """The product, and its rounding error, by Dekker's algorithm."""
    splitter = 2.0**27 + 1

    def split(v: Any) -> tuple[Any, Any]:
        big = splitter * v
        head = big - (big - v)
        return head, v - head

    product = x * y
    (xh, xl), (yh, yl) = split(x), split(y)
    return product, ((xh * yh - product) + xh * yl + xl * yh) + xl * yl


def _two_sum(x: Any, y: Any) -> tuple[Any, Any]:
    """The sum, and its rounding error, by Knuth's algorithm."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def _odd_sum(x: Any, y: Any) -> Any:
    """The sum rounded to odd: an inexact one gets the neighbour with a last bit of 1."""
    total, error = _two_sum(x, y)
    bits = total.view(np.dtype(f"u{total.dtype.itemsize}"))
    neighbour = np.nextafter(total, np.where(error > 0, np.inf, -np.inf).astype(total.dtype))
    inexact = (error != 0) & np.isfinite(error)
    return np.where(inexact & (bits & bits.dtype.type(1) == 0), neighbour, total)


def compose(real: Any, imag: Any) -> Any:
    """The complex numbers of these parts, to the bit: `real + 1j * imag` loses signs of zero and spreads nan."""
    real, imag = np.broadcast_arrays(real, imag)
    result = np.empty(real.shape, np.dtype(f"complex{real.dtype.itemsize * 16}"))
    result.real, result.imag = real, imag
    return result


def _expm1(x: Any) -> Any:
    """NumPy's, real on the real axis, at infinities and nan too."""
    found = np.expm1(x)
    if np.iscomplexobj(found):
        found = np.asarray(found)
        found.imag = np.where(np.imag(x) == 0, np.imag(x), found.imag)
    return found


def _log1p(x: Any) -> Any:
    """NumPy's; of complex numbers near 0 by |1 + x|² - 1 = a (a + 2) + b², in twice as many digits where there are."""
    x = np.asarray(x)
    found = np.log1p(x)
    if x.dtype.kind == "c":
        found = np.asarray(found)
        a, b = (part.astype(np.longdouble) for part in (x.real, x.imag))
        near = (np.abs(a) < 0.5) & (np.abs(b) < 0.5)
        beyond = np.where(near, a * (a + 2) + b * b, 0)
        found.real = np.where(near, np.log1p(beyond) / 2, found.real)
    return found


def _operations(arity: int, result: str, **functions: Callable[..., Any] | None) -> dict[str, Operation]:
    return {name.rstrip("_"): Operation(arity, result, function) for name, function in functions.items()}


VOCABULARY: dict[str, Operation] = {
    **_operations(1, "same", neg=np.negative, abs=np.abs, floor=np.floor, ceil=np.ceil, round=np.rint, trunc=np.trunc),
    **_operations(1, "same", sqrt=np.sqrt, cbrt=np.cbrt, exp=np.exp, exp2=np.exp2, expm1=_expm1),
    **_operations(1, "same", log=np.log, log1p=_log1p, log2=np.log2, sin=np.sin, cos=np.cos, tan=np.tan),
    **_operations(1, "same", asin=np.arcsin, acos=np.arccos, atan=np.arctan, sinh=np.sinh, cosh=np.cosh, tanh=np.tanh),
    **_operations(1, "same", asinh=np.arcsinh, acosh=np.arccosh, atanh=np.arctanh),
    **_operations(1, "same", erf=_vectorized(math.erf), erfc=_vectorized(math.erfc), lgamma=_vectorized(_lgamma)),
    **_operations(1, "same", not_=np.invert, popcount=_popcount, clz=_clz, conj=np.conj),
    **_operations(1, "given", real=np.real, imag=np.imag, cast=None, bitcast=None),
    **_operations(2, "same", add=np.add, sub=np.subtract, mul=np.multiply, div=_division, rem=_remainder),
    **_operations(2, "same", pow=np.power, atan2=np.arctan2, max=_maximum, min=_minimum, nextafter=np.nextafter),
    **_operations(
        2, "same", and_=np.bitwise_and, or_=np.bitwise_or, xor=np.bitwise_xor, shl=_shift(np.left_shift, np.zeros_like)
    ),
    **_operations(2, "same", shr=_shift(_shift_right_logical, np.zeros_like), sar=_shift_right_arithmetic),
    **_operations(
        2,
        "bool",
        eq=_whole(np.equal),
        ne=_whole(np.not_equal),
        lt=np.less,
        le=np.less_equal,
        gt=np.greater,
        ge=np.greater_equal,
    ),
    **_operations(2, "given", complex_=compose),
    **_operations(3, "given", select=np.where),
    **_operations(4, "same", threefry0=lambda *a: threefry(*a)[0], threefry1=lambda *a: threefry(*a)[1]),
    **_operations(3, "same", fma=fused),
    # What machines have: not for a divisor of 0, nor of -1 of the least number; counts below the width; numbers that the integer
    # holds. Kernels ask for the operations above, and decompositions for these.
    **_operations(
        2, "same", div_unchecked=_integer_division, shl_unchecked=np.left_shift, shr_unchecked=_shift_right_logical
    ),
    **_operations(1, "given", cast_unchecked=None),
}

INDEX = np.dtype("int64")  # the dtype of index arithmetic

# Leaves: `const` (a number), `index` (an Affine as an integer), `load` (an element of a kernel argument), `reduction` (the
# result of a reduction), `scan` (a prefix scan), `carry` and `final` (what a loop hands on, and leaves), `lane` (the
# value of its operand in another lane), and `input` (a hole, when a rule is looked at alone).
LEAVES = ("const", "index", "load", "reduction", "scan", "carry", "final", "lane", "input")

# A rough price per element, in additions; what is dear is kept rather than computed twice.
COSTS = {
    **dict.fromkeys(("div", "sqrt", "rem", "int_div", "int_rem", "int_div_const"), 4),
    "int_pow": 16,
    **dict.fromkeys(("exp", "exp2", "log", "log2", "sin", "cos", "tanh", "expm1", "log1p", "cbrt", "erf"), 12),
    **dict.fromkeys(("tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erfc", "atan2"), 16),
    "pow": 64,  # exponentials and logarithms of more digits than floats have
    "lgamma": 60,
    "nextafter": 6,
    **dict.fromkeys(("threefry0", "threefry1"), 10),
}


@dataclass(frozen=True, eq=False, slots=True)
class Scalar:
    """One node of an expression over single elements; nodes are shared, so an expression is a graph."""

    op: str
    args: tuple[Scalar, ...]
    dtype: np.dtype
    attr: Any = None

    def __neg__(self) -> Scalar:
        return apply("neg", self)

    def __invert__(self) -> Scalar:
        return apply("not", self)

    def _binary(op: str, swap: bool = False) -> Any:  # type: ignore[misc]
        def method(self: Scalar, other: Any) -> Scalar:
            other = other if isinstance(other, Scalar) else constant(other, self.dtype)
            return apply(op, other, self) if swap else apply(op, self, other)

        return method

    __add__, __radd__ = _binary("add"), _binary("add", True)
    __sub__, __rsub__ = _binary("sub"), _binary("sub", True)
    __mul__, __rmul__ = _binary("mul"), _binary("mul", True)
    __truediv__, __rtruediv__ = _binary("div"), _binary("div", True)
    __and__, __rand__ = _binary("and"), _binary("and", True)
    __or__, __ror__ = _binary("or"), _binary("or", True)
    __xor__, __rxor__ = _binary("xor"), _binary("xor", True)
    __lshift__, __rshift__ = _binary("shl"), _binary("shr")
    __lt__, __le__, __gt__, __ge__ = _binary("lt"), _binary("le"), _binary("gt"), _binary("ge")

    def equals(self, other: Any) -> Scalar:
        return apply("eq", self, other if isinstance(other, Scalar) else constant(other, self.dtype))

    def differs(self, other: Any) -> Scalar:
        return apply("ne", self, other if isinstance(other, Scalar) else constant(other, self.dtype))


def constant(value: Any, dtype: np.dtype) -> Scalar:
    """A number of `dtype`."""
    return Scalar("const", (), dtype, np.asarray(value).astype(dtype)[()])


def as_scalar(index: Affine) -> Scalar:
    """An index as a number."""
    return constant(index.offset, INDEX) if not index.terms else Scalar("index", (), INDEX, index)


def apply(op: str, *args: Scalar, dtype: np.dtype | None = None) -> Scalar:
    """The operation `op` of the vocabulary on `args`; `dtype` where the result is "given"."""
    operation = VOCABULARY[op]
    if len(args) != operation.arity:
        raise TypeError(f"scalar {op} takes {operation.arity} operands, got {len(args)}")
    if operation.result == "bool":
        return Scalar(op, args, BOOL)
    return Scalar(op, args, dtype if dtype is not None else args[1 if op == "select" else 0].dtype)


def cast(x: Scalar, dtype: np.dtype) -> Scalar:
    """`x` converted to `dtype`, as XLA converts: floats truncate towards zero to integers, anything ≠ 0 is True."""
    if x.dtype == dtype:
        return x
    if x.op == "const":
        with np.errstate(all="ignore"):
            return constant(x.attr, dtype)
    return apply("cast", x, dtype=dtype)


def where(condition: Scalar, x: Scalar | Any, y: Scalar | Any) -> Scalar:
    """`x` where `condition` holds, else `y`; numbers take the dtype of the other side."""
    if not isinstance(x, Scalar):
        x = constant(x, y.dtype)
    if not isinstance(y, Scalar):
        y = constant(y, x.dtype)
    return apply("select", condition, x, y)


def _function(op: str) -> Callable[..., Scalar]:
    def function(*args: Any) -> Scalar:
        first = next(a for a in args if isinstance(a, Scalar))
        return apply(op, *(a if isinstance(a, Scalar) else constant(a, first.dtype) for a in args))

    function.__name__ = op
    function.__doc__ = f"The scalar operation `{op}`."
    return function


exp, exp2, expm1, log, log1p, log2 = (_function(op) for op in ("exp", "exp2", "expm1", "log", "log1p", "log2"))
sqrt, cbrt, sin, cos, tan = (_function(op) for op in ("sqrt", "cbrt", "sin", "cos", "tan"))
asin, acos, atan, atan2 = (_function(op) for op in ("asin", "acos", "atan", "atan2"))
sinh, cosh, tanh, asinh, acosh, atanh = (_function(op) for op in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"))
erf, erfc, lgamma, power = (_function(op) for op in ("erf", "erfc", "lgamma", "pow"))
floor, ceil, rounded, truncated = (_function(op) for op in ("floor", "ceil", "round", "trunc"))
absolute, maximum, minimum, remainder, nextafter = (_function(op) for op in ("abs", "max", "min", "rem", "nextafter"))
equal, not_equal = _function("eq"), _function("ne")
popcount, clz, shift_left, shift_right_logical, shift_right_arithmetic = (
    _function(op) for op in ("popcount", "clz", "shl", "shr", "sar")
)


def bitcast(x: Scalar, dtype: np.dtype) -> Scalar:
    """The same bits read as another dtype of the same size."""
    return x if x.dtype == dtype else apply("bitcast", x, dtype=dtype)


def evaluate(expression: Scalar, inputs: dict[Any, np.ndarray]) -> np.ndarray:
    """The expression in NumPy, with `inputs[attr]` for each `input` leaf: the oracle of `lower` rules."""
    known: dict[int, np.ndarray] = {}

    def visit(node: Scalar) -> np.ndarray:
        if id(node) not in known:
            known[id(node)] = np.asarray(_evaluate_node(node, [visit(a) for a in node.args], inputs))
        return known[id(node)]

    with np.errstate(all="ignore"):
        return visit(expression)


def _evaluate_node(node: Scalar, args: list[np.ndarray], inputs: dict[Any, np.ndarray]) -> Any:
    if node.op == "const":
        return np.asarray(node.attr, node.dtype)
    if node.op == "input":
        return inputs[node.attr]
    if node.op in ("cast", "cast_unchecked"):
        return convert(args[0], node.dtype)
    if node.op == "bitcast":
        return args[0].view(node.dtype)
    function = VOCABULARY[node.op].numpy
    assert function is not None, node.op
    return np.asarray(function(*args)).astype(node.dtype)


def convert(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """NumPy's conversion with XLA's results: to bool by ≠ 0; floats saturate to integers and nan becomes 0."""
    x = np.asarray(x)
    if x.dtype == dtype:
        return x
    if x.dtype.kind == "c" and dtype.kind != "c":
        x = x.real
    if dtype == BOOL:
        return x != 0
    if is_inexact(x.dtype) and dtype in SMALL_INTEGERS:
        limits = ml_dtypes.iinfo(dtype)
        return np.clip(convert(x, np.dtype("int32")), limits.min, limits.max).astype(dtype)
    if is_inexact(x.dtype) and dtype.kind in "iu":
        info = np.iinfo(dtype)
        if x.size and _within(x, info):
            return x.astype(dtype)
        wide = x.astype(np.float64)
        inside = np.where(np.isnan(wide), 0.0, np.trunc(wide))
        clipped = np.clip(inside, float(info.min), float(info.max))
        with np.errstate(all="ignore"):
            result = clipped.astype(dtype)
        return np.where(
            clipped >= float(info.max), info.max, np.where(clipped <= float(info.min), info.min, result)
        ).astype(dtype)
    if x.dtype.kind in "biu" and dtype.kind in "biufc":
        return x.astype(dtype)
    with np.errstate(all="ignore"):
        return x.astype(dtype)


def _within(x: np.ndarray, info: Any) -> bool:
    """Whether NumPy's own conversion to an integer dtype will do: no nan, nothing out of range."""
    if x.dtype.kind != "f":
        return False
    return bool(np.minimum.reduce(x, axis=None) > float(info.min)) and bool(
        np.maximum.reduce(x, axis=None) < float(info.max)
    )
