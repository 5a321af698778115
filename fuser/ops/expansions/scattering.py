"""Scatters as rows combined at targets: the target of each window, or of each of its parts that lie together in the operand, is
computed by index arithmetic; windows out of bounds go beyond the last row."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.ir.types import BOOL, ArrayType, is_complex
from fuser.ops import elementwise as el
from fuser.ops.conversion import convert_element_type_p
from fuser.ops.indexing import GatherScatterMode, as_gather, layout_of, window_sizes
from fuser.ops.movement import (
    broadcast_in_dim_p,
    concatenate_p,
    iota_p,
    reshape_p,
    slice_p,
    squeeze_p,
    transpose_p,
)
from fuser.ops.scatter_rows import WORD, scatter_rows_p
from fuser.trace.core import type_of

INT64, BYTE = np.dtype("int64"), np.dtype("uint8")
OF_BOOLS = {"sum": "max", "prod": "min"}


def scatter(reduction: str) -> Callable[..., Any]:
    """The expand rule of a scatter that combines so."""

    def expand(operand: Any, indices: Any, updates: Any, **params: Any) -> Any:
        aval, more = type_of(operand), type_of(updates)
        if not math.prod(aval.shape) or not math.prod(more.shape):
            return el.copy_p.bind(operand)
        numbers = as_gather(params["dimension_numbers"])
        clip = GatherScatterMode.from_any(params.get("mode")) is GatherScatterMode.CLIP
        sizes = window_sizes(aval, more, params["dimension_numbers"])
        layout = layout_of(numbers, aval.ndim, more.ndim)
        first = _whole_from(aval, sizes, layout)
        rows, width = math.prod(aval.shape[:first]), math.prod(aval.shape[first:])
        order = (*layout.batch, *(d for d in layout.window if d is not None))
        updates = transpose_p.bind(updates, permutation=order) if order != tuple(range(more.ndim)) else updates
        if _plain(aval, sizes, layout, type_of(indices), first, params) and not clip:
            targets = _converted(indices, WORD)  # negative ones are large words
        else:
            parts = [more.shape[d] for d in order]
            targets = _targets(aval, sizes, layout, _wrapped(indices, params), first, clip, parts)
        count = math.prod(more.shape) // width
        unique = bool(params.get("unique_indices"))
        flat = _shaped(operand, (rows, width)), _shaped(targets, (count,)), _shaped(updates, (count, width))
        return _shaped(_combined(*flat, reduction, unique), aval.shape)

    return expand


def _combined(operand: Any, targets: Any, updates: Any, reduction: str, unique: bool) -> Any:
    """Bools as bytes, and complex numbers as their parts side by side where that is the same."""
    dtype, params = type_of(operand).dtype, {"reduction": reduction, "unique": unique}
    if dtype == BOOL:
        params["reduction"] = OF_BOOLS.get(reduction, reduction)
        bytes_of = (_converted(x, BYTE) for x in (operand, updates))
        return el.ne_p.bind(scatter_rows_p.bind(next(bytes_of), targets, next(bytes_of), **params), np.zeros((), BYTE))
    if not is_complex(dtype) or reduction not in ("replace", "sum"):
        return scatter_rows_p.bind(operand, targets, updates, **params)
    rows, width = type_of(operand).shape
    parts = (concatenate_p.bind(el.real_p.bind(x), el.imag_p.bind(x), dimension=1) for x in (operand, updates))
    found = scatter_rows_p.bind(next(parts), targets, next(parts), **params)
    real, imag = (
        slice_p.bind(found, start_indices=(0, a), limit_indices=(rows, a + width), strides=None) for a in (0, width)
    )
    return el.complex_p.bind(real, imag)


def _whole_from(x: ArrayType, sizes: Sequence[int], layout: Any) -> int:
    """From which dimension on windows are as large as the operand: these lie together, and start at 0."""
    first = x.ndim
    while first and layout.window[first - 1] is not None and sizes[first - 1] == x.shape[first - 1]:
        first -= 1
    return first


def _plain(
    x: ArrayType, sizes: Sequence[int], layout: Any, indices: ArrayType, first: int, params: dict[str, Any]
) -> bool:
    """Whether each index is a row, or none where it is out of bounds."""
    one = first == 1 and sizes[0] == 1 and layout.start[0] == 0 and layout.batching[0] is None
    known = indices.dtype.kind in "iu" and indices.dtype.itemsize <= 4 and indices.shape[-1:] == (1,)
    return one and known and not params.get("wraps") and x.shape[0] < 1 << 31


def _wrapped(indices: Any, params: dict[str, Any]) -> Any:
    """Indices as int64, negative ones wrapped where the scatter is to do that. What int64 does not hold is out of bounds as well."""
    indices = _converted(indices, INT64)
    if not (wraps := params.get("wraps")):
        return indices
    shape = type_of(indices).shape
    along = [
        broadcast_in_dim_p.bind(np.asarray(w, INT64), shape=(*shape[:-1], 1), broadcast_dimensions=()) for w in wraps
    ]
    added = concatenate_p.bind(*along, dimension=len(shape) - 1) if len(along) > 1 else along[0]
    return el.select_n_p.bind(_below(indices, 0), indices, el.add_p.bind(indices, added))


def _targets(
    x: ArrayType, sizes: Sequence[int], layout: Any, indices: Any, first: int, clip: bool, shape: Sequence[int]
) -> Any:
    """The row of each window and place within it in the dimensions before `first`; beyond the last one where it is out of bounds.
    The shape of updates is `shape`: batch dimensions, then those of windows."""
    inner = [d for d in range(x.ndim) if layout.window[d] is not None and d < first]
    batch = tuple(shape[: len(layout.batch)])
    places = (*batch, *(sizes[d] for d in inner))
    row: Any = broadcast_in_dim_p.bind(np.zeros((), INT64), shape=places, broadcast_dimensions=())
    inside: Any = None
    spread = lambda v: broadcast_in_dim_p.bind(v, shape=places, broadcast_dimensions=tuple(range(len(batch))))
    for d, extent in enumerate(x.shape):
        part: Any = None
        if (component := layout.start[d]) is not None:
            start, high = _component(indices, component), extent - sizes[d]
            if not clip:
                valid = el.and_p.bind(el.not_p.bind(_below(start, 0)), el.le_p.bind(start, np.asarray(high, INT64)))
                inside = valid if inside is None else el.and_p.bind(inside, valid)
            part = el.clamp_p.bind(np.asarray(0, INT64), start, np.asarray(max(high, 0), INT64))
        if (batching := layout.batching[d]) is not None:
            line = iota_p.bind(dtype=INT64, shape=batch, dimension=batching)
            part = line if part is None else el.add_p.bind(part, line)
        if d >= first:
            continue
        row = el.mul_p.bind(row, np.asarray(extent, INT64))
        if part is not None:
            row = el.add_p.bind(row, spread(part))
        if layout.window[d] is not None:
            row = el.add_p.bind(row, iota_p.bind(dtype=INT64, shape=places, dimension=len(batch) + inner.index(d)))
    if inside is not None:
        beyond = np.asarray(math.prod(x.shape[:first]), INT64)
        row = el.select_n_p.bind(
            spread(inside), broadcast_in_dim_p.bind(beyond, shape=places, broadcast_dimensions=()), row
        )
    return _converted(row, WORD)


def _component(indices: Any, number: int) -> Any:
    shape = type_of(indices).shape
    last = len(shape) - 1
    starts, limits = (*[0] * last, number), (*shape[:-1], number + 1)
    return squeeze_p.bind(
        slice_p.bind(indices, start_indices=starts, limit_indices=limits, strides=None), dimensions=(last,)
    )


def _below(x: Any, number: int) -> Any:
    return el.lt_p.bind(x, np.asarray(number, INT64))


def _shaped(x: Any, shape: tuple[int, ...]) -> Any:
    return x if type_of(x).shape == shape else reshape_p.bind(x, new_sizes=shape, dimensions=None)


def _converted(x: Any, dtype: np.dtype) -> Any:
    if type_of(x).dtype == dtype:
        return x
    return convert_element_type_p.bind(x, new_dtype=dtype, weak_type=False)
