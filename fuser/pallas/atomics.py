"""Atomic updates of Refs: what stands at each position is combined with a value, as one step that no other program divides.

Positions may repeat, within one update too: each element then sees what those before it, in row-major order, have left. Sums, maxima
and minima become a scatter; what stood there before, where positions may repeat and somebody asks, a loop over the elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.references import At, Index, Window
from fuser.ir.types import ArrayType
from fuser.lax.control import scan
from fuser.lax.movement import pad
from fuser.lax.slicing import slice as static_slice
from fuser.lax.values import as_value
from fuser.numpy.at import IndexUpdateHelper
from fuser.numpy.creation import arange
from fuser.numpy.maths import where
from fuser.numpy.movement import broadcast_to
from fuser.numpy.ufuncs import bitwise_and, bitwise_or, bitwise_xor, maximum, minimum
from fuser.ops.movement import reshaped
from fuser.ops.state import indexed_type
from fuser.pallas.primitives import room
from fuser.ref import _fitting
from fuser.ref.access import elements, replaced
from fuser.ref.indices import parsed
from fuser.ref.views import whole_ref
from fuser.trace.core import type_of

# What an update leaves of what stood there, the value, and what is compared ("cas" alone).
COMBINED: dict[str, Callable[..., Any]] = {
    "add": lambda before, value, compared: before + value,
    "max": lambda before, value, compared: maximum(before, value),
    "min": lambda before, value, compared: minimum(before, value),
    "and": lambda before, value, compared: bitwise_and(before, value),
    "or": lambda before, value, compared: bitwise_or(before, value),
    "xor": lambda before, value, compared: bitwise_xor(before, value),
    "xchg": lambda before, value, compared: value,
    "cas": lambda before, value, compared: where(before == compared, value, before),
}


def _update(kind: str, ref: Any, idx: Any, value: Any, mask: Any = None, compared: Any = None) -> Any:
    name = f"atomic_{kind}"
    ref, idx = whole_ref(ref, idx)
    masked = mask is not None
    index, indices = parsed(... if idx is None else idx, ref.shape, masked=masked)
    there = indexed_type(type_of(ref).inner_aval, index, tuple(type_of(i) for i in indices), masked=masked)  # type: ignore[attr-defined]
    value = _fitting(ref, value, index, indices, name, masked=masked)
    compared = value if compared is None else _fitting(ref, compared, index, indices, name, masked=masked)
    kept = broadcast_to(as_value(mask if masked else np.True_, name), there.shape)
    return atomic_p.bind(ref, value, compared, kept, *indices, index=index, kind=kind)


def _function(kind: str) -> Callable[..., Any]:
    def atomic(x_ref: Any, idx: Any, val: Any, *, mask: Any = None) -> Any:
        return _update(kind, x_ref, idx, val, mask)

    atomic.__name__ = atomic.__qualname__ = f"atomic_{kind}"
    atomic.__doc__ = (
        "Combine what the Ref holds at `idx` with `val`, as one step that no other program divides; what stood there before. "
        "Nothing is touched where the mask is false."
    )
    return atomic


atomic_add, atomic_max, atomic_min = map(_function, ("add", "max", "min"))
atomic_and, atomic_or, atomic_xor, atomic_xchg = map(_function, ("and", "or", "xor", "xchg"))


def atomic_cas(ref: Any, cmp: Any, val: Any) -> Any:
    """Write `val` where the Ref holds `cmp`, as one step; what stood there before."""
    return _update("cas", ref, None, val, compared=cmp)


def _type(
    ref: Any, value: ArrayType, compared: ArrayType, mask: ArrayType, *indices: ArrayType, index: Index, kind: str
) -> ArrayType:
    there = indexed_type(ref.inner_aval, index, indices, masked=True)
    fits = kind in COMBINED and all((a.shape, a.dtype) == (there.shape, there.dtype) for a in (value, compared))
    if not fits or (mask.shape, mask.dtype) != (there.shape, np.dtype(bool)):
        raise TypeRuleError(
            f"an atomic update {kind!r} of {there} takes values of that type and a mask, got {value}, {compared} and {mask}"
        )
    return there


def _discharge(cell: Any, value: Any, compared: Any, mask: Any, *indices: Any, index: Index, kind: str) -> Any:
    combine = COMBINED[kind]
    if any(type_of(i).shape for i in indices):
        return _where_positions_repeat(cell, value, compared, mask, indices, index, kind)
    before = cell.value
    roomy = room(before, index)
    old = elements(roomy, index, indices)
    after = replaced(roomy, where(mask, combine(old, value, compared), old), index, indices)
    cell.value = static_slice(after, [0] * before.ndim, before.shape) if roomy is not before else after
    return old


def _where_positions_repeat(
    cell: Any, value: Any, compared: Any, mask: Any, indices: Sequence[Any], index: Index, kind: str
) -> Any:
    before = cell.value
    positions = _positions(before.shape, index, indices)
    there = reshaped(mask & (positions >= 0), (positions.size,))
    flat = reshaped(before, (before.size,))
    each = [reshaped(a, (positions.size,)) for a in (positions, value, compared)]

    def step(held: Any, one: Any) -> tuple[Any, Any]:
        (position, value, compared), inside = one
        old = held[position]
        new = where(inside, COMBINED[kind](old, value, compared), old)
        return IndexUpdateHelper(held)[position].set(new), old

    last, olds = scan(step, flat, (each, there))
    if kind in ("add", "max", "min"):
        place = IndexUpdateHelper(flat)[where(there, each[0], before.size)]
        last = getattr(place, kind)(each[1], mode="drop")
    cell.value = reshaped(last, before.shape)
    return reshaped(olds, positions.shape)


def _positions(shape: Sequence[int], index: Index, indices: Sequence[Any]) -> Any:
    """Of each element at the index the position in the flat array; -1 for those that lie outside."""
    given, extents = iter(indices), iter(shape)
    behind, found = [], []
    for part in index:
        if part is None:
            continue
        extent = next(extents)
        if isinstance(part, At) and part.position is None:
            position = next(given)
            found.append(where((position < 0) | (position >= extent), extent, position))
            behind.append(1)
        elif isinstance(part, Window) and part.start is None:
            found.append(next(given))
            behind.append((part.size - 1) * part.stride)
        else:
            behind.append(0)
    table = reshaped(arange(math.prod(shape), dtype=np.int32), tuple(shape))
    return elements(pad(table, np.int32(-1), [(0, n, 0) for n in behind]), index, found)


atomic_p: Primitive = register(Primitive("atomic", Fusion.CONTROL, effect=True, type=_type, discharge=_discharge))
