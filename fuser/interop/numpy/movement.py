"""NumPy's functions that move elements. Those that give views in NumPy give views here: writing to one writes to its base.

Whether a reshape of an array that is not dense is a view depends on the memory layout: such a result may be read, and
writing to it, or reading it after its base has changed, is refused.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.interop.numpy.context import Context, untraceable
from fuser.interop.numpy.creation import array, common_dtype
from fuser.interop.numpy.dispatch import Handler, implements, numpy_function
from fuser.interop.numpy.rows import joined, packed
from fuser.interop.numpy.selected import Selected, unknown_shape
from fuser.interop.numpy.traced import TracedArray, Value, View
from fuser.interop.numpy.ufuncs import operand
from fuser.lax.values import axes_of, axis_of
from fuser.numpy import movement as M
from fuser.runtime.array import Array
from fuser.trace.core import Tracer

_UNSURE = "writing to an array that NumPy may or may not have made as a view cannot be traced|use .copy() before writing to it"
_READ_ONLY = "writing to a broadcast array cannot be traced, and NumPy forbids it|use .copy()"


def as_traced(context: Context, x: Any) -> TracedArray:
    """`x` as a traced array."""
    if isinstance(x, Selected):
        raise unknown_shape()
    return x if isinstance(x, TracedArray) else array(context, x)


def either(numpy_way: Callable[[Any], Any], fuser_way: Callable[[Any], Any]) -> Callable[[Value], Value]:
    """One way for values that are known, another for those that are traced."""
    return lambda value: fuser_way(value) if isinstance(value, (Tracer, Array)) else numpy_way(value)


def permuted(x: TracedArray, order: Sequence[int]) -> TracedArray:
    """The view of `x` with its dimensions in this order."""
    order = tuple(order)
    inverse = tuple(int(d) for d in np.argsort(order))
    read = either(lambda v: v.transpose(order), lambda v: M.transpose(v, order))
    back = either(lambda v: v.transpose(inverse), lambda v: M.transpose(v, inverse))
    moved = [d for d in order if x.shape[d] != 1]
    return x.view_of(View(read, lambda value, new: back(new)), x.contiguous and moved == sorted(moved))


def reshaped(x: TracedArray, shape: tuple[int, ...], copies: bool = False) -> TracedArray:
    """`x` in another shape: a view if `x` is dense."""
    old = x.shape
    if x.known and not x.value.flags.c_contiguous and not x.contiguous:
        copies = copies or not _reshapes_as_view(x.value, shape)
    read = either(lambda v: v.reshape(shape), lambda v: M._reshape(v, shape))
    back = either(lambda v: v.reshape(old), lambda v: M._reshape(v, old))
    if copies:
        return TracedArray(x._context, read(x.value))
    if x.scalar:
        return TracedArray(x._context, read(x.value))
    dense = x.contiguous and x._context.layout_known
    if dense or _adds_ones_only(old, shape):
        return x.view_of(View(read, lambda value, new: back(new)), dense)
    made = x.view_of(View(read, lambda value, new: back(new), "unsure"), False, guard=_UNSURE)
    made.value  # noqa: B018  # read now, so that a later change of the base is noticed
    return made


def _adds_ones_only(old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    return [e for e in old if e != 1] == [e for e in new if e != 1]


def _reshapes_as_view(value: np.ndarray, shape: tuple[int, ...]) -> bool:
    return bool(np.shares_memory(value.reshape(shape), value))


def resolved(x: TracedArray, shape: Any) -> tuple[int, ...]:
    """A shape with -1 worked out; NumPy's ValueError where the number of elements differs."""
    extents = (operator.index(shape),) if np.ndim(shape) == 0 else tuple(operator.index(e) for e in shape)
    return np.empty(x.shape, np.int8).reshape(extents).shape if 0 in x.shape else _counted(x, extents)


