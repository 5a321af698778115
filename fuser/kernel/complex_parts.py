"""Complex numbers as pairs of real ones: parts that lie side by side in memory are loaded, computed and stored as numbers
of their own, which run in vectors.

In: a kernel. Out: the same kernel over its arrays' parts (a last dimension of 2), or the kernel as it is where it has an
operation without a rule here. Quotients and functions of complex64 are computed in float64, in which squares of its
numbers are exact and do not overflow. Infinities and nan are those of C99, Annex G.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np

from fuser.errors import UnsupportedError
from fuser.ir import scalar as S
from fuser.ir.index import Affine
from fuser.ir.scalar import Scalar
from fuser.ir.types import is_complex
from fuser.kernel.kernel import Access, Carried, Carry, Kernel, Loop, Store
from fuser.kernel.lower import Sweeping
from fuser.kernel.lower_loop import with_loop
from fuser.kernel.substitution import Substitution

Pair = tuple[Scalar, Scalar]
DOUBLE = np.dtype("float64")


def split_complex(kernel: Kernel) -> Kernel:
    """The kernel with its complex numbers as pairs, if it computes any and all operations on them have a rule."""
    if not any(map(_computes, kernel.nodes)):
        return kernel
    try:
        return _Parts(kernel).kernel()
    except UnsupportedError:
        return kernel


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
        exact = node.dtype == np.complex64 or node.op in _SIMPLE
        if node.op not in _TO_COMPLEX or not exact:
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


def _in_double(rule: Callable[..., Pair]) -> Callable[..., Pair]:
    """The rule in float64, its result rounded once."""

    def rounded(*pairs: Pair) -> Pair:
        part = pairs[0][0].dtype
        a, b = rule(*((S.cast(x, DOUBLE), S.cast(y, DOUBLE)) for x, y in pairs))
        return S.cast(a, part), S.cast(b, part)

    return rounded


def _infinite(x: Scalar) -> Scalar:
    return S.absolute(x).equals(math.inf)


def _finite(x: Scalar) -> Scalar:
    return S.absolute(x) < math.inf


def _nan(x: Scalar) -> Scalar:
    return S.not_equal(x, x)


def _sign(size: Scalar | float, x: Scalar) -> Scalar:
    """`size`, which is not negative, with the sign of `x`, that of a zero or nan too."""
    negative = S.bitcast(x, np.dtype("int64")) < 0
    size = size if isinstance(size, Scalar) else S.constant(size, x.dtype)
    return S.where(negative, -size, size)


def _size(x: Scalar, y: Scalar) -> Scalar:
    """The absolute value of x + iy in float64, for parts that were float32."""
    return S.where(_infinite(x) | _infinite(y), math.inf, S.sqrt(x * x + y * y))


def _divide(x: Pair, y: Pair) -> Pair:
    (a, b), (c, d) = x, y
    square = c * c + d * d
    real, imaginary = (a * c + b * d) / square, (b * c - a * d) / square
    lost = _nan(real) & _nan(imaginary)
    by_zero = lost & square.equals(0) & ~(_nan(a) & _nan(b))
    unbounded = lost & (_infinite(a) | _infinite(b)) & _finite(c) & _finite(d)
    vanishing = lost & (_infinite(c) | _infinite(d)) & _finite(a) & _finite(b)
    unit = lambda v: _sign(S.where(_infinite(v), S.constant(1, DOUBLE), S.constant(0, DOUBLE)), v)
    e, f = (S.where(unbounded, unit(v), v) for v in (a, b))
    g, h = (S.where(vanishing, unit(v), v) for v in (c, d))
    size = S.where(vanishing, S.constant(0, DOUBLE), S.constant(math.inf, DOUBLE))
    endless = _sign(math.inf, c)
    edge = unbounded | vanishing
    ends = []
    for plain, limit, at_zero in (
        (real, size * (e * g + f * h), endless * a),
        (imaginary, size * (f * g - e * h), endless * b),
    ):
        ends.append(S.where(by_zero, at_zero, S.where(edge, limit, plain)))
    return ends[0], ends[1]


def _exp(x: Pair) -> Pair:
    a, b = x
    size = S.exp(a)
    real, imaginary = size * S.cos(b), S.where(b.equals(0), b, size * S.sin(b))
    turning = ~_finite(b)
    none, endless = a.equals(-math.inf) & turning, a.equals(math.inf) & turning
    return (
        S.where(none, 0.0, S.where(endless, math.inf, real)),
        S.where(none, 0.0, imaginary),
    )


def _log(x: Pair) -> Pair:
    a, b = x
    square = a * a + b * b
    near = (square > 0.5) & (square < 2.0)
    larger, smaller = S.maximum(S.absolute(a), S.absolute(b)), S.minimum(S.absolute(a), S.absolute(b))
    size = S.where(near, S.log1p((larger - 1.0) * (larger + 1.0) + smaller * smaller), S.log(square)) * 0.5
    return S.where(_infinite(a) | _infinite(b), math.inf, size), S.atan2(b, a)


def _sqrt(x: Pair) -> Pair:
    a, b = x
    half = S.sqrt((_size(a, b) + S.absolute(a)) * 0.5)
    other = b / (half * 2.0)
    right = ~(S.bitcast(a, np.dtype("int64")) < 0)
    zero, endless = half.equals(0), _infinite(b)
    real = S.where(right, half, S.absolute(other))
    imaginary = S.where(right, other, _sign(half, b))
    return (
        S.where(endless, math.inf, S.where(zero, 0.0, real)),
        S.where(endless | zero, b, imaginary),
    )


def _absolute(node: Scalar, x: Pair) -> Scalar:
    if node.args[0].dtype != np.complex64:
        raise UnsupportedError("abs of complex128 has no rule for its parts")
    a, b = (S.cast(part, DOUBLE) for part in x)
    return S.cast(_size(a, b), node.dtype)


_SIMPLE = ("add", "sub", "neg", "conj", "mul")
_TO_COMPLEX: dict[str, Callable[..., Pair]] = {
    "add": lambda x, y: (x[0] + y[0], x[1] + y[1]),
    "sub": lambda x, y: (x[0] - y[0], x[1] - y[1]),
    "neg": lambda x: (-x[0], -x[1]),
    "conj": lambda x: (x[0], -x[1]),
    "mul": _multiply,
    "div": _in_double(_divide),
    "exp": _in_double(_exp),
    "log": _in_double(_log),
    "sqrt": _in_double(_sqrt),
}
_TO_REAL: dict[str, Callable[..., Scalar]] = {
    "real": lambda node, x: x[0],
    "imag": lambda node, x: x[1],
    "abs": _absolute,
    "cast": lambda node, x: S.cast(x[0], node.dtype),
    "eq": lambda node, x, y: S.equal(x[0], y[0]) & S.equal(x[1], y[1]),
    "ne": lambda node, x, y: S.not_equal(x[0], y[0]) | S.not_equal(x[1], y[1]),
}
