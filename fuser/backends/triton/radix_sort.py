"""Stable orders of u32 words, row by row: short rows in registers, longer ones by radix sort.

A pass orders by four bits: one launch counts each block's digits, one turns the counts of a row into places, digit by digit and block
by block, and one moves words and positions there. Results are the same in each run; nothing is added by atomics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.backends.base import KernelSource
from fuser.backends.triton import spell
from fuser.backends.triton.emitter import Launch
from fuser.ir.graph import Eqn, Var
from fuser.ir.types import ArrayType
from fuser.partition.axes import Views
from fuser.partition.group import FusionGroup, Refusal

SHORT = 1024  # elements of a row that one program orders in registers
BLOCK = 1024  # elements that a program counts, or moves
DIGIT_BITS = 4
SCANNED = 1024  # counts that a program reads at once
# Elements from which on torch's sort, of fewer passes, saves more than leaving the program costs.
MOST = 1 << 21

SHORT_TEXT = '''
@triton.jit(do_not_specialize=["rows", "length"])
def order_rows(keys, ordered, positions, rows, length, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Rows as words of 64 bits, the position in the lower half, so that all differ."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    place = row * length + column
    inside = (row < rows) & (column < length)
    key = tl.load(keys + place, mask=inside, other=0).to(tl.int64)
    word = tl.where(column < length, (key << 31) | column, 0x7FFFFFFFFFFFFFFF)
    word = tl.sort(word, 1)
    tl.store(ordered + place, (word >> 31).to(tl.uint32), mask=inside)
    tl.store(positions + place, (word & 0x7FFFFFFF).to(tl.int32), mask=inside)
'''

LONG_TEXT = '''
@triton.jit
def digit_of(key, SHIFT: tl.constexpr):
    return ((key >> SHIFT) & 15).to(tl.int32)


@triton.jit(do_not_specialize=["length", "blocks"])
def count_digits(keys, counts, length, blocks, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    """How often each digit stands in a block: counts[row, digit, block]."""
    row, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    column = block * BLOCK + tl.arange(0, BLOCK)
    inside = column < length
    digit = digit_of(tl.load(keys + row * length + column, mask=inside, other=0), SHIFT)
    digits = tl.arange(0, 16)
    found = (digit[:, None] == digits[None, :]) & inside[:, None]
    tl.store(counts + (row * 16 + digits) * blocks + block, tl.sum(found.to(tl.int32), 0))


@triton.jit(do_not_specialize=["blocks"])
def place_digits(counts, blocks, SCANNED: tl.constexpr):
    """The counts of a row as the number of elements before them."""
    first = counts + tl.program_id(0) * 16 * blocks
    before = tl.full((), 0, tl.int32)
    for start in range(0, 16 * blocks, SCANNED):
        place = start + tl.arange(0, SCANNED)
        count = tl.load(first + place, mask=place < 16 * blocks, other=0)
        tl.store(first + place, before + tl.cumsum(count, 0) - count, mask=place < 16 * blocks)
        before += tl.sum(count, 0)


@triton.jit(do_not_specialize=["length", "blocks"])
def move_digits(keys, positions, counts, new_keys, new_positions, length, blocks, SHIFT: tl.constexpr, FIRST: tl.constexpr, BLOCK: tl.constexpr):
    """Each element behind those of lower digits, of blocks before, and of its digit before it in the block."""
    row, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    column = block * BLOCK + tl.arange(0, BLOCK)
    inside = column < length
    key = tl.load(keys + row * length + column, mask=inside, other=0)
    if FIRST:
        position = column.to(tl.int32)
    else:
        position = tl.load(positions + row * length + column, mask=inside, other=0)
    digits = tl.arange(0, 16)
    mine = (digit_of(key, SHIFT)[:, None] == digits[None, :]) & inside[:, None]
    rank = tl.cumsum(mine.to(tl.int32), 0) - 1 + tl.load(counts + (row * 16 + digits) * blocks + block)[None, :]
    place = tl.sum(tl.where(mine, rank, 0), 1)
    tl.store(new_keys + row * length + place, key, mask=inside)
    tl.store(new_positions + row * length + place, position, mask=inside)
'''


def refusal(eqn: Eqn) -> str | None:
    """Why an order is torch's to find; None where it is made here."""
    if eqn.invars[0].aval.size > MOST:
        return f"torch's radix sort takes less for more than {MOST} elements"
    return None