def _counted(x: TracedArray, extents: tuple[int, ...]) -> tuple[int, ...]:
    rest = int(np.prod([e for e in extents if e != -1], dtype=np.int64))
    unknown = sum(1 for e in extents if e == -1)
    if unknown > 1:
        raise ValueError("can only specify one unknown dimension")
    if (rest == 0 or x.size % rest) if unknown else rest != x.size:
        raise ValueError(f"cannot reshape array of size {x.size} into shape {str(extents).replace(' ', '')}")
    return tuple(x.size // rest if e == -1 else e for e in extents)


@implements(np.reshape, view=True)
def reshape(
    context: Context, a: Any, /, shape: Any = None, order: str = "C", *, newshape: Any = None, copy: bool | None = None
) -> TracedArray:
    """`np.reshape`."""
    x = as_traced(context, a)
    wanted = resolved(x, shape if newshape is None else newshape)
    if order == "F":
        flipped = reshaped(permuted(x, range(x.ndim)[::-1]), wanted[::-1])
        return permuted(flipped, range(len(wanted))[::-1])
    return reshaped(x, wanted, copies=bool(copy))


@implements(np.ravel, view=True)
def ravel(context: Context, a: Any, order: str = "C") -> TracedArray:
    """`np.ravel`: a view if `a` is dense, else a copy."""
    x = as_traced(context, a)
    if order not in ("C", "F"):
        raise untraceable(f"np.ravel with order={order!r} cannot be traced", 'use order "C"')
    x = permuted(x, range(x.ndim)[::-1]) if order == "F" else x
    return reshaped(x, (x.size,))


@implements(np.transpose, numpy_function("permute_dims"), view=True)
def transpose(context: Context, a: Any, axes: Any = None) -> TracedArray:
    """`np.transpose`."""
    x = as_traced(context, a)
    order = range(x.ndim)[::-1] if axes is None else [axis_of(d, x.ndim, "transpose") for d in axes]
    if sorted(order) != list(range(x.ndim)):
        raise ValueError("axes don't match array")
    return permuted(x, order)


@implements(np.matrix_transpose if hasattr(np, "matrix_transpose") else None, view=True)
def matrix_transpose(context: Context, x: Any, /) -> TracedArray:
    """The last two dimensions swapped."""
    return swapaxes(context, x, -1, -2)


@implements(np.swapaxes, view=True)
def swapaxes(context: Context, a: Any, axis1: int, axis2: int) -> TracedArray:
    """`np.swapaxes`."""
    x = as_traced(context, a)
    order = list(range(x.ndim))
    i, j = axis_of(axis1, x.ndim, "swapaxes"), axis_of(axis2, x.ndim, "swapaxes")
    order[i], order[j] = j, i
    return permuted(x, order)


@implements(np.moveaxis, view=True)
def moveaxis(context: Context, a: Any, source: Any, destination: Any) -> TracedArray:
    """`np.moveaxis`."""
    x = as_traced(context, a)
    sources, positions = axes_of(source, x.ndim, "moveaxis"), axes_of(destination, x.ndim, "moveaxis")
    order = [d for d in range(x.ndim) if d not in sources]
    for position, d in sorted(zip(positions, sources)):
        order.insert(position, d)
    return permuted(x, order)


@implements(np.rollaxis, view=True)
def rollaxis(context: Context, a: Any, axis: int, start: int = 0) -> TracedArray:
    """`np.rollaxis`."""
    x = as_traced(context, a)
    axis = axis_of(axis, x.ndim, "rollaxis")
    start = start + x.ndim if start < 0 else start
    return moveaxis(context, x, axis, start - 1 if start > axis else start)


@implements(np.squeeze, view=True)
def squeeze(context: Context, a: Any, axis: Any = None) -> TracedArray:
    """`np.squeeze`."""
    x = as_traced(context, a)
    axes = {d for d, e in enumerate(x.shape) if e == 1} if axis is None else set(axes_of(axis, x.ndim, "squeeze"))
    if any(x.shape[d] != 1 for d in axes):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return reshaped(x, tuple(e for d, e in enumerate(x.shape) if d not in axes))


@implements(np.expand_dims, view=True)
def expand_dims(context: Context, a: Any, axis: Any) -> TracedArray:
    """`np.expand_dims`."""
    x = as_traced(context, a)
    given = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    positions = axes_of(given, x.ndim + len(given), "expand_dims")
    extents = iter(x.shape)
    return reshaped(x, tuple(1 if d in positions else next(extents) for d in range(x.ndim + len(positions))))


@implements(np.broadcast_to, view=True)
def broadcast_to(context: Context, array: Any, shape: Any, subok: bool = False) -> TracedArray:
    """`np.broadcast_to`: a view that must not be written to."""
    x = as_traced(context, array)
    wanted = (operator.index(shape),) if np.ndim(shape) == 0 else tuple(operator.index(e) for e in shape)
    np.broadcast_to(np.broadcast_to(np.int8(0), x.shape), wanted)  # NumPy's own error where the shapes do not fit
    read = either(lambda v: np.broadcast_to(v, wanted), lambda v: M.broadcast_to(v, wanted))
    return x.view_of(View(read, lambda value, new: value), False, guard=_READ_ONLY)


@implements(np.broadcast_arrays, view=True)
def _broadcast_arrays(context: Context, *args: Any, subok: bool = False) -> tuple[TracedArray, ...]:
    arrays = [as_traced(context, a) for a in args]
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    return tuple(broadcast_to(context, a, shape) for a in arrays)


def _at_least(rank: int) -> Handler:
    def handler(context: Context, *arys: Any) -> Any:
        positions = {(1, 0): (0,), (2, 0): (0, 1), (2, 1): (0,), (3, 0): (0, 1, 2), (3, 1): (0, 2), (3, 2): (2,)}
        arrays = [as_traced(context, a) for a in arys]
        results = tuple(a if a.ndim >= rank else expand_dims(context, a, positions[rank, a.ndim]) for a in arrays)
        return results[0] if len(results) == 1 else results

    return handler


for _rank in (1, 2, 3):
    implements(getattr(np, f"atleast_{_rank}d"), view=True)(_at_least(_rank))


@implements(np.flip, view=True)
def flip(context: Context, m: Any, axis: Any = None) -> Any:
    """`np.flip`: a view by slices with step -1."""
    x = as_traced(context, m)
    axes = axes_of(axis, x.ndim, "flip")
    return x[tuple(slice(None, None, -1) if d in axes else slice(None) for d in range(x.ndim))]  # type: ignore[index]


implements(np.fliplr, view=True)(lambda context, m: flip(context, m, 1))
implements(np.flipud, view=True)(lambda context, m: flip(context, m, 0))


@implements(np.rot90, view=True)
def rot90(context: Context, m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    """`np.rot90`."""
    first, second = axes
    k %= 4
    if k in (0, 2):
        return flip(context, m, axes) if k else as_traced(context, m)[:]  # type: ignore[index]
    return (
        swapaxes(context, flip(context, m, second), first, second)
        if k == 1
        else flip(context, swapaxes(context, m, first, second), second)
    )


# Splitting: views.


def _cuts(extent: int, indices_or_sections: Any, exact: bool) -> list[int]:
    if np.ndim(indices_or_sections):
        return [operator.index(i) for i in indices_or_sections]
    parts = operator.index(indices_or_sections)
    if parts <= 0:
        raise ValueError("number sections must be larger than 0.")
    if exact and extent % parts:
        raise ValueError("array split does not result in an equal division")
    small, longer = divmod(extent, parts)
    return [int(c) for c in np.cumsum([small + (i < longer) for i in range(parts)])[:-1]]


def _split(exact: bool) -> Handler:
    def handler(context: Context, ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
        x = as_traced(context, ary)
        axis = axis_of(axis, x.ndim, "split")
        edges = [0, *_cuts(x.shape[axis], indices_or_sections, exact), x.shape[axis]]
        lead = (slice(None),) * axis
        return [x[(*lead, slice(a, b))] for a, b in itertools.pairwise(edges)]  # type: ignore[index]

    return handler


_equal_parts = _split(True)
implements(np.split, view=True)(_equal_parts)
implements(np.array_split, view=True)(_split(False))
implements(np.vsplit, view=True)(lambda context, ary, parts: _equal_parts(context, ary, parts, 0))
implements(np.hsplit, view=True)(
    lambda context, ary, parts: _equal_parts(context, ary, parts, 0 if ary.ndim == 1 else 1)
)
implements(np.dsplit, view=True)(lambda context, ary, parts: _equal_parts(context, ary, parts, 2))


@implements(numpy_function("unstack"), view=True)
def _unstack(context: Context, x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    return tuple(moveaxis(context, x, axis, 0))


# Joining and repeating: copies.


def _joining(name: str) -> Handler:
    def handler(context: Context, arrays: Any, *args: Any, **kwargs: Any) -> TracedArray:
        if not kwargs.keys() - {"axis"} and (whole := packed(arrays)) is not None:
            found = joined(name, whole, *args, **kwargs)
            if found is not None:
                return TracedArray(context, found.value)
        arrays = list(arrays)
        if any(isinstance(a, Selected) for a in arrays):
            raise unknown_shape()
        arrays = [array(context, a) if isinstance(a, (list, tuple)) else a for a in arrays]
        dtype = kwargs.pop("dtype", None)
        kwargs.pop("casting", None)
        wanted = common_dtype(*arrays) if dtype is None else np.dtype(dtype)
        return TracedArray(context, getattr(M, name)([operand(context, a, wanted) for a in arrays], *args, **kwargs))

    return handler


for _name in ("concatenate", "stack", "hstack", "vstack", "dstack", "column_stack"):
    implements(getattr(np, _name))(_joining(_name))


@implements(np.append)
def _append(context: Context, arr: Any, values: Any, axis: Any = None) -> TracedArray:
    first, second = as_traced(context, arr), as_traced(context, values)
    wanted = common_dtype(first, second)
    return TracedArray(context, M.append(first.lifted(wanted), second.lifted(wanted), axis))


@implements(np.tile)
def _tile(context: Context, A: Any, reps: Any) -> TracedArray:
    return TracedArray(context, M.tile(as_traced(context, A).lifted(), reps))


@implements(np.repeat)
def _repeat(context: Context, a: Any, repeats: Any, axis: Any = None) -> TracedArray:
    if isinstance(repeats, TracedArray):
        repeats = repeats.__array__() if repeats.known else repeats.__index__()
    return TracedArray(context, M.repeat(as_traced(context, a).lifted(), repeats, axis))


@implements(np.roll)
def _roll(context: Context, a: Any, shift: Any, axis: Any = None) -> TracedArray:
    shift = operator.index(shift) if np.ndim(shift) == 0 else tuple(operator.index(s) for s in shift)
    return TracedArray(context, M.roll(as_traced(context, a).lifted(), shift, axis))


@implements(np.resize)
def _resize(context: Context, a: Any, new_shape: Any) -> TracedArray:
    return TracedArray(context, M.resize(as_traced(context, a).lifted(), new_shape))
