"""Running sums and products along a row in vectors: what `omp scan` makes of two phases of one loop.

Scans that do not run in vectors are set apart from dear work before and after them, which does (loop fission): one loop
computes what they take in, into a buffer, one runs the scans, and one does the rest.

In: a sweep of a row kernel whose scans depend on no other scan. The first phase computes what each scan takes in, the
second everything that follows from its results; gcc runs the scan inside of each vector in log2(lanes) additions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fuser.backends.c.function import Code, Element, Part, Range, code, joined
from fuser.backends.c.target import TARGET
from fuser.ir.index import Axis
from fuser.ir.scalar import COSTS, Scalar
from fuser.ir.types import is_complex
from fuser.kernel.kernel import Sweep
from fuser.kernel.lower import KEEP_COST
from fuser.kernel.operands import needed, operands

if TYPE_CHECKING:
    from fuser.backends.c.schedules.inner_reduction import InnerReduction, Run

LITTLE = 3  # additions an element that the processor does while a scan waits for its last sum
LITTLE_IN_STRIPS = 12  # the same where what is set apart comes and goes by strips
_OPERATORS = {"sum": "+", "prod": "*"}


def first_phase(sweep: Sweep, body: Sequence[Scalar], extent: int) -> list[Scalar] | None:
    """What the scans of a sweep take in, in order; None where the sweep is better left as one phase."""
    scans = [n for n in body if n.op == "scan"]
    if not scans or sweep.reductions or sweep.kept or extent < TARGET.scanned or not all(map(_runs_in_vectors, scans)):
        return None
    first = needed([scan.args[0] for scan in scans], body)
    if any(scan in first for scan in scans):
        return None
    again = set(first).intersection(needed([store.value for store in sweep.stores], body, stop=scans))
    if sum(COSTS.get(n.op, 1) for n in again if n.op not in ("load", "const", "index")) > KEEP_COST:
        return None
    return first


def two_phases(writer: InnerReduction, run: Run, span: Range) -> None:
    """Write the loop over `span` whose scans take in what the run's first phase computes."""
    scans, body, first, axis = run.scans, run.body, run.phase, run.axis
    assert first is not None
    writer.in_vectors.add(run.sweep)
    _open_loop(writer, scans, axis, span)
    saved = dict(writer.env)
    for phase in (0, 1):
        writer.open()
        _turn(writer, axis)
        if phase == 0:
            for node in first:
                writer.define(node)
            for scan in scans:
                writer.scan_in(scan)
        else:
            rest = needed([store.value for store in run.sweep.stores], body, stop=scans)
            writer.element(run.sweep, rest, writer.scan_out)
        writer.close()
        writer.env = dict(saved)
        if phase == 0:
            _inclusive(writer, scans)
    writer.close()


def apart(sweep: Sweep, body: Sequence[Scalar], little: int = LITTLE) -> list[Scalar] | None:
    """What the scans of a sweep take in, in order, where other work than theirs is more than `little`, so that it pays to compute
    it in a loop of its own; else None."""
    scans = [n for n in body if n.op == "scan"]
    if not scans or any(is_complex(n.attr.accumulator) for n in scans):
        return None
    first = needed([scan.args[0] for scan in scans], body)
    others = [n for n in body if n.op not in ("scan", "load", "const", "index")]
    more = len(sweep.reductions) + len(sweep.stores) - len(scans)
    if any(scan in first for scan in scans) or sum(COSTS.get(n.op, 1) for n in others) + 2 * more <= little:
        return None
    return first


def dear_again(sweep: Sweep, body: Sequence[Scalar], first: Sequence[Scalar]) -> list[Scalar]:
    """Values of the first loop of three that the last one would compute again at a cost, and reads from buffers instead."""
    scans = [n for n in body if n.op == "scan"]
    roots = [store.value for store in sweep.stores] + [reduction.args[0] for reduction in sweep.reductions]
    rest, before = needed([*roots, *sweep.kept], body, stop=scans), set(first)
    later = [n for n in rest if n not in before and n not in scans]
    wanted = set(roots).union(*map(operands, later))
    cost = lambda node: sum(COSTS.get(n.op, 1) for n in needed([node], body) if n.op not in ("load", "const", "index"))
    return [n for n in rest if n in before and n in wanted and n not in sweep.kept and cost(n) > KEEP_COST]


