"""Buffer slots: where each value of the plan lives, from which group to which, and which slots share memory.

Temporaries of kernels lie in one arena, at offsets such that no two that live at once overlap. Results have memory of
their own, since they outlive the call; they take over a dying value's where the kernel writes each element after it
has read it. So does a temporary, whose offset is then that of the value it ends.
"""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fuser.ir.graph import Eqn, Graph, Var
from fuser.ir.primitive import Fusion
from fuser.ir.types import ArrayType
from fuser.partition.changed_operands import changed
from fuser.partition.group import FusionGroup, FusionLimits, Kind, Plan, Slot, generated

ALIGNMENT = 64  # bytes: a cache line, and the widest vector
SMALL = 64 << 10  # bytes of a temporary, and of an arena, that cost less than the rounding of blocks
THOROUGH = 256  # blocks up to which a second order of placing them is tried


@dataclass(frozen=True)
class Memory:
    """Where the written slots of a plan live: at `offsets` into the arena of so many bytes, else in memory of their own.

    `reuse` says whose memory a slot takes over: that of an input, if it is donated, or that of another written slot.
    """

    reuse: dict[int, int] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    arena: int = 0


class Block(NamedTuple):
    """Bytes that are needed from the step `start` to the step `end`, both included."""

    start: int
    end: int
    size: int


def assign(
    graph: Graph, groups: tuple[FusionGroup, ...], aliases: dict[Var, Var]
) -> tuple[tuple[Slot, ...], dict[Var, int]]:
    """The slots of a plan, and the slot of each variable: inputs first, then constants, then what groups write."""
    slot_of: dict[Var, int] = {}
    start: list[int] = []
    end: list[int] = []
    types: list[ArrayType] = []

    def add(var: Var, begin: int) -> None:
        slot_of[var] = len(types)
        types.append(var.aval)
        start.append(begin)
        end.append(begin)

    for var in (*graph.invars, *graph.constvars):
        add(var, -1)
    for number, group in enumerate(groups):
        for var in group.graph.invars:
            end[slot_of[var]] = max(end[slot_of[var]], number)
        for written in group.graph.outvars:
            if isinstance(written, Var) and written not in slot_of:
                add(written, number)
    for operand in graph.outvars:
        if isinstance(operand, Var):
            end[slot_of[aliases.get(operand, operand)]] = len(groups)
    slots = tuple(Slot(i, t, s, e) for i, (t, s, e) in enumerate(zip(types, start, end)))
    return slots, slot_of


def place(
    graph: Graph,
    groups: tuple[FusionGroup, ...],
    slots: tuple[Slot, ...],
    slot_of: dict[Var, int],
    donated: Collection[int],
    limits: FusionLimits,
) -> Memory:
    """The memory of a plan; `donated` are the positions of inputs that the caller means to give away."""
    given = {slot_of[v] for n, v in enumerate(graph.invars) if n in donated}
    fresh = [slot_of[v] for g in groups if generated(g, limits) for v in g.graph.outvars if isinstance(v, Var)]
    reuse = reusable(groups, slots, slot_of, given, set(fresh), limits)
    if not limits.arena:
        return Memory(reuse)
    own = _own(slots, reuse, len(groups), given)
    chains = _chains([slot for slot in dict.fromkeys(fresh) if slots[slot].aval.nbytes], reuse)
    shared = [chain for chain in chains if chain[-1] not in own]
    blocks = [_block(chain, slots) for chain in shared]
    apart = [_block(chain, slots) for chain in chains if chain[-1] in own]
    offsets, arena = pack(blocks)
    if arena + peak(apart) > peak([*apart, *blocks]) + SMALL:
        # Held for the whole call the arena would cost more than blocks that come and go: the results are as large.
        kept = [n for n, block in enumerate(blocks) if block.size < SMALL]
        shared, (offsets, arena) = [shared[n] for n in kept], pack([blocks[n] for n in kept])
    offset_of = {slot: offset for chain, offset in zip(shared, offsets, strict=True) for slot in chain}
    return Memory(reuse, offset_of, arena)


def _kernels(groups: tuple[FusionGroup, ...]) -> Iterator[tuple[int, FusionGroup, list[Var]]]:
    """The number of each step, each kernel that it runs, and what of the step's inputs that kernel alone reads."""
    for number, group in enumerate(groups):
        kernels = group.parts or (group,)
        readers = Counter(v for kernel in kernels for v in kernel.graph.invars)
        own = set(group.graph.invars)
        for kernel in kernels:
            yield number, kernel, [v for v in kernel.graph.invars if readers[v] == 1 and v in own]


