"""Sums over several short rows: each lane of a row's vectors has a sum of its own, and these are added up after the last row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from fuser.backends.c import spell
from fuser.backends.c.function import Code, Part
from fuser.backends.c.schedules import masking, pairwise
from fuser.backends.c.schedules.compensated_sums import loops_in_blocks, together_blocks
from fuser.ir.scalar import Scalar

if TYPE_CHECKING:
    from fuser.backends.c.schedules.inner_reduction import InnerReduction, Run


def pays(writer: InnerReduction, run: Run) -> bool:
    """Whether a run is sums over short rows along the vector, of which several are summed."""
    if run.scans or not run.vectorised or len(run.axes) == 1 or run.axis is not writer.loops.vector:
        return False
    if not run.sums or list(run.sweep.reductions) != run.sums:
        return False
    extent, whole = writer.loops.extents[run.axis], pairwise.lanes(run.sums)
    masked = masking.lanes(writer, run.body, run.sweep.stores, extent) > 0
    return extent < whole or (extent <= masking.LONGEST * whole and (masked or extent % whole == 0))


def _counted(writer: InnerReduction, run: Run) -> bool:
    """Whether the text says how many elements a row has: one that is less than a vector is then written out in parts of vectors."""
    extent, whole = writer.loops.extents[run.axis], pairwise.lanes(run.sums)
    lanes = masking.lanes(writer, run.body, run.sweep.stores, extent)
    return masking.counted(run.body, extent, lanes or whole) or (extent < whole and not lanes)


def write(writer: InnerReduction, run: Run) -> None:
    """The loops of a run; its accumulators have the sums after them."""
    blocks = together_blocks(run.axes, writer.loops.extents)
    writer.two_level, writer.backwards = run.sums if blocks else [], False
    clauses = {reduction: writer.declare(reduction) for reduction in run.sums}
    writer.open_guard(run.sweep)
    lanes, _ = writer.masks_of(run)

    def end(more: Part | None) -> None:
        _add_up(writer, run, clauses)
        writer.end_block(more)

    if blocks is None:
        _begin(writer, run)
    whole = "0", writer.extents[run.axes[0]]
    with loops_in_blocks(writer, run.axes, blocks, whole, whole, end, lambda: _begin(writer, run)):
        _row(writer, run, lanes)
    if blocks is None:
        _add_up(writer, run, clauses)


def _begin(writer: InnerReduction, run: Run) -> None:
    size = masking.LONGEST * pairwise.lanes(run.sums)
    for reduction in run.sums:
        lanes = writer.buffer(spell.held(reduction.attr.accumulator), f"{writer.name(reduction)}_lanes", size)
        x = writer.count("x", "0", size)
        writer.set(writer.at(lanes.name, x), "0")
        writer.close(flat=True)


def _row(writer: InnerReduction, run: Run, lanes: int) -> None:
    """A short row, each element of which is added to a sum of its own."""
    extent = writer.loops.extents[run.axis]
    counted = _counted(writer, run)
    with writer.standing_loads(run.body if lanes else ()):
        writer.pragma("omp simd")
        column: Part = writer.axes[run.axis]
        if counted:
            writer.loop(run.axis, "0", str(extent))
        elif lanes:
            column = writer.open_masked(writer.axis_names[run.axis], writer.extents[run.axis], lanes)
        else:
            writer.loop(run.axis)

        def add(reduction: Scalar) -> Callable[[Part], None]:
            own = writer.at(f"{writer.name(reduction)}_lanes", column)
            return lambda value: writer.set(own, "{} + {}", own, value)

        writer.element(run.sweep, run.body, into={reduction: add(reduction) for reduction in run.sums})
        writer.close()
        if lanes and not counted:
            writer.close()


def _add_up(writer: InnerReduction, run: Run, clauses: Mapping[Scalar, Code]) -> None:
    for reduction, clause in clauses.items():
        writer.pragma("omp simd{}", clause)
        x = writer.count("x", "0", masking.LONGEST * pairwise.lanes(run.sums))
        writer.accumulate(reduction, writer.at(f"{writer.name(reduction)}_lanes", x), "")
        writer.close()
