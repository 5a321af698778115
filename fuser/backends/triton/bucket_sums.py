"""Sums of single floats at targets among many rows: updates are moved once, to buckets of neighbouring rows, whose sums then lie in shared memory.

A program counts how many of its updates go to each bucket, and where they begin there follows from all counts; they are written in whatever order
its threads come, which changes nothing: a bucket's updates are added as whole numbers, as multiples of a small part of the largest one of their row
(`scaled sum` of accumulators.py). Updates of a bucket that has many are added by several programs, which take the updates of programs that moved
them whole, so that what each of them adds up, and with it the rounding of their sums, is the same in each run.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fuser.backends.triton import accumulators, radix_sort, shared_words, spell, target_words
from fuser.backends.triton.emitter import Launch
from fuser.backends.triton.target import TARGET, WARP
from fuser.ir.graph import Eqn
from fuser.ir.types import is_inexact

SHIFT = 12
PLACES = 1 << SHIFT  # rows of a bucket, which have three words each
MOST_BUCKETS = 8192
BLOCK, STEPS, WARPS = (
    4096,
    4,
    32,
)  # updates that a program counts or moves at once, how often for one count, and its warps
REGISTERS = 32  # of a thread that counts, where that suffices, so that two programs fit on a multiprocessor
MOVING = 132  # programs that move, one on each multiprocessor of an H100
ADDED, ADDING_WARPS = 1024, 8  # updates that a program adds at once
CHUNK = 4 * PLACES  # updates from which on a bucket has several programs
PROGRAMS = 528  # that add: four on each multiprocessor
TOGETHER, SCANNED = 16, 256  # buckets, and counts of each, that a program scans at once
FINISHED, PARTS = 1024, 8  # rows, and sums of each, that are put together at once
HEADROOM = 62 - 24 - (CHUNK + BLOCK * STEPS).bit_length()
# Seconds of an update beside its bytes, five operations on shared memory among them: on an H100 the launches took so long beside their bytes where all
# updates went to one bucket, and a third of that is added for words that differ.
MOVED = 19e-12
# Bytes in which a GPU's second cache joins the words of a line that are written one after another, and the seconds of a word that it does not join. From
# calls with 35, 69 and 87 MB of these on an H100, of which the third was foretold by the other two; that is the time of an atomic on memory (`accumulators.UNCACHED`) on an H200.
JOINED, APART = 19e6, 57e-12
LAUNCHES = 6
LINE = 128  # bytes of a line of the second cache

TEXT = '''
@triton.jit(do_not_specialize=["length", "rows", "buckets"])
def count_buckets(targets, counts, length, rows, buckets, NEGATIVE: tl.constexpr, SHIFT: tl.constexpr, BLOCK: tl.constexpr, STEPS: tl.constexpr, ASSEMBLY: tl.constexpr, PTX: tl.constexpr):
    """counts[program, bucket]: how many of the program's updates go to each bucket."""
    own = counts + tl.program_id(0).to(tl.int64) * buckets
    base = shared_words(ASSEMBLY, PTX)
    lane = tl.arange(0, BLOCK)
    for start in range(0, buckets, BLOCK):
        set_word(base, own, start + lane, lane * 0, start + lane < buckets, PTX)
    all_threads(PTX)
    for step in range(STEPS):
        place = (tl.program_id(0) * STEPS + step) * BLOCK + lane
        target = target_of(tl.load(targets + place, mask=place < length, other=0), rows, NEGATIVE)
        inside = (place < length) & (target < rows.to(tl.uint32))
        add_word(base, own, (target >> SHIFT).to(tl.int32), lane * 0 + 1, inside, PTX)
    all_threads(PTX)
    if PTX:
        for start in range(0, buckets, BLOCK):
            inside = start + lane < buckets
            tl.store(own + start + lane, word_at(base, own, start + lane, inside, PTX), mask=inside)