def reusable(
    groups: tuple[FusionGroup, ...],
    slots: tuple[Slot, ...],
    slot_of: dict[Var, int],
    donated: Collection[int],
    fresh: Collection[int],
    limits: FusionLimits,
) -> dict[int, int]:
    """For each written slot, the slot of a dying value whose memory it may take over.

    Both must have the same type, and the group that writes the one must be the last to read the other, and read it only
    at the index that is written: an elementwise group, or a product's epilogue, that reads it along its own axes. Nobody else may hold a view of
    that memory, which a library may have returned. Donated inputs are taken first, then what kernels have written
    (`fresh`), then the other inputs, which later callers may donate. Loops in native code and library calls go on in the memory
    of what they change (`changed`). Results that found nothing so lie in donated inputs that are dead before they are written, by whatever kernel.
    """
    seen = {
        slot_of[v]
        for group in groups
        if returns_views(group)
        for v in set(group.graph.invars) - {before for before, _ in changed(group, limits)}
    }
    result: dict[int, int] = {}
    for number, group, read in _kernels(groups):
        once = read_where_written(group, limits)
        reads = [slot_of[v] for v in read if v in once and slots[slot_of[v]].end == number]
        dying = [s for s in reads if s not in seen and (s in fresh or slots[s].start < 0)]
        for before, after in changed(group, limits):
            if before not in slot_of or after not in slot_of:
                continue  # of a kernel that is written for another's variables
            old, new = slot_of[before], slot_of[after]
            free = old not in seen and old not in result.values() and (old in fresh or slots[old].start < 0)
            if before in read and free and slots[old].end == number and new not in result:
                result[new] = old
        dying.sort(key=lambda slot: 0 if slot in donated else 1 if slot in fresh else 2)
        for target in dict.fromkeys(slot_of[v] for v in group.graph.outvars if isinstance(v, Var) and v in slot_of):
            source = next((s for s in dying if same_type(slots[s].aval, slots[target].aval)), None)
            if source is not None:
                result[target] = source
                dying.remove(source)
    left = [s for s in donated if s not in seen and s not in result.values()]
    for target in sorted(s for s in fresh if slots[s].end >= len(groups)):
        if target in result and (result[target] in donated or slots[result[target]].start >= 0):
            continue
        dead = (s for s in left if slots[s].end < slots[target].start and same_type(slots[s].aval, slots[target].aval))
        if (source := next(dead, None)) is not None:
            result[target] = source
            left.remove(source)
    return result


def read_where_written(group: FusionGroup, limits: FusionLimits) -> set[Var]:
    """The inputs that a kernel reads at the index that it writes, and nowhere else."""
    product = group.kind is Kind.CONTRACTION and limits.in_place_epilogues and not group.reason
    if group.kind is not Kind.ELEMENTWISE and not product:
        return set()
    operands = set[Var]()  # of the product, which come in any order
    for eqn in reversed(group.graph.eqns):
        if eqn.primitive.fusion is Fusion.DOT or operands.intersection(eqn.outvars):
            operands.update(eqn.operands())
        elif eqn.primitive.fusion is Fusion.MOVEMENT and (not product or _keeps_size(eqn)):
            return set()
    return set(group.graph.invars) - operands


def _keeps_size(eqn: Eqn) -> bool:
    """Whether what is moved is as large as the result, so that both may take part at different indices."""
    return any(v.aval.size == eqn.outvars[0].aval.size for v in eqn.operands())


def least(plan: Plan, slots: Sequence[int]) -> int:
    """Bytes that no placing of these slots could go below: those that are needed at once."""
    return peak([_block(chain, plan.slots) for chain in _chains(slots, plan.reuse)])


def temporary_bytes(plan: Plan) -> int:
    """Bytes that values between the steps need at once, those within the bodies of one step of control flow included."""
    between = [slot.index for slot in plan.slots if slot.start >= 0 and slot.end < len(plan.groups)]
    inside = (temporary_bytes(body) for group in plan.groups for body in group.bodies or ())
    return least(plan, between) + max(inside, default=0)


