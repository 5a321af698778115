"""Stable orders of u32 words and of floats, row by row: short rows in registers, longer ones by radix sort.

A pass orders by four bits: one launch counts each block's digits, one turns the counts of a digit into how many are in blocks before,
and one moves words and positions. There a word's rank among those of its digit is counted by 16 counters of 8 bits, in four words, that
are scanned along rows of a block. Results are the same in each run; nothing is added by atomics. Floats are moved as
they are: the word that they are ordered by is made where a digit is read.
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
from fuser.ir.types import ArrayType, short_dtype
from fuser.ops.order import DOUBLE, POSITION
from fuser.partition.axes import Views
from fuser.partition.group import FusionGroup, Refusal

SHORT = 1024  # elements of a row that one program orders in registers
BLOCK = 2048  # elements that a program counts, or moves
FEW = 1 << 19  # elements up to which smaller blocks give more programs
SMALL_BLOCK = 1024
WIDE = 64  # elements of a row of a block, which counters of 8 bits count
DIGIT_BITS = 4
SCANNED = 4096  # counts that a program reads at once
# Elements that all passes move from which on torch's sort, whose writes are long runs, saves more than leaving the program costs: on an
# H200 it takes 0.8 ms for 2^24 words with positions, where eight passes take 4.
MOST_MOVED = 1 << 23

WORD_TEXT = '''
@triton.jit
def word_of(key):
    """What a key is ordered by: of floats their bits in the order of the numbers, zeros as one and nans as one, that comes last."""
    if key.dtype == tl.float32:
        bits = key.to(tl.uint32, bitcast=True)
        magnitude = bits & 0x7FFFFFFF
        word = tl.where(bits == magnitude, bits | 0x80000000, bits ^ 0xFFFFFFFF)
        word = tl.where(magnitude == 0, 0x80000000, word)
        key = tl.where(magnitude > 0x7F800000, 0xFFFFFFFF, word)
    return key.to(tl.uint32)
'''

SHORT_TEXT = '''
@triton.jit(do_not_specialize=["rows", "length"])
def order_rows(keys, ordered, positions, rows, length, ROWS: tl.constexpr, BLOCK: tl.constexpr, KEYS: tl.constexpr, POSITIONS: tl.constexpr):
    """Rows as words of 64 bits, the position in the lower half, so that all differ."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    place = row * length + column
    inside = (row < rows) & (column < length)
    key = tl.load(keys + place, mask=inside, other=0)
    word = tl.where(column < length, (word_of(key).to(tl.int64) << 31) | column, 0x7FFFFFFFFFFFFFFF)
    word = tl.sort(word, 1)
    position = (word & 0x7FFFFFFF).to(tl.int32)
    if KEYS:
        if key.dtype == tl.float32:
            found = tl.load(keys + row * length + position, mask=inside, other=0)
        else:
            found = (word >> 31).to(tl.uint32)
        tl.store(ordered + place, found, mask=inside)
    if POSITIONS:
        tl.store(positions + place, position, mask=inside)
'''

LONG_TEXT = '''
@triton.jit
def digit_of(key, SHIFT: tl.constexpr):
    return ((word_of(key) >> SHIFT) & 15).to(tl.int32)


@triton.jit
def add_each(a0, a1, a2, a3, b0, b1, b2, b3):
    return a0 + b0, a1 + b1, a2 + b2, a3 + b3


@triton.jit
def counter_of(digit, w0, w1, w2, w3):
    """The counter of a digit, of 8 bits."""
    which = digit >> 2
    word = tl.where(which < 2, tl.where(which == 0, w0, w1), tl.where(which == 2, w2, w3))
    return ((word >> ((digit & 3) * 8).to(tl.uint32)) & 0xFF).to(tl.int32)


