"""Running sums and products along a row in vectors: what `omp scan` makes of two phases of one loop.

Scans that do not run in vectors are set apart from dear work before and after them, which does (loop fission): one loop
computes what they take in, into a buffer, one runs the scans, and one does the rest.

In: a sweep of a row kernel whose scans depend on no other scan. The first phase computes what each scan takes in, the
second everything that follows from its results; gcc runs the scan inside of each vector in log2(lanes) additions.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from fuser.backends.c.function import Code, Part, code, joined
from fuser.ir.index import Axis
from fuser.ir.scalar import COSTS, Scalar
from fuser.ir.types import is_complex
from fuser.kernel.kernel import Sweep
from fuser.kernel.lower import KEEP_COST, operands

if TYPE_CHECKING:
    from fuser.backends.c.schedules.inner_reduction import InnerReduction

SHORTEST = 64  # elements of a row from which vectors pay
_OPERATORS = {"sum": "+", "prod": "*"}


def first_phase(sweep: Sweep, body: Sequence[Scalar], extent: int) -> list[Scalar] | None:
    """What the scans of a sweep take in, in order; None where the sweep is better left as one phase."""
    scans = [n for n in body if n.op == "scan"]
    if not scans or sweep.reductions or sweep.kept or extent < SHORTEST or not all(map(_runs_in_vectors, scans)):
        return None
    inside = set(body)
    first = _needed([scan.args[0] for scan in scans], inside)
    if any(scan in first for scan in scans):
        return None
    again = first & _needed([store.value for store in sweep.stores], inside, stop=set(scans))
    if sum(COSTS.get(n.op, 1) for n in again if n.op not in ("load", "const", "index")) > KEEP_COST:
        return None
    return [n for n in body if n in first]


def two_phases(
    writer: InnerReduction, sweep: Sweep, body: list[Scalar], first: list[Scalar], axis: Axis, reverse: bool
) -> None:
    """Write the body of the loop over `axis`, which is open; `reverse`: its counter runs the other way."""
    scans = [n for n in body if n.op == "scan"]
    saved = dict(writer.env)
    for phase in (0, 1):
        writer.open()
        if reverse:
            name = counter(writer, axis)
            last, step = writer.named(f"{name}_last"), writer.named(name)
            writer.let("int64_t", writer.axis_names[axis], "{} - {}", last, step)
        if phase == 0:
            for node in first:
                writer.define(node)
            for scan in scans:
                writer.scan_in(scan)
        else:
            rest = _needed([store.value for store in sweep.stores], set(body), stop=set(scans))
            writer.element(sweep, [n for n in body if n in rest], writer.scan_out)
        writer.close()
        writer.env = dict(saved)
        if phase == 0:
            runs = joined([writer.named(f"{writer.name(n)}_run") for n in scans], ", ")
            writer.do("#pragma omp scan inclusive({})", runs)


def apart(sweep: Sweep, body: Sequence[Scalar]) -> list[Scalar] | None:
    """What the scans of a sweep take in, in order, where it pays to compute it in a loop of its own; else None."""
    scans = [n for n in body if n.op == "scan"]
    if not scans or sweep.kept or any(is_complex(n.attr.accumulator) for n in scans):
        return None
    first = _needed([scan.args[0] for scan in scans], set(body))
    others = [n for n in body if n.op not in ("scan", "load", "const", "index")]
    if any(scan in first for scan in scans) or sum(COSTS.get(n.op, 1) for n in others) <= KEEP_COST:
        return None
    return [n for n in body if n in first]


def three_loops(
    writer: InnerReduction,
    sweep: Sweep,
    body: list[Scalar],
    first: list[Scalar],
    axis: Axis,
    span: tuple[Part, Part],
    clauses: Sequence[Code],
) -> None:
    """Write the loops over `span`; `writer.scan_rows` are the buffers, `clauses` those of the sweep's reductions."""
    scans = [n for n in body if n.op == "scan"]
    saved = dict(writer.env)
    here = lambda scan: writer.at(writer.scan_rows[scan], writer.axes[axis])
    writer.pragma("omp simd")
    writer.loop(axis, *span)
    for node in first:
        writer.define(node)
    for scan in scans:
        writer.set(here(scan), writer.operand(scan.args[0]))
    writer.close()
    writer.env = dict(saved)
    if writer.backwards:
        writer.count_down(writer.axis_names[axis], *span)
    else:
        writer.loop(axis, *span)
    for scan in scans:
        writer.env[scan.args[0]] = here(scan)
        writer.scan_step(scan)
        writer.set(here(scan), writer.operand(scan))
    writer.close()
    writer.env = saved | {scan: here(scan) for scan in scans}
    writer.pragma("omp simd{}", joined(list(clauses), ""))
    writer.loop(axis, *span)
    roots = [store.value for store in sweep.stores] + [reduction.args[0] for reduction in sweep.reductions]
    rest = _needed(roots, set(body), stop=set(scans)).difference(scans)
    writer.element(sweep, [n for n in body if n in rest])
    writer.close()
    writer.env = saved


def open_loop(
    writer: InnerReduction, body: Sequence[Scalar], axis: Axis, span: tuple[Part, Part], reverse: bool
) -> None:
    """Open the loop over `axis` for two phases."""
    clauses = [
        code(f" reduction(inscan, {_OPERATORS[n.attr.reduction]}:{{}})", writer.named(f"{writer.name(n)}_run"))
        for n in body
        if n.op == "scan"
    ]
    if not reverse:
        writer.pragma("omp simd{}", joined(clauses, ""))
        writer.loop(axis, *span)
        return
    name = counter(writer, axis)
    writer.let("int64_t", f"{name}_last", "{} + {} - 1", *span)
    writer.pragma("omp simd{}", joined(clauses, ""))
    writer.count(name, *span)


def counter(writer: InnerReduction, axis: Axis) -> str:
    """What counts the iterations of a loop whose axis runs from its end."""
    return f"{writer.axis_names[axis]}_step"


def _runs_in_vectors(scan: Scalar) -> bool:
    return scan.attr.reduction in _OPERATORS and not is_complex(scan.attr.accumulator)


def _needed(roots: Sequence[Scalar], inside: set[Scalar], stop: Container[Scalar] = ()) -> set[Scalar]:
    """Those of `inside` that `roots` need, but not what those in `stop` need."""
    found: set[Scalar] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in inside and node not in found:
            found.add(node)
            stack.extend(() if node in stop else operands(node))
    return found
