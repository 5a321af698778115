"""Aliased scratch: row buffers lie in the memory of a result, which the last sweep then overwrites element by element.

In: a writer whose vectors run across columns. Out: the buffered values, each with the store whose elements it takes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuser.backends.c import spell
from fuser.backends.c.target import TARGET
from fuser.ir.scalar import Scalar
from fuser.ir.types import is_complex
from fuser.kernel.kernel import Store, Sweep
from fuser.kernel.operands import computed, needed

if TYPE_CHECKING:
    from fuser.backends.c.emitter import Emitter


def waiting(writer: Emitter, block: int) -> dict[Scalar, Store]:
    """The values that wait in results, while `block` columns are reduced: where that takes less than computing them again."""
    *before, last = writer.kernel.sweeps
    free = [store for store in last.stores if _of_each_element(writer, store)]
    found: dict[Scalar, Store] = {}
    for sweep in before:
        for node in sweep.kept:
            place = next((store for store in free if _holds(writer, store, node)), None)
            if place is not None and _pays(writer, sweep, node, block):
                found[node] = place
                free.remove(place)
    return found


def _of_each_element(writer: Emitter, store: Store) -> bool:
    """Whether each iteration writes an element of its own."""
    axes = (*writer.loops.parallel, *writer.loops.reduced)
    return not computed(store.offset) and all(store.offset.coefficient(axis) for axis in axes)


def _holds(writer: Emitter, store: Store, node: Scalar) -> bool:
    dtype = node.dtype
    same = writer.kernel.params[store.param].dtype == dtype and spell.storage(dtype) == spell.local(dtype)
    return same and not is_complex(dtype)


def _pays(writer: Emitter, sweep: Sweep, node: Scalar, block: int) -> bool:
    """Whether writing and reading an element takes less than computing it: the block's part of the result comes from the nearest
    level that holds it, and else is written to memory once more."""
    again = needed([node], sweep.body)
    work = sum(TARGET.compute(n.op, n.dtype.itemsize) for n in again if n.op not in ("load", "const", "index"))
    columns = min(block, writer.loops.extents[writer.loops.vector])  # type: ignore[index]
    held = math.prod(writer.loops.extents[axis] for axis in writer.loops.reduced) * columns * node.dtype.itemsize
    return TARGET.stream(2 * node.dtype.itemsize, held) < work
