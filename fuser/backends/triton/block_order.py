"""Text of kernels that order a block of elements by a digit, stably, without memory but shared memory.

Where a GPU takes PTX, each warp ranks its elements among those of equal digits before them, 32 at a time, by counters in shared memory (Adinets and
Merrill, "Onesweep", 2022): some 20 instructions an element. Elsewhere, and in Triton's interpreter, words of digit and place are sorted by a
bitonic network of minima and maxima, some 100 instructions. Both give the same places, so results do not depend on which it was.
"""

from __future__ import annotations

BINS = 256  # digits that a block is ordered by at most
WARP = 32
NETWORK_TEXT = '''
@triton.jit
def bit_of(LOG: tl.constexpr, HELD: tl.constexpr, BIT: tl.constexpr):
    """A bit of an element's place in the order, by dimensions of two: the lowest HELD bits are the first dimensions, which one thread holds."""
    place: tl.constexpr = (BIT + LOG - HELD) % LOG
    shape: tl.constexpr = [1] * (LOG - 1 - place) + [2] + [1] * place
    return tl.reshape(tl.arange(0, 2), shape)


@triton.jit
def exchanged(words, LOG: tl.constexpr, HELD: tl.constexpr, BIT: tl.constexpr):
    """The smaller of two words whose places differ in a bit first."""
    other = words ^ tl.xor_sum(words, LOG - 1 - (BIT + LOG - HELD) % LOG, True)
    return tl.where(bit_of(LOG, HELD, BIT) != 0, tl.maximum(words, other), tl.minimum(words, other))


@triton.jit
def sorted_words(words, LOG: tl.constexpr, HELD: tl.constexpr):
    """2**LOG signed words in their order (Batcher 1968); parts that go downwards are complemented, so that all exchanges are alike."""
    cube: tl.constexpr = [2] * LOG
    words = tl.reshape(words, cube)
    for stage in tl.static_range(LOG):
        if stage < LOG - 1:
            words = words ^ -bit_of(LOG, HELD, stage + 1)
        for step in tl.static_range(stage + 1):
            words = exchanged(words, LOG, HELD, stage - step)
        if stage < LOG - 1:
            words = words ^ -bit_of(LOG, HELD, stage + 1)
    return tl.reshape(tl.trans(tl.reshape(words, [2**HELD, 2 ** (LOG - HELD)])), [2**LOG])
'''

TEXT = (
    NETWORK_TEXT
    + '''
@triton.jit
def in_order(digit, lane, LOG: tl.constexpr, HELD: tl.constexpr, ASSEMBLY: tl.constexpr, REGISTERS: tl.constexpr, PTX: tl.constexpr):
    """A block's digits in their stable order, and the places that they come from."""
    if PTX:
        word = tl.inline_asm_elementwise(ASSEMBLY, REGISTERS, [digit, lane], dtype=tl.int32, is_pure=False, pack=2**HELD)
        digit, source = word >> 16, word & 0xFFFF
    else:
        word = sorted_words((digit << LOG) | lane, LOG, HELD)
        digit, source = word >> LOG, word & (2**LOG - 1)
    return digit, source


@triton.jit
def counts_of(digit, inside, lane, DIGITS: tl.constexpr, HELD: tl.constexpr, ASSEMBLY: tl.constexpr, REGISTERS: tl.constexpr, PTX: tl.constexpr):
    """How often each digit stands in a block, of the elements inside."""
    if PTX:
        digit = tl.where(inside, digit, 256)
        counts = tl.inline_asm_elementwise(ASSEMBLY, REGISTERS, [digit, lane], dtype=tl.int32, is_pure=False, pack=HELD)
        counts = tl.gather(counts, tl.arange(0, DIGITS), 0)
    else:
        counts = tl.histogram(digit, DIGITS, mask=inside)
    return counts
'''
)


