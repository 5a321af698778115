"""Runs along a row that are in vain for some rows, because a test of the row then chooses something else than their folds.

In: a kernel that takes row after row. Out: for each such stage the test, by which the loop over the row is left out.
"""

from __future__ import annotations

from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Kernel, Stage
from fuser.kernel.lower import operands


def gates(kernel: Kernel) -> dict[Stage, tuple[Scalar, ...]]:
    """For each stage whose folds are read by choices alone, all by one test that holds where they are taken: the test, last
    of the nodes that it needs, in order."""
    users: dict[Scalar, list[Scalar]] = {}
    for node in kernel.nodes:
        for operand in operands(node):
            users.setdefault(operand, []).append(node)
    stored = {s.value for stage in kernel.stages for s in (*stage.row_stores, *stage.stores)}
    rows = {n for stage in kernel.stages for n in stage.row}
    found: dict[Stage, tuple[Scalar, ...]] = {}
    for stage in kernel.stages:
        gate = _gate(stage, users) if stored.isdisjoint(stage.folds) else None
        needed = None if gate is None else _needed(gate, rows)
        if needed is not None:
            found[stage] = needed
    return found


def _gate(stage: Stage, users: dict[Scalar, list[Scalar]]) -> Scalar | None:
    if not stage.folds or stage.stores or stage.kept or any(n.op == "scan" for n in stage.body):
        return None
    tests: set[Scalar] = set()
    for fold in stage.folds:
        for user in users.get(fold, ()):
            if user.op != "select" or user.args[1] is not fold or fold in (user.args[0], user.args[2]):
                return None
            tests.add(user.args[0])
    [test] = tests if len(tests) == 1 else [None]
    return test if test is not None and test.op != "const" else None


def _needed(gate: Scalar, rows: set[Scalar]) -> tuple[Scalar, ...] | None:
    """What the test is made of, operands first; None where that differs along the row or takes a fold."""
    order: dict[Scalar, None] = {}
    stack = [(gate, False)]
    while stack:
        node, ready = stack.pop()
        if node in order or node.op == "const":
            continue
        if node.op in ("fold", "scan", "carry", "final") or node not in rows:
            return None
        if ready:
            order[node] = None
        else:
            stack.append((node, True))
            stack.extend((operand, False) for operand in reversed(operands(node)))
    return tuple(order)
