"""Scatters at constant affine indices as selection: `x.at[1:-1:2, ::2].set(y)` as a select between x and a dilated y.

Places one apart are a window, which is written where it lies. Where they are further apart, what is written is padded between
its elements and chosen by position, so that it fuses with what makes it and with what reads it; but not where few of the elements
are written, since all of them are then gone through, nor in steps along rows that processors read one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.ir.graph import Eqn, Graph
from fuser.ops import movement as M
from fuser.ops.dynamic import dynamic_slice_p, dynamic_update_slice_p
from fuser.ops.elementwise import select_n_p
from fuser.ops.indexing import ScatterDimensionNumbers
from fuser.ops.scatter import scatter_p, window_sizes
from fuser.trace.stage import stage

FEWEST = 8  # one of so many elements is written at least
SMALL = 1 << 10  # elements of an array that it does not matter for
INTERLEAVED = (1, 2, 3, 4, 8)  # strides of the last dimension that processors take apart in registers
MOST_INDICES = 1 << 24  # numbers of a constant whose values are looked at


@dataclass(frozen=True)
class Line:
    """Places `start`, `start + stride`, … along a dimension of the array; `along` is the dimension of the indices that
    counts them, None where it is a window."""

    start: int
    stride: int
    extent: int
    along: int | None

    @property
    def last(self) -> int:
        return self.start + self.stride * (self.extent - 1)


def as_regular(eqn: Eqn, indices: np.ndarray, combine: Callable[[Any, Any], Any]) -> Graph | None:
    """The scatter as a graph of other operations on its operands; None where its places are not evenly spaced within the
    array, repeat, or are few."""
    aval, updates = eqn.invars[0].aval, eqn.invars[2].aval
    numbers = ScatterDimensionNumbers(*eqn.params["dimension_numbers"])
    if not updates.size or numbers.operand_batching_dims or indices.size > MOST_INDICES:
        return None
    lines = _lines(aval.shape, indices, numbers, tuple(window_sizes(aval, updates, numbers)))
    if lines is None or any(min(line.start, line.last) < 0 or line.extent < 1 for line in lines):
        return None
    if any(max(line.start, line.last) >= size for line, size in zip(lines, aval.shape)):
        return None
    apart = any(abs(line.stride) > 1 for line in lines)
    if apart and (aval.size > max(FEWEST * updates.size, SMALL) or abs(lines[-1].stride) not in INTERLEAVED):
        return None
    forwards = [min(line.start, line.last) for line in lines]

    def written(operand: Any, _: Any, new: Any) -> list[Any]:
        block = _in_order(new, lines, numbers)
        if not apart:
            starts = [np.asarray(start, indices.dtype) for start in forwards]
            if eqn.primitive is not scatter_p:
                sizes = tuple(line.extent for line in lines)
                block = combine(dynamic_slice_p.bind(operand, *starts, slice_sizes=sizes), block)
            return [dynamic_update_slice_p.bind(operand, block, *starts)]
        spread = tuple(
            (first, size - 1 - max(line.start, line.last), abs(line.stride) - 1)
            for first, line, size in zip(forwards, lines, aval.shape)
        )
        padded = M.pad_p.bind(block, np.zeros((), aval.dtype), padding_config=spread)
        there = M.broadcast_in_dim_p.bind(np.True_, shape=block.shape, broadcast_dimensions=())
        mask = M.pad_p.bind(there, np.False_, padding_config=spread)
        return [select_n_p.bind(mask, operand, combine(operand, padded))]

    return stage(written, [v.aval for v in eqn.invars], "regular_scatter")


def _lines(
    shape: tuple[int, ...], indices: np.ndarray, numbers: ScatterDimensionNumbers, sizes: tuple[int, ...]
) -> list[Line] | None:
    """The places along each dimension of the array, whose windows have these sizes."""
    component = {d: k for k, d in enumerate(numbers.scatter_dims_to_operand_dims)}
    lines: list[Line] = []
    for d in range(len(shape)):
        if d not in component:
            lines.append(Line(0, 1, sizes[d], None))
            continue
        line = _line(indices[..., component[d]], sizes[d])
        if line is None or (line.along is not None and sizes[d] != 1):
            return None
        lines.append(line)
    counted = sorted(line.along for line in lines if line.along is not None)
    return lines if counted == [d for d, extent in enumerate(indices.shape[:-1]) if extent > 1] else None


def _line(places: np.ndarray, size: int) -> Line | None:
    """Places that change along one dimension alone, and evenly."""
    start = int(places.flat[0])
    for along, extent in enumerate(places.shape):
        if extent > 1:
            second = [0] * places.ndim
            second[along] = 1
            stride = int(places[tuple(second)]) - start
            if stride:
                counted = start + stride * np.arange(extent).reshape([-1] + [1] * (places.ndim - 1 - along))
                return Line(start, stride, extent, along) if (places == counted).all() else None
    return Line(start, 1, size, None) if (places == start).all() else None


def _in_order(new: Any, lines: list[Line], numbers: ScatterDimensionNumbers) -> Any:
    """What is written, with the array's dimensions, and each from its first place on."""
    counting = [d for d in range(len(new.shape)) if d not in numbers.update_window_dims]
    windows = iter(numbers.update_window_dims)
    kept = {d: next(windows) for d in range(len(lines)) if d not in numbers.inserted_window_dims}
    order = [kept.get(d) if line.along is None else counting[line.along] for d, line in enumerate(lines)]
    rest = [d for d in range(len(new.shape)) if d not in order]  # of one element
    moved = M.transpose_p.bind(new, permutation=(*(d for d in order if d is not None), *rest))
    block = M.reshaped(moved, tuple(line.extent for line in lines))
    backwards = tuple(d for d, line in enumerate(lines) if line.stride < 0)
    return M.rev_p.bind(block, dimensions=backwards) if backwards else block
