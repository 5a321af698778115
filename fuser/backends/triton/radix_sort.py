"""Stable orders of u32 words and of floats, row by row: short rows in registers, longer ones by radix sort.

A pass orders by up to eight bits: one launch counts each block's digits, one turns the counts of a digit into how many are in groups of blocks
before, and one moves words and positions. There a block is ordered by its digits first (block_order.py), so that what is written to neighbouring
places is written by neighbouring threads. Results are the same in each run; nothing is added by atomics. Floats are moved as they are: the
word that they are ordered by is made where a digit is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fuser.backends.base import KernelSource
from fuser.backends.triton import block_order, spell
from fuser.backends.triton.emitter import Launch
from fuser.backends.triton.target import TARGET
from fuser.ir.graph import Eqn, Var
from fuser.ir.types import ArrayType, short_dtype
from fuser.ops.order import DOUBLE, POSITION
from fuser.partition.axes import Views
from fuser.partition.group import FusionGroup, Refusal

SHORT = 4096  # elements of a row that one program orders in registers
LARGE, ROW_HELD = 1024, 32  # elements of a row that has a program alone, and those of a thread
# Elements that a program counts or moves, its warps, and the most registers of a thread (0: as many as it takes), as they were fastest on an H100: of
# a larger block more elements have one digit, so that longer parts of lines are written at once.
PAIRS, KEYS, SMALL = (4096, 8, 80), (4096, 8, 64), (1024, 4, 0)
FEW = 1 << 19  # elements up to which smaller blocks give more programs
GROUPS = 2048  # groups of blocks from which on each is of more blocks
MOST_TOGETHER = 16  # blocks of a group at most
DIGIT_BITS = 8  # at most
FEWEST_BITS = 4  # of a digit of short words
SCANNED = 1024  # groups whose counts a program reads at once
COUNTS = 2048  # counts that it reads at once
# Seconds on an H200: of ordering an element of a pass, beside moving its bytes; of a step of a network on an element with its position; of torch's
# sort of keys with positions, which always takes four passes: at least, of an element of a pass, and of an element of many rows. What leads to
# it from words and back is in these.
RANKED = 5e-12
EXCHANGED = 0.7e-12
LIBRARY, LIBRARY_MOVED, LIBRARY_ROWS = 75e-6, 12e-12, 40e-12

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

ROW_TEXT = '''
@triton.jit
def order_places(key, keys, ordered, positions, inside, column, KEYS: tl.constexpr, POSITIONS: tl.constexpr, LOG: tl.constexpr, HELD: tl.constexpr):
    """A row as words of 64 bits, the position in the lower half, so that all differ."""
    word = tl.where(inside, (word_of(key).to(tl.int64) << 31) | column, 0x7FFFFFFFFFFFFFFF)
    word = sorted_words(word, LOG, HELD)
    position = (word & 0x7FFFFFFF).to(tl.int32)
    if KEYS:
        found = (word >> 31).to(tl.uint32)
        if key.dtype == tl.float32:
            found = tl.load(keys + position, mask=inside, other=0)
        tl.store(ordered + column, found, mask=inside)
    if POSITIONS:
        tl.store(positions + column, position, mask=inside)


@triton.jit
def order_words(key, ordered, zero, inside, column, LOG: tl.constexpr, HELD: tl.constexpr):
    """Keys alone, of which equal ones are alike: words of 32 bits, of which floats are made again, with `zero` for their zeros."""
    word = tl.where(inside, (word_of(key) ^ 0x80000000).to(tl.int32, bitcast=True), 0x7FFFFFFF)
    word = sorted_words(word, LOG, HELD).to(tl.uint32, bitcast=True) ^ 0x80000000
    if key.dtype == tl.float32:
        bits = tl.where(word >= 0x80000000, word ^ 0x80000000, word ^ 0xFFFFFFFF)
        bits = tl.where(word == 0x80000000, zero, bits)
        tl.store(ordered + column, bits.to(tl.float32, bitcast=True), mask=inside)
    else:
        tl.store(ordered + column, word, mask=inside)


@triton.jit(do_not_specialize=["length"])
def order_row(keys, ordered, positions, length, KEYS: tl.constexpr, POSITIONS: tl.constexpr, LOG: tl.constexpr, HELD: tl.constexpr):
    column = tl.arange(0, 2**LOG)
    inside = column < length
    start = tl.program_id(0).to(tl.int64) * length
    key = tl.load(keys + start + column, mask=inside, other=0)
    if POSITIONS:
        order_places(key, keys + start, ordered + start, positions + start, inside, column, KEYS, POSITIONS, LOG, HELD)
    elif key.dtype == tl.float32:
        bits = key.to(tl.uint32, bitcast=True)
        positive = tl.max((inside & (bits == 0)).to(tl.int32), 0)
        negative = tl.max((inside & (bits == 0x80000000)).to(tl.int32), 0)
        if positive + negative == 2:  # equal keys that are not alike keep their places
            order_places(key, keys + start, ordered + start, positions, inside, column, KEYS, POSITIONS, LOG, HELD)
        else:
            order_words(key, ordered + start, negative.to(tl.uint32) << 31, inside, column, LOG, HELD)
    else:
        order_words(key, ordered + start, 0, inside, column, LOG, HELD)
'''

LONG_TEXT = '''
@triton.jit
def digit_of(key, shift, most, DIGITS: tl.constexpr, CLIPPED: tl.constexpr):
    word = word_of(key)
    if CLIPPED:  # larger words are as this one
        word = tl.minimum(word, most.to(tl.uint32))
    return ((word >> shift) & (DIGITS - 1)).to(tl.int32)


@triton.jit(do_not_specialize=["length", "blocks", "groups", "shift", "most"])
def count_digits(keys, befores, group_counts, length, blocks, groups, shift, most, DIGITS: tl.constexpr, CLIPPED: tl.constexpr, BLOCK: tl.constexpr, TOGETHER: tl.constexpr, HELD: tl.constexpr, ASSEMBLY: tl.constexpr, REGISTERS: tl.constexpr, PTX: tl.constexpr):
    """How often each digit stands in a group of blocks, and in those of them before each block, less where it begins in the block's order."""
    row, group = tl.program_id(0) // groups, tl.program_id(0) % groups
    digits = tl.arange(0, DIGITS)
    running = tl.zeros((DIGITS,), tl.int32)
    for number in range(TOGETHER):
        block = group * TOGETHER + number
        column = block * BLOCK + tl.arange(0, BLOCK)
        inside = column < length
        key = tl.load(keys + row.to(tl.int64) * length + column, mask=inside, other=0)
        digit = digit_of(key, shift, most, DIGITS, CLIPPED)
        found = counts_of(digit, inside, tl.arange(0, BLOCK), DIGITS, HELD, ASSEMBLY, REGISTERS, PTX)
        begins = tl.cumsum(found, 0) - found
        tl.store(befores + (row * blocks + block) * DIGITS + digits, running - begins, mask=(digits >= 0) & (block < blocks))
        running += found
    tl.store(group_counts + (row * DIGITS + digits) * groups + group, running)


