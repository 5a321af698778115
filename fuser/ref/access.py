"""Reading and writing at an index, by pure operations: the discharge rules of `get`, `swap` and `addupdate`.

What lies out of bounds is clamped, as by dynamic slices and gathers; writes to positions in arrays that lie there are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.ir.references import At, Index, Window
from fuser.lax.values import as_value
from fuser.numpy.at import IndexUpdateHelper
from fuser.numpy.indexing import take_index
from fuser.ops.dynamic import dynamic_slice_p, dynamic_update_slice_p
from fuser.ops.movement import reshaped
from fuser.ops.state import addupdate_p, get_p, swap_p
from fuser.trace.core import type_of


def elements(x: Any, index: Index, indices: Sequence[Any]) -> Any:
    """The elements of the array at the index."""
    if is_whole(index, x.shape):
        return x
    starts, spans, inner = _split(x.shape, index, indices)
    if any(s is not None for s in starts):
        x = dynamic_slice(x, [0 if s is None else s for s in starts], spans)
    return take_index(x, inner, wrap=False)


def replaced(x: Any, value: Any, index: Index, indices: Sequence[Any], adding: bool = False) -> Any:
    """The array with the value at the index, or added there."""
    if is_whole(index, x.shape):
        return x + value if adding else value
    starts, spans, inner = _split(x.shape, index, indices, window=not adding)
    if all(s is None for s in starts):
        return _updated(x, value, inner, adding)
    places = [0 if s is None else s for s in starts]
    if not adding and all(p is None or isinstance(p, int) or p in (slice(None), slice(None, None, 1)) for p in inner):
        return dynamic_update_slice(x, reshaped(value, tuple(spans)), places)
    return dynamic_update_slice(x, _updated(dynamic_slice(x, places, spans), value, inner, adding), places)


def dynamic_slice(x: Any, starts: Sequence[Any], sizes: Sequence[int]) -> Any:
    """The window, whose starts are Python integers or int32; clamped, and never counted from the end."""
    return dynamic_slice_p.bind(x, *map(_scalar, starts), slice_sizes=tuple(sizes))


def dynamic_update_slice(x: Any, value: Any, starts: Sequence[Any]) -> Any:
    """The array with the window replaced."""
    return dynamic_update_slice_p.bind(x, value, *map(_scalar, starts))


def _scalar(start: Any) -> Any:
    return as_value(np.int32(start) if isinstance(start, int) else start)


def is_whole(index: Index, shape: Sequence[int]) -> bool:
    """Whether the index is that of everything, as it is."""
    return len(index) == len(shape) and all(p == Window(0, extent, 1) for p, extent in zip(index, shape))


def _updated(x: Any, value: Any, index: Any, adding: bool) -> Any:
    place = IndexUpdateHelper(x)[index]
    return (place.add if adding else place.set)(value, wrap_negative_indices=False)


def _split(
    shape: Sequence[int], index: Index, indices: Sequence[Any], window: bool = False
) -> tuple[list[Any], list[int], tuple[Any, ...]]:
    """Where a window of the array starts (None: it is static), its shape, and the index within the window."""
    given, extents = iter(indices), iter(shape)
    starts: list[Any] = []
    spans: list[int] = []
    inner: list[Any] = []
    arrays = any(type_of(i).shape for i in indices)
    for part in index:
        if part is None:
            inner.append(None)
            continue
        start, span, within = _dimension(part, next(extents), given, arrays)
        starts.append(start)
        spans.append(span)
        inner.append(within)
    if (window and not arrays) or any(s is not None for s in starts):  # one window, static parts included
        for n, (part, extent) in enumerate(zip((p for p in index if p is not None), shape)):
            if starts[n] is None and isinstance(part, Window):
                starts[n], spans[n] = part.start, _span(part)
                inner[_place(index, n)] = slice(None, None, part.stride)
            elif starts[n] is None and isinstance(part, At) and part.position is not None and not arrays:
                starts[n], spans[n], inner[_place(index, n)] = part.position, 1, 0
            elif starts[n] is None:
                spans[n] = extent
    return starts, spans, tuple(inner)


def _place(index: Index, dimension: int) -> int:
    return [n for n, part in enumerate(index) if part is not None][dimension]


def _span(part: Window) -> int:
    return max((part.size - 1) * part.stride + 1, 0)


def _dimension(part: Window | At, extent: int, given: Any, arrays: bool) -> tuple[Any, int, Any]:
    if isinstance(part, Window):
        if part.start is None:
            return next(given), _span(part), slice(None, None, part.stride)
        return None, extent, slice(part.start, part.start + _span(part), part.stride)
    if part.position is not None:
        return None, extent, part.position
    position = next(given)
    return (None, extent, position) if arrays else (position, 1, 0)


def _get(cell: Any, *indices: Any, index: Index) -> Any:
    return elements(cell.value, index, indices)


def _swap(cell: Any, value: Any, *indices: Any, index: Index) -> Any:
    before = cell.value
    cell.value = replaced(before, value, index, indices)
    return elements(before, index, indices)


def _addupdate(cell: Any, value: Any, *indices: Any, index: Index) -> list[Any]:
    cell.value = replaced(cell.value, value, index, indices, adding=True)
    return []


get_p.discharge, swap_p.discharge, addupdate_p.discharge = _get, _swap, _addupdate
