"""Kernel → C function a kernel, `void name(void **buffers, const int64_t *sizes)`.

The loop form is chosen by how the axes lie in memory and by how many rows there are to share out. Chunks depend on sizes
alone, so results do not depend on the number of threads.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from fuser.backends.c import spell
from fuser.backends.c.builder import Builder
from fuser.backends.c.emitter import Emitter
from fuser.backends.c.function import Definition, Function, Module, Own
from fuser.backends.c.remarks import elements, remark, why_not_vectorised, worst
from fuser.backends.c.schedules import recurrence_fission, sliding_window
from fuser.backends.c.schedules.argreduce import with_positions_apart
from fuser.backends.c.schedules.elementwise import Elementwise
from fuser.backends.c.schedules.inner_reduction import InnerReduction, SplitInnerReduction
from fuser.backends.c.schedules.loop_kernel import LANES, LoopKernel
from fuser.backends.c.schedules.outer_reduction import OuterReduction, SplitOuterReduction
from fuser.backends.c.schedules.padded_rows import padded_rows
from fuser.backends.c.schedules.planes import BLOCK, planes
from fuser.backends.c.schedules.reduction_tree import ReductionTree
from fuser.backends.c.schedules.row_prices import row_prices
from fuser.backends.c.schedules.sliding_reduction import SlidingReduction
from fuser.backends.c.schedules.staged_rows import StagedRows
from fuser.backends.c.schedules.tiling import transposed_accesses
from fuser.backends.c.target import TARGET
from fuser.ir.scalar import Scalar
from fuser.ir.types import is_complex
from fuser.kernel.complex_parts import split_complex
from fuser.kernel.decompose import decompose
from fuser.kernel.emitter import axis_names
from fuser.kernel.kernel import Kernel
from fuser.kernel.loops import Loops, arrange
from fuser.kernel.lower_loop import flattened
from fuser.kernel.schedule import NOTHING_ASKED, Schedule
from fuser.kernel.short_rows import rows_side_by_side
from fuser.kernel.unroll_reductions import unroll_reductions
from fuser.kernel.unroll_residues import unroll_residues

# Operations on complex numbers that compilers make vectors of; they call a function for each number otherwise.
COMPLEX_IN_VECTORS = frozenset(
    ("load", "const", "select", "add", "sub", "mul", "neg", "conj", "real", "imag", "complex")
)

SPLIT = 1 << 15  # elements from which few rows are worth splitting into chunks
FEW_ROWS = 8  # rows that are too few to share out
LEAST_COLUMNS = TARGET.lanes // 2  # side by side, from which vectors run across the rows that are reduced
FORMS = {
    "inner": InnerReduction,
    "outer": OuterReduction,
    "split inner": SplitInnerReduction,
    "split outer": SplitOuterReduction,
    "rows side by side": StagedRows,
    "tree": ReductionTree,
}


def emit_kernel(
    kernel: Kernel, threads: bool = True, asked: Schedule = NOTHING_ASKED
) -> tuple[Module, dict[str, Any], Schedule]:
    """The C function of a kernel, what belongs to this call, and how its loops run; without `threads` it never starts a team.

    `sizes` are its size arguments; `scalar`, where loops are not vectorised, says why, and for how many elements. `asked` are
    transforms that the user wants or forbids.
    """
    pieces = [
        piece
        for part in (replace(kernel, frames=()), *kernel.frames)
        for piece in unroll_residues(decompose(_unrolled(_with_parts(part), asked), spell.TABLE.has), TARGET)
    ]
    if len(pieces) > 1:
        return _in_turn(kernel, [_emit(piece, threads, asked) for piece in pieces])
    return _emit(pieces[0], threads, asked)


def _in_turn(
    kernel: Kernel, pieces: list[tuple[Module, dict[str, Any], Schedule]]
) -> tuple[Module, dict[str, Any], Schedule]:
    """A function that calls those of pieces of a kernel, which have the same arrays."""
    builder = Builder()
    parts: list[Function | Definition] = []
    sizes: list[int] = []
    for number, (module, launch, _) in enumerate(pieces):
        suffix = f"_{number}"
        *others, entry = module.changed(lambda f: replace(f, comments=(), first_size=None)).as_piece(suffix)
        assert isinstance(entry, Function)
        parts += [*others, replace(entry, static=True)]
        builder.do(f"{{}}(buffers, sizes + {len(sizes)});", Own(suffix))
        sizes += launch["sizes"]
    caller = Function(Own(), tuple(builder.statements), calling=True, comments=kernel.comments)
    found = [launch.get("scalar") for _, launch, _ in pieces]
    launch = {"sizes": tuple(sizes)} | remark(functools.reduce(worst, found))
    return Module(kernel.name, (*parts, caller)), launch, Schedule(pieces=tuple(schedule for *_, schedule in pieces))


def _emit(kernel: Kernel, threads: bool, asked: Schedule) -> tuple[Module, dict[str, Any], Schedule]:
    """The function of a kernel as it is."""
    loops = arrange(kernel)
    if kernel.loop is not None and len(loops.parallel) > 1 and loops.extents[loops.vector] < LANES:  # type: ignore[index]
        kernel = flattened(kernel)
        loops = arrange(kernel)
    writer = writer_of(kernel, loops, threads, asked)
    module = writer.module()
    launch: dict[str, Any] = {"sizes": tuple(writer.sizes.values)}
    reason = why_not_vectorised(writer)
    return module, launch | remark((reason, elements(writer)) if reason else None), writer.schedule()


def _with_parts(kernel: Kernel) -> Kernel:
    """The kernel with complex numbers as pairs, but for transposes of what the compiler has vectors of complex numbers for: tiles of
    them are transposed as a whole."""
    moved = not kernel.reduced and kernel.loop is None and transposed_accesses(kernel, arrange(kernel)) is not None
    return kernel if moved and all(map(_in_vectors, kernel.nodes)) else split_complex(kernel)


def _in_vectors(node: Scalar) -> bool:
    """Whether compilers make vectors of an operation on complex numbers, not a call for each."""
    return node.op in COMPLEX_IN_VECTORS or not any(is_complex(v.dtype) for v in (node, *node.args))


def _unrolled(kernel: Kernel, asked: Schedule) -> Kernel:
    """The kernel with short reduced axes unrolled, but where rows are reduced as a tree or in tiles in less time."""
    unrolled = unroll_reductions(kernel, TARGET)
    if unrolled is kernel or unrolled.reduced or asked.reduction not in (None, "tree", "rows side by side"):
        return unrolled
    loops = arrange(kernel)
    if asked.reduction != "tree" and rows_side_by_side(kernel, loops) is not None:
        # Rows that are read again would stay in registers with all of their elements, and compilers take 8 of them for a vector.
        again = len([sweep for sweep in kernel.sweeps if sweep.loops]) > 1
        if again or asked.reduction is not None:
            return kernel
    found = padded_rows(kernel, loops) if asked.reduction != "rows side by side" else None
    if found is None:
        return unrolled
    return kernel if asked.reduction or row_prices(kernel, found, unrolled=True).cheapest == "tree" else unrolled


def writer_of(kernel: Kernel, loops: Loops, threads: bool = True, asked: Schedule = NOTHING_ASKED) -> Emitter:
    """What writes the kernel: by whether it has a loop, and how it reduces."""
    if asked is not NOTHING_ASKED:
        loops = _along(loops, asked)
    if kernel.loop is not None:
        apart = None if asked.forbids("fission") else recurrence_fission.plan(kernel, loops)
        if apart is not None:
            return recurrence_fission.RecurrenceFission(apart, kernel, loops, threads, asked)
        return LoopKernel(kernel, loops, threads, asked)
    if not asked.forbids("sliding_window"):
        loops = sliding_window.loops_with_windows(kernel, loops)
    if not kernel.reduced:
        return Elementwise(kernel, loops, threads, asked)
    if (
        asked.reduction is None
        and not asked.forbids("sliding_window")
        and (found := sliding_window.of_reduction(kernel, loops))
    ):
        return SlidingReduction(found, kernel, loops, threads, asked)
    way = reduction_of(kernel, loops, asked)
    if way.endswith("inner") and loops.vector not in loops.reduced:
        loops = replace(loops, vector=loops.reduced[-1])
    if way == "inner":
        kernel = with_positions_apart(kernel, loops)
    writer = FORMS[way](kernel, loops, threads, asked)
    writer.made(reduction=way)
    return writer


def _along(loops: Loops, asked: Schedule) -> Loops:
    """The loops with the vector where the user wants it: along the axis of that name, or as a reduction needs it."""
    axes = [*loops.parallel, *loops.reduced]
    named = {name: axis for axis, name in axis_names(axes).items()}
    if asked.vector in named:
        return replace(loops, vector=named[asked.vector])
    ways = {
        "inner": loops.reduced,
        "split inner": loops.reduced,
        "outer": loops.parallel,
        "split outer": loops.parallel,
    }
    wanted = ways.get(asked.reduction or "", ())
    return replace(loops, vector=wanted[-1]) if wanted and loops.reduced and loops.vector not in wanted else loops


def reduction_of(kernel: Kernel, loops: Loops, asked: Schedule = NOTHING_ASKED) -> str:
    """How the kernel reduces: what is asked for, where that is possible, or else what pays."""
    ways = _possible(kernel, loops)
    if asked.reduction in ways:
        return str(asked.reduction)
    short = padded_rows(kernel, loops) if asked.reduction is None else None
    way = row_prices(kernel, short, unrolled=False).cheapest if short is not None else "rows side by side"
    if way != "inner" and way in ways and asked.reduction is None:
        return way
    rows, cols = loops.count(loops.parallel), loops.count(loops.reduced)
    worth = rows * cols >= SPLIT
    beside = planes(kernel, loops)
    width = loops.extents[loops.vector] * beside.rows if loops.vector in loops.parallel else 0
    if width >= LEAST_COLUMNS:
        blocks = rows // width * -(-width // BLOCK)
        few = worth and blocks < (FEW_ROWS - 1 if beside.blocked else 2 * FEW_ROWS) and cols >= 64
        return "split outer" if few and "split outer" in ways else "outer"
    return "split inner" if worth and rows < FEW_ROWS and "split inner" in ways else "inner"


def _possible(kernel: Kernel, loops: Loops) -> list[str]:
    """The ways in which the kernel may reduce: across the vector where that is a parallel axis; in chunks without prefix scans."""
    ways = ["inner", "outer"] if loops.vector in loops.parallel else ["inner"]
    if not any(n.op == "scan" for sweep in kernel.sweeps for n in sweep.body):
        ways += [f"split {way}" for way in ways]
    ways += ["tree"] if padded_rows(kernel, loops) is not None else []
    return [*ways, "rows side by side"] if rows_side_by_side(kernel, loops) is not None else ways
