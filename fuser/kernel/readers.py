"""The users of each value of a kernel."""

from __future__ import annotations

from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Kernel
from fuser.kernel.operands import operands


def readers(kernel: Kernel) -> dict[Scalar, list[Scalar | None]]:
    """What reads each node: other nodes and reductions, or None for a store."""
    found: dict[Scalar, list[Scalar | None]] = {}
    reductions = [reduction for sweep in kernel.sweeps for reduction in sweep.reductions]
    for node in dict.fromkeys((*kernel.nodes, *reductions)):
        for operand in operands(node):
            found.setdefault(operand, []).append(node)
    for store in kernel.stores:
        found.setdefault(store.value, []).append(None)
    return found
