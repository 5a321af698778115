"""Bools and other narrow numbers of a row, read into 32 bits before the row is reduced.

Compilers make vectors as long as the narrowest number of a loop asks: where a mask of bytes chooses floats they take 64 lanes, whose
partial sums and maxima are then combined for each row, and what is left of a row runs in ever shorter vectors. A row of 32-bit
integers, which stays in the nearest cache, leaves the loops as they are without a mask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fuser.backends.c import spell, widening
from fuser.backends.c.function import Code, Element, Symbol, Variable, code
from fuser.backends.c.schedules import masking, pairwise
from fuser.backends.c.schedules.compensated_sums import compensated
from fuser.backends.c.target import TARGET
from fuser.ir.index import Axis
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL
from fuser.kernel.kernel import Sweep
from fuser.kernel.operands import computed, index_axes

if TYPE_CHECKING:
    from fuser.backends.c.schedules.inner_reduction import InnerReduction

MOST_BYTES = 1 << 14  # of all wide rows together: half of the nearest cache


def widened(writer: InnerReduction) -> dict[Scalar, Scalar]:
    """What wide rows hold, and the load that each is read by: bools, and conversions to 32 bits of narrow integers, that lie side by
    side along the vector. None where something else is narrow, as vectors would be as long as that asks, and where it does not pay."""
    kernel, vector = writer.kernel, writer.loops.vector
    if list(writer.loops.reduced) != [vector] or vector is None or writer.guards:
        return {}
    nodes = list(dict.fromkeys(node for sweep in kernel.sweeps for node in sweep.body))
    loads = [node for node in nodes if node.op == "load"]
    narrow = [node for node in loads if node.dtype.itemsize < masking.WIDE]
    if not all(_side_by_side(node, vector) for node in narrow) or any(node.op == "scan" for node in nodes):
        return {}
    if any(kernel.params[store.param].dtype.itemsize < masking.WIDE for store in kernel.stores):
        return {}
    if any(reduction.attr.positional for sweep in kernel.sweeps for reduction in sweep.reductions):
        return {}
    rows: dict[Scalar, Scalar] = {}
    for load in narrow:
        users = [node for node in nodes if load in node.args]
        if load.dtype == BOOL:
            rows[load] = load
        elif all(
            node.op == "cast" and node.dtype.itemsize == masking.WIDE and node.dtype.kind in "iuf" for node in users
        ):
            rows |= dict.fromkeys(users, load)
        else:
            return {}
    fits = widening.LANES <= writer.loops.extents[vector] <= MOST_BYTES // (masking.WIDE * max(len(rows), 1))
    return (
        rows
        if fits and any(_pays(writer, sweep) for sweep in kernel.sweeps if not set(narrow).isdisjoint(sweep.body))
        else {}
    )


def _pays(writer: InnerReduction, sweep: Sweep) -> bool:
    """Whether a sweep saves more than its row takes to be widened, 0.05 ns an element. Functions of maths do, and sums that are taken
    where they lie. gcc's own vectors of bytes are as good for all else, but for what short rows leave over of them."""
    extent = writer.loops.extents[writer.loops.vector]  # type: ignore[index]
    chooses = any(node.op == "select" and node.args[0].op == "load" for node in sweep.body)
    if masking.dear(sweep.body) or (chooses and extent < TARGET.vector):
        return True  # of a row shorter than a vector of bytes gcc makes none, and a jump for each choice
    sums = compensated(sweep)
    if not sums or extent <= pairwise.FEWEST_VECTORS * pairwise.lanes(sums):
        return False
    short = extent < masking.LONGEST * TARGET.vector and extent % TARGET.vector != 0
    return short or len(sums) == len(sweep.reductions)


def _side_by_side(load: Scalar, vector: Axis) -> bool:
    plain = not load.args and not computed(load.attr.offset) and load.dtype.kind in "biu"
    return plain and load.attr.offset.coefficient(vector) == 1


def declare(writer: InnerReduction, node: Scalar) -> Variable:
    """The array of a row's wide numbers."""
    assert writer.loops.vector is not None
    whole = code(
        f"({{}} + {widening.LANES - 1}) / {widening.LANES} * {widening.LANES}", writer.extents[writer.loops.vector]
    )
    return writer.room(_type(node), f"{writer.name(node)}_wide", whole)


def standing(writer: InnerReduction, load: Scalar) -> bool:
    """Whether all rows read the same elements."""
    return not index_axes(load.attr.offset).intersection(writer.loops.parallel)


def fill(writer: InnerReduction, node: Scalar, load: Scalar) -> None:
    """Read the elements of the running row."""
    vector = writer.loops.vector
    assert vector is not None
    param = load.attr.param
    with writer.standing({vector: code("0")}):
        first = Element(writer.params[param], writer._offset(param, load.attr.offset))
    helper = Symbol(widening.widen(load.dtype, _dtype(node)))
    writer.do("{}({}, &{}, {});", helper, writer.widened[node], first, writer.extents[vector])


def value(writer: InnerReduction, node: Scalar) -> Code:
    """The running element of a wide row, in which a whole vector may be read."""
    return code(spell.taken(node.dtype, writer.at(writer.widened[node], writer.reduced_position())))


def _dtype(node: Scalar) -> np.dtype:
    return np.dtype("int32") if node.dtype == BOOL else node.dtype


def _type(node: Scalar) -> str:
    return spell.local(_dtype(node))
