"""Complex numbers as pairs of real ones: parts that lie side by side in memory are loaded, computed and stored as numbers
of their own, which run in vectors.

In: a kernel. Out: the same kernel over its arrays' parts (a last dimension of 2), or the kernel as it is where it has an
operation without a rule here. No square overflows: parts are scaled by powers of two before, or, of complex64, squared in
float64, where products are exact. Infinities and nan are those of C99, Annex G.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise

import numpy as np

from fuser.errors import UnsupportedError
from fuser.ir import scalar as S
from fuser.ir.index import Affine
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL, is_complex
from fuser.kernel.kernel import Access, Carried, Carry, Kernel, Loop, Store
from fuser.kernel.lower import Sweeping
from fuser.kernel.lower_loop import with_loop
from fuser.kernel.substitution import Substitution

Pair = tuple[Scalar, Scalar]
DOUBLE = np.dtype("float64")


def split_complex(kernel: Kernel, whole: bool = True) -> Kernel:
    """The kernel with its complex numbers as pairs, if it computes any and all operations on them have a rule.

    Without `whole` numbers that are but moved come apart too, and an operation without a rule raises UnsupportedError.
    """
    if not whole:
        found = any(
            is_complex(dtype) for dtype in (*(p.dtype for p in kernel.params), *(n.dtype for n in kernel.nodes))
        )
        return _Parts(kernel).kernel() if found else kernel
    if not any(map(_computes, kernel.nodes)):
        return kernel
    try:
        return _Parts(kernel).kernel()
    except UnsupportedError:
        return kernel


def without_rule(nodes: Iterable[Scalar]) -> str | None:
    """The first operation on complex numbers that has no rule here, such as "acos"; None where all have one."""
    for node in nodes:
        real = not is_complex(node.dtype)
        if node.op in ("input", "const", "complex", "cast", "select") or not (
            is_complex(node.dtype) or any(is_complex(a.dtype) for a in node.args)
        ):
            continue
        if node.op not in (_TO_REAL if real else _TO_COMPLEX) or (node.op == "log" and node.dtype.itemsize > 8):
            return node.op
    return None


def _computes(node: Scalar) -> bool:
    """Whether a node computes with complex numbers, rather than moves them."""
    return node.op not in ("load", "const", "select") and any(is_complex(v.dtype) for v in (node, *node.args))


def part_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of a complex number's parts."""
    return np.dtype(f"float{dtype.itemsize * 4}")


