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
from fuser.backends.c.remarks import elements, obstacle, remark, worst
from fuser.backends.c.schedules.coalescing import Coalesced, short_rows
from fuser.backends.c.schedules.compensated_sums import VECTOR_BYTES
from fuser.backends.c.schedules.elementwise import Elementwise
from fuser.backends.c.schedules.fission import Fissioned
from fuser.backends.c.schedules.index_set_splitting import MANY, IndexSetSplit, index_set_split
from fuser.backends.c.schedules.inner_reduction import InnerReduction, SplitInnerReduction
from fuser.backends.c.schedules.loop_kernel import LANES, LoopKernel
from fuser.backends.c.schedules.outer_reduction import BLOCK, OuterReduction, SplitOuterReduction
from fuser.backends.c.schedules.staged_rows import StagedRows, rows_side_by_side
from fuser.backends.c.schedules.staging import Staged
from fuser.backends.c.schedules.tiling import Tiled, transposed_accesses
from fuser.backends.c.schedules.unroll_and_jam import UnrollAndJam
from fuser.kernel.complex_parts import split_complex
from fuser.kernel.decompose import decompose
from fuser.kernel.kernel import Kernel
from fuser.kernel.loops import Loops, arrange
from fuser.kernel.lower_loop import flattened
from fuser.kernel.unroll_reductions import unroll_reductions
from fuser.kernel.unroll_residues import unroll_residues

SPLIT = 1 << 15  # elements from which few rows are worth splitting into chunks
FEW_ROWS = 8  # rows that are too few to share out


def emit_kernel(kernel: Kernel, threads: bool = True) -> tuple[Module, dict[str, Any]]:
    """The C function of a kernel, and what belongs to this call; without `threads` it never starts a team.

    `sizes` are its size arguments; `scalar`, where loops are not vectorised, says why, and for how many elements.
    """
    pieces = unroll_residues(decompose(unroll_reductions(_with_parts(kernel), VECTOR_BYTES), spell.TABLE.has))
    if len(pieces) > 1:
        return _in_turn(kernel, [_emit(piece, threads) for piece in pieces])
    return _emit(pieces[0], threads)


def _in_turn(kernel: Kernel, pieces: list[tuple[Module, dict[str, Any]]]) -> tuple[Module, dict[str, Any]]:
    """A function that calls those of pieces of a kernel, which have the same arrays."""
    builder = Builder()
    parts: list[Function | Definition] = []
    sizes: list[int] = []
    for number, (module, launch) in enumerate(pieces):
        suffix = f"_{number}"
        *others, entry = module.changed(lambda f: replace(f, comments=(), first_size=None)).as_piece(suffix)
        assert isinstance(entry, Function)
        parts += [*others, replace(entry, static=True)]
        builder.do(f"{{}}(buffers, sizes + {len(sizes)});", Own(suffix))
        sizes += launch["sizes"]
    caller = Function(Own(), tuple(builder.statements), calling=True, comments=kernel.comments)
    found = [launch.get("scalar") for _, launch in pieces]
    return Module(kernel.name, (*parts, caller)), {"sizes": tuple(sizes)} | remark(functools.reduce(worst, found))


def _emit(kernel: Kernel, threads: bool) -> tuple[Module, dict[str, Any]]:
    """The function of a kernel as it is."""
    loops = arrange(kernel)
    if kernel.loop is not None and len(loops.parallel) > 1 and loops.extents[loops.vector] < LANES:  # type: ignore[index]
        kernel = flattened(kernel)
        loops = arrange(kernel)
    writer = form(kernel, loops)(kernel, loops, threads)
    module = writer.module()
    launch: dict[str, Any] = {"sizes": tuple(writer.sizes.values)}
    reason = obstacle(writer)
    return module, launch | remark((reason, elements(writer)) if reason else None)


def _with_parts(kernel: Kernel) -> Kernel:
    """The kernel with complex numbers as pairs, but for transposes: tiles of them are transposed as a whole."""
    whole = not kernel.reduced and kernel.loop is None and transposed_accesses(kernel, arrange(kernel)) is not None
    return kernel if whole else split_complex(kernel)


def form(kernel: Kernel, loops: Loops) -> type[Emitter]:
    """The loop form that suits the kernel."""
    if kernel.loop is not None:
        return LoopKernel
    if not kernel.reduced:
        found = index_set_split(kernel, loops)
        if found is not None and len(found.whole) > MANY:  # other forms would compute all pieces for each element
            return IndexSetSplit
        if transposed_accesses(kernel, loops):
            return Tiled
        if short_rows(kernel, loops) is not None:
            return Coalesced
        if Staged.pays(kernel, loops):
            return Staged
        if Fissioned.pays(kernel, loops):
            return Fissioned
        if found is not None:
            return IndexSetSplit
        return UnrollAndJam if UnrollAndJam.interleaved(kernel, loops) else Elementwise
    scans = any(n.op == "scan" for sweep in kernel.sweeps for n in sweep.body)
    rows, cols = loops.count(loops.parallel), loops.count(loops.reduced)
    worth = rows * cols >= SPLIT and not scans
    if rows_side_by_side(kernel, loops) is not None:
        return StagedRows
    if loops.vector in loops.parallel and loops.extents[loops.vector] >= 8:
        width = loops.extents[loops.vector]
        blocks = rows // width * -(-width // BLOCK)
        return SplitOuterReduction if worth and blocks < 2 * FEW_ROWS and cols >= 64 else OuterReduction
    return SplitInnerReduction if worth and rows < FEW_ROWS else InnerReduction
