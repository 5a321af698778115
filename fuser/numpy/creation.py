"""New arrays: from Python and NumPy data, constants, ranges and grids. Dtypes default as in JAX (float32 and int32)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.errors import TypeRuleError
from fuser.ir.dim import Dim, as_extent, maximum
from fuser.ir.extents import common_shape, slice_bounds
from fuser.ir.types import BOOL, is_complex, is_inexact, is_key
from fuser.lax.layouts import like_it
from fuser.lax.values import (
    VALUES,
    arrives,
    as_value,
    axis_of,
    broadcast_to,
    convert,
    from_numpy,
    literal,
    promote,
    promote_inexact,
    put_by_default,
    python_scalar,
    where_told,
)
from fuser.numpy import ufuncs as U
from fuser.ops import elementwise as E
from fuser.ops import movement as V
from fuser.ops.random import KEY_DTYPES, random_wrap_p
from fuser.runtime.array import Array
from fuser.runtime.array import from_dlpack as shared_memory
from fuser.trace.core import Tracer, bind
from fuser.trace.hoisting import number


@where_told
def array(
    object: Any,
    dtype: Any = None,
    *args: Any,
    copy: bool = True,
    order: str | None = "K",
    ndmin: int = 0,
    device: Any = None,
    out_sharding: Any = None,
) -> Any:
    """An array of the data: numbers, arrays, or nested sequences of them; Python's numbers alone stay weak in rank 0.

    `copy`, `order` and `ndmin` by position are deprecated.
    """
    if args:
        copy, order, ndmin = _by_position(args, (copy, order, ndmin))
    wanted = None if dtype is None else dtypes.requested(dtype, "array")
    result = _from_object(object, wanted)
    if wanted is not None:
        result = convert(result, wanted)
    if copy and not isinstance(result, Tracer) and _shared(result, object):
        result = bind(E.copy_p, result)
    if result.ndim < ndmin:
        result = bind(V.reshape_p, result, new_sizes=(1,) * (ndmin - result.ndim) + result.shape, dimensions=None)
    return result


def _by_position(args: tuple[Any, ...], named: tuple[Any, ...]) -> list[Any]:
    """What `array` is given of copy, order and ndmin, the first of them by position."""
    if len(args) > 3:
        raise TypeError(f"array() takes at most 5 positional arguments but {len(args) + 2} were given")
    for name, given, default in zip(("copy", "order", "ndmin")[: len(args)], named, (True, "K", 0)):
        if given != default:
            raise TypeError(f"array() got multiple values for argument '{name}'")
    warnings.warn(
        "Passing the copy, order, and ndmin arguments to array positionally is deprecated. Use keyword arguments instead.",
        DeprecationWarning,
        stacklevel=3,
    )
    return [*args, *named[len(args) :]]


@where_told
def asarray(
    a: Any,
    dtype: Any = None,
    order: Any = None,
    *,
    copy: bool | None = None,
    device: Any = None,
    out_sharding: Any = None,
) -> Any:
    """`a` itself where it is an array of the dtype, else an array of its data: of NumPy's memory, where a large array begins at a
    multiple of 64 bytes (as in JAX), else of a copy."""
    return array(a, dtype, copy=bool(copy), order=order)


def _shared(result: Any, object: Any) -> bool:
    """Whether somebody else holds, and may delete or write to, the memory of the Array that was made of an object."""
    if isinstance(object, VALUES) or result is object:
        return result is object
    if isinstance(object, (list, tuple, int, float, complex, np.generic)):
        return False
    return hasattr(object, "__jax_array__") or np.may_share_memory(result._data, np.asarray(object))


@where_told
def astype(x: Any, dtype: Any, /, *, copy: bool = False, device: Any = None) -> Any:
    """`x` in another dtype, with `copy` never `x` itself; complex numbers become real only through `real`."""
    x = given = as_value(x, "astype")
    wanted = dtypes.canonical(float) if dtype is None else dtypes.requested(dtype, "astype")
    if wanted == BOOL:
        x = U.not_equal(x, literal(0, x.dtype)) if x.dtype != BOOL else x
    elif is_complex(x.dtype) and not is_complex(wanted):
        x = bind(E.real_p, x)
    result = convert(x, wanted)
    return bind(E.copy_p, result) if copy and result is given and not isinstance(result, Tracer) else result


def _from_object(value: Any, wanted: np.dtype | None) -> Any:
    if isinstance(value, VALUES):
        return value
    if python_scalar(value):
        if type(value) is int and wanted is not None and wanted.kind in "iu":
            return number(Array(np.asarray(value, wanted)))  # OverflowError for an integer that is out of bounds
        if wanted is None:
            return as_value(value)
        arrives(value)
        return literal(value, wanted)
    if isinstance(value, (np.ndarray, np.generic)):
        return from_numpy(value, kept=type(value) is np.ndarray)
    if isinstance(value, (list, tuple)):
        return _from_sequence(value, wanted)
    if value is None:
        raise ValueError("None is not a valid value for jnp.array; use nan for what is missing")
    if hasattr(value, "__jax_array__") or hasattr(value, "__array__") or isinstance(value, (int, float, complex)):
        return as_value(value, "array")
    try:
        return from_numpy(np.asarray(memoryview(value)))
    except TypeError:
        raise TypeError(f"array takes numbers, arrays and sequences of them, got {type(value).__name__}") from None


def _from_sequence(value: Sequence[Any], wanted: np.dtype | None) -> Any:
    leaves = list(_leaves(value))
    if not any(isinstance(leaf, VALUES) or hasattr(leaf, "__jax_array__") for leaf in leaves):
        if any(leaf is None for leaf in leaves):
            raise ValueError("None is not a valid value for jnp.array; use nan for what is missing")
        if leaves and wanted is None:
            wanted, _ = dtypes.result_of(*{dtypes.of(leaf) for leaf in leaves})
        plain = np.asarray(value) if leaves else np.asarray(value, np.float64)
        if plain.dtype.kind == "i" and (wanted is None or wanted.kind == "i"):
            info = np.iinfo(wanted or np.int32)
            if plain.size and not (info.min <= plain.min() and plain.max() <= info.max):
                raise OverflowError(f"an integer of the list is too large for {info.dtype.name}; set enable_x64")
        arrives(plain)
        return put_by_default(Array(_cast(plain, wanted or dtypes.canonical(plain.dtype))))
    from fuser.numpy.movement import stack

    return stack([_from_object(element, None) for element in value])


def _cast(data: np.ndarray, dtype: np.dtype) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(data.astype(dtype)).reshape(data.shape)


def _leaves(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        for element in value:
            yield from _leaves(element)
    else:
        yield value


# Constants.


def _shape(shape: Any) -> tuple[int, ...]:
    try:
        extents = (
            (as_extent(shape),)
            if isinstance(shape, int) or (not isinstance(shape, (tuple, list)) and np.ndim(shape) == 0)
            else tuple(as_extent(e) for e in shape)
        )
    except TypeError:
        raise TypeError(
            f"Shapes must be 1D sequences of concrete values of integer type, got {shape!r}: a shape is made of integers.\n"
            "If using `jit`, try using `static_argnums` or applying `jit` to smaller subfunctions."
        ) from None
    if any(e < 0 for e in extents):
        raise TypeRuleError(f"a shape has no negative extents, got {extents}")
    return extents


def _keys(shape: tuple[int, ...], value: Any, dtype: np.dtype) -> Any:
    """Random keys whose words all are `value`."""
    words = full((*shape, *dtype[0].shape), value, np.uint32)
    return bind(random_wrap_p, words, impl=next(name for name, known in KEY_DTYPES.items() if known == dtype))


@where_told
def full(shape: Any, fill_value: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """An array of `shape` filled with `fill_value`, broadcast to it."""
    shape = _shape(shape)
    if dtype == dtypes.float0:
        return np.zeros(shape, dtypes.float0)
    found = None if dtype is None else dtypes.requested(dtype, "full")
    if found is not None and is_key(found) and not isinstance(fill_value, VALUES):
        return _keys(shape, fill_value, found)
    if found is not None and type(fill_value) is int:
        fill_value = np.asarray(fill_value).astype(found)  # 0xFFFFFFFF fits a uint32, though not the default integer
    value = asarray(fill_value)
    if found is not None:
        value = convert(value, found)
    return broadcast_to(value, shape)


def _constant(name: str, value: int) -> Callable[..., Any]:
    @where_told
    def create(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
        if isinstance(dtype, int) and isinstance(shape, int):
            raise TypeError(
                f"Cannot interpret '{dtype}' as a data type\nDid you accidentally write `jax.numpy.{name}({shape}, {dtype})` "
                f"when you meant `jax.numpy.{name}(({shape}, {dtype}))`?"
            )
        if dtype == dtypes.float0:
            return np.zeros(_shape(shape), dtypes.float0)
        found = dtypes.canonical(float) if dtype is None else dtypes.requested(dtype, name)
        arrives(value)
        return (
            _keys(_shape(shape), value, found) if is_key(found) else broadcast_to(literal(value, found), _shape(shape))
        )

    create.__name__ = create.__qualname__ = name
    create.__doc__ = f"An array of `shape` filled with {value}, float by default."
    return create


zeros = _constant("zeros", 0)
ones = _constant("ones", 1)
empty = _constant("empty", 0)


@where_told
def full_like(
    a: Any, fill_value: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None
) -> Any:
    """As `full`, with the shape and dtype of `a` unless given."""
    like = as_value(a, "full_like") if not hasattr(a, "dtype") or not hasattr(a, "shape") else a
    weak = dtype is None and getattr(like, "weak_type", False)
    found = dtypes.canonical(like.dtype) if dtype is None else dtypes.requested(dtype, "full_like")
    value = asarray(fill_value)
    if found == BOOL:
        value = U.truth(value)
    elif is_complex(value.dtype) and not is_complex(found):
        raise TypeError(f"full_like cannot fill {found.name} with {fill_value!r}; give dtype=complex, or the real part")
    result = broadcast_to(convert(value, found, weak), tuple(like.shape) if shape is None else _shape(shape))
    return like_it(result, a) if shape is None else result


@where_told
def zeros_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """Zeros with the shape and dtype of `a` unless given."""
    return full_like(a, 0, dtype, shape)


@where_told
def ones_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """Ones with the shape and dtype of `a` unless given."""
    return full_like(a, 1, dtype, shape)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """An array over the memory of `x` (`__dlpack__`), which must not be written while the array lives.

    `copy=True` gives it memory of its own. `device` is where the array is to lie, a Device or a sharding; ValueError with
    `copy=False` where it lies elsewhere.
    """
    found = shared_memory(x)
    if device is None:
        return array(found, copy=True) if copy else found
    there = getattr(device, "device_set", {device}) == found.devices()
    if copy is False and not there:
        raise ValueError(
            f"Specified {device=} which requires a copy since the source device is {found.device}, however copy=False"
        )
    return array(found, copy=bool(copy), device=device)


def empty_like(prototype: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Any:
    """Zeros, as every array has values, with the shape and dtype of `prototype` unless given."""
    return full_like(prototype, 0, dtype, shape)


# Ranges.


def iota(shape: tuple[int, ...], dimension: int, dtype: Any = np.int32) -> Any:
    """The index along one dimension, at every position of `shape`."""
    return bind(V.iota_p, dtype=np.dtype(dtype), shape=shape, dimension=dimension)


@where_told
def arange(
    start: Any, stop: Any = None, step: Any = None, dtype: Any = None, *, device: Any = None, out_sharding: Any = None
) -> Any:
    """The numbers from `start` below `stop`, `step` apart; `arange(n)` counts from 0."""
    names = ("stop", "stop", "step") if stop is None and step is None else ("start", "stop", "step")
    for name, part in zip(names, (start, stop, step)):
        if isinstance(part, Tracer):
            raise part._refuse("arange", f"It arose in the jnp.arange argument '{name}': keep it known while tracing")
    if Dim in map(type, (start, stop, step)):
        return _symbolic_range(start, stop, step, dtype)
    found = (
        dtypes.result_type(*(p for p in (start, stop, step) if p is not None))
        if dtype is None
        else dtypes.requested(dtype, "arange")
    )
    low, high = (0, start) if stop is None else (start, stop)
    if step is None and found.kind in "iu":
        size = (
            max(0, math.ceil(high) - math.ceil(low))
            if is_inexact(np.asarray(high).dtype)
            else max(0, int(high) - int(low))
        )
        if int(low) == 0:
            return iota((size,), 0, found)
        return U.add(iota((size,), 0, found), convert(as_value(int(low)), found))
    values: np.ndarray = np.arange(*(np.asarray(v).item() for v in (low, high, 1 if step is None else step)))
    if stop is None and step is None and is_inexact(found) and not is_complex(found):
        return iota((len(values),), 0, found)
    return from_numpy(values.astype(found))


def _symbolic_range(start: Any, stop: Any, step: Any, dtype: Any) -> Any:
    """`arange` where extents are symbolic: integers."""
    found = dtypes.canonical(np.int64) if dtype is None else dtypes.requested(dtype, "arange")
    low, high = (0, start) if stop is None else (start, stop)
    by = 1 if step is None else as_extent(step)
    _, size = slice_bounds(0, maximum(0, high - low if by > 0 else low - high), abs(by), maximum(0, abs(high - low)))
    values = iota((size,), 0, found)
    values = values if by == 1 else U.multiply(values, convert(as_value(by), found))
    return values if type(low) is int and low == 0 else U.add(values, convert(as_value(low), found))


@where_told
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """`num` numbers evenly spaced from `start` to `stop`, the end included unless `endpoint` is False."""
    num = as_extent(num)
    if num < 0:
        raise ValueError(f"linspace takes a number of samples >= 0, got {num}")
    first, last = promote_inexact("linspace", start, stop)
    computed = first.dtype
    wanted = computed if dtype is None else dtypes.requested(dtype, "linspace")
    shape = common_shape(first.shape, last.shape)
    first, last = broadcast_to(convert(first, computed), shape), broadcast_to(convert(last, computed), shape)
    parts = num - 1 if endpoint else num
    step = U.divide(U.subtract(last, first), parts) if parts > 0 else U.multiply(first, np.nan)
    result = _interpolate(first, last, num, parts, endpoint, computed)
    if dtype is not None and wanted.kind in "iu":
        result = U.floor(result)
    axis = axis_of(axis, len(shape) + 1, "linspace")
    if axis:
        from fuser.numpy.movement import moveaxis

        result = moveaxis(result, 0, axis)
    result = convert(result, wanted)
    return (result, step) if retstep else result


def _interpolate(first: Any, last: Any, num: int, parts: int, endpoint: bool, dtype: np.dtype) -> Any:
    """first·(1 - t) + last·t over t = i / parts; the last number is exact."""
    shape = (num, *first.shape)
    if num <= 1:
        return broadcast_to(first, shape)
    whole = np.dtype(f"float{dtype.itemsize * 4}") if is_complex(dtype) else dtype
    position = convert(U.divide(iota((num, *(1,) * first.ndim), 0, whole), literal(parts, whole)), dtype)
    result = U.add(U.multiply(first, U.subtract(1, position)), U.multiply(last, position))
    if not endpoint:
        return result
    at_end = U.equal(iota(shape, 0), num - 1)
    return bind(E.select_n_p, at_end, broadcast_to(result, shape), broadcast_to(last, shape))


def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None, axis: int = 0
) -> Any:
    """`base` to the powers evenly spaced from `start` to `stop`."""
    powers = U.power(base, linspace(start, stop, num, endpoint, axis=axis))
    return powers if dtype is None else astype(powers, dtype)


def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Any:
    """`num` numbers from `start` to `stop`, each the same multiple of the one before."""
    first, last = promote_inexact("geomspace", start, stop)
    sign = U.sign(first)
    logarithms = linspace(U.log(U.divide(first, sign)), U.log(U.divide(last, sign)), num, endpoint, axis=axis)
    result = U.multiply(sign, U.exp(logarithms))
    return result if dtype is None else astype(result, dtype)


# Matrices and grids.


@where_told
def eye(N: Any, M: Any = None, k: Any = 0, dtype: Any = None, *, device: Any = None) -> Any:
    """An (N, M) matrix with ones on the k-th diagonal."""
    shape = (as_extent(N), as_extent(N if M is None else M))
    if any(extent < 0 for extent in shape):
        raise ValueError(f"eye takes extents >= 0, got {shape}")
    found = dtypes.canonical(float) if dtype is None else dtypes.requested(dtype, "eye")
    offset = as_value(max(-(2**31), min(k, 2**31 - 1)) if isinstance(k, int) else k, "eye")
    if offset.shape or offset.dtype.kind not in "iu":
        raise ValueError(f"eye takes a scalar integer as k, got {k!r}")
    return convert(U.equal(U.add(iota(shape, 0, offset.dtype), offset), iota(shape, 1, offset.dtype)), found)


def identity(n: Any, dtype: Any = None) -> Any:
    """The (n, n) identity matrix."""
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Any:
    """An (N, M) matrix with ones on and below the k-th diagonal."""
    found = dtypes.canonical(float) if dtype is None else dtypes.requested(dtype, "tri")
    return convert(_lower_triangle((as_extent(N), as_extent(N if M is None else M)), k), found)


def _lower_triangle(shape: tuple[int, ...], k: Any) -> Any:
    offset = k if isinstance(k, Tracer) else as_extent(k)
    return U.greater_equal(U.add(iota(shape, len(shape) - 2), offset), iota(shape, len(shape) - 1))


def tril(m: Any, k: int = 0) -> Any:
    """The matrix (or stack of them) with zeros above the k-th diagonal."""
    x = as_value(m, "tril")
    if x.ndim < 2:
        raise ValueError(f"tril takes at least 2 dimensions, got shape {x.shape}")
    return bind(E.select_n_p, _lower_triangle(x.shape, as_extent(k)), literal(0, x.dtype), x)


def triu(m: Any, k: int = 0) -> Any:
    """The matrix (or stack of them) with zeros below the k-th diagonal."""
    x = as_value(m, "triu")
    if x.ndim < 2:
        raise ValueError(f"triu takes at least 2 dimensions, got shape {x.shape}")
    return bind(E.select_n_p, _lower_triangle(x.shape, as_extent(k) - 1), x, literal(0, x.dtype))


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list[Any]:
    """Coordinate arrays of the grid spanned by 1-D arrays; with "xy" the first two dimensions are swapped."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f'meshgrid takes indexing="xy" or "ij", got {indexing!r}')
    axes = [asarray(x) for x in xi]
    if any(a.ndim > 1 for a in axes):
        raise ValueError(f"meshgrid takes arrays of 1 dimension, got shapes {[a.shape for a in axes]}")
    order = list(range(len(axes)))
    if indexing == "xy" and len(axes) > 1:
        order[0], order[1] = 1, 0
    shape = [1] * len(axes)
    for position, a in zip(order, axes):
        shape[position] = a.size
    grids = []
    for position, a in zip(order, axes):
        own = tuple(a.size if d == position else 1 for d in range(len(axes)))
        grid = bind(V.reshape_p, a, new_sizes=own, dimensions=None)
        grids.append(grid if sparse else broadcast_to(grid, tuple(shape)))
    return grids