@triton.jit(do_not_specialize=["blocks", "buckets"])
def scan_buckets(counts, totals, blocks, buckets, TOGETHER: tl.constexpr, SCANNED: tl.constexpr):
    """The counts of some buckets as those of programs before, and all together."""
    bucket = (tl.program_id(0) * TOGETHER + tl.arange(0, TOGETHER))[None, :]
    before = tl.zeros((TOGETHER,), tl.int32)
    for start in range(0, blocks, SCANNED):
        block = (start + tl.arange(0, SCANNED))[:, None]
        inside = (block < blocks) & (bucket < buckets)
        place = counts + block.to(tl.int64) * buckets + bucket
        count = tl.load(place, mask=inside, other=0)
        tl.store(place, before[None, :] + tl.cumsum(count, 0) - count, mask=inside)
        before += tl.sum(count, 0)
    bucket = tl.program_id(0) * TOGETHER + tl.arange(0, TOGETHER)
    tl.store(totals + bucket, before, mask=bucket < buckets)


@triton.jit(do_not_specialize=["buckets"])
def place_buckets(totals, starts, chunks, slots, buckets, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    """Where buckets begin, the first of their chunks, and of these, where there are several, the first one's place among such."""
    start_before = 0
    chunk_before = 0
    slot_before = 0
    for start in range(0, buckets, BLOCK):
        bucket = start + tl.arange(0, BLOCK)
        total = tl.load(totals + bucket, mask=bucket < buckets, other=0)
        chunk = tl.where(bucket < buckets, tl.maximum((total + CHUNK - 1) // CHUNK, 1), 0)
        slot = tl.where(chunk > 1, chunk, 0)
        tl.store(starts + bucket, start_before + tl.cumsum(total, 0) - total, mask=bucket < buckets)
        tl.store(chunks + bucket, chunk_before + tl.cumsum(chunk, 0) - chunk, mask=bucket < buckets)
        tl.store(slots + bucket, slot_before + tl.cumsum(slot, 0) - slot, mask=bucket < buckets)
        start_before += tl.sum(total, 0)
        chunk_before += tl.sum(chunk, 0)
        slot_before += tl.sum(slot, 0)
    tl.store(starts + buckets, start_before)
    tl.store(chunks + buckets, chunk_before)


@triton.jit
def put_word(place, word, inside, PTX: tl.constexpr):
    """Store words of 64 bits from the threads that have them: Triton gives scattered stores to others, by way of shared memory and barriers."""
    if PTX:
        tl.inline_asm_elementwise("PUT", "=r,l,l,r", [place.to(tl.int64), word, inside.to(tl.int32)], dtype=tl.int32, is_pure=False, pack=1)
    else:
        tl.store(place, word, mask=inside)


@triton.jit(do_not_specialize=["length", "rows", "buckets", "blocks"])
def move_to_buckets(targets, updates, counts, starts, cursors, moved, length, rows, buckets, blocks, NEGATIVE: tl.constexpr, SHIFT: tl.constexpr, BLOCK: tl.constexpr, STEPS: tl.constexpr, ASSEMBLY: tl.constexpr, PTX: tl.constexpr):
    """Updates behind those of buckets and programs before, as words of 64 bits: the row in its bucket above the number's bits."""
    base = shared_words(ASSEMBLY, PTX)
    lane = tl.arange(0, BLOCK)
    for block in range(tl.program_id(0), blocks, tl.num_programs(0)):
        first = tl.cast(block, tl.int64) * buckets
        own = cursors + first
        for start in range(0, buckets, BLOCK):
            inside = start + lane < buckets
            before = tl.load(counts + first + start + lane, mask=inside, other=0)
            before += tl.load(starts + start + lane, mask=inside, other=0)
            set_word(base, own, start + lane, before, inside, PTX)
        all_threads(PTX)
        for step in range(STEPS):
            place = (block * STEPS + step) * BLOCK + lane
            target = tl.load(targets + place, mask=place < length, other=0, eviction_policy="evict_first")
            target = target_of(target, rows, NEGATIVE)
            inside = (place < length) & (target < rows.to(tl.uint32))
            update = tl.load(updates + place, mask=place < length, other=0, eviction_policy="evict_first").to(tl.float32)
            at = add_word(base, own, (target >> SHIFT).to(tl.int32), lane * 0 + 1, inside, PTX)
            word = (target & ((1 << SHIFT) - 1)).to(tl.int64) << 32
            word |= update.to(tl.uint32, bitcast=True).to(tl.int64)
            put_word(moved + at, word, inside, PTX)
        all_threads(PTX)


@triton.jit
def last_not_after(numbers, low, high, number):
    """The last of ascending numbers that is not after this one: at `low` or behind it, before `high`."""
    while high - low > 1:
        middle = (low + high) // 2
        if tl.load(numbers + middle) <= number:
            low = middle
        else:
            high = middle
    return low


@triton.jit
def whole_runs(counts, bucket, number, total, blocks, buckets):
    """The first beginning of a program's updates in a bucket that is not before this one, or the end of all."""
    low = 0
    high = blocks
    while low < high:
        middle = (low + high) // 2
        if tl.load(counts + middle.to(tl.int64) * buckets + bucket) < number:
            low = middle + 1
        else:
            high = middle
    found = total
    if low < blocks:
        found = tl.load(counts + low.to(tl.int64) * buckets + bucket)
    return found


@triton.jit(do_not_specialize=["rows", "buckets", "blocks"])
def sum_buckets(moved, counts, starts, chunks, slots, operand, out, partial, words, rows, buckets, blocks, PLACES: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr, HEADROOM: tl.constexpr, ASSEMBLY: tl.constexpr, PTX: tl.constexpr):
    """The rows of a bucket with their sums; of one that has several chunks the sums of each."""
    own = words + tl.program_id(0).to(tl.int64) * (3 * PLACES)
    base = shared_words(ASSEMBLY, PTX)
    lane = tl.arange(0, BLOCK)
    every = lane >= 0
    found = tl.load(chunks + buckets)
    for chunk in range(tl.program_id(0), found, tl.num_programs(0)):
        bucket = last_not_after(chunks, tl.maximum(chunk - (found - buckets), 0), tl.minimum(chunk + 1, buckets), chunk)
        begin = tl.load(starts + bucket)
        total = tl.load(starts + bucket + 1) - begin
        first = tl.load(chunks + bucket)
        several = tl.load(chunks + bucket + 1) - first
        start = 0
        end = total
        if several > 1:
            start = whole_runs(counts, bucket, (chunk - first) * CHUNK, total, blocks, buckets)
            if chunk - first + 1 < several:
                end = whole_runs(counts, bucket, (chunk - first + 1) * CHUNK, total, blocks, buckets)
        for at in range(0, 3 * PLACES, BLOCK):
            set_word(base, own, at + lane, lane * 0, every, PTX)
        all_threads(PTX)
        for at in range(begin + start, begin + end, BLOCK):
            inside = at + lane < begin + end
            word = tl.load(moved + at + lane, mask=inside, other=0)
            bits = word.to(tl.int32)
            exponent = tl.maximum((bits >> 23) & 255, 1)
            max_word(base, own, (word >> 32).to(tl.int32), exponent, inside & ((bits & 0x7FFFFFFF) != 0), PTX)
        all_threads(PTX)
        for at in range(begin + start, begin + end, BLOCK):
            inside = at + lane < begin + end
            word = tl.load(moved + at + lane, mask=inside, other=0)
            row = (word >> 32).to(tl.int32)
            exponent, whole, which = parts_of(word.to(tl.int32).to(tl.float32, bitcast=True))
            largest = word_at(base, own, row, inside, PTX)
            down = tl.minimum(tl.maximum(largest - exponent, 0), 62).to(tl.int64)
            part = ((whole << HEADROOM) + ((whole * 0 + 1 << down) >> 1)) >> down
            adds = inside & (largest < 255) & (part != 0)
            low = part.to(tl.int32)
            old = add_word(base, own, PLACES + row, low, adds, PTX)
            carry = (old + low).to(tl.uint32, bitcast=True) < low.to(tl.uint32, bitcast=True)
            high = (part >> 32).to(tl.int32) + carry.to(tl.int32)
            add_word(base, own, 2 * PLACES + row, high, adds & (high != 0), PTX)
            or_word(base, own, PLACES + row, which.to(tl.int32), inside & (which != 0), PTX)
        all_threads(PTX)
        for at in range(0, PLACES, BLOCK):
            largest = word_at(base, own, at + lane, every, PTX)
            low = word_at(base, own, PLACES + at + lane, every, PTX)
            high = word_at(base, own, 2 * PLACES + at + lane, every, PTX)
            word = (high.to(tl.int64) << 32) | low.to(tl.uint32, bitcast=True).to(tl.int64)
            unit = ((largest + (873 - HEADROOM)).to(tl.int64) << 52).to(tl.float64, bitcast=True)
            value = word.to(tl.float64) * unit
            if several > 1:
                value = tl.where(largest == 0, -0.0, tl.where(largest == 255, value_of(word).to(tl.float64), value))
                slot = tl.load(slots + bucket) + (chunk - first)
                tl.store(partial + slot.to(tl.int64) * PLACES + at + lane, value)
            else:
                place = bucket * PLACES + at + lane
                old = tl.load(operand + place, mask=place < rows, other=0).to(tl.float32)
                result = (old.to(tl.float64) + value).to(tl.float32)
                result = tl.where(largest == 255, old + value_of(word), tl.where(largest == 0, old, result))
                tl.store(out + place, result.to(STORED), mask=place < rows)
        all_threads(PTX)


@triton.jit(do_not_specialize=["rows"])
def add_partial(chunks, slots, operand, partial, out, rows, PLACES: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    """Rows with the sums of several chunks, in their order."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bucket = tl.program_id(0) * BLOCK // PLACES
    several = tl.load(chunks + bucket + 1) - tl.load(chunks + bucket)
    if several > 1:
        row = (tl.load(slots + bucket).to(tl.int64) * PLACES + place % PLACES)[None, :]
        total = tl.zeros((PARTS, BLOCK), tl.float64) * -1.0
        for start in range(0, several, PARTS):
            part = (start + tl.arange(0, PARTS))[:, None]
            inside = (part < several) & (place >= 0)[None, :]
            total += tl.load(partial + row + part.to(tl.int64) * PLACES, mask=inside, other=-0.0)
        old = tl.load(operand + place, mask=place < rows, other=0).to(tl.float32)
        result = old.to(tl.float64) + tl.sum(total, 0)
        tl.store(out + place, result.to(tl.float32).to(STORED), mask=place < rows)
'''.replace("PUT", "{ .reg .pred live; setp.ne.s32 live, $3, 0; mov.u32 $0, 0; @live st.global.b64 [$1], $2; }")


def sums(eqn: Eqn) -> bool:
    """Whether a combination is a sum of single floats that takes less so than by atomics on memory, or in the order of targets."""
    (rows, width), dtype, count = eqn.invars[0].aval.shape, eqn.invars[0].aval.dtype, eqn.invars[1].aval.size
    if eqn.params["reduction"] != "sum" or eqn.params["unique"] or not is_inexact(dtype) or dtype.itemsize > 4:
        return False
    if width != 1 or rows > MOST_BUCKETS * PLACES or not 0 < count < accumulators.MOST_UPDATES or not rows:
        return False
    return seconds(rows, count) < accumulators.least_seconds(eqn)


def seconds(rows: int, count: int) -> float:
    """Of sums of so many updates: targets are read twice, updates once, and what is moved once from memory; each program has counts of all buckets."""
    blocks, buckets = -(-count // (BLOCK * STEPS)), -(-rows // PLACES)
    moved = 28 * count + 8 * rows + 16 * blocks * buckets
    apart = max(0.0, 1 - JOINED / written_at_once(blocks, buckets))
    return LAUNCHES * TARGET.launch + moved / TARGET.levels[-1].bandwidth + count * (MOVED + apart * APART)


def written_at_once(blocks: int, buckets: int) -> int:
    """Bytes of the lines to which programs that run at once move updates: all that they move, or one line of each for each bucket."""
    return min(MOVING, blocks) * min(8 * BLOCK * STEPS, LINE * buckets)


def launches(
    eqn: Eqn, operand: int, targets: int, updates: int, out: int, buffers: radix_sort.Buffers
) -> tuple[list[str], list[Launch]]:
    """The texts, and the launches that add the buffer's updates to the rows at its targets."""
    rows, length = eqn.invars[0].aval.shape[0], eqn.invars[1].aval.size
    blocks, buckets = -(-length // (BLOCK * STEPS)), -(-rows // PLACES)
    whole = np.dtype("int32")
    programs = min(PROGRAMS, buckets + length // CHUNK)
    counts, cursors = (buffers.take(blocks * buckets, whole) for _ in range(2))
    totals, starts, chunks, slots = (buffers.take(buckets + 1, whole) for _ in range(4))
    moved = buffers.take(length, np.dtype("int64"))
    partial = buffers.take(max(1, 2 * length // CHUNK) * PLACES, np.dtype("float64"))
    words = buffers.take(3 * PLACES * programs, whole)
    counted = {
        "NEGATIVE": target_words.negative(eqn),
        "SHIFT": SHIFT,
        "BLOCK": BLOCK,
        "STEPS": STEPS,
        "ASSEMBLY": shared_words.assembly(min(MOST_BUCKETS, 1 << (buckets - 1).bit_length())),
        "PTX": False,
    }
    added = {
        "PLACES": PLACES,
        "BLOCK": ADDED,
        "CHUNK": CHUNK,
        "HEADROOM": HEADROOM,
        "ASSEMBLY": shared_words.assembly(3 * PLACES),
        "PTX": False,
    }
    sizes, threads = (length, rows, buckets), WARPS * WARP["cuda"]
    count = Launch("count_buckets", (targets, counts), sizes, counted, blocks, WARPS, threads=threads)
    made = [
        replace(count, registers=REGISTERS, smaller=(count,)),
        Launch(
            "scan_buckets",
            (counts, totals),
            (blocks, buckets),
            {"TOGETHER": TOGETHER, "SCANNED": SCANNED},
            -(-buckets // TOGETHER),
            8,
        ),
        Launch("place_buckets", (totals, starts, chunks, slots), (buckets,), {"CHUNK": CHUNK, "BLOCK": 1024}, 1, 8),
        Launch(
            "move_to_buckets",
            (targets, updates, counts, starts, cursors, moved),
            (*sizes, blocks),
            counted,
            min(MOVING, blocks),
            WARPS,
            threads=threads,
        ),
        Launch(
            "sum_buckets",
            (moved, counts, starts, chunks, slots, operand, out, partial, words),
            (rows, buckets, blocks),
            added,
            programs,
            ADDING_WARPS,
        ),
        Launch(
            "add_partial",
            (chunks, slots, operand, partial, out),
            (rows,),
            {"PLACES": PLACES, "BLOCK": FINISHED, "PARTS": PARTS},
            buckets * PLACES // FINISHED,
            8,
        ),
    ]
    stored = spell.storage(eqn.invars[0].aval.dtype)
    return [accumulators.PARTS_TEXT, target_words.TEXT, shared_words.TEXT, TEXT.replace("STORED", stored)], made
