"""Bools, halves and other narrow numbers of a row, read into 32 bits before the row is reduced.

Compilers make vectors as long as the narrowest number of a loop asks: where a mask of bytes chooses floats they take 64 lanes, whose
partial sums and maxima are then combined for each row, and what is left of a row runs in ever shorter vectors. A row of 32-bit
integers, which stays in the nearest cache, leaves the loops as they are without a mask. A half is converted by seven operations in a
loop, in each of a row's sweeps, and by one instruction here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fuser.backends.c import spell, widening
from fuser.backends.c.function import Code, Element, Symbol, Variable, code
from fuser.backends.c.schedules import masking, pairwise
from fuser.backends.c.schedules.compensated_sums import compensated
from fuser.backends.c.target import TARGET
from fuser.ir.index import Affine, Axis
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL, HALVES
from fuser.kernel.kernel import Store, Sweep
from fuser.kernel.operands import computed, index_axes

if TYPE_CHECKING:
    from fuser.backends.c.schedules.inner_reduction import InnerReduction

MOST_BYTES = 1 << 14  # of all wide rows together: half of the nearest cache


def widened(writer: InnerReduction) -> dict[Scalar, Scalar]:
    """What wide rows hold, and the load that each is read by: bools, halves, and conversions to 32 bits of narrow integers, that lie side
    by side along the vector. None where something else is narrow, as vectors would be as long as that asks, and where it does not pay."""
    kernel, vector = writer.kernel, writer.loops.vector
    if list(writer.loops.reduced) != [vector] or vector is None or writer.guards:
        return {}
    nodes = list(dict.fromkeys(node for sweep in kernel.sweeps for node in sweep.body))
    loads = [node for node in nodes if node.op == "load"]
    narrow = [node for node in loads if node.dtype.itemsize < masking.WIDE]
    if not all(_side_by_side(node, vector) for node in narrow) or any(node.op == "scan" for node in nodes):
        return {}
    halves = {node for node in narrow if node.dtype in HALVES}
    least = (
        widening.HALF if halves else masking.WIDE
    )  # halves that are stored are rounded from as many numbers of 32 bits
    if any(kernel.params[store.param].dtype.itemsize < least for store in kernel.stores):
        return {}
    if any(reduction.attr.positional for sweep in kernel.sweeps for reduction in sweep.reductions):
        return {}
    rows: dict[Scalar, Scalar] = {}
    for load in narrow:
        users = [node for node in nodes if load in node.args]
        if load.dtype == BOOL or load in halves:
            rows[load] = load
        elif all(
            node.op == "cast" and node.dtype.itemsize == masking.WIDE and node.dtype.kind in "iuf" for node in users
        ):
            rows |= dict.fromkeys(users, load)
        else:
            return {}
    if halves and (len(halves) < len(narrow) or not any(_swept_again(writer, node) for node in halves)):
        return {}
    held = len(rows) + len(narrowed(writer, rows))
    fits = widening.LANES <= writer.loops.extents[vector] <= MOST_BYTES // (masking.WIDE * max(held, 1))
    pays = halves or any(_pays(writer, sweep) for sweep in kernel.sweeps if not set(narrow).isdisjoint(sweep.body))
    return rows if fits and pays else {}


def narrowed(writer: InnerReduction, wide: Mapping[Scalar, Scalar]) -> list[Store]:
    """The stores of halves, side by side along the vector, that wait in a row of 32 bits and are rounded as a whole: where such are
    read from one, nothing else is narrow."""
    if not any(node.dtype in HALVES for node in wide):
        return []
    dtype_of = lambda store: writer.kernel.params[store.param].dtype
    return [s for sweep in writer.kernel.sweeps for s in sweep.stores if dtype_of(s) in HALVES and _lies(writer, s)]


def _lies(writer: InnerReduction, store: Store) -> bool:
    assert writer.loops.vector is not None
    return store.total is None and not computed(store.offset) and store.offset.coefficient(writer.loops.vector) == 1


def _swept_again(writer: InnerReduction, load: Scalar) -> bool:
    """Whether several sweeps read it."""
    return sum(load in sweep.body for sweep in writer.kernel.sweeps) > 1


def _pays(writer: InnerReduction, sweep: Sweep) -> bool:
    """Whether a sweep saves more than its row takes to be widened, 0.05 ns an element. Functions of maths do, and sums that are taken
    where they lie. gcc's own vectors of bytes are as good for all else, but for what short rows leave over of them."""
    extent = writer.loops.extents[writer.loops.vector]  # type: ignore[index]
    if masking.dear(sweep.body):
        return True
    sums = compensated(sweep)
    if not sums or extent <= pairwise.FEWEST_VECTORS * pairwise.lanes(sums):
        return False
    short = extent < masking.LONGEST * TARGET.vector and extent % TARGET.vector != 0
    return short or len(sums) == len(sweep.reductions)


def _side_by_side(load: Scalar, vector: Axis) -> bool:
    plain = not load.args and not computed(load.attr.offset) and (load.dtype.kind in "biu" or load.dtype in HALVES)
    return plain and load.attr.offset.coefficient(vector) == 1


def declare(writer: InnerReduction, node: Scalar) -> Variable:
    """The array of a row's wide numbers."""
    return _row(writer, _dtype(node), writer.name(node))


def declare_store(writer: InnerReduction, store: Store) -> Variable:
    """The array in which a row of halves waits."""
    param = writer.kernel.params[store.param]
    return _row(writer, widening.WIDER[param.dtype], param.name)


def _row(writer: InnerReduction, dtype: np.dtype, name: str) -> Variable:
    assert writer.loops.vector is not None
    whole = code(
        f"({{}} + {widening.LANES - 1}) / {widening.LANES} * {widening.LANES}", writer.extents[writer.loops.vector]
    )
    return writer.room(spell.local(dtype), f"{name}_wide", whole)


def standing(writer: InnerReduction, load: Scalar) -> bool:
    """Whether all rows read the same elements."""
    return not index_axes(load.attr.offset).intersection(writer.loops.parallel)


def fill(writer: InnerReduction, node: Scalar, load: Scalar) -> None:
    """Read the elements of the running row."""
    helper = Symbol(widening.widen(load.dtype, _dtype(node)))
    first, extent = _first(writer, load.attr.param, load.attr.offset)
    writer.do("{}({}, &{}, {});", helper, writer.widened[node], first, extent)


def empty(writer: InnerReduction, store: Store) -> None:
    """Round the row of a store of halves to where it belongs."""
    helper = Symbol(widening.narrow(writer.kernel.params[store.param].dtype))
    first, extent = _first(writer, store.param, store.offset)
    writer.do("{}(&{}, {}, {});", helper, first, writer.narrowed[store], extent)


def _first(writer: InnerReduction, param: int, offset: Affine) -> tuple[Element, Code]:
    """The first element of the running row, and how many it has."""
    vector = writer.loops.vector
    assert vector is not None
    with writer.standing({vector: code("0")}):
        return Element(writer.params[param], writer._offset(param, offset)), writer.extents[vector]


def value(writer: InnerReduction, node: Scalar) -> Code:
    """The running element of a wide row, in which a whole vector may be read."""
    return code(spell.taken(node.dtype, writer.at(writer.widened[node], writer.reduced_position())))


def _dtype(node: Scalar) -> np.dtype:
    return widening.WIDER.get(node.dtype, node.dtype)
