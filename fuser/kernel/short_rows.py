"""Short rows along memory, so many that they are reduced and scanned beside each other: a vector of rows, element by element.

In: a kernel and its loops. Out: which axis counts the rows, which runs along them, and what goes through tiles for that; None
where rows are long or few, or do not lie in memory by plain strides.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuser.ir.index import Affine, Axis, Div
from fuser.ir.scalar import Scalar
from fuser.ir.types import is_complex
from fuser.kernel.kernel import Access, Kernel, Store
from fuser.kernel.loops import Loops
from fuser.kernel.operands import computed, index_axes

SHORTEST, LONGEST = 8, 63  # elements of a row: shorter ones are unrolled, longer ones are vectors enough
ROWS = 64  # of a block
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
