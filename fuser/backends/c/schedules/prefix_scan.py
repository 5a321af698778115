"""Running sums and products along a row in vectors: what `omp scan` makes of two phases of one loop.

In: a sweep of a row kernel whose scans depend on no other scan. The first phase computes what each scan takes in, the
second everything that follows from its results; gcc runs the scan inside of each vector in log2(lanes) additions.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from fuser.backends.c.function import Part, code, joined
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
