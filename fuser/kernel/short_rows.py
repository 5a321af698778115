"""Short rows along memory, so many that they are reduced and scanned beside each other: a vector of rows, element by element.

In: a kernel and its loops. Out: which axis counts the rows, which runs along them, and what goes through tiles for that; None
where rows are long or few, or do not lie in memory by plain strides.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuser.ir.index import Affine, Axis, Div
from fuser.ir.scalar import Scalar
from fuser.ir.types import is_complex, is_inexact
from fuser.kernel.kernel import Access, Kernel, Store
from fuser.kernel.loops import Loops
from fuser.kernel.operands import computed, index_axes

SHORTEST, LONGEST = 8, 63  # elements of a row: shorter ones are unrolled, longer ones are vectors enough
ROWS = 64  # of a block
LONGEST_TREE = 128  # elements of a row whose vectors are halved together with those of other rows
FEWEST_ROUNDED = 8  # elements: fewer are added and multiplied in order, as in NumPy and JAX, and overflow where they do
ORDERLESS = ("sum", "prod", "max", "min", "and", "or", "xor")
MOST_BYTES = 48 << 10  # of all tiles of a block, which the core's own cache holds
TRANSPOSED = (1, 2, 4, 8)  # bytes of an element


@dataclass(frozen=True)
class SideBySide:
    """The axis that counts rows, the one along them, and the accesses that go through tiles."""

    row: Axis
    along: Axis
    loads: tuple[Scalar, ...]
    stores: tuple[Store, ...]


def rows_side_by_side(kernel: Kernel, loops: Loops) -> SideBySide | None:
    """The rows of a kernel that are short, many, and dense; None where there are no such rows."""
    if len(loops.reduced) != 1 or loops.vector is not loops.reduced[0] or kernel.loop is not None:
        return None
    (along,) = loops.reduced
    extent = loops.extents[along]
    if not SHORTEST <= extent <= LONGEST or any(is_complex(n.dtype) for n in kernel.nodes):
        return None
    many = (row for row in reversed(loops.parallel) if loops.extents[row] >= ROWS)
    return next((found for row in many if (found := _found(kernel, row, along, extent)) is not None), None)


def rows_as_trees(kernel: Kernel, loops: Loops) -> bool:
    """Whether short rows, many of them, can be reduced in any order, each in halves of its vectors together with those of other rows."""
    if kernel.loop is not None or len(loops.reduced) != 1 or loops.vector is not loops.reduced[0] or not loops.parallel:
        return False
    along, row = loops.reduced[0], loops.parallel[-1]
    if loops.extents[row] < ROWS or not 2 < loops.extents[along] <= LONGEST_TREE:
        return False
    return _orderless(kernel, loops.extents[along]) and _by_rows(kernel, row, along)


def _orderless(kernel: Kernel, extent: int) -> bool:
    """Whether reductions take in their operands in any order, and nothing goes wrong where padding is computed with."""
    divided = any(n.op in ("div", "rem") and n.dtype.kind in "iu" for n in kernel.nodes)
    if divided or any(is_complex(n.dtype) or n.op == "scan" for n in kernel.nodes):
        return False
    specs = [reduction.attr for sweep in kernel.sweeps for reduction in sweep.reductions]
    rounded = any(spec.reduction in ("sum", "prod") and is_inexact(spec.accumulator) for spec in specs)
    if rounded and extent < FEWEST_ROUNDED:
        return False
    return bool(specs) and all(spec.reduction in ORDERLESS for spec in specs)


def _by_rows(kernel: Kernel, row: Axis, along: Axis) -> bool:
    """Whether all that follows the elements of rows has them side by side. What a row reads once may lie anywhere."""
    loads = [n for sweep in kernel.sweeps for n in sweep.body if n.op == "load"]
    written = [s for sweep in kernel.sweeps for s in sweep.stores]
    if any(load.args for load in loads) or any(store.total is not None for store in kernel.stores):
        return False
    if any(store.offset.coefficient(along) != 1 or store.offset.coefficient(row) == 0 for store in written):
        return False
    return all(
        _by_strides(offset, row, along) for offset in [*(n.attr.offset for n in loads), *(s.offset for s in written)]
    )


def _by_strides(offset: Affine, row: Axis, along: Axis) -> bool:
    divided = any(isinstance(atom, Div) and index_axes(atom.base) & {row, along} for atom, _ in offset.terms)
    return not computed(offset) and not divided and offset.coefficient(along) in (0, 1)


def _found(kernel: Kernel, row: Axis, along: Axis, extent: int) -> SideBySide | None:
    loads = [n for sweep in kernel.sweeps for n in sweep.body if n.op == "load"]  # not what a row reads once
    if any(load.args or computed(load.attr.offset) for load in loads):
        return None
    tiled_loads = [load for load in loads if _follows(load.attr, row, along)]
    tiled_stores = [s for s in kernel.stores if s.offset.coefficient(along)]
    tiled: list[Access | Store] = [*(load.attr for load in tiled_loads), *tiled_stores]
    everything = [*(load.attr for load in loads), *kernel.stores]
    if any(_divided(access, row, along) for access in everything) or not all(
        _dense(a, kernel, row, along) for a in tiled
    ):
        return None
    distinct = {(access.param, access.offset) for access in tiled}
    held = sum(kernel.params[param].dtype.itemsize for param, _ in distinct) * extent * ROWS
    if not distinct or held > MOST_BYTES:
        return None
    return SideBySide(row, along, tuple(tiled_loads), tuple(tiled_stores))


def _follows(access: Access, row: Axis, along: Axis) -> bool:
    """Whether an access is neither once a row nor the same for all rows."""
    return access.offset.coefficient(along) != 0 and access.offset.coefficient(row) != 0


def _divided(access: Access | Store, row: Axis, along: Axis) -> bool:
    terms = access.offset.terms
    return any(isinstance(atom, Div) and bool(index_axes(atom.base) & {row, along}) for atom, _ in terms)


def _dense(access: Access | Store, kernel: Kernel, row: Axis, along: Axis) -> bool:
    """Whether a row's elements lie side by side, and rows a stride apart, forwards or backwards."""
    offset: Affine = access.offset
    plain = offset.coefficient(along) == 1 and offset.coefficient(row) != 0
    return plain and kernel.params[access.param].dtype.itemsize in TRANSPOSED