@triton.jit(do_not_specialize=["groups"])
def place_digits(group_counts, group_befores, totals, groups, DIGITS: tl.constexpr, SCANNED: tl.constexpr, TOGETHER: tl.constexpr):
    """The counts of some digits of a row as the number of their elements in groups before, and in all of them."""
    row = tl.program_id(0) // (DIGITS // TOGETHER)
    digit = tl.program_id(0) % (DIGITS // TOGETHER) * TOGETHER + tl.arange(0, TOGETHER)
    before = tl.zeros((TOGETHER,), tl.int32)
    for start in range(0, groups, SCANNED):
        group = (start + tl.arange(0, SCANNED))[None, :]
        count = tl.load(group_counts + (row * DIGITS + digit)[:, None] * groups + group, mask=group < groups, other=0)
        place = (row * groups + group) * DIGITS + digit[:, None]
        tl.store(group_befores + place, before[:, None] + tl.cumsum(count, 1) - count, mask=group < groups)
        before += tl.sum(count, 1)
    tl.store(totals + row * DIGITS + digit, before)


@triton.jit(do_not_specialize=["length", "blocks", "groups", "shift", "most"])
def move_digits(keys, positions, befores, group_befores, totals, new_keys, new_positions, length, blocks, groups, shift, most, DIGITS: tl.constexpr, CLIPPED: tl.constexpr, FIRST: tl.constexpr, KEYS: tl.constexpr, POSITIONS: tl.constexpr, BLOCK: tl.constexpr, TOGETHER: tl.constexpr, LOG: tl.constexpr, HELD: tl.constexpr, ASSEMBLY: tl.constexpr, REGISTERS: tl.constexpr, PTX: tl.constexpr):
    """Each element behind those of lower digits, of blocks before, and of its digit before it in the block."""
    row, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    lane = tl.arange(0, BLOCK)
    column = block * BLOCK + lane
    inside = column < length
    start = row.to(tl.int64) * length
    key = tl.load(keys + start + column, mask=inside, other=0)
    digit = tl.where(inside, digit_of(key, shift, most, DIGITS, CLIPPED), DIGITS - 1)  # those beyond the end come last
    digit, source = in_order(digit, lane, LOG, HELD, ASSEMBLY, REGISTERS, PTX)
    digits = tl.arange(0, DIGITS)
    total = tl.load(totals + row * DIGITS + digits)
    before = tl.load(befores + tl.program_id(0) * DIGITS + digits)
    before += tl.load(group_befores + (row * groups + block // TOGETHER) * DIGITS + digits)
    first = tl.cumsum(total, 0) - total + before
    place = tl.gather(first, digit, 0) + lane
    if KEYS:
        tl.store(new_keys + start + place, tl.gather(key, source, 0), mask=inside)
    if POSITIONS:
        position = block * BLOCK + source
        if not FIRST:
            position = tl.gather(tl.load(positions + start + column, mask=inside, other=0), source, 0)
        tl.store(new_positions + start + place, position, mask=inside)
'''


def refusal(eqn: Eqn) -> str | None:
    """Why an order is torch's to find; None where it is made here."""
    keys = eqn.invars[0].aval
    size = keys.size
    if keys.dtype == DOUBLE:
        return f"torch orders {short_dtype(keys.dtype)}"
    if keys.shape[-1] > SHORT and seconds(size, eqn.params["bits"]) > library_seconds(size):
        return f"torch's radix sort takes less for {size} elements of {eqn.params['bits']} bits"
    return None


def seconds(size: int, bits: int) -> float:
    """Of a radix sort of so many keys with their positions: each pass reads keys twice and positions once, and writes both."""
    passes, element = moved(1, bits), 20 / TARGET.levels[-1].bandwidth + RANKED
    return passes * (3 * TARGET.launch + size * element)


def row_seconds(size: int, length: int) -> float:
    """Of ordering rows in registers with their positions."""
    stages = (length - 1).bit_length()
    return TARGET.launch + size * EXCHANGED * stages * (stages + 1) / 2


def library_seconds(size: int) -> float:
    """Of torch's sort of so many words of 32 bits."""
    return LIBRARY + 4 * size * LIBRARY_MOVED


def target_bits(rows: int) -> int:
    """Bits of a target among so many rows; what lies beyond them is ordered as the last one."""
    return max(1, (rows - 1).bit_length())


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
    in_registers = positions is not None and LARGE < sort.length <= SHORT and sort.rows > 1
    if in_registers and row_seconds(sort.aval.size, sort.length) > LIBRARY + sort.aval.size * LIBRARY_ROWS:
        return Refusal(f"torch takes less for the positions in {sort.rows} rows of {sort.length}")
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


def source(
    group: FusionGroup, body: str, launches: list[Launch], buffers: Buffers, begins_as: tuple[tuple[int, int], ...] = ()
) -> KernelSource:
    """The source of a group whose kernels are in `body`; `begins_as`: of an operand a result is a copy when they begin, or is that memory."""
    comments = "".join(f"# {line}\n" for line in dict.fromkeys(str(s) for s in group.sources if s.file))
    made = {
        "launches": tuple(launches),
        "scratch": tuple(buffers.scratch),
        "dtypes": tuple(v.aval.dtype for v in buffers.known),
        "scalars": (),
        "begins_as": begins_as,
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

    def dtype(self, number: int) -> np.dtype:
        known = len(self.known)
        return self.known[number].aval.dtype if number < known else self.scratch[number - known][1]

    def take(self, count: int, dtype: np.dtype) -> int:
        self.scratch.append((count, dtype))
        return len(self.known) + len(self.scratch) - 1


@dataclass(frozen=True)
class Sort:
    """The order of the rows of an array, whose keys have so many bits; of words above `most` as if they were that one."""

    aval: ArrayType
    bits: int
    most: int | None = None

    @property
    def text(self) -> str:
        """The kernels that order these."""
        if self.length > SHORT:
            return WORD_TEXT + block_order.TEXT + LONG_TEXT
        return WORD_TEXT + (SHORT_TEXT if self.length <= LARGE // 2 else block_order.NETWORK_TEXT + ROW_TEXT)

    @property
    def length(self) -> int:
        return self.aval.shape[-1]

    @property
    def rows(self) -> int:
        return self.aval.size // self.length

    def launches(self, keys: int, ordered: int | None, positions: int | None, buffers: Buffers) -> list[Launch]:
        """The launches that read the buffer `keys`, and write those of `ordered` and `positions` that are wanted."""
        if self.length <= SHORT:
            return self._short(keys, ordered, positions, buffers)
        return self.passes(keys, ordered, positions, buffers)

    def _short(self, keys: int, ordered: int | None, positions: int | None, buffers: Buffers) -> list[Launch]:
        block = max(2, 1 << (self.length - 1).bit_length())
        wanted: dict[str, Any] = {"KEYS": ordered is not None, "POSITIONS": positions is not None}
        written = tuple(keys if buffer is None else buffer for buffer in (ordered, positions))
        if block >= LARGE:
            held = ROW_HELD.bit_length() - 1
            wanted |= {"LOG": block.bit_length() - 1, "HELD": held}
            warps = block // (block_order.WARP * ROW_HELD)
            return [Launch("order_row", (keys, *written), (self.length,), wanted, self.rows, warps)]
        together = max(1, 256 // block)
        constants = {"ROWS": together, "BLOCK": block, **wanted}
        grid, warps = -(-self.rows // together), 4 if block >= 256 else 1
        return [Launch("order_rows", (keys, *written), (self.rows, self.length), constants, grid, warps)]

    def passes(
        self, keys: int, ordered: int | None, positions: int | None, buffers: Buffers, carried: int | None = None
    ) -> list[Launch]:
        """The launches of a radix sort; what is `carried`, 32 bits an element, comes to `positions` in the place of these."""
        passes = moved(1, self.bits)
        block, warps, registers = SMALL if self.aval.size <= FEW else KEYS if positions is None else PAIRS
        width, blocks = max(FEWEST_BITS, -(-self.bits // passes)), -(-self.length // block)
        together = min(MOST_TOGETHER, max(1, self.rows * blocks // GROUPS))
        groups, digits = -(-blocks // together), 1 << width
        befores = buffers.take(self.rows * digits * blocks, POSITION)
        counts, group_befores = (buffers.take(self.rows * digits * groups, POSITION) for _ in range(2))
        totals = buffers.take(self.rows * digits, POSITION)
        none = totals  # the buffer of positions that no pass writes
        last = (
            buffers.take(self.aval.size, self.aval.dtype) if ordered is None else ordered,
            none if positions is None else positions,
        )
        other = last
        if passes > 1:
            spare = none if positions is None else buffers.take(self.aval.size, buffers.dtype(positions))
            other = buffers.take(self.aval.size, self.aval.dtype), spare
        scanned = min(SCANNED, max(2, 1 << (groups - 1).bit_length()))
        some = min(digits, COUNTS // scanned)
        scan = {"DIGITS": digits, "SCANNED": scanned, "TOGETHER": some}
        made: list[Launch] = []
        source = keys, none if carried is None else carried
        for number in range(passes):
            final = number == passes - 1
            target = last if (passes - 1 - number) % 2 == 0 else other
            sizes = self.length, blocks, groups, number * width, self.most or 0
            digit = {"DIGITS": digits, "CLIPPED": self.most is not None, "BLOCK": block, "TOGETHER": together}
            wanted = {"KEYS": not final or ordered is not None, "POSITIONS": positions is not None}
            constants = {
                **digit,
                **wanted,
                "FIRST": number == 0 and carried is None,
                **block_order.constants(block, warps, width),
            }
            counting = {**digit, **block_order.counting_constants(block, warps)}
            made += [
                Launch("count_digits", (source[0], befores, counts), sizes, counting, self.rows * groups, warps),
                Launch(
                    "place_digits",
                    (counts, group_befores, totals),
                    (groups,),
                    scan,
                    self.rows * (digits // some),
                    max(1, scanned * some // 512),
                ),
                _limited(
                    Launch(
                        "move_digits",
                        (*source, befores, group_befores, totals, *target),
                        sizes,
                        constants,
                        self.rows * blocks,
                        warps,
                    ),
                    registers,
                ),
            ]
            source = target
        return made


def _limited(launch: Launch, registers: int) -> Launch:
    """A launch whose threads have at most so many registers, or where values do not fit into these 16 more, or as many as they take."""
    if not registers:
        return launch
    return replace(launch, registers=registers, smaller=(replace(launch, registers=registers + 16), launch))
