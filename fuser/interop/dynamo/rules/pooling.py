"""Pooling. Windows are strided slices of the padded input, one for each offset inside the window."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import fuser.numpy as fnp
from fuser import lax
from fuser.interop.dynamo.rules.table import Refused, operand, rule, wide
from fuser.ir.types import ArrayType
from fuser.lax.values import broadcast_to, literal
from fuser.transforms.linear import linear_transpose

Offset = tuple[int, ...]
MAX_CONSTANT_ELEMENTS = 1 << 20  # of a table of positions
MAX_OFFSETS = 128  # elements of a window that are written out


class Windows:
    """The geometry of windows over the last dimensions: how many there are, and the slice of each offset in them."""

    def __init__(
        self, shape: Sequence[int], space: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
    ) -> None:
        every = lambda value: tuple(np.broadcast_to(value, (space,)).tolist())
        self.extents = tuple(shape[-space:])
        self.kernel, self.padding, self.dilation = every(kernel), every(padding), every(dilation)
        self.stride = every(stride) if stride not in ((), [], None) else self.kernel
        self.counts = tuple(self._count(n, ceil) for n in range(space))

    def _count(self, n: int, ceil: bool) -> int:
        free = self.extents[n] + 2 * self.padding[n] - self.dilation[n] * (self.kernel[n] - 1) - 1
        count = (-(-free // self.stride[n]) if ceil else free // self.stride[n]) + 1
        beyond = ceil and (count - 1) * self.stride[n] >= self.extents[n] + self.padding[n]
        return count - 1 if beyond else count

    def offsets(self) -> Iterator[Offset]:
        """Where the windows' elements lie, in row-major order, from a window's first."""
        if math.prod(self.kernel) > MAX_OFFSETS:
            raise Refused(f"positions in windows of {math.prod(self.kernel)} elements")
        for place in itertools.product(*map(range, self.kernel)):
            yield tuple(p * d for p, d in zip(place, self.dilation))

    def padded(self, x: Any, value: Any) -> Any:
        """The input with `value` around it, as far as windows reach."""
        space = len(self.kernel)
        reach = [
            (c - 1) * s + d * (k - 1) + 1 for c, s, d, k in zip(self.counts, self.stride, self.dilation, self.kernel)
        ]
        around = [(p, max(r - e - p, 0), 0) for p, r, e in zip(self.padding, reach, self.extents)]
        return lax.pad(x, literal(value, x.dtype), [(0, 0, 0)] * (len(x.shape) - space) + around)

    def sizes(self, with_padding: bool) -> Any:
        """How many elements each window has inside the input, or inside the padding that was asked for."""
        found: Any = np.ones(())
        for count, stride, size, extent, pad in zip(self.counts, self.stride, self.kernel, self.extents, self.padding):
            first = np.arange(count) * stride - pad
            last = np.minimum(first + size, extent + pad)
            found = np.multiply.outer(
                found, last - first if with_padding else np.minimum(last, extent) - np.maximum(first, 0)
            )
        return found

    def at(self, padded: Any, offset: Offset) -> Any:
        """For each window its element at an offset."""
        first = len(padded.shape) - len(offset)
        for axis, (start, count, stride) in enumerate(zip(offset, self.counts, self.stride), first):
            padded = lax.slice_in_dim(padded, start, start + (count - 1) * stride + 1, stride, axis)
        return padded

    def positions(self, offset: Offset) -> Any:
        """For each window the row-major position in the input of its element at an offset."""
        found: Any = 0
        for n, extent in enumerate(self.extents):
            steps = fnp.add(
                fnp.multiply(fnp.arange(self.counts[n], dtype=np.int64), self.stride[n]), offset[n] - self.padding[n]
            )
            along = fnp.reshape(steps, (-1, *(1,) * (len(self.extents) - n - 1)))
            found = along if n == 0 else fnp.add(fnp.multiply(found, extent), along)
        return found

    def spread(self, values: Any, offset: Offset) -> Any:
        """The transpose of `at`, without what lies in the padding."""
        around = [
            (o - p, e + p - o - (c - 1) * s - 1, s - 1)
            for o, p, e, c, s in zip(offset, self.padding, self.extents, self.counts, self.stride)
        ]
        return lax.pad(values, literal(0, values.dtype), [(0, 0, 0)] * (len(values.shape) - len(offset)) + around)


def _least(dtype: np.dtype) -> Any:
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def _max_pool(
    space: int, dtype: np.dtype, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> Any:  # fmt: skip
    """Maxima and their positions: the first of equal ones, and a nan above all."""
    windows = Windows(x.shape, space, kernel, stride, padding, dilation, ceil)
    padded, best, where = windows.padded(x, _least(dtype)), None, None
    for offset in windows.offsets():
        value = windows.at(padded, offset)
        position = broadcast_to(windows.positions(offset), value.shape)
        if best is None:
            best, where = value, position
            continue
        above = fnp.greater(value, best)
        above = above if dtype.kind in "iu" else fnp.logical_or(above, fnp.isnan(value))
        best, where = fnp.where(above, value, best), fnp.where(above, position, where)
    return best, where


def _max_pool_backward(
    space: int, dtype: np.dtype, grad: Any, x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool, indices: Any
) -> Any:  # fmt: skip
    windows, own = Windows(x.shape, space, kernel, stride, padding, dilation, ceil), wide(dtype)
    cotangent, total = operand(grad, own), None
    for offset in windows.offsets():
        chosen = fnp.equal(indices, windows.positions(offset))
        part = windows.spread(fnp.where(chosen, cotangent, literal(0, own)), offset)
        total = part if total is None else fnp.add(total, part)
    return total


def _averages(
    space: int, shape: Sequence[int], own: np.dtype, kernel: Any, stride: Any, padding: Any, ceil: bool, with_padding: bool, divisor: Any
) -> Callable[[Any], Any]:  # fmt: skip
    """The linear function from arrays of a shape to the averages of their windows."""
    windows = Windows(shape, space, kernel, stride, padding, 1, ceil)
    lead = (1,) * (len(shape) - space)
    counts = operand(divisor, own) if divisor else fnp.asarray(windows.sizes(with_padding), own)

    def average(x: Any) -> Any:
        padded = windows.padded(x, 0)
        strides = (*lead, *windows.stride)
        total = lax.reduce_window(padded, literal(0, own), lax.add, (*lead, *windows.kernel), strides, "VALID")
        return fnp.divide(total, counts)

    return average


def _avg_pool(
    space: int, dtype: np.dtype, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, ceil: bool = False,
    with_padding: bool = True, divisor: Any = None,
) -> Any:  # fmt: skip
    if dtype.kind in "iu":
        raise Refused("averages of integers")
    own = wide(dtype)
    return _averages(space, x.shape, own, kernel, stride, padding, ceil, with_padding, divisor)(operand(x, own))


def _avg_pool_backward(space: int, dtype: np.dtype, grad: Any, x: Any, *geometry: Any) -> Any:
    own = wide(dtype)
    [found] = linear_transpose(_averages(space, x.shape, own, *geometry), ArrayType(x.shape, own))(operand(grad, own))
    return found


for _space in (2, 3):
    for _name, _function in (
        ("max_pool{}d_with_indices", _max_pool),
        ("max_pool{}d_with_indices_backward", _max_pool_backward),
        ("avg_pool{}d", _avg_pool),
        ("avg_pool{}d_backward", _avg_pool_backward),
    ):
        rule(_name.format(_space))(functools.partial(_function, _space))


# Adaptive pooling: window i of n begins at ⌊i·e/n⌋ and ends at ⌈(i+1)·e/n⌉.


def _averaging(extent: int, count: int) -> Any:
    """The matrix (count, extent) that averages adaptive windows."""
    windows, places = np.arange(count)[:, None], np.arange(extent)
    inside = (places >= windows * extent // count) & (places < -(-(windows + 1) * extent // count))
    return inside / inside.sum(1, keepdims=True)


def _adaptive(sizes: Sequence[int], own: np.dtype) -> Callable[[Any], Any]:
    def average(x: Any) -> Any:
        for axis, count in enumerate(sizes, len(x.shape) - len(sizes)):
            x = _averaged(x, axis, count, own)
        return x

    return average


def _averaged(x: Any, axis: int, count: int, own: np.dtype) -> Any:
    extent = x.shape[axis]
    if extent % count == 0:
        return fnp.mean(fnp.reshape(x, (*x.shape[:axis], count, extent // count, *x.shape[axis + 1 :])), axis + 1)
    matrix = fnp.asarray(_averaging(extent, count), own)
    return fnp.moveaxis(fnp.tensordot(x, matrix, ((axis,), (1,))), -1, axis)


@rule("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def _adaptive_avg_pool(dtype: np.dtype, x: Any, sizes: Sequence[int]) -> Any:
    return _adaptive(sizes, wide(dtype))(operand(x, wide(dtype)))


def _adaptive_avg_pool_backward(space: int, dtype: np.dtype, grad: Any, x: Any) -> Any:
    own = wide(dtype)
    [found] = linear_transpose(_adaptive(grad.shape[-space:], own), ArrayType(x.shape, own))(operand(grad, own))
    return found


def _adaptive_max_pool(space: int, dtype: np.dtype, x: Any, sizes: Sequence[int]) -> Any:
    """Maxima and their positions. Windows are as long as the longest: shorter ones have their last element several times."""
    lead, extents = x.shape[:-space], x.shape[-space:]
    place: Any = np.zeros((1,) * 2 * space, np.int64)
    for n, (extent, count) in enumerate(zip(extents, sizes)):
        windows = np.arange(count)
        first, last = windows * extent // count, -(-(windows + 1) * extent // count)
        inside = np.minimum(first[:, None] + np.arange((last - first).max()), last[:, None] - 1)
        place = place * extent + np.expand_dims(inside, [d for d in range(2 * space) if d not in (n, space + n)])
    place = fnp.asarray(place.reshape(*sizes, -1))
    if place.size > MAX_CONSTANT_ELEMENTS:
        raise Refused(f"positions in adaptive windows of {place.size} elements")
    values = fnp.take(fnp.reshape(x, (*lead, math.prod(extents))), place, axis=-1, mode="clip")
    best = fnp.expand_dims(fnp.argmax(values, -1), -1)
    where = fnp.take_along_axis(broadcast_to(place, values.shape), best, -1, mode="clip")
    return fnp.squeeze(fnp.take_along_axis(values, best, -1, mode="clip"), -1), fnp.squeeze(where, -1)


def _adaptive_max_pool_backward(space: int, dtype: np.dtype, grad: Any, x: Any, indices: Any) -> Any:
    """Windows may overlap, so that an element may be the largest of several."""
    own, lead = wide(dtype), math.prod(x.shape[:-space])
    flat = lambda v: fnp.reshape(v, (lead, math.prod(v.shape[-space:])))
    where = (fnp.expand_dims(fnp.arange(lead), 1), flat(indices))
    return fnp.reshape(fnp.zeros_like(flat(x), own).at[where].add(operand(flat(grad), own)), x.shape)


for _space in (2, 3):
    rule(f"_adaptive_avg_pool{_space}d_backward")(functools.partial(_adaptive_avg_pool_backward, _space))
    rule(f"adaptive_max_pool{_space}d")(functools.partial(_adaptive_max_pool, _space))
    rule(f"adaptive_max_pool{_space}d_backward")(functools.partial(_adaptive_max_pool_backward, _space))
