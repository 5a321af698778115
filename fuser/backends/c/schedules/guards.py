"""Guards of reductions whose result a select discards: rows with a false guard skip the sweep.

In: a kernel that takes row after row. Out: the guard of each such sweep.
"""

from __future__ import annotations

from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Kernel, Sweep
from fuser.kernel.operands import in_order, operands


def guards(kernel: Kernel) -> dict[Sweep, tuple[Scalar, ...]]:
    """For each sweep whose reductions are read by choices alone, all by one test that holds where they are taken: the test, last
    of the nodes that it needs, in order."""
    users: dict[Scalar, list[Scalar]] = {}
    for node in kernel.nodes:
        for operand in operands(node):
            users.setdefault(operand, []).append(node)
    stored = {s.value for sweep in kernel.sweeps for s in (*sweep.row_stores, *sweep.stores)}
    rows = {n for sweep in kernel.sweeps for n in sweep.row}
    found: dict[Sweep, tuple[Scalar, ...]] = {}
    for sweep in kernel.sweeps:
        guard = _guard(sweep, users) if stored.isdisjoint(sweep.reductions) else None
        needed = None if guard is None else _needed(guard, rows)
        if needed is not None:
            found[sweep] = needed
    return found


def _guard(sweep: Sweep, users: dict[Scalar, list[Scalar]]) -> Scalar | None:
    if not sweep.reductions or sweep.stores or sweep.kept or any(n.op == "scan" for n in sweep.body):
        return None
    tests: set[Scalar] = set()
    for reduction in sweep.reductions:
        for user in users.get(reduction, ()):
            if user.op != "select" or user.args[1] is not reduction or reduction in (user.args[0], user.args[2]):
                return None
            tests.add(user.args[0])
    [test] = tests if len(tests) == 1 else [None]
    return test if test is not None and test.op != "const" else None


def _needed(guard: Scalar, rows: set[Scalar]) -> tuple[Scalar, ...] | None:
    """What the test is made of, operands first; None where that differs along the row or takes a reduction."""
    found = tuple(node for node in in_order([guard]) if node.op != "const")
    still = all(n in rows and n.op not in ("reduction", "scan", "carry", "final") for n in found)
    return found if still else None
