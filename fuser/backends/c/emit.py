"""Kernel → C text. One function a kernel, `void name(void **buffers, const int64_t *sizes)`.

The loop form is chosen by how the axes lie in memory and by how many rows there are to share out. Chunks depend on sizes
alone, so results do not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any

from fuser.backends.c.abreast import Abreast
from fuser.backends.c.columns import BLOCK, Columns, ColumnsSplit
from fuser.backends.c.looped import LANES, Looped
from fuser.backends.c.pieces import Pieces, pieces
from fuser.backends.c.rows import Elementwise, Rows, RowsSplit
from fuser.backends.c.scalar import elements, obstacle
from fuser.backends.c.staged import Staged
from fuser.backends.c.tiles import Tiled, crossing
from fuser.backends.c.told import told
from fuser.backends.c.writer import Writer
from fuser.kernel.kernel import Kernel
from fuser.kernel.loops import Loops, arrange
from fuser.kernel.lower_loop import flattened

SPLIT = 1 << 15  # elements from which few rows are worth splitting into chunks
FEW_ROWS = 8  # rows that are too few to share out


def emit_kernel(kernel: Kernel, threads: bool = True) -> tuple[str, dict[str, Any]]:
    """The C function of a kernel, and what belongs to this call; without `threads` it never starts a team.

    `sizes` are its size arguments; `scalar`, where loops are not vectorised, says why, and for how many elements.
    """
    loops = arrange(kernel)
    if kernel.loop is not None and len(loops.rows) > 1 and loops.extents[loops.vector] < LANES:  # type: ignore[index]
        kernel = flattened(kernel)
        loops = arrange(kernel)
    writer = form(kernel, loops)(kernel, loops, threads)
    text = writer.text()
    launch: dict[str, Any] = {"sizes": tuple(writer.sizes.values)}
    reason = obstacle(writer)
    return text, launch | told((reason, elements(writer)) if reason else None)


def form(kernel: Kernel, loops: Loops) -> type[Writer]:
    """The loop form that suits the kernel."""
    if kernel.loop is not None:
        return Looped
    if not kernel.cols:
        if crossing(kernel, loops):
            return Tiled
        if Staged.pays(kernel, loops):
            return Staged
        if pieces(kernel, loops) is not None:
            return Pieces
        return Abreast if Abreast.count(kernel, loops) else Elementwise
    scans = any(n.op == "scan" for stage in kernel.stages for n in stage.body)
    rows, cols = loops.count(loops.rows), loops.count(loops.cols)
    worth = rows * cols >= SPLIT and not scans
    if loops.vector in loops.rows and loops.extents[loops.vector] >= 8:
        width = loops.extents[loops.vector]
        blocks = rows // width * -(-width // BLOCK)
        return ColumnsSplit if worth and blocks < 2 * FEW_ROWS and cols >= 64 else Columns
    return RowsSplit if worth and rows < FEW_ROWS else Rows
