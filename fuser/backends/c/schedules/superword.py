"""Superwords: short rows whose elements are computed alike, as one vector a row.

The elements of small matrices that are transposed, meet a vector or are added up are copies of one expression, which differ in what
they read. Compilers then read a row, permute it and store it, where loops along the rows take each apart and put it together again.

Larsen, Amarasinghe, "Exploiting superword level parallelism with multimedia instruction sets" (PLDI 2000).
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.backends.c.target import TARGET
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Kernel
from fuser.kernel.loops import Loops
from fuser.kernel.operands import computed

FEWEST, SHORTEST = 4, 16  # elements of a row, and bytes
ALIKE = frozenset(
    ("neg", "abs", "add", "sub", "mul", "div", "sqrt", "fma", "and", "or", "xor")
)  # without a branch in C


def row(kernel: Kernel, loops: Loops) -> int:
    """Elements of the rows that the kernel's results are made of, where each is one vector at most; else 0."""
    vector, stores = loops.vector, kernel.sweeps[0].row_stores
    if vector is None or kernel.reduced or kernel.loop is not None or len(stores) < FEWEST:
        return 0
    length, dtype = len(stores), kernel.params[stores[0].param].dtype
    fits = SHORTEST <= length * dtype.itemsize <= TARGET.vector and dtype.itemsize >= 4 and length & (length - 1) == 0
    offsets = sorted(store.offset.offset for store in stores)
    begin = stores[0].offset - stores[0].offset.offset
    together = all(s.param == stores[0].param and s.offset - s.offset.offset == begin for s in stores)
    if not fits or not together or begin.coefficient(vector) != length:
        return 0
    if offsets != list(range(offsets[0], offsets[0] + length)) or offsets[0] % length:
        return 0
    return length if _alike([store.value for store in stores], set()) else 0


def _alike(nodes: Sequence[Scalar], seen: set[Scalar]) -> bool:
    """Whether nodes, one of each element of a row, are the same operation of operands that are alike, and of their element's alone."""
    first = nodes[0]
    if any(node.op != first.op or node.dtype != first.dtype for node in nodes):
        return False
    if first.op == "const":
        return True
    if first.op == "load":
        return _beside_each_other(nodes)
    own = len(set(nodes)) == len(nodes) and not seen.intersection(nodes)
    if first.op not in ALIKE or not own:
        return False
    seen.update(nodes)
    return all(_alike([node.args[k] for node in nodes], seen) for k in range(len(first.args)))


def _beside_each_other(loads: Sequence[Scalar]) -> bool:
    """Whether elements lie in one short run of memory, each of which is read alike often: a permutation of it, or copies."""
    base = loads[0].attr.offset - loads[0].attr.offset.offset
    places = sorted(load.attr.offset.offset for load in loads)
    distinct = sorted(set(places))
    if any(load.args or computed(load.attr.offset) or load.attr.param != loads[0].attr.param for load in loads) or any(
        load.attr.offset - load.attr.offset.offset != base for load in loads
    ):
        return False
    run = distinct == list(range(distinct[0], distinct[0] + len(distinct)))
    return run and all(places.count(place) * len(distinct) == len(places) for place in distinct)