def three_loops(writer: InnerReduction, run: Run, first: list[Scalar], span: Range, clauses: Sequence[Code]) -> None:
    """Write the loops over `span`; `writer.scan_rows` are the buffers, `clauses` those of the sweep's reductions."""
    sweep, body, scans, axis = run.sweep, run.body, run.scans, run.axis
    saved = dict(writer.env)
    here = lambda node: writer.at(writer.scan_rows[node], _in_buffer(writer, node, axis, span))
    writer.pragma("omp simd")
    writer.loop(axis, *span)
    kept = [node for node in sweep.kept if node in writer.kept]
    for node in first:
        writer.define(node)
        if node in kept:
            writer.keep(node)
        if node in writer.scan_rows:
            writer.set(here(node), writer.operand(node))
    for scan in scans:
        writer.set(here(scan), writer.operand(scan.args[0]))
    writer.close()
    writer.env = dict(saved)
    if _run_scans(writer, scans, axis, span, here):
        writer.in_vectors.add(sweep)
    early: dict[Scalar, Part] = {node: writer.kept_element(node) for node in kept if node in first}
    early |= {node: here(node) for node in first if node in writer.scan_rows}
    writer.env = saved | {scan: here(scan) for scan in scans} | early
    writer.pragma("omp simd{}", joined(list(clauses), ""))
    writer.loop(axis, *span)
    roots = [store.value for store in sweep.stores] + [reduction.args[0] for reduction in sweep.reductions]
    there = {*scans, *early}
    rest = [n for n in needed([*roots, *kept], body, stop=there) if n not in there]
    for scan in scans:
        if scan in kept:
            writer.keep(scan)
    writer.element(sweep, rest)
    writer.close()
    writer.env = saved


def _in_buffer(writer: InnerReduction, node: Scalar, axis: Axis, span: Range) -> Code:
    """The position in the buffer of a scan, or of a value that it takes in, of the running iteration: in the row, or in the strip that begins where `span` does."""
    if node in writer.scan_strips:
        return code("{} - {}", writer.axes[axis], span[0])
    return code("{}", writer.axes[axis])


def _run_scans(
    writer: InnerReduction,
    scans: list[Scalar],
    axis: Axis,
    span: Range,
    here: Callable[[Scalar], Element],
) -> bool:
    """The loop that replaces the elements of the buffers by the scans' values; whether it runs in vectors."""
    vectors = all(map(_runs_in_vectors, scans)) and writer.loops.extents[axis] >= TARGET.scanned
    if vectors:
        _open_loop(writer, scans, axis, span)
    elif writer.backwards:
        writer.count_down(writer.axis_names[axis], *span)
    else:
        writer.loop(axis, *span)
    for phase in ("in", "out"):
        if vectors:
            writer.open()
            _turn(writer, axis)
        for scan in scans:
            writer.env[scan.args[0]] = here(scan)
            if phase == "in":
                writer.scan_in(scan)
            else:
                writer.scan_out(scan)
                writer.set(here(scan), writer.operand(scan))
        if vectors:
            writer.close()
        if vectors and phase == "in":
            _inclusive(writer, scans)
    writer.close()
    return vectors


def _turn(writer: InnerReduction, axis: Axis) -> None:
    """The position along the axis, where a loop's counter runs the other way."""
    if writer.backwards:
        name = _counter(writer, axis)
        last, step = writer.named(f"{name}_last"), writer.named(name)
        writer.let("int64_t", writer.axis_names[axis], "{} - {}", last, step)


def _inclusive(writer: InnerReduction, scans: Sequence[Scalar]) -> None:
    """What stands between the two phases of a loop."""
    runs = joined([writer.named(f"{writer.name(n)}_run") for n in scans], ", ")
    writer.do("#pragma omp scan inclusive({})", runs)


def _open_loop(writer: InnerReduction, scans: Sequence[Scalar], axis: Axis, span: Range) -> None:
    """Open the loop over `axis` for two phases."""
    clauses = [
        code(f" reduction(inscan, {_OPERATORS[n.attr.reduction]}:{{}})", writer.named(f"{writer.name(n)}_run"))
        for n in scans
    ]
    if not writer.backwards:
        writer.pragma("omp simd{}", joined(clauses, ""))
        writer.loop(axis, *span)
        return
    name = _counter(writer, axis)
    writer.let("int64_t", f"{name}_last", "{} + {} - 1", *span)
    writer.pragma("omp simd{}", joined(clauses, ""))
    writer.count(name, *span)


def _counter(writer: InnerReduction, axis: Axis) -> str:
    """What counts the iterations of a loop whose axis runs from its end."""
    return f"{writer.axis_names[axis]}_step"


def _runs_in_vectors(scan: Scalar) -> bool:
    return scan.attr.reduction in _OPERATORS and not is_complex(scan.attr.accumulator)