def emit(group: FusionGroup) -> KernelSource | Refusal:
    """The source of a group of one order; results that nobody reads are scratch arrays."""
    eqn, operands = group.graph.eqns[-1], read(group)
    if (reason := refusal(eqn)) is not None:
        return Refusal(reason)
    if operands is None or not eqn.invars[0].aval.size:
        return Refusal("an order of words that lie in memory is made here")
    buffers = Buffers([*group.graph.invars, *dict.fromkeys(group.graph.outvars)])
    keys, ordered, positions = (buffers.of(v) for v in (*operands, *eqn.outvars))
    aval = eqn.invars[0].aval
    return source(group, text_of(aval), launches(aval, eqn.params["bits"], keys, ordered, positions, buffers), buffers)


def read(group: FusionGroup) -> list[Var] | None:
    """The group's inputs that its operation reads, in whatever shape; None where one is no array that lies there whole."""
    views, found = Views(group.graph.eqns), []
    for operand in group.graph.eqns[-1].invars:
        view = views(operand)
        if view.source is None or not view.dense or view.source not in group.graph.invars:
            return None
        found.append(view.source)
    return found


def source(group: FusionGroup, body: str, launches: list[Launch], buffers: Buffers) -> KernelSource:
    """The source of a group whose kernels are in `body`."""
    comments = "".join(f"# {line}\n" for line in dict.fromkeys(str(s) for s in group.sources if s.file))
    made = {
        "launches": tuple(launches),
        "scratch": tuple(buffers.scratch),
        "dtypes": tuple(v.aval.dtype for v in buffers.known),
        "scalars": (),
    }
    names = tuple(f"array{n}" for n in range(len(buffers.known)))
    return KernelSource(group.name, f"{spell.header(body)}\n\n\n{comments}{body.strip()}\n", "triton", names, made)


def text_of(aval: ArrayType) -> str:
    """The kernels that order words of a type."""
    return SHORT_TEXT if aval.shape[-1] <= SHORT else LONG_TEXT


@dataclass
class Buffers:
    """The numbers of buffers: of the group's arrays, then of scratch arrays."""

    known: Sequence[Any]

    def __post_init__(self) -> None:
        self.scratch: list[tuple[int, np.dtype]] = []

    def of(self, v: Any) -> int:
        if v in self.known:
            return self.known.index(v)
        return self.take(v.aval.size, v.aval.dtype)

    def take(self, count: int, dtype: np.dtype) -> int:
        self.scratch.append((count, dtype))
        return len(self.known) + len(self.scratch) - 1


def launches(aval: ArrayType, bits: int, keys: int, ordered: int, positions: int, buffers: Buffers) -> list[Launch]:
    length = aval.shape[-1]
    rows = aval.size // length
    if length <= SHORT:
        block = max(2, 1 << (length - 1).bit_length())
        together = max(1, 256 // block)
        constants = {"ROWS": together, "BLOCK": block}
        warps = 4 if block >= 256 else 1
        return [
            Launch("order_rows", (keys, ordered, positions), (rows, length), constants, -(-rows // together), warps)
        ]
    blocks, passes = -(-length // BLOCK), -(-bits // DIGIT_BITS)
    counts = buffers.take(rows * 16 * blocks, np.dtype("int32"))
    last = ordered, positions
    other = last
    if passes > 1:
        other = buffers.take(aval.size, np.dtype("uint32")), buffers.take(aval.size, np.dtype("int32"))
    made: list[Launch] = []
    source = keys, positions
    for number in range(passes):
        target = last if (passes - 1 - number) % 2 == 0 else other
        shift = {"SHIFT": number * DIGIT_BITS}
        sizes = (length, blocks)
        moved = {**shift, "FIRST": number == 0, "BLOCK": BLOCK}
        made += [
            Launch("count_digits", (source[0], counts), sizes, {**shift, "BLOCK": BLOCK}, rows * blocks, 8),
            Launch("place_digits", (counts,), (blocks,), {"SCANNED": SCANNED}, rows, 4),
            Launch("move_digits", (*source, counts, *target), sizes, moved, rows * blocks, 16),
        ]
        source = target
    return made
