"""Sums along memory as trees: groups of eight vectors are added in pairs, and their sums vector after vector.

A block of 64 vectors so has chains of 8 additions, not of 64, at no more work; its lanes stay apart up to the end of the
row. The vectors are read where they lie if that takes a load or little more; else the elements of a block are computed
first, into a buffer. The order of additions is the same.

Higham, "The accuracy of floating point summation", SIAM J. Sci. Comput. 14 (1993), section 3: the error grows with the
height of the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from fuser.backends.c import spell
from fuser.backends.c.builder import ALIGNED
from fuser.backends.c.function import Code, Part, Range, Symbol, code
from fuser.backends.c.schedules import masking
from fuser.backends.c.schedules.compensated_sums import CHAIN_OF_VECTORS, end_block
from fuser.backends.c.target import TARGET
from fuser.ir.scalar import COSTS, Scalar
from fuser.kernel.operands import index_axes

if TYPE_CHECKING:
    from fuser.backends.c.schedules.inner_reduction import InnerReduction, Run

GROUP = 4  # vectors that are added in pairs
FEWEST_VECTORS = 4  # along the axis: shorter sums have short chains anyway
FEWEST_STRIDED = 15  # the same where elements lie apart
MOST_WORK = (
    32  # operations an element, for it to be written out for each vector of a group: less than two functions of maths
)
CHEAP = 8  # the same, for elements of less than a vector to be computed one by one
MOST_LOADS = 3
OWN_WORK = 3  # operations that each further sum may take: a buffer of its own would be written and read
OWN_LOADS = 1

Values = Callable[[Part], Mapping[Scalar, Part]]  # what the sums take in at a place along the row


class Form(Enum):
    IN_PLACE = "groups are read where they lie"
    BUFFERED = "the elements of a block are computed first"


def form_of(writer: InnerReduction, run: Run) -> Form | None:
    """How a sweep whose innermost loop runs in vectors adds up; None: element after element."""
    body, sums, extent = run.body, run.sums, writer.loops.extents[run.axis]
    fewest = FEWEST_VECTORS if masking.dense(writer, body) else FEWEST_STRIDED
    if not sums or extent <= fewest * lanes(sums):
        return None
    loads = [n for n in body if n.op == "load"]
    further = len(sums) - 1
    little = _work(body) <= MOST_WORK + OWN_WORK * further and len(loads) <= MOST_LOADS + OWN_LOADS * further
    little = little and not any(n.args for n in loads)
    alone = list(run.sweep.reductions) == sums
    wide = not any(_narrow(writer, load, run) for load in loads)
    return Form.IN_PLACE if little and alone and wide else Form.BUFFERED


def _narrow(writer: InnerReduction, load: Scalar, run: Run) -> bool:
    """Whether elements have a quarter of the sums' bytes, or fewer: of a loop over one vector of sums compilers make vectors of as many elements,
    which are that much shorter; of the loop that fills a buffer they make whole ones."""
    along = load not in writer.widened and load.dtype.kind in "biu" and run.axis in index_axes(load.attr.offset)
    return along and any(4 * load.dtype.itemsize <= r.attr.accumulator.itemsize for r in run.sums)


def _work(body: Iterable[Scalar]) -> int:
    """Operations an element, in additions."""
    return sum(COSTS.get(n.op, 1) for n in body if n.args and n.op != "load")


def lanes(sums: Iterable[Scalar]) -> int:
    """Elements in a vector."""
    return min(TARGET.vector // reduction.attr.accumulator.itemsize for reduction in sums)


def declare(writer: InnerReduction, sums: Sequence[Scalar], blocks: bool) -> None:
    """Declare what each lane of the sums carries."""
    for reduction in sums:
        for ending in ("lane", "sum") if blocks else ("lane",):
            kind = spell.local(reduction.attr.accumulator)
            writer.buffer(kind, f"{writer.name(reduction)}_{ending}", str(lanes(sums)), f"{ALIGNED} = {{0}}")


def add_block(
    writer: InnerReduction,
    form: Form,
    run: Run,
    span: Range,
    clauses: Mapping[Scalar, Code],
) -> None:
    """Take the elements of `span` into the lanes of the sums; `clauses` are those of the other reductions for `omp simd`."""
    sweep, body, axis = run.sweep, run.body, run.axis
    sums, saved = [reduction for reduction in sweep.reductions if reduction not in clauses], dict(writer.env)
    if form is Form.IN_PLACE:
        here = writer.axes[axis]

        def computed(place: Part) -> Mapping[Scalar, Part]:
            writer.axes[axis] = place
            writer.recall()
            found: dict[Scalar, Part] = {}
            take = lambda reduction: lambda value: found.__setitem__(reduction, value)
            writer.element(sweep, body, into={reduction: take(reduction) for reduction in sums})
            writer.env = dict(saved)
            return found

        _add(
            writer,
            sums,
            span,
            computed,
            axis is writer.loops.vector and masking.apart(writer, body, sweep.stores),
            _work(body) > CHEAP,
        )
        writer.axes[axis] = here
        return
    first, last = span
    most = str(3 * CHAIN_OF_VECTORS * lanes(sums) // 2)
    buffers = {f: writer.buffer(spell.local(f.attr.accumulator), f"{writer.name(f)}_block", most) for f in sums}
    dear = axis is writer.loops.vector and not clauses and _work(body) > CHEAP
    dear = dear and masking.apart(writer, body, sweep.stores)
    with writer.standing_loads(body if dear else ()):
        writer.pragma("omp simd{}", code("".join("{}" for _ in clauses), *clauses.values()))
        if dear:
            writer.open_masked(writer.axis_names[axis], last, lanes(sums), first)
        else:
            writer.loop(axis, first, last)
        at = writer.code("{} - {}", writer.axes[axis], first)
        put = lambda block: lambda value: writer.set(writer.at(block, at), value)
        writer.element(sweep, body, into={reduction: put(block) for reduction, block in buffers.items()})
        if dear:
            writer.close()
        writer.close()
    writer.env = saved
    whole = writer.code("{} - {}", last, first)
    _add(writer, sums, ("0", whole), lambda place: {f: writer.at(block, place) for f, block in buffers.items()}, True)


def _tail(writer: InnerReduction, sums: Sequence[Scalar], span: Range, values: Values) -> Values:
    """The elements of less than a vector, computed together into a buffer: they are added one by one."""
    kinds = {reduction: spell.local(reduction.attr.accumulator) for reduction in sums}
    buffers = {f: writer.buffer(kind, f"{writer.name(f)}_tail", str(lanes(sums))) for f, kind in kinds.items()}
    writer.pragma("omp simd")
    single = writer.count("x", *span)
    for reduction, value in values(single).items():
        writer.set(writer.at(buffers[reduction], writer.code("{} - {}", single, span[0])), value)
    writer.close()
    return lambda place: {f: writer.at(buffer, writer.code("{} - {}", place, span[0])) for f, buffer in buffers.items()}


def _masked(writer: InnerReduction, sums: Sequence[Scalar], span: Range, values: Values) -> None:
    """Add the elements of less than a vector to as many lanes, under a mask: one after the other they would wait for
    each other for longer than all vectors of a row of 200."""
    (first, last), width = span, lanes(sums)
    end = code("{} + {}", first, masking.padded(writer.code("{} - {}", last, first), width))
    writer.pragma("omp simd")
    single = writer.count("x", first, end)
    writer.inside, writer.outside = masking.tested(single, last)
    for reduction, value in values(single).items():
        held = writer.at(f"{writer.name(reduction)}_lane", writer.code("{} - {}", single, first))
        writer.set(held, "{} + ({} ? {} : 0)", held, writer.inside, value)
    writer.close_masked()


def _add(
    writer: InnerReduction,
    sums: Sequence[Scalar],
    span: Range,
    values: Values,
    masked: bool,
    together: bool = False,
) -> None:
    """First what makes up no group, as a small sum rounds by less: elements, to lanes if they may be `masked` and else into
    the accumulators, and vectors. With `together` those elements are worth a vector's work."""
    (first, last), width = span, lanes(sums)
    group = GROUP * width
    writer.open()
    end = writer.let("int64_t", "groups", f"{{0}} + ({{1}} - {{0}}) / {group} * {group}", first, last)
    rest = writer.let("int64_t", "rest", f"{{0}} + ({{1}} - {{0}}) / {width} * {width}", end, last)
    if masked:
        _masked(writer, sums, (rest, last), values)
    else:
        tail = _tail(writer, sums, (rest, last), values) if together else values
        single = writer.count("x", rest, last)
        for reduction, value in tail(single).items():
            writer.accumulate(reduction, value, "")
        writer.close()
    for count, start, stop in ((1, end, rest), (GROUP, first, end)):
        step = count * width
        base = writer.count("base", start, stop, f"{{}} += {step}")
        lane = writer.lanes(width)
        _take(writer, sums, [code(f"({{}} + {{}} + {n * width})", base, lane) for n in range(count)], lane, values)
        writer.close()
        writer.close()
    writer.close()


