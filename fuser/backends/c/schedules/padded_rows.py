"""Short rows that are reduced as padded ones: which kernels have such rows, how wide they become, and whether that pays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fuser.backends.c import spell
from fuser.backends.c.schedules.guards import guards
from fuser.backends.c.schedules.staged_rows import rows_side_by_side
from fuser.backends.c.target import TARGET
from fuser.ir.index import Affine, Axis, Div
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL, is_complex, is_inexact
from fuser.kernel.kernel import Kernel, ReductionSpec
from fuser.kernel.loops import Loops, arrange
from fuser.kernel.operands import computed, index_axes

LONGEST = 128  # elements of a row: longer ones are vectors enough
FEWEST_ROWS = 64
ROWS = (64, 32, 16)  # of a block: as many as its tiles leave in the nearest cache
TILES_BYTES = 24 << 10  # of all tiles of a block, half of the nearest cache
IN_REGISTERS = (2, 3, 4, 8)  # elements of an unrolled row that compilers interleave in registers
FEWEST_ROUNDED = 8  # elements: fewer are added and multiplied in order, as in NumPy and JAX, and overflow where they do
ORDERLESS = ("sum", "prod", "max", "min", "and", "or", "xor")


@dataclass(frozen=True)
class PaddedRows:
    """The axis that counts rows and the one along them, of `extent` elements; `padded` elements of a row in a tile, of which
    `lanes` become one last; `block` rows that are in work at once."""

    row: Axis
    along: Axis
    extent: int
    padded: int
    lanes: int
    block: int

    @property
    def whole(self) -> bool:
        """Whether rows are made of whole vectors, so that they need no tiles."""
        return self.padded == self.extent


def padded_rows(kernel: Kernel, loops: Loops) -> PaddedRows | None:
    """The rows that a kernel reduces, where they are short, many, and dense; None where there are no such rows."""
    if kernel.loop is not None or len(loops.reduced) != 1 or loops.vector is not loops.reduced[0] or not loops.parallel:
        return None
    along, row = loops.reduced[0], loops.parallel[-1]
    few = loops.extents[row] < FEWEST_ROWS or not 2 < loops.extents[along] <= LONGEST
    if few or not _orderless(kernel, loops.extents[along]) or not _dense(kernel, row, along) or guards(kernel):
        return None
    return _in_blocks(kernel, row, along, loops.extents[along])


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


def _dense(kernel: Kernel, row: Axis, along: Axis) -> bool:
    """Whether all that follows the elements of rows has them side by side."""
    loads = [n for n in kernel.nodes if n.op == "load"]
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


def _in_blocks(kernel: Kernel, row: Axis, along: Axis, extent: int) -> PaddedRows | None:
    """The widths by the widest numbers, and as many rows as leave all tiles in the nearest cache."""
    widest = _widest(kernel)
    vector = TARGET.vector // widest
    lanes = vector if extent >= vector else 1 << (extent - 1).bit_length()
    padded = -(-extent // lanes) * lanes
    tiles = sum(len(sweep.kept) + len(sweep.reductions) for sweep in kernel.sweeps)
    if padded > extent:
        followed = {
            (n.attr.param, n.attr.offset) for n in kernel.nodes if n.op == "load" and along in n.attr.offset.leaves
        }
        tiles += len(followed) + sum(len(sweep.stores) for sweep in kernel.sweeps)
    for rows in ROWS:
        if tiles * rows * padded * widest <= TILES_BYTES:
            return PaddedRows(row, along, extent, padded, lanes, rows)
    return None


def _widest(kernel: Kernel) -> int:
    """Bytes of the widest numbers, at least those of a float32."""
    return max([4, *(n.dtype.itemsize for n in kernel.nodes if n.op != "const")])


def _narrowed(kernel: Kernel, found: PaddedRows) -> bool:
    """Whether rows of less than a vector are written in fewer bytes than they are computed in, which compilers do one by one."""
    widest = _widest(kernel)
    written = [kernel.params[store.param].dtype.itemsize for sweep in kernel.sweeps for store in sweep.stores]
    return found.lanes < TARGET.vector // widest and min(written, default=widest) < widest


def as_it_lies(value: Scalar, spec: ReductionSpec, along: Axis) -> bool:
    """Whether a reduction may take in the very elements of an array."""
    dtype = value.dtype
    if value.op != "load" or value.attr.offset.coefficient(along) == 0 or dtype != spec.accumulator or dtype == BOOL:
        return False
    return spell.storage(dtype) == spell.local(dtype)


def pays(kernel: Kernel, found: PaddedRows, unrolled: bool) -> bool:
    """Whether padded rows take less than rows that are transposed, as those are that are `unrolled`, or that are reduced one by
    one: whether it costs less to compute with padding in several passes than to bring elements into another order, or to make
    a number of each row's vector."""
    if (unrolled and found.extent in IN_REGISTERS) or _narrowed(kernel, found):
        return False
    nodes = [n for sweep in kernel.sweeps for n in sweep.body if n.op not in ("load", "const", "index")]
    work = sum(TARGET.compute(n.op, n.dtype.itemsize) for n in nodes)
    read = _read(kernel.nodes, found)
    written = sum(kernel.params[store.param].dtype.itemsize for sweep in kernel.sweeps for store in sweep.stores)
    padded = found.padded / found.extent * (work + TARGET.stream(_moved(kernel, found, read, written), TILES_BYTES))
    reductions = [reduction.attr for sweep in kernel.sweeps for reduction in sweep.reductions]
    transposed = unrolled or rows_side_by_side(kernel, arrange(kernel)) is not None
    if not transposed:
        return padded < work + TARGET.combine * len(reductions) / found.extent
    reduced = sum(TARGET.compute(f"reduce_{spec.reduction}", spec.accumulator.itemsize) for spec in reductions)
    tiles = 0 if unrolled else sum(_read(sweep.body, found) for sweep in kernel.sweeps)
    tiles += 0 if unrolled else written + sum(spec.accumulator.itemsize for spec in reductions)
    return padded < work + reduced + TARGET.shuffled * (read + written) / 4 + TARGET.stream(tiles, TILES_BYTES)


def _moved(kernel: Kernel, found: PaddedRows, read: int, written: int) -> int:
    """Bytes an element that padded rows read from and write to the nearest cache in all of their passes."""
    moved = 2 * written + (0 if found.whole else 2 * read)
    for sweep in kernel.sweeps:
        lying = [r for r in sweep.reductions if as_it_lies(r.args[0], r.attr, found.along)]
        moved += sum(r.attr.accumulator.itemsize * (2 if r in lying else 4) for r in sweep.reductions)
        moved += 2 * sum(node.dtype.itemsize for node in sweep.kept)
        moved += _read(sweep.body, found) if sweep.stores or len(lying) < len(sweep.reductions) else 0
    return moved


def _read(nodes: Iterable[Scalar], found: PaddedRows) -> int:
    """Bytes an element that nodes read along rows."""
    loads = {(n.attr.param, n.attr.offset): n.dtype.itemsize for n in nodes if n.op == "load"}
    return sum(size for (_, offset), size in loads.items() if offset.coefficient(found.along))
