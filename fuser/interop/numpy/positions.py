"""The positions of what a traced mask selects: a selection, by that mask, of all positions. As an index they are the mask (`indexing`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.interop.numpy.context import Context, untraceable
from fuser.interop.numpy.dispatch import implements
from fuser.interop.numpy.movement import as_traced
from fuser.interop.numpy.selected import Selected
from fuser.interop.numpy.traced import TracedArray
from fuser.interop.numpy.ufuncs import operand
from fuser.ir.types import BOOL
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


def _positions(context: Context, mask: TracedArray) -> tuple[Selected, ...]:
    """What `np.where(mask)` gives for a traced mask: along each dimension the positions of all elements, of which the mask selects some."""
    found = []
    for d in range(mask.ndim):
        numbers = bind(V.iota_p, dtype=np.dtype(np.intp), shape=mask.shape, dimension=d)
        selected = Selected(TracedArray(context, numbers), mask.lifted())
        selected.position = (mask, d, selected.value)
        found.append(selected)
    return tuple(found)
