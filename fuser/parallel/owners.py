"""Reads and writes at computed places along a split dimension: each device does those that fall into its own part.

Places are counted from where the part begins. A write outside is dropped; a read outside gives zeros, and the sum over the
devices, which follows, is what the owner has read. So no device needs the others' parts: neither of a table of embeddings that is
split by rows, nor of a cache that is written to row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.ir.graph import Eqn
from fuser.ir.primitive import Movement
from fuser.ir.types import ArrayType
from fuser.lax.elementwise import clamp, select
from fuser.lax.movement import pad
from fuser.lax.slicing import slice_in_dim
from fuser.ops import elementwise as E
from fuser.ops.dynamic import dynamic_slice_p, dynamic_update_slice_p
from fuser.ops.indexing import GatherDimensionNumbers, GatherScatterMode, as_gather, fill_of, window_sizes
from fuser.ops.movement import broadcast_in_dim_p
from fuser.ops.reduce import reduce_or_p
from fuser.ops.scatter import scatter_add_p, scatter_max_p, scatter_min_p, scatter_mul_p, scatter_p
from fuser.parallel.indexed_links import Places
from fuser.trace.core import type_of
from fuser.trace.tangent import full

SCATTERS = (scatter_p, scatter_add_p, scatter_mul_p, scatter_min_p, scatter_max_p)
After = Callable[[Any], Any]


def owned(eqn: Eqn, parts: int) -> list[tuple[Places, Places, str | None, int]]:
    """(dimensions of operands, of results, reduction, dimension that is indexed) of the equation's operand split into `parts`.

    A read is worth it where its result, which is summed over the devices, is less than half of the operand.
    """
    found: list[tuple[Places, Places, str | None, int]] = []
    if not eqn.invars:
        return found
    operand = eqn.invars[0].aval
    read = operand.dtype.kind in "iufc" and 2 * eqn.outvars[0].aval.nbytes < operand.nbytes
    if eqn.primitive in SCATTERS:
        for d in as_gather(eqn.params["dimension_numbers"]).collapsed_slice_dims:
            found.append((((0, d),), ((0, d),), None, d))
    elif eqn.primitive is dynamic_update_slice_p:
        for d, size in enumerate(eqn.invars[1].aval.shape):
            if size < operand.shape[d] and size * parts <= operand.shape[d]:
                found.append((((0, d),), ((0, d),), None, d))
    elif eqn.primitive is dynamic_slice_p and read:
        found += [(((0, d),), (), "sum", d) for d, size in enumerate(eqn.params["slice_sizes"]) if size == 1]
    elif eqn.primitive.movement is Movement.GATHER and "dimension_numbers" in eqn.params and read:
        found += [(((0, d),), (), "sum", d) for d in eqn.params["dimension_numbers"].collapsed_slice_dims]
    return found


def localised(eqn: Eqn, begins: dict[int, Any], operands: list[Any], params: dict[str, Any]) -> list[After]:
    """Change `operands` and `params` to what a device does whose part begins at `begins` along these dimensions.

    What comes back are functions, each to be called with the result.
    """
    if eqn.primitive is dynamic_update_slice_p:
        return [_update(eqn, dim, begin, operands) for dim, begin in begins.items()]
    if eqn.primitive is dynamic_slice_p:
        return [_slice(eqn, dim, begin, operands) for dim, begin in begins.items()]
    return _indexed(eqn, begins, operands, params) if begins else []


def _int(value: int) -> Any:
    return full(ArrayType((), np.dtype(np.int32)), value)


def _start(eqn: Eqn, dim: int, first: int, size: int, begin: Any, operands: list[Any]) -> Any:
    """The place where a window of this extent starts along the dimension, within bounds, counted from where the part begins."""
    start = E.convert_element_type_p.bind(operands[first + dim], new_dtype=np.dtype(np.int32), weak_type=False)
    return clamp(_int(0), start, _int(eqn.invars[0].aval.shape[dim] - size)) - begin


def _update(eqn: Eqn, dim: int, begin: Any, operands: list[Any]) -> After:
    """What of the window is outside goes into a margin on either side, which is cut off."""
    size, part = eqn.invars[1].aval.shape[dim], type_of(operands[0]).shape[dim]
    margins = [(size, size, 0) if d == dim else (0, 0, 0) for d in range(len(eqn.invars[0].aval.shape))]
    zero = full(ArrayType((), type_of(operands[0]).dtype), 0)
    start = _start(eqn, dim, 2, size, begin, operands)
    operands[0] = pad(operands[0], zero, margins)
    operands[2 + dim] = clamp(_int(0), start + _int(size), _int(part + size))
    for d in range(len(margins)):  # starts have one dtype
        operands[2 + d] = E.convert_element_type_p.bind(operands[2 + d], new_dtype=np.dtype(np.int32), weak_type=False)
    return lambda result: slice_in_dim(result, size, size + part, axis=dim)


def _slice(eqn: Eqn, dim: int, begin: Any, operands: list[Any]) -> After:
    part = type_of(operands[0]).shape[dim]
    start = _start(eqn, dim, 1, 1, begin, operands)
    inside = E.and_p.bind(E.ge_p.bind(start, _int(0)), E.lt_p.bind(start, _int(part)))
    operands[1 + dim] = clamp(_int(0), start, _int(part - 1))
    for d in range(len(eqn.params["slice_sizes"])):
        operands[1 + d] = E.convert_element_type_p.bind(operands[1 + d], new_dtype=np.dtype(np.int32), weak_type=False)
    return lambda result: select(inside, result, full(type_of(result), 0))


def _indexed(eqn: Eqn, begins: dict[int, Any], operands: list[Any], params: dict[str, Any]) -> list[After]:
    """A gather or scatter with its indices counted from `begins`; those outside read zeros, or are dropped."""
    reads = eqn.primitive not in SCATTERS
    numbers = params["dimension_numbers"] if reads else as_gather(params["dimension_numbers"])
    indices = E.convert_element_type_p.bind(operands[1], new_dtype=np.dtype(np.int32), weak_type=False)
    shape, whole = type_of(indices).shape, eqn.invars[0].aval.shape
    last, columns = len(shape) - 1, numbers.start_index_map
    row = lambda values: broadcast_in_dim_p.bind(
        np.asarray(values, np.int32), shape=shape, broadcast_dimensions=(last,)
    )
    if reads:
        sizes = params["slice_sizes"]
    else:
        sizes = window_sizes(eqn.invars[0].aval, eqn.invars[2].aval, params["dimension_numbers"])
    limits = row([whole[d] - sizes[d] for d in columns])
    finish = []
    if params["mode"] is GatherScatterMode.CLIP or (reads and params["mode"] is GatherScatterMode.PROMISE_IN_BOUNDS):
        indices = clamp(row([0] * len(columns)), indices, limits)
    elif reads:
        finish = [_fill(eqn, numbers, list(begins.values()), indices, limits)]
    for dim, begin in begins.items():
        indices = indices - row([int(d == dim) for d in columns]) * begin
    operands[1] = indices
    params["mode"] = GatherScatterMode.FILL_OR_DROP
    if reads:
        params["fill_value"] = 0
    return finish


def _fill(eqn: Eqn, numbers: GatherDimensionNumbers, begins: list[Any], indices: Any, limits: Any) -> After:
    """The fill value where a place is out of bounds for all: on the device with the first part, as the sum leaves it."""
    lowest = full(type_of(indices), 0)
    outside = E.or_p.bind(E.lt_p.bind(indices, lowest), E.gt_p.bind(indices, limits))
    outside = reduce_or_p.bind(outside, axes=(type_of(indices).ndim - 1,))
    for begin in begins:
        first = E.eq_p.bind(begin, _int(0))
        outside = E.and_p.bind(outside, broadcast_in_dim_p.bind(first, shape=outside.shape, broadcast_dimensions=()))
    value = fill_of(eqn.outvars[0].aval.dtype, eqn.params["fill_value"])

    def filled(result: Any) -> Any:
        aval = type_of(result)
        places = tuple(d for d in range(aval.ndim) if d not in numbers.offset_dims)
        mask = broadcast_in_dim_p.bind(outside, shape=aval.shape, broadcast_dimensions=places)
        return E.select_n_p.bind(mask, result, full(aval, value))

    return filled
