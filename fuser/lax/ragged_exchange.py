"""`ragged_all_to_all`: slices of different lengths exchanged between lanes, made of a gather and index arithmetic.

Each lane has all operands and finds for each row of its result the slice that it comes from. Lengths are values, and what lanes send has to be known when
a program is compiled, so each operand goes to all lanes: p - 1 times its bytes, as an all_to_all of slices padded to the operand's length.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.ir.source import current_source
from fuser.lax.elementwise import convert_element_type, select
from fuser.lax.movement import broadcast_in_dim, expand_dims, iota
from fuser.lax.parallel import all_gather, all_to_all, lanes
from fuser.lax.reduction import argmax
from fuser.lax.slicing import GatherDimensionNumbers, GatherScatterMode, gather
from fuser.lax.values import as_value
from fuser.ops.reduce import reduce_or_p

_INT32 = np.dtype(np.int32)


def ragged_all_to_all(
    operand: Any,
    output: Any,
    input_offsets: Any,
    send_sizes: Any,
    output_offsets: Any,
    recv_sizes: Any,
    *,
    axis_name: Any,
    axis_index_groups: Any = None,
) -> Any:
    """`output` with the slices that other lanes send to this one written over it.

    Of n slices, a multiple of the lanes, the first n / lanes go to the first lane, and so on. Slice i is `send_sizes[i]` rows of `operand` from `input_offsets[i]`
    on, and lies in its receiver's result from `output_offsets[i]` on; `recv_sizes` are the lengths of those that come. ValueError for offsets
    and sizes that are not integers, one-dimensional, of one length and a multiple of the lanes.
    """
    operand, output = as_value(operand, "ragged_all_to_all"), as_value(output, "ragged_all_to_all")
    count = lanes(axis_name, axis_index_groups, "ragged_all_to_all")
    named = {
        "input_offsets": input_offsets,
        "send_sizes": send_sizes,
        "output_offsets": output_offsets,
        "recv_sizes": recv_sizes,
    }
    starts, sizes, places, _ = (_indices(name, value, count) for name, value in named.items())
    if operand.dtype != output.dtype or operand.shape[1:] != output.shape[1:] or not operand.shape:
        raise ValueError(
            f"ragged_all_to_all takes an operand and an output whose rows are alike, got {operand.dtype}{list(operand.shape)} and "
            f"{output.dtype}{list(output.shape)} ({current_source().short})"
        )
    every = all_gather(operand, axis_name, axis_index_groups=axis_index_groups, tiled=True)
    exchanged = lambda x: all_to_all(x, axis_name, 0, 0, axis_index_groups=axis_index_groups, tiled=True)
    starts, sizes, places = exchanged(starts), exchanged(sizes), exchanged(places)
    return _written(output, every, operand.shape[0], count, starts, sizes, places)


def _written(output: Any, every: Any, rows: int, count: int, starts: Any, sizes: Any, places: Any) -> Any:
    """The output's rows, those in slices replaced by rows of all operands; the slices of one lane after the other's."""
    length, slices = output.shape[0], starts.shape[0]
    if not output.size or not every.size:
        return output
    row = broadcast_in_dim(iota(_INT32, length), (length, slices), (0,))
    along = lambda x: broadcast_in_dim(x, (length, slices), (1,))
    inside = (row >= along(places)) & (row < along(places + sizes))
    sender = iota(_INT32, slices) // np.int32(slices // count)
    origin = _rows(sender * np.int32(rows) + starts - places, argmax(inside, 1, _INT32)) + iota(_INT32, length)
    covered = broadcast_in_dim(reduce_or_p.bind(inside, axes=(1,)), output.shape, (0,))
    return select(covered, _rows(every, origin), output)


def _rows(values: Any, numbers: Any) -> Any:
    """These rows; any where a number is out of bounds."""
    windows = tuple(range(1, len(values.shape)))
    return gather(
        values,
        expand_dims(numbers, (1,)),
        GatherDimensionNumbers(windows, (0,), (0,)),
        (1, *values.shape[1:]),
        mode=GatherScatterMode.CLIP,
    )


def _indices(name: str, value: Any, count: int) -> Any:
    value = as_value(value, "ragged_all_to_all")
    if value.dtype.kind not in "iu":
        raise ValueError(f"ragged_all_to_all {name} must be integer type, got {value.dtype} ({current_source().short})")
    if len(value.shape) != 1 or value.shape[0] < 1:
        raise ValueError(
            f"ragged_all_to_all {name} must be rank 1 with positive dimension size, but got shape {tuple(value.shape)} ({current_source().short})"
        )
    if value.shape[0] % count:
        raise ValueError(
            f"ragged_all_to_all {name} must be as many as the lanes, {count}, or a multiple of that, got {value.shape[0]} ({current_source().short})"
        )
    return convert_element_type(value, _INT32)
