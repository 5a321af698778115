"""Complex numbers as pairs of real ones: parts that lie side by side in memory are loaded, computed and stored as numbers
of their own, which run in vectors.

In: a kernel. Out: the same kernel over its arrays' parts (a last dimension of 2), or the kernel as it is where it has an
operation without a rule in `complex_rules.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import numpy as np

from fuser.errors import UnsupportedError
from fuser.ir import scalar as S
from fuser.ir.index import Affine
from fuser.ir.scalar import Scalar
from fuser.ir.types import is_complex
from fuser.kernel.complex_rules import IN_DOUBLE, TO_COMPLEX, TO_REAL, Pair
from fuser.kernel.kernel import Access, Carried, Carry, Kernel, Loop, Store
from fuser.kernel.lower import Sweeping
from fuser.kernel.lower_loop import with_loop
from fuser.kernel.substitution import Substitution


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
        if node.op not in (TO_REAL if real else TO_COMPLEX) or (node.op in IN_DOUBLE and node.dtype.itemsize > 8):
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
            Store(store.param, offset + number, value, (*index, Affine.of(number)) if index else (), over=store.over)
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
        if node.op not in TO_REAL:
            raise UnsupportedError(f"{node.op} of complex numbers has no rule for its parts")
        return TO_REAL[node.op](node, *map(self.pair, node.args))

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
        if node.op not in TO_COMPLEX:
            raise UnsupportedError(f"{node.op} of {node.dtype} has no rule for its parts")
        return TO_COMPLEX[node.op](*map(self.pair, node.args))

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