def _take(writer: InnerReduction, sums: Sequence[Scalar], places: Sequence[Code], lane: Part, values: Values) -> None:
    """Add what the sums take in at some places, a power of 2 of them, in pairs, and to a lane.

    A value is added to its neighbour's as soon as both are there: of several sums few values wait in registers.
    """
    held = {reduction: writer.at(f"{writer.name(reduction)}_lane", lane) for reduction in sums}
    if len(places) == 1:
        for reduction, value in values(places[0]).items():
            writer.set(held[reduction], "{} + {}", held[reduction], value)
        return
    found = {
        reduction: [
            writer.var(spell.local(reduction.attr.accumulator), f"{writer.name(reduction)}_of{number}", "0")
            for number in range(len(places))
        ]
        for reduction in sums
    }
    for number, place in enumerate(places):
        writer.open()
        for reduction, value in values(place).items():
            terms, whole = found[reduction], code("{}", value)
            size = 1
            while number & size:
                whole = code("({} + {})", terms[number + 1 - 2 * size], whole)
                size *= 2
            writer.set(terms[number + 1 - size], whole)
        writer.close()
    for reduction, terms in found.items():
        writer.set(held[reduction], "{} + {}", held[reduction], terms[0])


def end_blocks(writer: InnerReduction, sums: Sequence[Scalar]) -> None:
    """Add the sums of a block to those of all blocks, lane by lane."""
    for reduction in sums:
        accumulator, first = (
            writer.named(f"{writer.name(reduction)}_acc"),
            writer.at(f"{writer.name(reduction)}_lane", "0"),
        )
        writer.set(first, "{} + {}", first, accumulator)
        writer.set(accumulator, "0")
    lane = writer.lanes(lanes(sums))
    for reduction in sums:
        end_block(writer, writer.name(reduction), spell.local(reduction.attr.accumulator), "lane", lane)
    writer.close()


def join_lanes(writer: InnerReduction, sums: Sequence[Scalar], blocks: bool) -> None:
    """Add the lanes to the accumulators, in pairs."""
    width = lanes(sums)
    if blocks:
        lane = writer.lanes(width)
        for reduction in sums:
            held = writer.at(f"{writer.name(reduction)}_lane", lane)
            writer.set(held, "{} + {}", writer.at(f"{writer.name(reduction)}_sum", lane), held)
        writer.close()
    for reduction in sums:
        kind, name = spell.local(reduction.attr.accumulator), f"{writer.name(reduction)}_lane"
        helper = spell.lane_sum(kind, width)
        if helper in spell.HELPERS:
            total = code("{}({})", Symbol(helper), writer.named(name))
        else:
            total = spell.in_pairs([writer.at(name, str(number)) for number in range(width)])
        writer.accumulate(reduction, total, "")
