"""The positions of what a traced mask selects: a selection, by that mask, of all positions. As an index they are the mask (`indexing`)."""

from __future__ import annotations

from typing import Any

import numpy as np

import fuser.numpy as fnp
from fuser.interop.numpy import movement
from fuser.interop.numpy.context import Context, untraceable
from fuser.interop.numpy.dispatch import implements
from fuser.interop.numpy.movement import as_traced
from fuser.interop.numpy.selected import ALL, Selected
from fuser.interop.numpy.traced import TracedArray
from fuser.interop.numpy.ufuncs import operand
from fuser.ir.types import BOOL
from fuser.lax.values import broadcast_to, literal
from fuser.ops import movement as V
from fuser.trace.core import bind


@implements(np.nonzero)
def nonzero(context: Context, a: Any) -> Any:
    """`np.nonzero(a)`: the positions of all elements, selected where `a` is not 0."""
    mask = TracedArray(context, operand(context, a, BOOL))
    if not mask.ndim:
        raise untraceable("np.nonzero of a single number is an error in NumPy", "use np.atleast_1d")
    return _positions(context, mask)


@implements(np.flatnonzero)
def _flatnonzero(context: Context, a: Any) -> Any:
    x = as_traced(context, a)
    flat = bind(V.reshape_p, x.lifted(), new_sizes=(x.size,), dimensions=None)
    return nonzero(context, TracedArray(context, flat))[0]


@implements(np.argwhere)
def _argwhere(context: Context, a: Any) -> Any:
    """`np.argwhere(a)`: a row of positions for each element that is not 0."""
    found = nonzero(context, a)
    mask = found[0].position[0]
    columns = [bind(V.reshape_p, each.value, new_sizes=(mask.size, 1), dimensions=None) for each in found]
    rows = TracedArray(context, bind(V.concatenate_p, *columns, dimension=1), order=(1, 0))
    flat = bind(V.reshape_p, mask.lifted(), new_sizes=(mask.size,), dimensions=None)
    selected = Selected(rows, along={0: flat})
    selected.position = (mask, ALL, selected.value)
    return selected


@implements(np.compress)
def _compress(context: Context, condition: Any, a: Any, axis: Any = None) -> Any:
    """`np.compress`: what a traced condition selects along an axis. A shorter condition is not traced."""
    x, mask = as_traced(context, a), TracedArray(context, operand(context, condition, BOOL))
    x = movement.ravel(context, x) if axis is None else x
    if axis and x.ndim > 1:
        raise untraceable("np.compress along another axis than the first cannot be traced", "use x[:, mask]")
    return x[mask]  # type: ignore[index]


@implements(np.extract)
def _extract(context: Context, condition: Any, arr: Any) -> Any:
    return _compress(context, np.ravel(condition), arr)


@implements(np.delete)
def _delete(context: Context, arr: Any, obj: Any, axis: Any = None) -> Any:
    """`np.delete`: at traced positions, what a mask selects of the rest."""
    x = as_traced(context, arr)
    if not isinstance(obj, TracedArray) or obj.known:
        places = obj.__array__() if isinstance(obj, TracedArray) else obj
        return TracedArray(context, fnp.delete(x.lifted(), places, axis))
    x = movement.ravel(context, x) if axis is None else x
    if obj.ndim != 1 or obj.dtype.kind not in "iu" or (axis and x.ndim > 1):
        raise untraceable("np.delete at such traced positions cannot be traced", "use x[mask]")
    rest: Any = TracedArray(context, broadcast_to(literal(True, BOOL), (len(x),)))
    rest[obj] = False
    return x[rest]  # type: ignore[index]


def _positions(context: Context, mask: TracedArray) -> tuple[Selected, ...]:
    """What `np.where(mask)` gives for a traced mask: along each dimension the positions of all elements, of which the mask selects some."""
    found = []
    for d in range(mask.ndim):
        numbers = bind(V.iota_p, dtype=np.dtype(np.intp), shape=mask.shape, dimension=d)
        selected = Selected(TracedArray(context, numbers), mask.lifted())
        selected.position = (mask, d, selected.value)
        found.append(selected)
    return tuple(found)
