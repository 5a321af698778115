"""Kernel → Triton text and launches. The form is chosen by how the axes lie in memory and how many rows there are."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fuser.backends.triton import block_sizes as tiles
from fuser.backends.triton import interpreter, spell
from fuser.backends.triton.attention import emit_attention
from fuser.backends.triton.chained_scan import chainable, chained
from fuser.backends.triton.column_sums import totals, with_column_sums
from fuser.backends.triton.cooperative_rows import cooperates, cooperative
from fuser.backends.triton.elementwise import elementwise
from fuser.backends.triton.emitter import Function, Launch, either, widest
from fuser.backends.triton.long_rows import LongRows
from fuser.backends.triton.loop_kernel import LoopKernel
from fuser.backends.triton.matmul import lower_product
from fuser.backends.triton.pipelined_rows import whole_or_pipelined
from fuser.backends.triton.product import product
from fuser.backends.triton.reductions import held_words, scans_of, whole_rows
from fuser.backends.triton.split_reduction import Scratch, split, splittable
from fuser.kernel.decompose import decompose
from fuser.kernel.excess_precision import with_unrounded_sums
from fuser.kernel.kernel import Kernel
from fuser.kernel.loops import Loops, arrange
from fuser.kernel.lower_loop import flattened
from fuser.kernel.relative_sums import RelativeSums, with_relative_sums
from fuser.kernel.schedule import NOTHING_ASKED, Schedule
from fuser.ops.attention import attention_p
from fuser.partition.group import FusionGroup

COLUMN_REGISTERS = (
    64  # of a thread that holds 32 elements of columns: blocks of 64 KB, two of which are to be on a multiprocessor
)
WIDE_ENOUGH = 8  # columns side by side from which a block takes them along memory


@dataclass(frozen=True)
class Emitted:
    """A file of kernels, the launches of one call in order, and the scratch arrays (elements, dtype) between them."""

    text: str
    launches: tuple[Launch, ...]
    scratch: tuple[tuple[int, np.dtype], ...] = ()

    @property
    def schedule(self) -> Schedule:
        """How the kernel runs: of several launches, one piece each."""
        found = tuple(map(_of_launch, self.launches))
        return found[0] if len(found) == 1 else Schedule(pieces=found)


def _of_launch(launch: Launch) -> Schedule:
    sizes = launch.constants
    tile = (sizes["M_BLOCK"], sizes["N_BLOCK"]) if "M_BLOCK" in sizes else (sizes.get("ROWS", 1), launch.columns)
    return Schedule(
        tile=tile,
        warps=launch.warps,
        stages=sizes.get("STAGES", launch.stages),
        split_k=launch.split_k,
        stream_k=launch.stream_k,
        grid=(launch.grid,),
    )


def emit_kernel(kernel: Kernel, asked: Schedule = NOTHING_ASKED) -> Emitted:
    """The Triton file of a kernel, and how this call of it is launched; `asked` are transforms that the user wants."""
    kernel = decompose(with_unrounded_sums(kernel), spell.TABLE.has)
    if kernel.loop is not None and len(kernel.parallel) > 1:
        kernel = flattened(kernel)
    functions, scratch = _functions(kernel, arrange(kernel), asked)
    return _file(kernel, functions, scratch)


def emit_product(group: FusionGroup, asked: Schedule = NOTHING_ASKED) -> tuple[Kernel, Emitted]:
    """The parameters and the Triton file of a contraction with what follows it."""
    if any(eqn.primitive is attention_p for eqn in group.graph.eqns):
        kernel, function = emit_attention(group)
        return kernel, _file(kernel, [function], {})
    parts = lower_product(group)
    return parts.kernel, _file(parts.kernel, *product(parts, asked))


def _file(kernel: Kernel, functions: list[Function], scratch: Scratch) -> Emitted:
    comments = "\n".join(f"# {line}" for line in kernel.comments[:12])
    body = "\n\n\n".join(function.text for function in functions)
    text = "\n\n\n".join(part for part in (spell.header(body), comments + "\n" + body if comments else body))
    return Emitted(text + "\n", tuple(f.launch for f in functions), tuple(scratch.values()))


def _functions(kernel: Kernel, loops: Loops, asked: Schedule) -> tuple[list[Function], Scratch]:
    """The functions of the form that suits the kernel."""
    if kernel.loop is not None:
        return [LoopKernel(kernel, loops, kernel.name).write()], {}
    if not kernel.reduced:
        return elementwise(kernel, loops, asked), {}
    reduced = loops.count(loops.reduced)
    along_rows = loops.vector in loops.parallel and loops.extents[loops.vector] >= WIDE_ENOUGH
    rows = loops.count(loops.parallel)
    if totals(kernel):
        tile = tiles.row_tile(reduced, together=math.gcd(reduced, widest(kernel)))
        assert tile is not None
        return with_column_sums(kernel, loops, tile)
    scans = any(map(scans_of, kernel.sweeps))
    together = math.gcd(reduced, widest(kernel))
    walked, relative = with_relative_sums(kernel)
    again = sum(sweep.loops for sweep in walked.sweeps) > 1
    held = held_words(kernel) if again else 2  # rows that are read once anyway need not lie in registers
    tile = tiles.column_tile(reduced) if along_rows else tiles.row_tile(reduced, rows, held, scans, together)
    if (
        along_rows
        and again
        and not (scans or asked.tile)
        and (columns := _held_columns(kernel, loops, walked, relative))
    ):
        return [columns], {}
    if tile is not None:
        tile = tile.asked(asked, reduced)
        return [whole_or_pipelined(kernel, loops, tile, None if along_rows or scans else asked.stages)], {}
    long_row = not along_rows and not asked.tile
    widest_read = (
        4
        if scans
        else max((kernel.params[n.attr.param].dtype.itemsize for n in kernel.nodes if n.op == "load"), default=4)
    )
    tile = tiles.long_column_tile(loops.extents[loops.vector]) if along_rows else tiles.long_row_tile(widest_read)  # type: ignore[index]
    tile = tile.asked(asked)
    piece = tiles.piece_tile(reduced, widest_read) if long_row and again else None
    if piece is not None and not interpreter.active() and cooperates(kernel):  # it runs one program after another
        return cooperative(kernel, loops, piece)
    kernel = walked
    if long_row and not scans and not asked.warps and tiles.lone(rows, reduced):
        function = LongRows(kernel, loops, kernel.name, tiles.LONE_ROW, relative).write()
        half = replace(function.launch, warps=tiles.MOST_WARPS // 2)
        return [function.with_choices([function.launch, half])], {}
    chunks = None if not splittable(kernel) else tiles.chunks(-(-rows // tile.rows), reduced, tile)
    if chunks is not None and chainable(kernel) and not along_rows and tile.rows == 1:
        return chained(kernel, loops, tile)
    if chunks is None:
        return [LongRows(kernel, loops, kernel.name, tile, relative).write()], {}
    return split(kernel, loops, tile, chunks, relative)


def _held_columns(kernel: Kernel, loops: Loops, walked: Kernel, relative: RelativeSums) -> Function | None:
    """The function of programs that hold whole long columns, and walk along them where a GPU has no registers for that; None where they are
    too long."""
    assert loops.vector is not None
    sizes = loops.count(loops.reduced), loops.extents[loops.vector]
    tile = tiles.held_column_tile(*sizes, 16 // widest(kernel), held_words(kernel))
    if tile is None:
        return None
    whole = whole_rows(kernel, loops, tile)
    more = replace(whole.launch, warps=min(tiles.MOST_WARPS, 2 * tile.warps))
    large = tile.size > tiles.LONGEST_ROW // 2
    choices = [replace(whole.launch, registers=COLUMN_REGISTERS)] if large else [whole.launch, more]
    walk = LongRows(walked, loops, f"{kernel.name}_walked", tiles.long_column_tile(sizes[1]), relative)
    return either([whole.with_choices(choices), walk.write()])
