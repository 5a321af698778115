"""Rows combined at targets that repeat. One row for all targets is combined by their counts (target_counts.py), several by atomics of whole
numbers (accumulators.py), or sums of many by buckets of rows (bucket_sums.py), where that takes less; else targets are ordered, and each run of equal ones is reduced by a segmented scan.

A block of updates scans its part of the runs, and finishes those that begin and end in it. What a run has beyond a block is carried
from block to block by a scan of the blocks' last totals, and a last launch finishes the runs that end in a block where they did not
begin. The order in which numbers are combined is fixed, so results are the same in each run.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fuser.backends.base import KernelSource
from fuser.backends.triton import accumulators, bucket_sums, radix_sort, spell, target_counts, target_words
from fuser.backends.triton.emitter import Launch
from fuser.ir.graph import Eqn, Var
from fuser.ir.types import BOOL, FLOATS, SMALL, ArrayType, bfloat16, is_complex, is_inexact, short_dtype
from fuser.kernel.kernel import reduction_identity
from fuser.ops.scatter_rows import WORD
from fuser.partition.group import FusionGroup, Refusal

TILE = 2048  # elements of a block of updates
WIDEST = 64  # columns of one
CARRIED = 8  # columns of a program that carries totals from block to block: few, as it goes over all blocks
MOST_TARGETS = 1 << 30  # that int32 counts, and those of a block beyond

COMBINE = {
    "sum": "a + b",
    "prod": "a * b",
    "max": "tl.maximum(a, b{})",
    "min": "tl.minimum(a, b{})",
}
_NAN = ", propagate_nan=tl.PropagateNan.ALL"

UNIQUE_TEXT = '''
@triton.jit(do_not_specialize=["length", "width", "rows", "tiles", "step"])
def combine_each(targets, updates, out, length, width, rows, tiles, step, BLOCK: tl.constexpr, COLUMNS: tl.constexpr):
    """Updates of which no two have one target."""
    row = tl.program_id(0) // tiles * BLOCK + tl.arange(0, BLOCK)
    column = (tl.program_id(0) % tiles * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    target = tl.load(targets + row, mask=row < length, other=rows).to(tl.int64)
    inside = ((row < length) & (target < rows))[:, None] & (column < width)
    b = tl.load(updates + row.to(tl.int64)[:, None] * step + column, mask=inside, other=0).to(ACCUMULATOR)
    place = out + target[:, None] * width + column
OLD    tl.store(place, combined.to(STORED), mask=inside)
'''

LAST_TEXT = '''
@triton.jit(do_not_specialize=["length", "width", "rows", "tiles", "step"])
def write_last(targets, positions, updates, out, length, width, rows, tiles, step, BLOCK: tl.constexpr, COLUMNS: tl.constexpr):
    """The last update of each run stays."""
    row = tl.program_id(0) // tiles * BLOCK + tl.arange(0, BLOCK)
    column = (tl.program_id(0) % tiles * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    target = tl.load(targets + row, mask=row < length, other=rows).to(tl.int64)
    following = tl.load(targets + row + 1, mask=row + 1 < length, other=0xFFFFFFFF).to(tl.int64)
    ends = ((row < length) & (target < rows) & (target != following))[:, None] & (column < width)
    position = tl.load(positions + row, mask=row < length, other=0).to(tl.int64)
    update = tl.load(updates + position[:, None] * step + column, mask=ends, other=0)
    tl.store(out + target[:, None] * width + column, update, mask=ends)
'''

RUNS_TEXT = '''
@triton.jit
def combine(a, b):
    return COMBINED


@triton.jit
def join(begun_a, a, begun_b, b):
    """What two neighbouring parts of the updates have together: the total since the last beginning of a run."""
    return begun_a | begun_b, tl.where(begun_b != 0, b, combine(a, b))


@triton.jit
def target_at(targets, place, inside, rows, other):
    """A row of the result; targets beyond the last one are as that one, with updates that change nothing."""
    target = tl.load(targets + place, mask=inside, other=0)
    return tl.where(inside, tl.minimum(target, (rows - 1).to(tl.uint32)).to(rows.dtype), other)


@triton.jit(do_not_specialize=["length", "width", "rows", "tiles", "step"])
def combine_blocks(targets, positions, updates, out, heads, tails, length, width, rows, tiles, step, CARRIED: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr):
    """The runs that begin and end in a block; the block's part of one that ends in it, and of its last one."""
    block = tl.program_id(0) // tiles
    row = block * BLOCK + tl.arange(0, BLOCK)
    column = (tl.program_id(0) % tiles * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    live = (row < length)[:, None] & (column < width)
    target = target_at(targets, row, row < length, rows, rows)
    before = target_at(targets, row - 1, (row > 0) & (row <= length), rows, -1)
    following = target_at(targets, row + 1, row + 1 < length, rows, -1)
    beyond = tl.load(targets + row, mask=row < length, other=0) >= rows.to(tl.uint32)
    position = row.to(tl.int64)
    if not CARRIED:  # in the order of the targets
        position = tl.load(positions + row, mask=row < length, other=0).to(tl.int64)
    update = tl.load(updates + position[:, None] * step + column, mask=live, other=0).to(ACCUMULATOR)
    update = tl.where(beyond[:, None], IDENTITY, update)
    begins = tl.broadcast_to((target != before).to(tl.int32)[:, None], (BLOCK, COLUMNS))
    begun, b = tl.associative_scan((begins, update), 0, join)
    ends = live & (target != following)[:, None]
    inside = ends & (begun != 0)
    place = out + target.to(tl.int64)[:, None] * width + column
OLD    tl.store(place, combined.to(STORED), mask=inside)
    tl.store(heads + block.to(tl.int64) * width + column + row[:, None] * 0, b, mask=ends & (begun == 0))
    last = (row == tl.minimum(block * BLOCK + BLOCK, length) - 1)[:, None]
    tl.store(tails + block.to(tl.int64) * width + column + row[:, None] * 0, b, mask=live & last)


@triton.jit(do_not_specialize=["blocks", "length", "width", "rows"])
def carry_blocks(targets, tails, carries, blocks, length, width, rows, BLOCK: tl.constexpr, BLOCKS: tl.constexpr, COLUMNS: tl.constexpr):
    """The totals of the runs at the ends of blocks, with what they have in blocks before."""
    column = (tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    carry = tl.zeros((1, COLUMNS), ACCUMULATOR)
    for start in range(0, blocks, BLOCKS):
        block = start + tl.arange(0, BLOCKS)
        inside = block < blocks
        final = tl.minimum(block * BLOCK + BLOCK, length) - 1
        before = target_at(targets, block * BLOCK - 1, inside & (block > 0), rows, -1)
        target = target_at(targets, final, inside, rows, -2)
        begins = tl.broadcast_to((before != target).to(tl.int32)[:, None], (BLOCKS, COLUMNS))
        live = inside[:, None] & (column < width)
        place = block.to(tl.int64)[:, None] * width + column
        begun, total = tl.associative_scan((begins, tl.load(tails + place, mask=live, other=0)), 0, join)
        total = tl.where(begun != 0, total, combine(tl.broadcast_to(carry, (BLOCKS, COLUMNS)), total))
        tl.store(carries + place, total, mask=live)
        at_end = (tl.arange(0, BLOCKS) == BLOCKS - 1)[:, None]
        carry = tl.sum(tl.where(at_end, total, 0), 0).to(ACCUMULATOR)[None, :]


@triton.jit(do_not_specialize=["blocks", "length", "width", "rows", "tiles"])
def finish_heads(targets, heads, carries, out, blocks, length, width, rows, tiles, BLOCK: tl.constexpr, BLOCKS: tl.constexpr, COLUMNS: tl.constexpr):
    """The runs that end in a block where they did not begin."""
    block = tl.program_id(0) // tiles * BLOCKS + tl.arange(0, BLOCKS)
    column = (tl.program_id(0) % tiles * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    later = (block > 0) & (block < blocks)
    before = target_at(targets, block * BLOCK - 1, later, rows, -1)
    target = target_at(targets, block * BLOCK, later, rows, -2)
    after = block * BLOCK + BLOCK
    following = target_at(targets, after, later & (after < length), rows, -1)
    ends = later & (before == target) & (following != target)
    inside = ends[:, None] & (column < width)
    row = block.to(tl.int64)[:, None] * width + column
    b = combine(tl.load(carries + row - width, mask=inside, other=0), tl.load(heads + row, mask=inside, other=0))
    place = out + target.to(tl.int64)[:, None] * width + column
OLD    tl.store(place, combined.to(STORED), mask=inside)
'''
_OLD = """    a = tl.load(place, mask=inside, other=0).to(ACCUMULATOR)
    combined = {}
"""


def refusal(eqn: Eqn) -> str | None:
    """Why the rows are torch's to combine; None where kernels do."""
    operand, targets, _ = (v.aval for v in eqn.invars)
    dtype = operand.dtype
    if dtype in SMALL or is_complex(dtype) or dtype == BOOL or dtype.names:
        return f"{eqn.params['reduction']} of {short_dtype(dtype)} at targets is computed by torch"
    if eqn.params["unique"] or target_counts.counts(eqn) or accumulators.form_of(eqn) is not None:
        return None
    return _slower(eqn, operand.shape[0], targets.size)


def _slower(eqn: Eqn, rows: int, count: int) -> str | None:
    """Why torch takes less: it orders more targets faster, but multiplies by one scan for each doubling of their number, and has one thread
    count, then add, all updates of an element, of which there are many where elements are few."""
    if count >= MOST_TARGETS:
        return f"torch combines {count} rows"
    seconds = radix_sort.seconds(count, rows.bit_length())
    if eqn.params["reduction"] in ("prod", "sum") or seconds <= radix_sort.library_seconds(count):
        return None
    return f"torch's radix sort takes less for {count} targets among {rows}"


def emit(group: FusionGroup) -> KernelSource | Refusal:
    """The source of a group of one combination of rows."""
    operands = radix_sort.read(group)
    if (reason := refusal(group.graph.eqns[-1])) is not None:
        return Refusal(reason)
    if operands is None:
        return Refusal("rows that lie in memory are combined by kernels")
    return _Source(group, operands).made()


class _Source:
    """The launches of one combination, and the texts that they need."""

    def __init__(self, group: FusionGroup, operands: list[Var]) -> None:
        self.group, self.eqn = group, group.graph.eqns[-1]
        self.buffers = radix_sort.Buffers([*group.graph.invars, *dict.fromkeys(group.graph.outvars)])
        self.operand, self.targets, self.updates, self.out = map(self.buffers.of, (*operands, *self.eqn.outvars))
        (self.rows, self.width), self.length = self.eqn.invars[0].aval.shape, self.eqn.invars[1].aval.size
        self.columns = min(WIDEST, 1 << (self.width - 1).bit_length())
        self.block, self.tiles = TILE // self.columns, -(-self.width // self.columns)
        self.blocks = -(-self.length // self.block)

    def made(self) -> KernelSource:
        eqn, reduction = self.eqn, self.eqn.params["reduction"]
        texts: list[str] = []
        launches: list[Launch] = []
        begins_as: tuple[tuple[int, int], ...] = ()
        arrays = self.operand, self.targets, self.updates, self.out
        if target_counts.counts(eqn):
            texts, launches = target_counts.launches(eqn, *arrays, self.buffers)
        elif bucket_sums.sums(eqn):
            texts, launches = bucket_sums.launches(eqn, *arrays, self.buffers)
        elif not eqn.params["unique"] and (form := accumulators.form_of(eqn)) is not None:
            texts, launches = accumulators.launches(eqn, form, *arrays, self.buffers)
        else:
            begins_as = ((self.operand, self.out),)
            if eqn.invars[1].aval.dtype != WORD:
                self.targets = self.buffers.take(self.length, WORD)
                texts += [target_words.TEXT, target_words.CONVERT_TEXT]
                launches.append(target_words.converted(eqn, arrays[1], self.targets))
            unique = eqn.params["unique"]
            found = self._each() if unique else self._replaced() if reduction == "replace" else self._reduced()
            texts, launches = texts + found[0], launches + found[1]
        return radix_sort.source(self.group, self._spelt(texts), launches, self.buffers, begins_as)

    def _each(self) -> tuple[list[str], list[Launch]]:
        return [UNIQUE_TEXT], [self._tiled("combine_each", (self.targets, self.updates, self.out))]

    def _replaced(self) -> tuple[list[str], list[Launch]]:
        ordered, positions = (self.buffers.take(self.length, np.dtype(t)) for t in ("uint32", "int32"))
        sort = radix_sort.Sort(ArrayType((self.length,), WORD), max(1, self.rows.bit_length()))
        launches = sort.launches(self.targets, ordered, positions, self.buffers)
        launches.append(self._tiled("write_last", (ordered, positions, self.updates, self.out)))
        return [sort.text, LAST_TEXT], launches

    def _reduced(self) -> tuple[list[str], list[Launch]]:
        """Runs of ordered targets, with single numbers of 32 bits, which the passes carry along, or with positions."""
        updates = self.eqn.invars[2].aval
        each = updates.shape[0] == self.length
        carried = each and self.width == 1 and updates.dtype.itemsize == 4 and self.length > radix_sort.SHORT
        kinds = np.dtype("uint32"), updates.dtype if carried else np.dtype("int32")
        ordered, along = (self.buffers.take(self.length, kind) for kind in kinds)
        sort = radix_sort.Sort(ArrayType((self.length,), WORD), radix_sort.target_bits(self.rows), self.rows - 1)
        if carried:
            launches = sort.passes(self.targets, ordered, along, self.buffers, self.updates)
        else:
            launches = sort.launches(self.targets, ordered, along, self.buffers)
        return [sort.text, RUNS_TEXT], [*launches, *self._runs(ordered, along, carried)]

    def _spelt(self, texts: list[str]) -> str:
        dtype, reduction = self.eqn.outvars[0].aval.dtype, self.eqn.params["reduction"]
        nan = _NAN if is_inexact(dtype) else ""
        combined = "" if reduction == "replace" else COMBINE[reduction].format(nan)
        old = "    combined = b\n" if reduction == "replace" else _OLD.format(combined)
        body = "\n\n".join(texts).replace("OLD    ", f"{old}    ").replace("COMBINED", combined)
        accumulator = "tl.float32" if self._accumulator() != dtype else spell.storage(dtype)
        body = body.replace("IDENTITY", self._identity(accumulator))
        return body.replace("ACCUMULATOR", accumulator).replace("STORED", spell.storage(dtype))

    def _identity(self, accumulator: str) -> str:
        """What changes no number, as text: of sums of floats the negative zero, which keeps all signs."""
        kind, reduction = self._accumulator(), self.eqn.params["reduction"]
        if reduction == "replace" or (reduction == "sum" and not is_inexact(kind)):
            return f"tl.zeros((), {accumulator})"
        if reduction == "sum":
            return f"tl.zeros((), {accumulator}) * -1.0"
        return f"tl.full((), {spell.literal(reduction_identity(reduction, kind), kind)}, {accumulator})"

    def _accumulator(self) -> np.dtype:
        dtype = self.eqn.outvars[0].aval.dtype
        halved = dtype in (FLOATS[0], bfloat16) and self.eqn.params["reduction"] != "replace"
        return np.dtype("float32") if halved else dtype

    def _tiled(self, function: str, buffers: tuple[int, ...]) -> Launch:
        step = 0 if self.eqn.invars[2].aval.shape[0] < self.length else self.width  # one row serves all targets
        sizes = (self.length, self.width, self.rows, self.tiles, step)
        constants = {"BLOCK": self.block, "COLUMNS": self.columns}
        return Launch(function, buffers, sizes, constants, self.blocks * self.tiles, 8)

    def _runs(self, ordered: int, along: int, carried: bool) -> list[Launch]:
        kind = self._accumulator()
        heads, tails, carries = (self.buffers.take(self.blocks * self.width, kind) for _ in range(3))
        read = along if carried else self.updates
        first = self._tiled("combine_blocks", (ordered, along, read, self.out, heads, tails))
        first = replace(first, constants={"CARRIED": carried, **first.constants})
        if self.blocks == 1:
            return [first]
        constants = {"BLOCK": self.block, "BLOCKS": TILE // self.columns, "COLUMNS": self.columns}
        sizes = (self.blocks, self.length, self.width)
        groups = -(-self.blocks // constants["BLOCKS"])
        narrow = min(self.columns, CARRIED)
        carrying = {"BLOCK": self.block, "BLOCKS": TILE // narrow, "COLUMNS": narrow}
        programs = -(-self.width // narrow)
        return [
            first,
            Launch("carry_blocks", (ordered, tails, carries), (*sizes, self.rows), carrying, programs, 8),
            Launch(
                "finish_heads",
                (ordered, heads, carries, self.out),
                (*sizes, self.rows, self.tiles),
                constants,
                groups * self.tiles,
                8,
            ),
        ]
