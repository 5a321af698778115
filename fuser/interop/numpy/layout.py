"""The memory order that NumPy gives results: "K", the order of the operands' strides (`npyiter_find_best_axis_ordering`).

An order is a tuple of axes from the slowest to the fastest, or None for C order. Programs compute in C order; what they return
in another order is transposed there, and viewed back.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fuser.interop.numpy.rows import are_rows
from fuser.interop.numpy.spans import Span
from fuser.interop.numpy.traced import TracedArray

Order = tuple[int, ...] | None


def dense_strides(shape: Sequence[int], itemsize: int, order: Order) -> tuple[int, ...]:
    """The strides of an array without gaps."""
    strides, step = [0] * len(shape), itemsize
    for axis in (range(len(shape)) if order is None else order)[::-1]:
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)


def strides_of(x: Any) -> tuple[int, ...]:
    """The strides that an array of the traced function would have in NumPy."""
    if not isinstance(x, TracedArray):
        return x.strides if isinstance(x, np.ndarray) else (0,) * np.ndim(x)
    owner = x._owner
    shape, itemsize = owner.shape, owner.dtype.itemsize
    if x is owner:
        return owner._strides or dense_strides(shape, itemsize, owner.order)
    if owner._strides is None and owner.order is None and x.contiguous:
        return dense_strides(x.shape, x.dtype.itemsize, None)
    if 0 in shape:
        return dense_strides(x.shape, x.dtype.itemsize, None)
    array = _model(shape, owner.dtype, owner._strides or dense_strides(shape, itemsize, owner.order))
    for view in x.views():  # which lies alike wherever in an axis it lies
        array = array[tuple(map(_at_first, view.index))] if view.at_values else view.read(array)
    return array.strides if array.shape == x.shape else dense_strides(x.shape, x.dtype.itemsize, None)


def _at_first(part: Any) -> Any:
    """A part of an index that values decide, as it is at the beginning of the array."""
    return 0 if type(part) is TracedArray else part.first if type(part) is Span else part


def _model(shape: tuple[int, ...], dtype: np.dtype, strides: tuple[int, ...]) -> np.ndarray:
    """An array of these strides; its memory is never touched, so that it takes none."""
    low = sum(min(0, step * (extent - 1)) for extent, step in zip(shape, strides) if extent)
    high = sum(max(0, step * (extent - 1)) for extent, step in zip(shape, strides) if extent)
    memory = np.empty(high - low + dtype.itemsize, np.uint8)
    return np.ndarray(shape, dtype, memory, -low, strides)


def kept_order(operands: Iterable[Any], shape: tuple[int, ...]) -> Order:
    """The order of the result of an elementwise operation on these arrays."""
    arrays = [x for x in operands if isinstance(x, np.ndarray) and x.shape]
    if all(_is_c(x, shape) for x in arrays):
        return None
    return _sorted([_broadcast(tuple(x.shape), strides_of(x), len(shape)) for x in arrays], len(shape))


def _is_c(x: Any, shape: tuple[int, ...]) -> bool:
    dense = x.contiguous and x.order is None if isinstance(x, TracedArray) else x.flags.c_contiguous
    return bool(dense and tuple(x.shape) == shape)


def _broadcast(shape: tuple[int, ...], strides: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (0,) * (rank - len(shape)) + tuple(0 if extent == 1 else step for extent, step in zip(shape, strides))


def _sorted(strides: Sequence[tuple[int, ...]], rank: int) -> Order:
    """The axes by insertion sort, as NumPy's iterator sorts them; where operands disagree, C order wins."""
    axes = list(range(rank))[::-1]  # the fastest first
    for last in range(1, rank):
        position = last
        for earlier in range(last - 1, -1, -1):
            comparable, larger = False, False
            for steps in strides:
                mine, other = abs(steps[axes[last]]), abs(steps[axes[earlier]])
                if mine and other:
                    larger = other > mine and (larger or not comparable)
                    comparable = True
            if comparable and not larger:
                break
            if comparable:
                position = earlier
        axes.insert(position, axes.pop(last))
    order = tuple(axes[::-1])
    return None if order == tuple(range(rank)) else order


def order_of(x: Any) -> Order:
    """The order of a copy of an array that keeps its order."""
    return kept_order((x,), tuple(x.shape)) if isinstance(x, np.ndarray) else None


def laid_out(function: Any, args: Any, kwargs: Any, result: Any) -> Any:
    """The result of a function of NumPy, with the order that NumPy gives it: that of the same call on small arrays."""
    arrays = [leaf for leaf in _leaves((*args, *kwargs.values())) if isinstance(leaf, TracedArray)]
    if any(type(x) is not TracedArray for x in arrays) or all(order_of(x) is None for x in arrays):
        return result
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = function(*_small(args), **{name: _small(value) for name, value in kwargs.items()})
    except Exception:  # of parameters that only large arrays, or other values, admit
        return result
    for mine, theirs in zip(_leaves((result,)), _leaves((found,))):
        if isinstance(mine, TracedArray) and mine._base is None and mine.order is None and mine.ndim == np.ndim(theirs):
            mine.order = order_of(theirs)
            mine.contiguous = mine.contiguous and mine.order is None
    return result


def _leaves(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if type(value) in (list, tuple) and are_rows(value):
            value = value[-1:]  # rows lie alike
        found += _leaves(value) if isinstance(value, (list, tuple)) else [value]
    return found


def _small(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_small(v) for v in value) if type(value) is tuple else [_small(v) for v in value]
    if not isinstance(value, np.ndarray):
        return value
    model = _of_order([min(extent, 4) for extent in value.shape], value.dtype, order_of(value))
    model[...] = 1
    return model


def _of_order(shape: Sequence[int], dtype: Any, order: Order) -> np.ndarray:
    if order is None:
        return np.empty(shape, dtype)
    return np.empty([shape[d] for d in order], dtype).transpose(np.argsort(order))


def indexed_order(x: TracedArray, parts: tuple[Any, ...]) -> Order:
    """The order of `x[parts]`, with arrays among the parts: NumPy's own, for an array of the same order and small extents."""
    order = order_of(x)
    shape = [min(extent, 2) for extent in x.shape]
    model = (
        np.empty([shape[d] for d in order], np.int8).transpose(np.argsort(order)) if order else np.empty(shape, np.int8)
    )
    index: list[Any] = []
    dimension = 0
    for number, part in enumerate(parts):
        if part is Ellipsis:
            later = sum(_dimensions(p) for p in parts[number + 1 :])
            index += [slice(None)] * (len(shape) - later - dimension)
            dimension = len(shape) - later
        elif isinstance(part, np.ndarray) and part.dtype == bool and not isinstance(part, TracedArray):
            index += [np.zeros(min(int(part.sum()), 2), np.intp)] * part.ndim
            dimension += part.ndim
        elif isinstance(part, np.ndarray):
            index.append(np.zeros([min(extent, 2) for extent in part.shape], np.intp))
            dimension += 1
        elif isinstance(part, slice):
            index.append(slice(0, min(len(range(*part.indices(x.shape[dimension]))), 2)))
            dimension += 1
        else:
            index.append(part if part is None else 0)
            dimension += part is not None
    return order_of(model[tuple(index)])


def _dimensions(part: Any) -> int:
    if part is None:
        return 0
    return part.ndim if isinstance(part, np.ndarray) and part.dtype == bool and not isinstance(part, TracedArray) else 1