def indices(dimensions: Sequence[int], dtype: Any = None, sparse: bool = False) -> Any:
    """The index along each dimension of a grid; stacked, or apart and of extent 1 elsewhere if `sparse`."""
    shape = tuple(as_extent(e) for e in dimensions)
    found = dtypes.canonical(int) if dtype is None else dtypes.requested(dtype, "indices")
    if sparse:
        return tuple(iota(tuple(e if i == d else 1 for i, e in enumerate(shape)), d, found) for d in range(len(shape)))
    from fuser.numpy.movement import stack

    return stack([iota(shape, d, found) for d in range(len(shape))]) if shape else zeros((0,), found)


def fromfunction(function: Callable[..., Any], shape: Any, *, dtype: Any = float, **kwargs: Any) -> Any:
    """`function` of the index along each dimension, given as arrays of the whole shape."""
    shape = _shape(shape)
    found = dtypes.canonical(dtype)
    return function(*(iota(shape, d, found) for d in range(len(shape))), **kwargs)


def broadcast_arrays(*args: Any) -> list[Any]:
    """All arrays broadcast to one shape."""
    values = [as_value(a, "broadcast_arrays") for a in args]
    shape = common_shape(*(v.shape for v in values))
    return [broadcast_to(v, shape) for v in values]


def common_arrays(function: str, arrays: Sequence[Any]) -> list[Any]:
    """The arrays (or one array, taken row by row) in their common dtype."""
    if isinstance(arrays, (*VALUES, np.ndarray)):
        if not arrays.ndim:
            raise TypeError(f"{function} takes a sequence of arrays, got one of rank 0")
        arrays = list(asarray(arrays))
    if not arrays:
        raise ValueError(f"{function} needs at least one array")
    values = [asarray(a) if isinstance(a, (list, tuple)) else a for a in arrays]
    return promote(function, *values)
