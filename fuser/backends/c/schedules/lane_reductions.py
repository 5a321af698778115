"""Reductions over several short rows: each lane of a row's vectors is reduced for itself, and the lanes are combined after the
last row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from fuser.backends.c import spell
from fuser.backends.c.function import Code, Part, Range, code
from fuser.backends.c.schedules import masking, pairwise
from fuser.backends.c.schedules.compensated_sums import loops_in_blocks, together_blocks
from fuser.backends.c.schedules.outer_reduction import combined, held_type
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import reduction_identity

if TYPE_CHECKING:
    from fuser.backends.c.schedules.inner_reduction import InnerReduction, Run


def pays(writer: InnerReduction, run: Run) -> bool:
    """Whether a run only reduces, over short rows along the vector, of which several are reduced."""
    if run.scans or not run.vectorised or len(run.axes) == 1 or run.axis is not writer.loops.vector:
        return False
    if not run.sweep.reductions or writer.asked.forbids("lane_accumulators"):
        return False
    return writer.loops.extents[run.axis] <= masking.LONGEST * pairwise.lanes(run.sweep.reductions)


def _masked(writer: InnerReduction, run: Run) -> int:
    """Numbers of a vector, where a row takes less time under a mask; else 0."""
    return masking.lanes(writer, run.body, run.sweep.stores, writer.loops.extents[run.axis])


def _counted(writer: InnerReduction, run: Run) -> bool:
    """Whether the text says how many elements a row has: one that is less than a vector is then written out in parts of vectors."""
    extent, whole, lanes = writer.loops.extents[run.axis], pairwise.lanes(run.sweep.reductions), _masked(writer, run)
    return masking.counted(run.body, extent, lanes or whole) or (extent < whole and not lanes)


def _size(writer: InnerReduction, run: Run) -> int:
    """Lanes of a row: as few as it has where the text says how many, else as many as its vectors have. All are set to a first
    value and combined, which in an image of few rows takes as long as they do."""
    extent = writer.loops.extents[run.axis]
    if _counted(writer, run):
        return 1 << (extent - 1).bit_length()
    width = max(pairwise.lanes(run.sweep.reductions), _masked(writer, run))
    return -(-extent // width) * width


def write(writer: InnerReduction, run: Run, whole: Range) -> None:
    """The loops of a run over a span of its outermost axis; its accumulators have what it reduces to after them."""
    blocks = together_blocks(run.axes, writer.loops.extents) if run.sums else None
    writer.two_level, writer.backwards = run.sums if blocks else [], False
    clauses = {reduction: writer.declare(reduction) for reduction in run.sweep.reductions}
    writer.open_guard(run.sweep)
    writer.masks_of(run)
    writer.made(lane_accumulators=len(run.sweep.reductions))

    def end(more: Part | None) -> None:
        _combine(writer, run, clauses)
        writer.end_block(more)

    if blocks is None:
        _begin(writer, run)
    with loops_in_blocks(writer, run.axes, blocks, whole, end, lambda: _begin(writer, run)):
        _row(writer, run)
    if blocks is None:
        _combine(writer, run, clauses)


def _begin(writer: InnerReduction, run: Run) -> None:
    size = _size(writer, run)
    for reduction in run.sweep.reductions:
        spec = reduction.attr
        lanes = writer.buffer(held_type(spec.accumulator), f"{writer.name(reduction)}_lanes", size)
        x = writer.count("x", "0", str(size))
        writer.set(writer.at(lanes.name, x), _identity(reduction))
        writer.close(flat=True)


def _row(writer: InnerReduction, run: Run) -> None:
    """A short row, each element of which is taken in by a lane of its own."""
    extent, lanes = writer.loops.extents[run.axis], _masked(writer, run)
    counted = _counted(writer, run)
    with writer.standing_loads(run.body if lanes else ()):
        writer.pragma("omp simd")
        column: Part = writer.axes[run.axis]
        if counted:
            writer.loop(run.axis, "0", str(extent))
        elif lanes:
            column = writer.count_masked(writer.axis_names[run.axis], writer.extents[run.axis], lanes)
        else:
            writer.loop(run.axis)
        writer.as_short()

        def take(reduction: Scalar) -> Callable[[Part], None]:
            own, inside = writer.at(f"{writer.name(reduction)}_lanes", column), writer.inside
            outside = _identity(reduction)

            def taken(value: Part) -> None:
                found = value if inside is None else code("({} ? {} : {})", inside, value, outside)
                writer.set(own, combined(reduction.attr, found, own))

            return taken

        writer.element(run.sweep, run.body, into={r: take(r) for r in run.sweep.reductions})
        writer.close_masked()


def _combine(writer: InnerReduction, run: Run, clauses: Mapping[Scalar, Code]) -> None:
    """Take the lanes into the accumulators."""
    for reduction, clause in clauses.items():
        writer.pragma("omp simd{}", clause)
        x = writer.count("x", "0", str(_size(writer, run)))
        writer.as_short()
        writer.accumulate(reduction, writer.at(f"{writer.name(reduction)}_lanes", x), "")
        writer.close()


def _identity(reduction: Scalar) -> Code:
    spec = reduction.attr
    return spell.literal(reduction_identity(spec.reduction, spec.accumulator), spec.accumulator)