def constants(block: int, warps: int, bits: int) -> dict[str, int | str | bool]:
    """Those of `in_order` for digits of so many bits of a power of two of elements, of which a thread holds as many as others."""
    log, held = block.bit_length() - 1, (block // (WARP * warps)).bit_length() - 1
    registers = ",".join(["=&r"] * (1 << held) + ["r"] * (2 << held))
    return {
        "LOG": log,
        "HELD": held,
        "ASSEMBLY": assembly(1 << held, warps, bits),
        "REGISTERS": registers,
        "PTX": False,
    }


def counting_constants(block: int, warps: int) -> dict[str, int | str | bool]:
    """Those of `counts_of` for such a block."""
    held = block // (WARP * warps)
    registers = ",".join(["=&r"] * held + ["r"] * (2 * held))
    return {"HELD": held, "ASSEMBLY": counting_assembly(held, warps), "REGISTERS": registers, "PTX": False}


def counting_assembly(held: int, warps: int) -> str:
    """PTX that takes `held` digits, BINS of elements that do not count, then as many places, and gives at the places below BINS how often they are
    a digit of the block. Increments by one of equal addresses are one operation of shared memory."""
    threads = WARP * warps
    lines = [
        ".reg .b32 own, counters, bin, zero, one;",
        ".reg .pred inside;",
        f".shared .align 16 .b8 count_bins[{4 * (BINS + 4)}];",
        "mov.u32 own, %tid.x;",
        "mov.u32 counters, count_bins;",
        "mad.lo.u32 own, own, 4, counters;",
        "mov.u32 zero, 0;",
        "mov.u32 one, 1;",
        "bar.sync 0;",
        *(f"st.shared.u32 [own + {4 * threads * n}], zero;" for n in range(BINS // threads)),
        "bar.sync 0;",
    ]
    for n in range(held):
        lines += [f"mad.lo.u32 bin, ${held + n}, 4, counters;", "red.shared.add.u32 [bin], one;"]
    lines.append("bar.sync 0;")
    for n in range(held):
        lines += [
            f"mad.lo.u32 bin, ${2 * held + n}, 4, counters;",
            f"setp.lt.u32 inside, ${2 * held + n}, {BINS};",
            f"mov.u32 ${n}, 0;",
            f"@inside ld.shared.u32 ${n}, [bin];",
        ]
    return "{\n" + "\n".join(lines) + "\n}"


def assembly(held: int, warps: int, bits: int = 8) -> str:
    """PTX that takes `held` digits, then as many places of them in the block, and gives the elements at these places of the order: digits << 16 | places.

    Elements go through shared memory first, so that a warp has neighbouring ones whatever the layout is. `bins` counts, for each warp, the elements
    of each digit: first those before, then the number of all that are placed before the digit's first one of the warp.
    """
    of_thread = BINS // (WARP * warps)
    numbers = range(held)
    place, digit = (lambda n: f"${2 * held + n}"), (lambda n: f"${held + n}")
    lines = [
        ".reg .b32 thread, lane, warp, own, places, counters, elements, bin, same, before, found, count, sum, step, base, below;",
        f".reg .b32 %digit<{held}>, %tally<{of_thread * warps}>;",
        ".reg .pred first, inside;",
        f".shared .align 16 .b8 order_places[{4 * held * warps * WARP}];",
        f".shared .align 16 .b8 order_bins[{4 * BINS * warps}];",
        f".shared .align 16 .b8 order_sums[{4 * warps}];",
        "mov.u32 thread, %tid.x;",
        "and.b32 lane, thread, 31;",
        "shr.u32 warp, thread, 5;",
        "mov.u32 below, %lanemask_lt;",
        "mov.u32 places, order_places;",
        "mov.u32 counters, order_bins;",
        f"mad.lo.u32 own, warp, {4 * BINS}, counters;",
        f"mad.lo.u32 elements, warp, {WARP * held}, lane;",
        # The digits in the order of their places, and no element counted.
        "mad.lo.u32 bin, lane, 4, own;",
        "mov.u32 count, 0;",
        *(f"st.shared.u32 [bin + {4 * WARP * n}], count;" for n in range(BINS // WARP)),
    ]
    for n in numbers:
        lines += [f"add.u32 bin, places, {place(n)};", f"st.shared.u8 [bin], {digit(n)};"]
    lines += ["bar.sync 0;", "add.u32 bin, places, elements;"]
    lines += [f"ld.shared.u8 %digit{n}, [bin + {WARP * n}];" for n in numbers]
    for n in numbers:
        lines += [
            *_alike(f"%digit{n}", bits),
            f"mad.lo.u32 bin, %digit{n}, 4, own;",
            "ld.shared.u32 found, [bin];",
            "and.b32 before, same, below;",
            "popc.b32 count, same;",
            "add.u32 count, count, found;",
            "setp.eq.u32 first, before, 0;",
            "bar.warp.sync 0xffffffff;",
            "@first st.shared.u32 [bin], count;",
            "bar.warp.sync 0xffffffff;",
            "popc.b32 before, before;",
            "add.u32 found, found, before;",
            f"mad.lo.u32 %digit{n}, found, {BINS}, %digit{n};",  # from here on the rank above the digit, in one register
        ]
    lines += ["bar.sync 0;", *_placed(warps, of_thread), "bar.sync 0;"]
    for n in numbers:
        lines += [
            f"and.b32 count, %digit{n}, {BINS - 1};",
            "mad.lo.u32 bin, count, 4, own;",
            "ld.shared.u32 found, [bin];",
            f"shr.u32 before, %digit{n}, 8;",
            "add.u32 found, found, before;",
            "mad.lo.u32 bin, found, 4, places;",
            "mad.lo.u32 count, count, 65536, elements;",
            f"add.u32 count, count, {WARP * n};",
            "st.shared.u32 [bin], count;",
        ]
    lines.append("bar.sync 0;")
    for n in numbers:
        lines += [f"mad.lo.u32 bin, {place(n)}, 4, places;", f"ld.shared.u32 ${n}, [bin];"]
    return "{\n" + "\n".join(lines) + "\n}"


def _alike(digit: str, bits: int) -> list[str]:
    """`same`: the threads of a warp with this one's digit, by a vote on each bit; `match.any` takes longer where digits are many."""
    lines = ["mov.u32 same, 0xffffffff;"]
    for bit in range(bits):
        lines += [
            f"and.b32 step, {digit}, {1 << bit};",
            "setp.ne.u32 inside, step, 0;",
            "vote.sync.ballot.b32 step, inside, 0xffffffff;",
            "@!inside not.b32 step, step;",
            "and.b32 same, same, step;",
        ]
    return lines


def _placed(warps: int, of_thread: int) -> list[str]:
    """Counts of warps as what comes before, by a scan over digits: a thread has `of_thread` neighbouring ones."""
    digits = range(of_thread)
    tally = lambda n, warp: f"%tally{n * warps + warp}"
    lines = [f"mad.lo.u32 bin, thread, {4 * of_thread}, counters;"]
    for warp in range(warps):
        lines += [f"ld.shared.u32 {tally(n, warp)}, [bin + {4 * (BINS * warp + n)}];" for n in digits]
    lines.append("mov.u32 sum, 0;")
    for n in digits:  # exclusive sums over this thread's digits, and over warps in each
        for warp in range(warps):
            lines += [
                f"mov.u32 step, {tally(n, warp)};",
                f"mov.u32 {tally(n, warp)}, sum;",
                "add.u32 sum, sum, step;",
            ]
    lines.append("mov.u32 base, sum;")
    for distance in (1, 2, 4, 8, 16):
        lines += [
            f"shfl.sync.up.b32 step, base, {distance}, 0, 0xffffffff;",
            f"setp.ge.u32 inside, lane, {distance};",
            "@inside add.u32 base, base, step;",
        ]
    lines += [
        "setp.eq.u32 inside, lane, 31;",
        "mov.u32 found, order_sums;",
        "mad.lo.u32 step, warp, 4, found;",
        "@inside st.shared.u32 [step], base;",
        "bar.sync 0;",
        "sub.u32 base, base, sum;",
    ]
    for other in range(warps - 1):
        lines += [
            f"ld.shared.u32 step, [found + {4 * other}];",
            f"setp.gt.u32 inside, warp, {other};",
            "@inside add.u32 base, base, step;",
        ]
    for warp in range(warps):
        for n in digits:
            lines += [
                f"add.u32 {tally(n, warp)}, {tally(n, warp)}, base;",
                f"st.shared.u32 [bin + {4 * (BINS * warp + n)}], {tally(n, warp)};",
            ]
    return lines