def pack(blocks: Sequence[Block]) -> tuple[list[int], int]:
    """Offsets at which no two blocks that are needed at once overlap, and the bytes from the first to the last."""
    ideal = peak(blocks)
    best = _in_order(blocks)
    if best[1] > ideal and len(blocks) <= THOROUGH:
        best = min(best, _largest_first(blocks), key=lambda found: found[1])
    return best


def peak(blocks: Sequence[Block]) -> int:
    """Bytes needed at once at the worst moment: what no placing can go below."""
    change = [0] * (max((block.end for block in blocks), default=0) + 2)
    for block in blocks:
        change[block.start] += padded(block.size)
        change[block.end + 1] -= padded(block.size)
    return max(itertools.accumulate(change))


def returns_views(group: FusionGroup) -> bool:
    """Whether what the group gives may be an operand of its own: NumPy's rules, and loops that are no kernels."""
    return (group.kind is Kind.LIBRARY and bool(group.reason)) or (
        group.kind is Kind.CONTROL and bool(group.reason or group.enqueued or not group.bodies)
    )


def same_type(a: ArrayType, b: ArrayType) -> bool:
    return (a.shape, a.dtype) == (b.shape, b.dtype)


def _own(slots: Sequence[Slot], reuse: dict[int, int], steps: int, donated: Collection[int]) -> set[int]:
    """Slots with memory of their own: results, what takes over a donated input, and what these take over."""
    own = {slot.index for slot in slots if slot.end >= steps}
    own |= {target for target, source in reuse.items() if source in donated}
    for target, source in reversed(reuse.items()):  # a source is written before its target
        if target in own:
            own.add(source)
    for target, source in reuse.items():
        if source in own and slots[source].start >= 0:
            own.add(target)
    return own


def _chains(written: Sequence[int], reuse: dict[int, int]) -> list[list[int]]:
    """Written slots in the order of their lives, those that take over the same memory together."""
    chain_of: dict[int, list[int]] = {}
    chains: list[list[int]] = []
    for slot in written:
        chain = chain_of.get(reuse.get(slot, -1))
        if chain is None:
            chains.append(chain := [])
        chain.append(slot)
        chain_of[slot] = chain
    return chains


def _block(chain: Sequence[int], slots: Sequence[Slot]) -> Block:
    return Block(slots[chain[0]].start, slots[chain[-1]].end, slots[chain[0]].aval.nbytes)


def _in_order(blocks: Sequence[Block]) -> tuple[list[int], int]:
    """Each block when it is needed, into the smallest gap that takes it, or at the end."""
    offsets = [0] * len(blocks)
    total = 0
    alive: list[tuple[int, int, int]] = []  # offset, size and end, by offset
    for number in sorted(range(len(blocks)), key=lambda n: (blocks[n].start, -blocks[n].size)):
        size, start = padded(blocks[number].size), blocks[number].start
        alive = [other for other in alive if other[2] >= start]
        offsets[number] = _gap(size, alive)
        bisect.insort(alive, (offsets[number], size, blocks[number].end))
        total = max(total, offsets[number] + size)
    return offsets, total


def _largest_first(blocks: Sequence[Block]) -> tuple[list[int], int]:
    """The largest block first, each into the smallest gap among those that are placed and needed at the same time."""
    offsets = [0] * len(blocks)
    total = 0
    placed: list[int] = []
    for number in sorted(range(len(blocks)), key=lambda n: (-blocks[n].size, blocks[n].start)):
        block, size = blocks[number], padded(blocks[number].size)
        beside = [n for n in placed if blocks[n].start <= block.end and block.start <= blocks[n].end]
        offsets[number] = _gap(size, sorted((offsets[n], padded(blocks[n].size), 0) for n in beside))
        placed.append(number)
        total = max(total, offsets[number] + size)
    return offsets, total


def _gap(size: int, taken: Sequence[tuple[int, int, int]]) -> int:
    """The start of the smallest gap of at least `size` bytes between (offset, size, …) in rising order, or their end."""
    best, best_width, end = -1, 0, 0
    for offset, width, _ in taken:
        if offset - end >= size and (best < 0 or offset - end < best_width):
            best, best_width = end, offset - end
        if offset + width > end:
            end = offset + width
    return end if best < 0 else best


def padded(size: int) -> int:
    """A size in bytes, up to the next boundary of a buffer."""
    return -(-size // ALIGNMENT) * ALIGNMENT