class _Parts(Substitution):
    """The nodes of a kernel rebuilt: `pair` gives the parts of a complex one, `node` what takes the place of a real one."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__({})
        self.whole = kernel
        self.pairs: dict[Scalar, Pair] = {}
        carries = kernel.loop.carries if kernel.loop else ()
        ends = [0]
        for carry in carries:
            ends.append(ends[-1] + (2 if is_complex(carry.node.dtype) else 1))
        self.position = {
            carry.node.attr.number: start for carry, (start, _) in zip(carries, pairwise(ends), strict=True)
        }

    def kernel(self) -> Kernel:
        kernel = self.whole
        params = tuple(
            replace(p, dtype=part_dtype(p.dtype), shape=(*p.shape, 2)) if is_complex(p.dtype) else p
            for p in kernel.params
        )
        after = [part for store in kernel.stores if not self._inside(store) for part in self._stores(store)]
        if kernel.loop is None:
            return replace(kernel, params=params, sweeps=Sweeping(kernel.reduced).cut(after))
        loop = kernel.loop
        carries = tuple(carry for old in loop.carries for carry in self._carries(old))
        stores = tuple(part for store in loop.stores for part in self._stores(store))
        written = Loop(loop.time, carries, self.nodes(loop.predicates), (), stores)
        return with_loop(replace(kernel, params=params), written, after)

    def _inside(self, store: Store) -> bool:
        return self.whole.loop is not None and any(store is other for other in self.whole.loop.stores)

    def _stores(self, store: Store) -> list[Store]:
        if not is_complex(self.whole.params[store.param].dtype):
            return [self.store(store)]
        offset, index = self.index(store.offset) * 2, tuple(map(self.index, store.index))
        return [
            Store(store.param, offset + number, value, (*index, Affine.of(number)) if index else ())
            for number, value in enumerate(self.pair(store.value))
        ]

    def _carries(self, carry: Carry) -> list[Carry]:
        if not is_complex(carry.node.dtype):
            one = self.node(carry.node), self.node(carry.initial), self.node(carry.following)
            return [Carry(*one, carry.guard)]
        parts = zip(self.pair(carry.node), self.pair(carry.initial), self.pair(carry.following), strict=True)
        return [Carry(*part, carry.guard) for part in parts]

    def _new(self, node: Scalar) -> Scalar:
        if node.op in ("carry", "final"):
            attr = Carried(self.position[node.attr.number], node.attr.axes)
            return node if attr == node.attr else Scalar(node.op, (), node.dtype, attr)
        if not any(is_complex(a.dtype) for a in node.args):
            return super()._new(node)
        if node.op not in _TO_REAL:
            raise UnsupportedError(f"{node.op} of complex numbers has no rule for its parts")
        return _TO_REAL[node.op](node, *map(self.pair, node.args))

    def pair(self, node: Scalar) -> Pair:
        """The parts of a complex node."""
        if node not in self.pairs:
            self.pairs[node] = self._pair(node)
        return self.pairs[node]

    def _pair(self, node: Scalar) -> Pair:
        part = part_dtype(node.dtype)
        if node.op == "const":
            return S.constant(node.attr.real, part), S.constant(node.attr.imag, part)
        if node.op == "load":
            return self._loads(node, part)
        if node.op in ("carry", "final"):
            first = self.position[node.attr.number]
            made = (Scalar(node.op, (), part, Carried(first + number, node.attr.axes)) for number in range(2))
            return next(made), next(made)
        if node.op in ("reduction", "scan", "lane"):
            return self._each(node, part)
        if node.op == "complex":
            return self.node(node.args[0]), self.node(node.args[1])
        if node.op == "cast":
            return self._cast(node, part)
        if node.op == "select":
            condition, (a, b), (c, d) = self.node(node.args[0]), self.pair(node.args[1]), self.pair(node.args[2])
            return S.where(condition, a, c), S.where(condition, b, d)
        if node.op not in _TO_COMPLEX:
            raise UnsupportedError(f"{node.op} of {node.dtype} has no rule for its parts")
        return _TO_COMPLEX[node.op](*map(self.pair, node.args))

    def _loads(self, node: Scalar, part: np.dtype) -> Pair:
        args, access = self.nodes(node.args), node.attr
        offset, index = self.index(access.offset) * 2, tuple(map(self.index, access.index))
        real, imaginary = (
            Access(access.param, offset + number, (*index, Affine.of(number)) if index else ()) for number in range(2)
        )
        return Scalar("load", args, part, real), Scalar("load", args, part, imaginary)

    def _each(self, node: Scalar, part: np.dtype) -> Pair:
        """What runs over the parts by themselves: sums, and what other lanes hold."""
        attr = node.attr
        if node.op != "lane":
            if attr.reduction != "sum":
                raise UnsupportedError(f"a reduction by {attr.reduction} of complex numbers has no rule for its parts")
            attr = replace(attr, accumulator=part_dtype(attr.accumulator))
        a, b = self.pair(node.args[0])
        return Scalar(node.op, (a,), part, attr), Scalar(node.op, (b,), part, attr)

    def _cast(self, node: Scalar, part: np.dtype) -> Pair:
        (x,) = node.args
        if is_complex(x.dtype):
            a, b = self.pair(x)
            return S.cast(a, part), S.cast(b, part)
        return S.cast(self.node(x), part), S.constant(0, part)


# Rules: from the parts of the operands to the parts of the result.


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


def _absolute(node: Scalar, x: Pair) -> Scalar:
    scale = _scale(x)
    first, second = (v * scale(1) for v in x)
    return _size((first, second)) * scale(-1)


_TO_COMPLEX: dict[str, Callable[..., Pair]] = {
    "add": lambda x, y: (x[0] + y[0], x[1] + y[1]),
    "sub": lambda x, y: (x[0] - y[0], x[1] - y[1]),
    "neg": lambda x: (-x[0], -x[1]),
    "conj": lambda x: (x[0], -x[1]),
    "mul": _multiply,
    "div": _divide,
    "exp": _exp,
    "log": _wider(_log),
    "sqrt": _sqrt,
}
_TO_REAL: dict[str, Callable[..., Scalar]] = {
    "real": lambda node, x: x[0],
    "imag": lambda node, x: x[1],
    "abs": _absolute,
    "cast": lambda node, x: S.cast(x[0], node.dtype),
    "eq": lambda node, x, y: _same(x[0], y[0]) & _same(x[1], y[1]),
    "ne": lambda node, x, y: S.not_equal(x[0], y[0]) | S.not_equal(x[1], y[1]),
}
