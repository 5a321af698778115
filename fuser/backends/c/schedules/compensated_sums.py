"""Sums of floating-point numbers in two levels, as accurate as pairwise summation: blocks, and the sum of the blocks.

An accumulator takes in a block of bounded length. Its sum is added to the sum of all blocks, and the rounding error of
that addition, which TwoSum gives exactly, begins the next block. So the error does not grow with the number of blocks.

Knuth, The Art of Computer Programming 2, 4.2.2, theorem B; Blanchard, Higham and Mary, "A class of fast and accurate
summation algorithms", SIAM J. Sci. Comput. 42 (2020).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fuser.backends.c.function import Code, Part, Range, Variable, code
from fuser.backends.c.target import TARGET
from fuser.ir.index import Axis
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import ReductionSpec, Sweep

if TYPE_CHECKING:
    from fuser.backends.c.emitter import Emitter

CHAIN = 32  # additions one after the other in a block
CHAIN_OF_VECTORS = 64  # the same in vectors whose lanes are added up at the end of a block
SCAN = 64  # elements of a block of a running sum that takes in one after the other
ROWS = 64  # of a block of rows that are added column by column
WIDE = {np.dtype("float32"): np.dtype("float64"), np.dtype("complex64"): np.dtype("complex128")}
FEWEST_VECTORS = 2  # of the innermost loop, for it to run in vectors


@dataclass(frozen=True)
class Blocks:
    """How the loops over the reduced axes are cut: `axis` runs in steps of `length`, all axes inside of it as a whole."""

    axis: Axis
    length: int


def compensated(sweep: Sweep) -> list[Scalar]:
    """The reductions and scans of a sweep that are summed in two levels."""
    return [n for n in (*sweep.reductions, *sweep.body) if n.op in ("reduction", "scan") and n.attr.compensated]


def row_blocks(
    sums: Sequence[Scalar], axes: Sequence[Axis], extents: dict[Axis, int], vectorised: bool
) -> Blocks | None:
    """The blocks in which `sums` run over `axes`, the last of them in vectors if `vectorised`; None if one block is all."""
    if not sums:
        return None
    if not vectorised and any(n.op == "scan" for n in sums):
        return _cut(axes, extents, SCAN)
    lanes = min(TARGET.vector // n.attr.accumulator.itemsize for n in sums)
    if not vectorised or (extents[axes[-1]] < FEWEST_VECTORS * lanes and len(axes) > 1):
        return _cut(axes, extents, CHAIN)
    most, inner = CHAIN_OF_VECTORS * lanes, extents[axes[-1]]
    if len(axes) > 1 and inner < most:  # an innermost loop ends with its lanes' sum, one lane after the other
        most = inner * max(CHAIN_OF_VECTORS // (inner // lanes + lanes), 1)
    return _cut(axes, extents, most)


def together_blocks(axes: Sequence[Axis], extents: dict[Axis, int]) -> Blocks | None:
    """The blocks of a sum over short rows along the last axis, whose lanes are added up at the end of a block."""
    return _cut(axes[:-1], extents, CHAIN_OF_VECTORS)


def column_blocks(sweep: Sweep, axes: Sequence[Axis], extents: dict[Axis, int]) -> Blocks | None:
    """The blocks of a sweep that adds rows column by column."""
    return _cut(axes, extents, ROWS) if compensated(sweep) else None


def running(spec: ReductionSpec, extent: int) -> np.dtype:
    """The type in which a scan along a row of `extent` elements is carried: what waits for the addition before it waits
    for one of 64 bits no longer than for one of 32."""
    if spec.reduction in ("sum", "prod") and extent > SCAN:
        return WIDE.get(spec.accumulator, spec.accumulator)
    return spec.accumulator


def _cut(axes: Sequence[Axis], extents: dict[Axis, int], most: int) -> Blocks | None:
    """The outermost cut of the loops that makes blocks of at most `most` elements, or the smallest that there are; a block
    and a half is left as one."""
    inner = 1
    for axis in reversed(axes):
        if 2 * inner * extents[axis] > 3 * most:
            return Blocks(axis, max(most // inner, 1))
        inner *= extents[axis]
    return None


def carried(node: Scalar) -> str:
    """The ending of the name of a block's accumulator."""
    return "run" if node.op == "scan" else "acc"


def end_block(writer: Emitter, name: str, kind: str, ending: str, at: Part | None = None) -> None:
    """Add the accumulator of a block to the sum of all blocks; `at` is its place where both are arrays.

    Where the sum is infinite or nan there is no error to hand on.
    """
    total, part = writer.slot(f"{name}_sum", at), writer.slot(f"{name}_{ending}", at)
    following = writer.let(kind, f"{name}_next", "{} + {}", total, part)
    back = writer.let(kind, f"{name}_back", "{} - {}", following, total)
    lost = writer.let(kind, f"{name}_lost", "({0} - ({1} - {2})) + ({3} - {2})", total, following, back, part)
    writer.set(total, following)
    writer.set(part, "{0} == {0} ? {0} : 0", lost)


def open_block(writer: Emitter, blocks: Blocks, span: Range, innermost: bool) -> Range:
    """Open the loop over the blocks of an axis that runs over `span`; gives the span of one block."""
    name, (first, last) = writer.axis_names[blocks.axis], span
    length = code(str(blocks.length)) if innermost else writer.sizes(("block", blocks.axis), blocks.length)
    start, end = Variable(f"{name}_from", "int64_t"), Variable(f"{name}_to", "int64_t")
    if writer.backwards:
        writer.start(end, code("{}", last), code("{} > {}", end, first), code("{} -= {}", end, length))
        writer.let("int64_t", start.name, "{0} - {1} < {2} ? {1} : {0} - {2}", end, first, length)
    else:
        writer.start(start, code("{}", first), code("{} < {}", start, last), code("{} += {}", start, length))
        writer.let("int64_t", end.name, "{0} - {1} < {2} ? {0} : {1} + {2}", last, start, length)
    return start, end


@contextmanager
def loops_in_blocks(
    writer: Emitter,
    axes: Sequence[Axis],
    blocks: Blocks | None,
    whole: Range,
    end: Callable[[Code | None], None],
    begin: Callable[[], None] = lambda: None,
) -> Iterator[Range]:
    """The loops around the innermost of `axes`, whose span it gives; they run in `blocks`, each between `begin` and `end`.

    The outermost axis runs over the `whole`. `end` is given the test whether another block follows, None where that
    is not known.
    """
    more: Code | None = None
    for number, axis in enumerate(axes):
        own = whole if number == 0 else ("0", writer.extents[axis])
        if blocks is not None and axis is blocks.axis:
            own = open_block(writer, blocks, own, axis is axes[-1])
            more = None if number else another(own, whole, writer.backwards)
            begin()
        if axis is not axes[-1]:
            (writer.count_down if writer.backwards else writer.count)(writer.axis_names[axis], *own)
    yield own
    for axis in reversed(axes):
        if axis is not axes[-1]:
            writer.close()
        if blocks is not None and axis is blocks.axis:
            end(more)
            writer.close()


def another(block: Range, whole: Range, reverse: bool) -> Code:
    """The test whether a block of `whole` is not its last, whose sum may stay in the accumulator."""
    return code("{} > {}", block[0], whole[0]) if reverse else code("{} < {}", block[1], whole[1])