@triton.jit(do_not_specialize=["length", "blocks"])
def count_digits(keys, counts, length, blocks, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    """How often each digit stands in a block: counts[row, digit, block]."""
    row, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    column = block * BLOCK + tl.arange(0, BLOCK)
    inside = column < length
    key = tl.load(keys + row.to(tl.int64) * length + column, mask=inside, other=0)
    found = tl.histogram(digit_of(key, SHIFT), 16, mask=inside)
    tl.store(counts + (row * 16 + tl.arange(0, 16)) * blocks + block, found)


@triton.jit(do_not_specialize=["blocks"])
def place_digits(counts, befores, totals, blocks, SCANNED: tl.constexpr):
    """The counts of a digit of a row as the number of its elements in blocks before: befores[row, block, digit]; and of all its elements."""
    row, digit = tl.program_id(0) // 16, tl.program_id(0) % 16
    before = tl.full((), 0, tl.int32)
    for start in range(0, blocks, SCANNED):
        block = start + tl.arange(0, SCANNED)
        count = tl.load(counts + (row * 16 + digit) * blocks + block, mask=block < blocks, other=0)
        scanned = before + tl.cumsum(count, 0) - count
        tl.store(befores + (row * blocks + block) * 16 + digit, scanned, mask=block < blocks)
        before += tl.sum(count, 0)
    tl.store(totals + row * 16 + digit, before)


@triton.jit(do_not_specialize=["length", "blocks"])
def move_digits(keys, positions, befores, totals, new_keys, new_positions, length, blocks, SHIFT: tl.constexpr, FIRST: tl.constexpr, KEYS: tl.constexpr, POSITIONS: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    """Each element behind those of lower digits, of blocks before, and of its digit before it in the block."""
    row, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    column = block * BLOCK + tl.arange(0, BLOCK // WIDE)[:, None] * WIDE + tl.arange(0, WIDE)[None, :]
    inside = column < length
    start = row.to(tl.int64) * length
    key = tl.load(keys + start + column, mask=inside, other=0)
    digit = digit_of(key, SHIFT)
    one = inside.to(tl.uint32) << ((digit & 3) * 8).to(tl.uint32)
    which = digit >> 2
    c0, c1 = tl.where(which == 0, one, 0), tl.where(which == 1, one, 0)
    c2, c3 = tl.where(which == 2, one, 0), tl.where(which == 3, one, 0)
    s0, s1, s2, s3 = tl.associative_scan((c0, c1, c2, c3), 1, add_each)
    t0, t1, t2, t3 = tl.sum(c0, 1)[:, None], tl.sum(c1, 1)[:, None], tl.sum(c2, 1)[:, None], tl.sum(c3, 1)[:, None]
    digits = tl.arange(0, 16)
    of_rows = counter_of(digits[None, :], t0, t1, t2, t3)
    total = tl.load(totals + row * 16 + digits)
    first = tl.cumsum(total, 0) - total + tl.load(befores + (row * blocks + block) * 16 + digits) - 1
    base = tl.cumsum(of_rows, 0) - of_rows + first[None, :]
    place = start + (counter_of(digit, s0, s1, s2, s3) + tl.gather(base, digit, 1))
    if KEYS:
        tl.store(new_keys + place, key, mask=inside)
    if POSITIONS:
        if FIRST:
            position = column.to(tl.int32)
        else:
            position = tl.load(positions + start + column, mask=inside, other=0)
        tl.store(new_positions + place, position, mask=inside)
'''


def refusal(eqn: Eqn) -> str | None:
    """Why an order is torch's to find; None where it is made here."""
    keys = eqn.invars[0].aval
    size = keys.size
    if keys.dtype == DOUBLE:
        return f"torch orders {short_dtype(keys.dtype)}"
    if keys.shape[-1] > SHORT and moved(size, eqn.params["bits"]) > MOST_MOVED:
        return f"torch's radix sort takes less for {size} elements of {eqn.params['bits']} bits"
    return None


def moved(size: int, bits: int) -> int:
    """How many elements all passes move."""
    return size * -(-bits // DIGIT_BITS)


def emit(group: FusionGroup) -> KernelSource | Refusal:
    """The source of a group of one order; results that nobody reads are scratch arrays."""
    eqn, operands = group.graph.eqns[-1], read(group)
    if (reason := refusal(eqn)) is not None:
        return Refusal(reason)
    if operands is None or not eqn.invars[0].aval.size:
        return Refusal("an order of words that lie in memory is made here")
    buffers = Buffers([*group.graph.invars, *dict.fromkeys(group.graph.outvars)])
    ordered, positions = (buffers.of(v) if v in group.graph.outvars else None for v in eqn.outvars)
    sort = Sort(eqn.invars[0].aval, eqn.params["bits"])
    return source(group, sort.text, sort.launches(buffers.of(operands[0]), ordered, positions, buffers), buffers)


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


@dataclass(frozen=True)
class Sort:
    """The order of the rows of an array, whose keys have so many bits."""

    aval: ArrayType
    bits: int

    @property
    def text(self) -> str:
        """The kernels that order these."""
        return WORD_TEXT + (SHORT_TEXT if self.length <= SHORT else LONG_TEXT)

    @property
    def length(self) -> int:
        return self.aval.shape[-1]

    @property
    def rows(self) -> int:
        return self.aval.size // self.length

    def launches(self, keys: int, ordered: int | None, positions: int | None, buffers: Buffers) -> list[Launch]:
        """The launches that read the buffer `keys`, and write those of `ordered` and `positions` that are wanted."""
        return (self._short if self.length <= SHORT else self._passes)(keys, ordered, positions, buffers)

    def _short(self, keys: int, ordered: int | None, positions: int | None, buffers: Buffers) -> list[Launch]:
        block = max(2, 1 << (self.length - 1).bit_length())
        together = max(1, 256 // block)
        wanted = {"KEYS": ordered is not None, "POSITIONS": positions is not None}
        written = tuple(keys if buffer is None else buffer for buffer in (ordered, positions))
        constants = {"ROWS": together, "BLOCK": block, **wanted}
        grid, warps = -(-self.rows // together), 4 if block >= 256 else 1
        return [Launch("order_rows", (keys, *written), (self.rows, self.length), constants, grid, warps)]

    def _passes(self, keys: int, ordered: int | None, positions: int | None, buffers: Buffers) -> list[Launch]:
        passes, block = -(-self.bits // DIGIT_BITS), SMALL_BLOCK if self.aval.size <= FEW else BLOCK
        blocks = -(-self.length // block)
        counts, befores = (buffers.take(self.rows * 16 * blocks, POSITION) for _ in range(2))
        totals = buffers.take(self.rows * 16, POSITION)
        none = totals  # the buffer of positions that no pass writes
        last = (
            buffers.take(self.aval.size, self.aval.dtype) if ordered is None else ordered,
            none if positions is None else positions,
        )
        other = last
        if passes > 1:
            spare = none if positions is None else buffers.take(self.aval.size, POSITION)
            other = buffers.take(self.aval.size, self.aval.dtype), spare
        scanned = min(SCANNED, max(2, 1 << (blocks - 1).bit_length()))
        of_blocks = self.rows * blocks, 4  # programs, warps
        of_digits = self.rows * 16, max(1, scanned // 512)
        made: list[Launch] = []
        source, sizes = (keys, none), (self.length, blocks)
        for number in range(passes):
            final = number == passes - 1
            target = last if (passes - 1 - number) % 2 == 0 else other
            digit = {"SHIFT": number * DIGIT_BITS, "BLOCK": block}
            wanted = {"KEYS": not final or ordered is not None, "POSITIONS": positions is not None}
            how = {**digit, **wanted, "FIRST": number == 0, "WIDE": WIDE}
            made += [
                Launch("count_digits", (source[0], counts), sizes, digit, *of_blocks),
                Launch("place_digits", (counts, befores, totals), (blocks,), {"SCANNED": scanned}, *of_digits),
                Launch("move_digits", (*source, befores, totals, *target), sizes, how, *of_blocks),
            ]
            source = target
        return made
