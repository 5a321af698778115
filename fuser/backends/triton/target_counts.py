"""One row of updates combined at targets that repeat: what comes of an element depends on how often its row is a target.

Targets are counted by each program in words of its own in shared memory (shared_words.py), of rows that are too many for these by several programs
that read the same targets; of still more by atomics of whole numbers. Where a program has no such words, those of few rows are counted in registers. The counts of all programs, or of all copies, are added, and each element is combined with its update as often as that says.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fuser.backends.triton import accumulators, radix_sort, shared_words, spell, target_words
from fuser.backends.triton.emitter import Launch
from fuser.backends.triton.target import TARGET
from fuser.ir.graph import Eqn
from fuser.ir.types import is_inexact

COUNT = np.dtype("int32")
TILE, WARPS = 4096, 8  # targets that a program counts at once
WORDS = shared_words.BYTES // 4  # rows that a program counts in shared memory
PROGRAMS = 1056  # that count: eight for each multiprocessor, where shared memory has their words, so that few of their counts are added
HALF = WORDS // 2  # words of a program of which so many fit
# Rows of a histogram in registers, for which Triton compares the bits of a warp's targets: up to here that took less than atomics on memory on an H200.
# Words in shared memory took as long as reading the targets does on an H100, for 256 and 4,096 rows and where all targets were one, registers twice that.
FEWEST, MOST_ROWS = 16, 2750
FINISHED = 512  # elements, or counts, of a program that finishes them
TOGETHER_READ = 4  # targets that a thread reads at once, where their number is a multiple of it
COUNTED = 1.5e-12  # seconds of a target that one of some programs counts, from the second cache on; an estimate

PRIVATE_TEXT = '''
@triton.jit(do_not_specialize=["length", "rows", "tiles", "groups"])
def count_targets(targets, counts, length, rows, tiles, groups, NEGATIVE: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, COUNTED: tl.constexpr, ASSEMBLY: tl.constexpr, PTX: tl.constexpr):
    """How often each of some rows is among the targets that a program reads: counts[part, row]. A group of programs reads the same targets."""
    if ALIGNED > 1:  # says that sizes are multiples of it, so that accesses take as many elements at once
        length = length // ALIGNED * ALIGNED
    part, first = tl.program_id(0) // groups, tl.program_id(0) % groups * COUNTED
    own = counts + part.to(tl.int64) * rows + first
    size = tl.minimum(rows - first, COUNTED)
    if PTX or ROWS == 0:
        base = shared_words(ASSEMBLY, PTX)
        lane = tl.arange(0, BLOCK)
        for start in range(0, size, BLOCK):
            set_word(base, own, start + lane, lane * 0, start + lane < size, PTX)
        all_threads(PTX)
        for tile in range(part, tiles, tl.num_programs(0) // groups):
            place = tile * BLOCK + lane
            target = target_of(tl.load(targets + place, mask=place < length, other=0), rows, NEGATIVE) - first.to(tl.uint32)
            inside = (place < length) & (target < size.to(tl.uint32))
            add_word(base, own, target.to(tl.int32), lane * 0 + 1, inside, PTX)
        all_threads(PTX)
        if PTX:
            for start in range(0, size, BLOCK):
                inside = start + lane < size
                tl.store(own + start + lane, word_at(base, own, start + lane, inside, PTX), mask=inside)
    else:
        found = tl.zeros((ROWS,), tl.int32)
        for tile in range(part, tiles, tl.num_programs(0)):
            place = tile * BLOCK + tl.arange(0, BLOCK)
            target = target_of(tl.load(targets + place, mask=place < length, other=0), rows, NEGATIVE)
            inside = (place < length) & (target < rows.to(tl.uint32))
            found += tl.histogram(target.to(tl.int32, bitcast=True), ROWS, mask=inside)
        row = tl.arange(0, ROWS)
        tl.store(own + row, found, mask=row < rows)
'''

ATOMIC_TEXT = '''
@triton.jit(do_not_specialize=["length", "rows"])
def count_targets(targets, counts, length, rows, NEGATIVE: tl.constexpr, BLOCK: tl.constexpr, COPIES: tl.constexpr):
    """How often each row is a target, in one of several copies."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    target = target_of(tl.load(targets + place, mask=place < length, other=0), rows, NEGATIVE)
    inside = (place < length) & (target < rows.to(tl.uint32))
    copy = (tl.program_id(0) % COPIES).to(tl.int64) * rows
    one = tl.full((BLOCK,), 1, tl.int32)
    tl.atomic_add(counts + copy + target.to(tl.int64), one, mask=inside, sem="relaxed")
