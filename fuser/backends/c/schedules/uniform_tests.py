"""Predicates that are uniform along the vector axis, hoisted out of its loop together with the addresses of the loads that they mask.

gcc vectorises no loop in which an address is chosen, nor one in which a truth value from outside chooses. So a masked load
begins at an offset chosen before the loop, and choices ask whether a number of their own size is above 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fuser.backends.c.function import code
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL, is_complex
from fuser.kernel.operands import computed, needed

if TYPE_CHECKING:
    from fuser.backends.c.emitter import Emitter

HELD = {4: "float", 8: "double"}  # by the size of what is chosen, the type of the test's number


def compute(writer: Emitter, body: Sequence[Scalar]) -> None:
    """Write what a loop along the vector over `body` needs before it; nothing where no load has such a test."""
    parts = {node: writer.from_start(node) for node in body if node.op == "load" and node.args}
    begun = {node: found[0] for node, found in parts.items() if found is not None and found[1].terms}
    chosen = [node for node in body if begun and _chooses(writer, node)]
    tests = needed([node.args[0] for node in (*begun, *chosen)], body)
    if any(node.op in ("scan", "load") for node in tests):
        return
    writer.define_all(tests)
    for node, first in begun.items():
        if not any(value in body for value in computed(first)):
            writer.starts[node] = writer.let("int64_t", f"{writer.name(node)}_start", writer.chosen(node, first))
    for test, size in {(node.args[0], node.dtype.itemsize): None for node in chosen}:
        name = f"{writer.name(test)}_held{size}"
        writer.held[test, size] = writer.let(HELD[size], name, code("{} ? 1 : 0", writer.operand(test)))


def _chooses(writer: Emitter, node: Scalar) -> bool:
    """Whether a node chooses numbers along the vector by a test that is the same for all."""
    vector = writer.loops.vector
    if vector is None or node.op != "select" or node.dtype == BOOL or node.dtype.itemsize not in HELD:
        return False
    same = node.args[0].op != "const" and not writer.follows(node.args[0], vector)
    return same and not is_complex(node.dtype) and writer.follows(node, vector)
