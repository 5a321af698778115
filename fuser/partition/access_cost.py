"""The order of memory accesses in a merged kernel: what it costs, in seconds of the target, against what the merge saves.

Along the reduced axes a kernel runs in the order of one array, and what lies in another order comes element by element.
Kernels without reduced axes are tiled: what lies in another order goes through tiles, and all other arrays are then read
and written a tile's row at a time, far apart. What is reduced beside a prefix scan along memory is done one number after the
other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from fuser.ir.graph import Var
from fuser.ir.index import Axis
from fuser.ir.target import Target, duration
from fuser.partition.axis_matching import match
from fuser.partition.candidate import Candidate, Uses, vector_axes, within
from fuser.partition.group import FUSIBLE, Kind

GATHERED = 4  # bytes of the smallest elements that an instruction gathers
MOST_ARRAYS = 24  # of kernels without reduced axes, beyond which they are not looked through
ACROSS = {True: "across memory", False: "in tiles beside what lies in another order"}
Access = tuple[Var, tuple[Axis | None, ...]]


def access_blocker(a: Candidate, b: Candidate, uses: Uses, target: Target) -> str | None:
    """Why one kernel of `a` and `b`, which may share one, would take longer than two; None where it would not."""
    if b.kind is Kind.LOOP and a.kind is Kind.ELEMENTWISE:
        return _narrow_operands(a, b, target)
    if a.kind not in FUSIBLE or b.kind not in FUSIBLE or b.opaque.keys() & a.produced:
        return None
    if (reason := _in_turn(a, b, target)) is not None:
        return reason
    reduces = bool(a.reduced or b.reduced)
    if not reduces and (not target.tiled or sum(len(c.reads) + len(c.live_out) for c in (a, b)) > MOST_ARRAYS):
        return None
    mapping = match(a, b)
    assert isinstance(mapping, dict)
    if len(a.innermost.union(mapping.get(x, x) for x in b.innermost)) < 2:
        return None  # nothing crosses
    own = [*_reads(a, b.produced, {}), *_writes(a, a, b, uses, {})]
    theirs = [*_reads(b, a.produced, mapping), *_writes(b, a, b, uses, mapping)]
    count, each = (strided, target.strided) if reduces else (tiled, target.tiled)
    apart = sum(count(_accesses(c), target) for c in (a, b) if bool(c.reduced) is reduces)
    together = count(dict.fromkeys([*own, *theirs]), target)
    lost = (together - apart) * each
    if lost <= 0:
        return None
    saved = _saved(a, b, target)
    if lost <= saved:
        return None
    return (
        f"together they would read or write {math.ceil(together - apart)} elements {ACROSS[reduces]}, which costs "
        f"{duration(lost)} and saves {duration(saved)}"
    )


def _saved(a: Candidate, b: Candidate, target: Target) -> float:
    """Seconds of a launch, and of moving what only one kernel of both reads once, or hands on to itself."""
    shared = sum(v.aval.nbytes for v in a.inputs & b.inputs) + 2 * sum(v.aval.nbytes for v in b.inputs & a.produced)
    return target.launch + target.move(shared)


def _in_turn(a: Candidate, b: Candidate, target: Target) -> str | None:
    """Why a scan and a reduction in one run along memory take longer than apart, where a scan has vectors. A scan of what is made
    with a reduction's result runs after it."""
    scan, other = (a, b) if a.kind is Kind.SCAN else (b, a)
    if not target.prefix or scan.kind is not Kind.SCAN or other.kind is not Kind.REDUCTION:
        return None
    if scan is b and b.inputs & a.produced:
        return None
    if not scan.order or scan.order[-1] not in scan.reduced:
        return None
    size, computing = math.prod(x.extent for x in scan.axes), (a.cost + b.cost) / target.operations
    if target.scalar * computing > target.latency:
        return None  # more than is done while the scan waits has loops of its own in one kernel
    lost = size * (target.latency - target.prefix - computing)
    saved = _saved(a, b, target)
    if lost <= saved:
        return None
    return f"what is reduced beside a prefix scan is done one number after the other, which costs {duration(lost)} and saves {duration(saved)}"


def narrow_crossing(elements: int, itemsize: int, stored: int, target: Target) -> tuple[float, float] | None:
    """What lanes lose that read so many elements each far from its neighbour's, where no instruction gathers them, and what storing
    `stored` bytes in the lanes' order takes, in seconds; None where the first is no more."""
    if itemsize >= GATHERED or not target.tiled:
        return None
    lost, copied = elements * target.strided, target.launch + elements * target.tiled + target.move(2 * stored)
    return (lost, copied) if lost > copied else None


def _narrow_operands(a: Candidate, b: Candidate, target: Target) -> str | None:
    """Why a loop `b` would take longer if its lanes read what `a` reads, for a value whose elements lie along them."""
    for value in b.inputs & a.produced & a.layout.keys():
        lane = next((x for x in reversed(a.layout[value]) if x is not None), None)
        for var, several in a.reads.items():
            along = [vector_axes(axes, target) for axes in several]
            if not any(lane in axes and axes[-1] is not lane for axes in along):
                continue
            price = narrow_crossing(var.aval.size, var.aval.dtype.itemsize, value.aval.nbytes, target)
            if price is not None:
                lost, stored = map(duration, price)
                return f"its lanes would read elements of less than {GATHERED} bytes across memory, which costs {lost}, storing what they are read for {stored}"
    return None


def strided(accesses: Iterable[Access], target: Target) -> float:
    """Elements that are accessed alone, if the kernel runs along the axis that suits most of them."""
    vector, found = _ordered(accesses, target)
    return sum(size for size, along in found if along[-1] is not vector and vector in along)


def tiled(accesses: Iterable[Access], target: Target) -> float:
    """Elements of arrays in the order of most, but for one of them, where others lie in another order."""
    vector, found = _ordered(accesses, target)
    crossing = any(along[-1] is not vector and vector in along for _, along in found)
    dense = sorted(size for size, along in found if along[-1] is vector)
    return sum(dense[:-1]) if crossing else 0


def _ordered(accesses: Iterable[Access], target: Target) -> tuple[Axis | None, list[tuple[int, list[Axis]]]]:
    """The axis that runs innermost in most bytes, and of each access its elements and its axes."""
    inner: dict[Axis, float] = {}
    found = []
    for var, axes in accesses:
        if along := vector_axes(axes, target):
            found.append((var.aval.size, along))
            inner[along[-1]] = inner.get(along[-1], 0) + var.aval.size
    return max(inner, key=inner.__getitem__, default=None), found


def _accesses(candidate: Candidate) -> Iterator[Access]:
    for var, several in candidate.reads.items():
        yield from ((var, axes) for axes in several)
    for var in candidate.live_out:
        if var in candidate.layout:
            yield var, candidate.layout[var]


def _reads(candidate: Candidate, inside: Iterable[Var], mapping: Mapping[Axis, Axis]) -> Iterator[Access]:
    known = set(inside)
    for var, several in candidate.reads.items():
        if var not in known:
            yield from ((var, tuple(_renamed(axes, mapping))) for axes in several)


def _writes(
    candidate: Candidate, a: Candidate, b: Candidate, uses: Uses, mapping: Mapping[Axis, Axis]
) -> Iterator[Access]:
    for var in candidate.live_out:
        if var in candidate.layout and not within(var, a, b, uses):
            yield var, tuple(_renamed(candidate.layout[var], mapping))


def _renamed(axes: Iterable[Axis | None], mapping: Mapping[Axis, Axis]) -> Iterator[Axis | None]:
    return (None if x is None else mapping.get(x, x) for x in axes)
