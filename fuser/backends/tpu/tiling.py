"""Kernel → Tiling: which axes a tile spans and how far, the grid over the tiles, and the block of each array.

A tile has one dimension an axis, in the order in which the axes lie in memory; the last two are sublanes and lanes, cut
at multiples of (8, 128) for 32-bit types. An axis that is cut gets a dimension of the grid. `Refused` says why a kernel
has no tiles: TPUs have no scalar gathers, so each array must be read along whole axes, shifted by a few elements at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from fuser.ir.index import Affine, Axis, Computed
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL
from fuser.kernel.kernel import Access, Kernel, Store

LANES, SUBLANES = 128, 8
REGISTER = LANES * SUBLANES  # 32-bit elements of one vector register
MOST_REGISTERS = 128  # of one value
UNROLLED = 6000  # vector operations that one tile may take: Mosaic writes each of them out
TEMPORARIES = 6  # values of a tile that live at once, about


class Refused(Exception):
    """Why a group is no Pallas kernel."""


@dataclass(frozen=True)
class AxisIndex:
    """Where a dimension of an array is read or written: along `axis` shifted by `shift`, or at `shift` alone, or at the
    index that `value` gives, which the whole dimension is searched for.

    `sign` is -1 for the iterations of a loop that runs backwards.
    """

    axis: Axis | None
    shift: int
    sign: int = 1
    value: Scalar | None = None


@dataclass(eq=False)
class Window:
    """One block of an array that the kernel sees: `names` its parameter, `block` its extents, `maps` its index map.

    `halo` is ("before" | "after", dimension) for the rows beside a block that shifted reads reach into.
    """

    param: int
    name: str
    block: tuple[int, ...]
    maps: tuple[str, ...]
    axes: tuple[Axis | None, ...]  # that the index map follows, one a dimension
    halo: tuple[str, int] | None = None
    phases: set[int] = field(default_factory=set)  # the runs over the reduced axes that need it; none: all


def axis_indices(index: tuple[Affine, ...], name: str, time: Axis | None) -> tuple[AxisIndex, ...]:
    """The index dimension by dimension. Refused where it is no axis with a shift."""
    found = []
    for i in index:
        if not i.terms:
            found.append(AxisIndex(None, i.offset))
            continue
        (atom, factor), *rest = i.terms
        if isinstance(atom, Computed) and not rest and factor == 1 and not any(p.value for p in found):
            found.append(AxisIndex(None, i.offset, 1, atom.value))
            continue
        backwards = atom is time and factor == -1
        if rest or not isinstance(atom, Axis) or (factor != 1 and not backwards):
            raise Refused(f"it reads or writes {name} at strided, reshaped or computed indices")
        found.append(AxisIndex(atom, i.offset, factor))
    axes = [p.axis for p in found if p.axis is not None]
    if len(set(axes)) != len(axes):
        raise Refused(f"it reads {name} along a diagonal")
    return tuple(found)


@dataclass(eq=False)
class Tiling:
    """The tile of a kernel. `extents` says how far the tile goes along each axis of `order`."""

    kernel: Kernel
    vmem: int
    order: tuple[Axis, ...] = ()
    extents: dict[Axis, int] = field(default_factory=dict)
    accesses: list[tuple[int, tuple[AxisIndex, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.time = self.kernel.loop.time if self.kernel.loop else None
        found: dict[tuple[int, tuple[AxisIndex, ...]], None] = {}
        for node in self.kernel.nodes:
            if node.op == "load":
                found[self.access(node.attr)] = None
        for store in self.kernel.stores:
            found[self.access(store)] = None
        self.accesses = list(found)
        self.order = self._order()
        self.extents = {axis: axis.extent for axis in self.order}
        self._cut()

    def access(self, access: Access | Store) -> tuple[int, tuple[AxisIndex, ...]]:
        """The parameter and the indices of an access."""
        return access.param, axis_indices(access.index, self.kernel.params[access.param].name, self.time)

    @property
    def cut(self) -> tuple[Axis, ...]:
        """The axes that several tiles share, each with a dimension of the grid."""
        return tuple(a for a in self.order if self.extents[a] < a.extent)

    @property
    def cut_columns(self) -> tuple[Axis, ...]:
        return tuple(a for a in self.cut if a in self.kernel.reduced)

    def shape(self, axes: frozenset[Axis]) -> tuple[int, ...]:
        """The shape of a value that varies along `axes`."""
        return tuple(self.extents[a] if a in axes else 1 for a in self.order)

    def blocks(self, axis: Axis) -> int:
        """How many tiles there are along an axis."""
        return -(-axis.extent // self.extents[axis])

    def block(self, param: int, where: tuple[AxisIndex, ...]) -> tuple[int, ...]:
        """The extents of the block that an access needs: a tile's along an axis that is cut, else the whole dimension."""
        shape = self.kernel.params[param].shape
        last = len(shape) - 2
        return tuple(
            self.extents[p.axis]
            if p.axis is not None and p.axis in self.extents and self.extents[p.axis] < p.axis.extent
            else 1
            if p.axis is None and d < last and p.value is None
            else extent
            for d, (extent, p) in enumerate(zip(shape, where))
        )

    def _order(self) -> tuple[Axis, ...]:
        """All axes, outermost first, as the largest arrays have them."""
        wanted = [*self.kernel.parallel, *self.kernel.reduced]
        ranked = sorted(
            self.accesses,
            key=lambda a: (-sum(p.axis in wanted for p in a[1]), -math.prod(self.kernel.params[a[0]].shape)),
        )
        order: list[Axis] = []
        for _, where in ranked:
            before = -1
            for p in where:
                if p.axis not in wanted or p.axis is None:
                    continue
                if p.axis not in order:
                    order.insert(before + 1, p.axis)
                before = order.index(p.axis)
        if len(wanted) == 1 and any(node.op == "scan" for node in self.kernel.nodes):
            order.insert(0, Axis(1))  # lanes are shifted in matrices only
        return (*(a for a in wanted if a not in order), *order)

    def granule(self, axis: Axis) -> int:
        """What the extent of a tile along the axis is a multiple of, where it is cut."""
        if len(self.order) == 1:
            return REGISTER
        granule = SUBLANES if axis is self.order[-2] else LANES if axis is self.order[-1] else 1
        for param, where in self.accesses:
            dtype = self.kernel.params[param].dtype
            packing = 4 // min(4, 1 if dtype == BOOL else dtype.itemsize)
            for d, p in enumerate(where):
                if p.axis is axis:
                    last = len(where) - 1
                    line = LANES * packing if last == 0 else LANES
                    granule = max(granule, line if d == last else SUBLANES * packing if d == last - 1 else 1)
        return granule

    def _whole(self, axis: Axis) -> bool:
        """Whether tiles must not cut the axis: what is read along lanes beside them, or far away, must be at hand."""
        for _, where in self.accesses:
            for d, p in enumerate(where):
                if p.axis is axis and p.shift and (d == len(where) - 1 or abs(p.shift) > self.granule(axis)):
                    return True
        return False

    def registers(self) -> int:
        """Vector registers that a value takes that varies along all axes."""
        *outer, rows, lanes = (1, 1, *(self.extents[a] for a in self.order))
        if len(self.order) == 1:
            return -(-lanes // REGISTER)
        return math.prod(outer) * -(-rows // SUBLANES) * -(-lanes // LANES)

    def used(self) -> int:
        """Bytes of vector memory: two buffers a block, and the values that live at once."""
        blocks = {(param, self.block(param, where)): None for param, where in self.accesses}
        total = sum(self._bytes(param, block) for param, block in blocks) * 2
        shifted = sum(any(p.shift for p in where) for _, where in self.accesses)  # each a copy in other lanes
        return total + (TEMPORARIES + shifted) * self.registers() * REGISTER * 4

    def _bytes(self, param: int, block: tuple[int, ...]) -> int:
        """Bytes of a block as it lies in vector memory, its last two dimensions filled up to whole registers."""
        *outer, rows, lanes = (1, 1, *block)
        rows, lanes = -(-rows // SUBLANES) * SUBLANES, -(-lanes // LANES) * LANES
        dtype = self.kernel.params[param].dtype
        return math.prod(outer) * (1 if len(block) == 1 else rows) * lanes * (1 if dtype == BOOL else dtype.itemsize)

    def most_registers(self) -> int:
        """Registers a value may take, so that the tile's operations can be written out."""
        nodes = sum(node.op not in ("const", "load") for node in self.kernel.nodes)
        if self.kernel.loop is not None:
            return max(1, 64 // (len(self.kernel.loop.carries) + 1))
        return max(8, min(MOST_REGISTERS, UNROLLED // (nodes + 1)))

    def _cut(self) -> None:
        rows = [a for a in self.order if a not in self.kernel.reduced and not self._whole(a)]
        columns = [a for a in self.order if a in self.kernel.reduced and not self._whole(a)]
        most = self.most_registers()
        fits = lambda: self.registers() <= most and self.used() <= self.vmem
        for axis in rows:
            if not self._shrink(axis, fits):
                break
        fits = lambda: self.used() <= self.vmem and self.registers() <= 8 * most
        for axis in columns if not self._scans_across(columns) else ():
            if not self._shrink(axis, fits):
                break
        if self.used() > self.vmem:
            raise Refused(
                f"its smallest tile needs {self.used()} bytes of vector memory, and a kernel may take {self.vmem}"
            )

    def _shrink(self, axis: Axis, fits: object) -> bool:
        """Cut the axis until the tile fits or the granule is reached; whether it still does not fit."""
        granule = self.granule(axis)
        while not fits() and self.extents[axis] > granule:  # type: ignore[operator]
            half = self._rounded(axis, -(-self.extents[axis] // (2 * granule)) * granule)
            self.extents[axis] = half if half < self.extents[axis] else granule
        return not fits()  # type: ignore[operator]

    def _rounded(self, axis: Axis, extent: int) -> int:
        """An extent that blocks of arrays of one dimension may have too: a power of two, or whole registers."""
        if all(len(where) > 1 or where[0].axis is not axis for _, where in self.accesses if where):
            return extent
        return extent // REGISTER * REGISTER or 1 << (extent.bit_length() - 1)

    def _scans_across(self, columns: list[Axis]) -> bool:
        """Whether prefix scans go along more than one axis, so that no order of tiles follows them."""
        return len(columns) > 1 and any(n.op == "scan" for n in self.kernel.nodes)
