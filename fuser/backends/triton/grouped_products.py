"""Grouped products: a block of rows of one group a program, times that group's matrix; and each group's sum of outer products.

Where groups begin is known on the device alone. As many programs are launched as there may be blocks at most: each boundary within a
block of rows makes one more. A program finds its group by sums over all sizes; rows that two groups share a block of are computed
for each, and written once.
"""

from __future__ import annotations

import math
from dataclasses import replace

from fuser.backends.base import KernelSource
from fuser.backends.triton import radix_sort
from fuser.backends.triton.emitter import Launch
from fuser.ir.graph import Eqn
from fuser.ops.grouped import grouped_matmul_p
from fuser.partition.group import FusionGroup, Refusal

MOST_GROUPS = 1024  # whose sizes a program adds up
FEWEST_GROUPS = 2
LARGE = 1 << 31  # elements, from which positions do not fit 32 bits

BOUNDS_TEXT = '''
@triton.jit
def bounds(sizes, groups, rows, GROUPS: tl.constexpr):
    """The groups by number, where each begins and ends; the one behind them has the rows that are left."""
    group = tl.arange(0, GROUPS)
    size = tl.load(sizes + group, mask=group < groups, other=0)
    end = tl.cumsum(size, 0)
    begin = tl.minimum(end - size, rows)
    return group, begin, tl.where(group == groups, rows, tl.minimum(end, rows))
'''

MATMUL_TEXT = '''
@triton.jit(do_not_specialize=["groups", "rows", "inner", "columns"])
def multiply_groups(x, y, sizes, out, groups, rows, inner, columns, GROUPS: tl.constexpr, TRANSPOSED: tl.constexpr, INNER: tl.constexpr, COLUMNS: tl.constexpr, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    """Rows of one group times its matrix; rows behind all groups are 0."""
    inner = inner // INNER * INNER
    columns = columns // COLUMNS * COLUMNS
    n_blocks = tl.cdiv(columns, N_BLOCK)
    visit = tl.program_id(0) // n_blocks
    group, begin, end = bounds(sizes, groups, rows, GROUPS)
    first = begin // M_BLOCK
    blocks = tl.where(end > begin, tl.cdiv(end, M_BLOCK) - first, 0)
    before = tl.cumsum(blocks, 0) - blocks
    mine = (visit >= before) & (visit < before + blocks)
    number = tl.sum(tl.where(mine, group, 0), 0)
    start = tl.sum(tl.where(mine, begin, 0), 0)
    finish = tl.sum(tl.where(mine, end, 0), 0)
    block = tl.sum(tl.where(mine, first + visit - before, 0), 0)
    m = block * M_BLOCK + tl.arange(0, M_BLOCK)[:, None]
    n = tl.program_id(0) % n_blocks * N_BLOCK + tl.arange(0, N_BLOCK)[None, :]
    inside, within = (m >= start) & (m < finish), n < columns
    left = x + m.to(tl.int64) * inner
    right = y + number.to(tl.int64) * inner * columns
    total = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    for k in range(0, tl.where(number < groups, inner, 0), K_BLOCK):
        across = k + tl.arange(0, K_BLOCK)[None, :]
        a = tl.load(left + across, mask=inside & (across < inner), other=0)
        down = k + tl.arange(0, K_BLOCK)[:, None]
        place = n * inner + down if TRANSPOSED else down * columns + n
        b = tl.load(right + place, mask=within & (down < inner), other=0)
        total = tl.dot(a, b, total, input_precision="ieee")
    tl.store(out + m.to(tl.int64) * columns + n, total.to(out.dtype.element_ty), mask=inside & within)
'''

