"""The positions of the largest elements of rows, without ordering them: a program holds a block of a row in registers and finds the smallest of
those that it keeps bit by bit, from the highest one, until as many are as large as it keeps.

Rows of several blocks take several rounds: each block keeps as many as are wanted of the row, and what blocks have kept is the row of the
next round. A row is read once, and a round meets a quarter or less of what the one before it met.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fuser.backends.base import KernelSource
from fuser.backends.triton import radix_sort
from fuser.backends.triton.emitter import Launch
from fuser.ir.graph import Eqn
from fuser.ir.types import is_inexact, short_dtype
from fuser.ops.order import POSITION
from fuser.ops.selection import MOST_SELECTED, SELECTED
from fuser.partition.group import FusionGroup, Refusal

SMALLEST, LARGEST = 4096, 8192  # elements of one of several blocks
KEPT, WANTED = (
    LARGEST // MOST_SELECTED,
    16,
)  # elements of a block for each that it keeps: at least, and as long as blocks may be larger
HELD = 16  # elements that a thread holds, of 32 in a warp
FEWER_WARPS = 8  # of a largest block, where threads of more have too few registers

TEXT = '''
@triton.jit
def word_of(key):
    """Unsigned words in the total order of the keys."""
WORD


@triton.jit(do_not_specialize=["length", "count", "blocks", "wanted"])
def select_largest(keys, before, kept, length, count, blocks, wanted, BLOCK: tl.constexpr, BITS: tl.constexpr, FIRST: tl.constexpr):
    """The positions of the `wanted` largest of a block's candidates: all elements in the first round, then the positions of `before`."""
    row, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    column = block * BLOCK + tl.arange(0, BLOCK)
    inside = column < count
    start = row.to(tl.int64) * length
    if FIRST:
        position = column
    else:
        position = tl.load(before + row.to(tl.int64) * count + column, mask=inside, other=0)
    word = tl.where(inside, word_of(tl.load(keys + start + position, mask=inside, other=0)), 0)
    own = tl.minimum(wanted, count - block * BLOCK)
    bit = tl.full((), 1 << (BITS - 1), tl.uint32)
    least = tl.full((), 0, tl.uint32)
    found = tl.full((), BLOCK, tl.int32)
    while (bit != 0) & (found != own):
        tried = least | bit
        as_large = tl.sum((word >= tried).to(tl.int32), 0)
        least = tl.where(as_large >= own, tried, least)
        found = tl.where(as_large >= own, as_large, found)
        bit = bit >> 1
    larger, equal = inside & (word > least), inside & (word == least)
    ranks = tl.cumsum((larger.to(tl.uint32) << 16) | equal.to(tl.uint32), 0)
    of_larger, of_equal = (ranks >> 16).to(tl.int32), (ranks & 0xFFFF).to(tl.int32)
    rest = own - tl.sum(larger.to(tl.int32), 0)
    chosen = larger | (equal & (of_equal <= rest))
    every = (blocks - 1) * wanted + tl.minimum(wanted, count - (blocks - 1) * BLOCK)
    place = row.to(tl.int64) * every + block * wanted + of_larger + tl.minimum(of_equal, rest) - 1
    tl.store(kept + place, position, mask=chosen)
'''


def refusal(eqn: Eqn) -> str | None:
    """Why a selection is torch's to make; None where it is made here."""
    wanted, length = eqn.params["k"], eqn.invars[0].aval.shape[-1]
    if eqn.invars[0].aval.dtype not in SELECTED:
        return f"torch selects among {short_dtype(eqn.invars[0].aval.dtype)}"
    if length > LARGEST and wanted > MOST_SELECTED:
        return f"torch selects {wanted} of {length} elements, which no block holds {KEPT} times over"
    return None


def emit(group: FusionGroup) -> KernelSource | Refusal:
    """The source of a group of one selection."""
    eqn, operands = group.graph.eqns[-1], radix_sort.read(group)
    if (reason := refusal(eqn)) is not None:
        return Refusal(reason)
    if operands is None or not eqn.invars[0].aval.size:
        return Refusal("a selection among numbers that lie in memory is made here")
    buffers = radix_sort.Buffers([*group.graph.invars, *dict.fromkeys(group.graph.outvars)])
    keys, out = buffers.of(operands[0]), buffers.of(eqn.outvars[0])
    dtype = eqn.invars[0].aval.dtype
    return radix_sort.source(group, TEXT.replace("WORD", _word(dtype)), _rounds(eqn, keys, out, buffers), buffers)


def _word(dtype: np.dtype) -> str:
    """The body of word_of: signs turn integers round, and of negative floats all bits."""
    bits = 8 * dtype.itemsize
    if dtype.kind == "u":
        return "    return key.to(tl.uint32)"
    lines = [f"    bits = key.to(tl.uint{bits}, bitcast=True).to(tl.uint32)"]
    top, ones = 1 << (bits - 1), (1 << bits) - 1
    if is_inexact(dtype):
        lines.append(f"    return tl.where(bits < {top}, bits ^ {top}, bits ^ {ones})")
    else:
        lines.append(f"    return bits ^ {top}")
    return "\n".join(lines)


def _rounds(eqn: Eqn, keys: int, out: int, buffers: radix_sort.Buffers) -> list[Launch]:
    """A launch a round; the last one has a block a row, and writes the result."""
    aval, wanted = eqn.invars[0].aval, eqn.params["k"]
    length = aval.shape[-1]
    rows, count, before = aval.size // length, length, keys
    made: list[Launch] = []
    while True:
        block = _block(count, wanted)
        blocks = -(-count // block)
        kept = _kept(count, block, wanted)
        target = out if blocks == 1 else buffers.take(rows * kept, POSITION)
        constants: dict[str, Any] = {"BLOCK": block, "BITS": 8 * aval.dtype.itemsize, "FIRST": not made}
        sizes = (length, count, blocks, wanted)
        warps = max(1, min(32, block // (32 * HELD)))
        launch = Launch("select_largest", (keys, before, target), sizes, constants, rows * blocks, warps)
        fewer = (replace(launch, warps=FEWER_WARPS),) if warps > FEWER_WARPS else ()
        made.append(replace(launch, smaller=fewer))
        if blocks == 1:
            return made
        count, before = kept, target


def _block(count: int, wanted: int) -> int:
    """Elements of a program: a whole row where it can be held."""
    whole = 1 << (count - 1).bit_length()
    if whole <= LARGEST:
        return max(whole, 2)
    return min(LARGEST, max(SMALLEST, 1 << (WANTED * wanted - 1).bit_length()))


def _kept(count: int, block: int, wanted: int) -> int:
    """What all blocks of a row keep together."""
    blocks = -(-count // block)
    return (blocks - 1) * wanted + min(wanted, count - (blocks - 1) * block)
