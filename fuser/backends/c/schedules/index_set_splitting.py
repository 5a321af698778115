"""Index-set splitting of elementwise kernels: loops are cut where affine predicates of the position change value, and each piece is free of them."""

from __future__ import annotations

from collections.abc import Sequence

from fuser.ir.index import Axis
from fuser.kernel.index_set_splitting import Cut, across_pieces, cut
from fuser.kernel.kernel import Kernel, Sweep
from fuser.kernel.loops import Loops

MOST = 32  # pieces that a kernel is cut into whatever it computes
MORE = 2  # times the nodes of the kernel that all pieces may have where there are more: arrays put together from many


def index_set_split(kernel: Kernel, loops: Loops) -> Cut | None:
    """The kernel cut into pieces; None where it is one, or where they would be more work to write than the whole."""
    sweep = kernel.sweeps[0]
    if loops.vector is None or any(s.param < 0 for s in sweep.row_stores):
        return None
    found = _cut(sweep, loops, order_of(loops))
    if found is not None and (inner := across_pieces(found, loops)) is not None:
        found = _cut(sweep, loops, [a for a in order_of(loops) if a is not inner] + [inner])
    return found


def _cut(sweep: Sweep, loops: Loops, order: Sequence[Axis]) -> Cut | None:
    nodes = len(sweep.row)
    axes = [(axis, loops.extents[axis]) for axis in order]
    found = cut(sweep.row, sweep.row_stores, axes, (MORE + MOST) * nodes)
    if found is None or found.axis is None:
        return None
    whole = found.whole
    return found if len(whole) <= MOST or sum(len(leaf.nodes) for leaf in whole) <= MORE * nodes else None


def order_of(loops: Loops) -> list[Axis]:
    """The axes with the vector's innermost."""
    if loops.vector is None:
        return []
    return [a for a in loops.parallel if a is not loops.vector] + [loops.vector]