SUMS_TEXT = '''
@triton.jit(do_not_specialize=["groups", "rows", "left", "right"])
def sum_groups(x, y, sizes, out, groups, rows, left, right, GROUPS: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    """A block of the sum of the outer products of one group's rows, which are walked along."""
    left = left // LEFT * LEFT
    right = right // RIGHT * RIGHT
    m_blocks, n_blocks = tl.cdiv(left, M_BLOCK), tl.cdiv(right, N_BLOCK)
    number = tl.program_id(0) // (m_blocks * n_blocks)
    block = tl.program_id(0) % (m_blocks * n_blocks)
    group, begin, end = bounds(sizes, groups, rows, GROUPS)
    start = tl.sum(tl.where(group == number, begin, 0), 0)
    finish = tl.sum(tl.where(group == number, end, 0), 0)
    m = block // n_blocks * M_BLOCK + tl.arange(0, M_BLOCK)[None, :]
    n = block % n_blocks * N_BLOCK + tl.arange(0, N_BLOCK)[None, :]
    total = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    for k in range(start, finish, K_BLOCK):
        row = k + tl.arange(0, K_BLOCK)[:, None]
        a = tl.load(x + row.to(tl.int64) * left + m, mask=(row < finish) & (m < left), other=0)
        b = tl.load(y + row.to(tl.int64) * right + n, mask=(row < finish) & (n < right), other=0)
        total = tl.dot(tl.trans(a), b, total, input_precision="ieee")
    down = block // n_blocks * M_BLOCK + tl.arange(0, M_BLOCK)[:, None]
    place = out + (number.to(tl.int64) * left + down) * right + n
    tl.store(place, total.to(out.dtype.element_ty), mask=(down < left) & (n < right))
'''

# Blocks of result and contracted axis, warps and stages, the best first: of numbers of 16 bits, and of others.
NARROW = ((128, 128, 64, 8, 3), (64, 64, 64, 4, 3), (64, 64, 32, 4, 2))
WIDE = ((64, 64, 32, 4, 3), (64, 64, 16, 4, 2))


def refusal(eqn: Eqn) -> str | None:
    """Why a grouped product is none of these kernels; None where it is."""
    groups = eqn.invars[2].aval.shape[0]
    if not FEWEST_GROUPS <= groups < MOST_GROUPS:
        return f"grouped products are of {FEWEST_GROUPS} to {MOST_GROUPS - 1} groups, got {groups}"
    if any(not v.aval.size or v.aval.size >= LARGE for v in (*eqn.invars, *eqn.outvars)):
        return "grouped products are of arrays of fewer than 2^31 elements, and of some"
    return None


def emit(group: FusionGroup) -> KernelSource | Refusal:
    """The source of a group of one grouped product."""
    eqn, operands = group.graph.eqns[-1], radix_sort.read(group)
    if (reason := refusal(eqn)) is not None:
        return Refusal(reason)
    if operands is None:
        return Refusal("grouped products are of arrays that lie in memory")
    buffers = radix_sort.Buffers([*group.graph.invars, *dict.fromkeys(group.graph.outvars)])
    places = tuple(map(buffers.of, (*operands, *eqn.outvars)))
    tiles = NARROW if eqn.invars[0].aval.dtype.itemsize == 2 else WIDE
    first, *others = [_launch(eqn, places, *tile) for tile in tiles]
    text = MATMUL_TEXT if eqn.primitive is grouped_matmul_p else SUMS_TEXT
    launch = replace(first, smaller=tuple(others))
    return radix_sort.source(group, f"{BOUNDS_TEXT}\n\n{text.lstrip()}", [launch], buffers)


def _launch(eqn: Eqn, places: tuple[int, ...], m: int, n: int, k: int, warps: int, stages: int) -> Launch:
    (rows, inner), groups = eqn.invars[0].aval.shape, eqn.invars[2].aval.shape[0]
    columns = eqn.outvars[0].aval.shape[-1]
    together = 16 // eqn.invars[0].aval.dtype.itemsize  # elements of one access
    blocks = {"M_BLOCK": m, "N_BLOCK": n, "K_BLOCK": k}
    constants = {"GROUPS": 1 << groups.bit_length()}
    sizes = groups, rows, inner, columns
    if eqn.primitive is grouped_matmul_p:
        constants |= {"TRANSPOSED": eqn.params["transposed"]}
        constants |= {"INNER": math.gcd(inner, together), "COLUMNS": math.gcd(columns, together)}
        grid = (-(-rows // m) + groups) * -(-columns // n)
        work = (rows + groups * m) * columns * inner
        return Launch("multiply_groups", places, sizes, constants | blocks, grid, warps, stages, work)
    constants |= {"LEFT": math.gcd(inner, together), "RIGHT": math.gcd(columns, together)}
    grid = groups * -(-inner // m) * -(-columns // n)
    return Launch("sum_groups", places, sizes, constants | blocks, grid, warps, stages, rows * inner * columns)