'''

FINISH_TEXT = '''
@triton.jit(do_not_specialize=["rows", "parts"])
def add_counts(counts, totals, rows, parts, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    """The counts of all parts together."""
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    found = tl.zeros((PARTS, BLOCK), tl.int32)
    for start in range(0, parts, PARTS):
        part = start + tl.arange(0, PARTS)
        inside = (part < parts)[:, None] & (row < rows)[None, :]
        found += tl.load(counts + part.to(tl.int64)[:, None] * rows + row[None, :], mask=inside, other=0)
    tl.store(totals + row, tl.sum(found, 0), mask=row < rows)


@triton.jit(do_not_specialize=["rows", "width"])
def combine_counted(operand, totals, updates, out, rows, width, BLOCK: tl.constexpr):
    """Each element with its update, as often as its row is a target."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < rows.to(tl.int64) * width
    old = tl.load(operand + place, mask=inside, other=0)
    update = tl.load(updates + place % width, mask=inside, other=0)
    count = tl.load(totals + place // width, mask=inside, other=0)
    tl.store(out + place, tl.where(count > 0, COMBINED, old).to(STORED), mask=inside)
'''


def counts(eqn: Eqn) -> bool:
    """Whether a combination has one row of updates for all targets, which are counted."""
    targets, updates = (v.aval for v in eqn.invars[1:])
    alike = updates.shape[0] < targets.size < accumulators.MOST_UPDATES and eqn.params["reduction"] != "prod"
    return alike and not (eqn.params.get("in_place") and accumulators.ordered_seconds(eqn) < seconds(eqn))


def seconds(eqn: Eqn) -> float:
    """Of a combination by counts, at least: each element is read and written."""
    operand, targets, _ = (v.aval for v in eqn.invars)
    memory = TARGET.levels[-1].bandwidth
    return 3 * TARGET.launch + (2 * operand.nbytes + 4 * targets.size) / memory


def private(rows: int) -> bool:
    """Whether each program has counts of its own, of all rows or of some, which takes less than atomics on memory."""
    return COUNTED * -(-rows // WORDS) < accumulators.CACHED


def launches(
    eqn: Eqn, operand: int, targets: int, updates: int, out: int, buffers: radix_sort.Buffers
) -> tuple[list[str], list[Launch]]:
    """The texts, and the launches that combine a row with the buffers' rows at its targets."""
    (rows, width), length = eqn.invars[0].aval.shape, eqn.invars[1].aval.size
    made: list[Launch] = []
    tiles, negative = -(-length // TILE), target_words.negative(eqn)
    if private(rows):
        text, groups = f"{shared_words.TEXT}\n\n{PRIVATE_TEXT.strip()}", -(-rows // WORDS)
        rounded = max(FEWEST, 1 << (rows - 1).bit_length())
        words, in_registers = min(WORDS, rounded), rounded if rows <= MOST_ROWS else 0
        parts = min(tiles, (PROGRAMS if words <= HALF else PROGRAMS // 2) // groups)
        counted = buffers.take(parts * rows, COUNT)
        constants: dict[str, Any] = {
            "NEGATIVE": negative,
            "ALIGNED": math.gcd(length, TOGETHER_READ),
            "BLOCK": TILE,
            "ROWS": in_registers,
            "COUNTED": WORDS,
        }
        constants |= {"ASSEMBLY": shared_words.assembly(words), "PTX": False}
        sizes = (length, rows, tiles, groups)
        made.append(Launch("count_targets", (targets, counted), sizes, constants, parts * groups, WARPS))
    else:
        text, parts = f"{accumulators.CLEAR_TEXT}\n\n{ATOMIC_TEXT.strip()}", accumulators.copies_of(rows, tiles)
        counted = buffers.take(parts * rows, COUNT)
        made.append(accumulators.cleared(counted, parts * rows, 0))
        constants = {"NEGATIVE": negative, "BLOCK": TILE, "COPIES": parts}
        made.append(Launch("count_targets", (targets, counted), (length, rows), constants, tiles, WARPS))
    totals = counted
    if parts > 1:
        totals = buffers.take(rows, COUNT)
        together = min(64, 1 << (parts - 1).bit_length())
        block = max(8, FINISHED // together)
        constants = {"BLOCK": block, "PARTS": together}
        made.append(Launch("add_counts", (counted, totals), (rows, parts), constants, -(-rows // block), 4))
    finished = {"BLOCK": FINISHED}
    grid = -(-rows * width // FINISHED)
    made.append(Launch("combine_counted", (operand, totals, updates, out), (rows, width), finished, grid, 4))
    dtype = eqn.invars[0].aval.dtype
    combined = FINISH_TEXT.replace("COMBINED", _combined(dtype, eqn.params["reduction"]))
    return [target_words.TEXT, text, combined.replace("STORED", spell.storage(dtype))], made


def _combined(dtype: np.dtype, reduction: str) -> str:
    """What an element and its update come to, whose row is a target `count` times. Sums of floats are rounded once more than their product."""
    if reduction == "replace":
        return "update"
    if reduction == "sum" and is_inexact(dtype):
        wide = ".to(tl.float64)" if dtype.itemsize > 4 else ".to(tl.float32).to(tl.float64)"
        narrow = ".to(tl.float32)" if dtype.itemsize <= 4 else ""
        return f"(old{wide} + count.to(tl.float64) * update{wide}){narrow}"
    if reduction == "sum":
        kind = spell.storage(dtype if dtype.itemsize >= 4 else np.dtype("int32"))
        return f"old.to({kind}) + count.to({kind}) * update.to({kind})"
    if not is_inexact(dtype):
        return f"tl.{reduction}imum(old, update)"
    widened = ".to(tl.float32)" if dtype.itemsize < 4 else ""
    return f"tl.{reduction}imum(old{widened}, update{widened}, propagate_nan=tl.PropagateNan.ALL)"
