"""NumPy's other functions on traced arrays: selection, rounding, differences, padding, sorting, searching, tests.

Handlers bring their operands to the dtype of NumPy's promotion and hand them to fuser.numpy's function of the same name.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

import fuser.numpy as fnp
from fuser.interop.numpy.checks import notice, notice_out_of_bounds, notice_out_of_range, watching
from fuser.interop.numpy.context import Context, to_dtype, untraceable
from fuser.interop.numpy.creation import astype, common_dtype, stored_dtype
from fuser.interop.numpy.dispatch import Handler, implements, numpy_function
from fuser.interop.numpy.indexing import setitem
from fuser.interop.numpy.movement import as_traced
from fuser.interop.numpy.reductions import is_long
from fuser.interop.numpy.selected import Selected
from fuser.interop.numpy.traced import TracedArray, find_context
from fuser.interop.numpy.ufuncs import call as call_ufunc
from fuser.interop.numpy.ufuncs import known, operand, store
from fuser.ir.types import BOOL
from fuser.lax.values import broadcast_to, convert, full_broadcast, literal
from fuser.numpy import indexing
from fuser.numpy.at import IndexUpdateRef
from fuser.numpy.series import convolved
from fuser.ops import elementwise as E
from fuser.ops.windows import sliding_windows_p
from fuser.trace.core import bind


def wrapped(context: Context, value: Any, scalar: bool | None = None, dtype: np.dtype | None = None) -> TracedArray:
    """A tracer as a traced array, of rank 0 a scalar."""
    value = value if dtype is None else to_dtype(value, dtype)
    return TracedArray(context, value, scalar=not value.shape if scalar is None else scalar)


def floats(*values: Any) -> np.dtype:
    """The dtype of NumPy's functions of real numbers: integers become float64."""
    dtype = common_dtype(*values)
    return np.result_type(dtype, np.float64) if dtype.kind in "biu" else dtype


# Selection.


@implements(np.where)
def where(context: Context, condition: Any, x: Any = None, y: Any = None, /) -> Any:
    """`np.where(condition, x, y)`; with the condition alone the positions of what it selects."""
    if x is None and y is None:
        from fuser.interop.numpy.positions import nonzero  # which needs dispatch, as this does

        return nonzero(context, condition)
    dtype = common_dtype(x, y)
    values = full_broadcast(
        "where", [operand(context, condition, BOOL), operand(context, y, dtype), operand(context, x, dtype)]
    )
    return wrapped(context, bind(E.select_n_p, *values), scalar=False)


@implements(np.select)
def _select(context: Context, condlist: Any, choicelist: Any, default: Any = 0) -> TracedArray:
    result = default
    dtype = common_dtype(default, *choicelist)
    for condition, choice in list(zip(condlist, choicelist))[::-1]:
        result = where(context, condition, choice, result)
    return astype(result, dtype, copy=False)


@implements(np.clip)
def clip(
    context: Context,
    a: Any,
    a_min: Any = None,
    a_max: Any = None,
    out: Any = None,
    *,
    min: Any = None,
    max: Any = None,
    dtype: Any = None,
    **unused: Any,
) -> Any:
    """`np.clip`."""
    low, high = a_min if min is None else min, a_max if max is None else max
    low = None if low is np._NoValue else low
    high = None if high is np._NoValue else high
    result = as_traced(context, a) if not isinstance(a, Selected) else a
    if low is not None:
        result = call_ufunc(context, np.maximum, (result, low), dtype=dtype)
    return result if high is None else call_ufunc(context, np.minimum, (result, high), dtype=dtype)


@implements(np.choose)
def _choose(context: Context, a: Any, choices: Any, out: Any = None, mode: str = "raise") -> TracedArray:
    values = [choices[i] for i in range(len(choices))]
    dtype = common_dtype(*values)
    result: Any = values[-1]
    index = as_traced(context, a)
    if mode != "raise":
        raise untraceable(
            f"np.choose with mode={mode!r} cannot be traced", 'use np.clip or % on the indices, and mode="raise"'
        )
    notice_out_of_range(index.lifted(), len(values))
    for number in range(len(values) - 1)[::-1]:
        result = where(context, call_ufunc(context, np.equal, (index, number)), values[number], result)
    return astype(result, dtype, copy=False)


@implements(np.take)
def take(context: Context, a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> TracedArray:
    """`np.take`."""
    x = as_traced(context, a).lifted()
    positions = indices if not isinstance(indices, (TracedArray, list, tuple)) else as_traced(context, indices)
    if isinstance(positions, TracedArray):
        positions = positions.lifted() if not positions.known else positions.value
    if not hasattr(positions, "aval"):
        positions = np.asarray(positions)
        extent = x.size if axis is None else x.shape[axis]
        if mode == "raise" and positions.size and (positions.max() >= extent or positions.min() < -extent):
            raise IndexError(f"index {positions.max()} is out of bounds for size {extent}")
    elif mode == "raise" and hasattr(positions, "aval"):
        notice_out_of_bounds(positions, x.size if axis is None else x.shape[axis])
    if mode == "raise" and watching() and x.size and (axis is None or 0 <= axis < x.ndim):
        x, axis = (
            (fnp.ravel(x), 0) if axis is None else (x, axis)
        )  # what lies outside is noticed, so nothing stands for it
        return wrapped(context, indexing.getitem(x, (*[slice(None)] * axis, positions)))
    how = mode if mode in ("wrap", "clip") else None
    return wrapped(context, fnp.take(x, positions, axis=axis, mode=how))


@implements(np.take_along_axis)
def _take_along_axis(context: Context, arr: Any, indices: Any, axis: Any = -1) -> TracedArray:
    x, positions = as_traced(context, arr), as_traced(context, indices)
    notice_out_of_bounds(positions.lifted(), x.size if axis is None else x.shape[axis])
    mode = "promise_in_bounds" if watching() else None
    found = fnp.take_along_axis(x.lifted(), positions.lifted(), axis, mode, wrap_negative_indices=True)
    return TracedArray(context, found)


@implements(np.copyto)
def _copyto(context: Context, dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    if where is True:
        store(as_traced(context, src), dst)
    else:
        store(_choice(context, where, src, dst), dst)


def _choice(context: Context, mask: Any, value: Any, target: Any) -> TracedArray:
    return astype(where(context, mask, value, target), target.dtype, copy=False)


@implements(np.putmask)
def _putmask(context: Context, a: Any, mask: Any, values: Any) -> None:
    if np.ndim(values) and np.shape(values) != np.shape(a):
        raise untraceable("np.putmask with values of another shape repeats them and cannot be traced", "use np.where")
    store(_choice(context, mask, values, a), a)


@implements(np.fill_diagonal)
def _fill_diagonal(context: Context, a: Any, val: Any, wrap: bool = False) -> None:
    x = as_traced(context, a)
    positions = np.arange(min(x.shape))
    setitem(x, (positions,) * x.ndim, val)


# Rounding and tests.


def _round(context: Context, a: Any, decimals: int = 0, out: Any = None) -> TracedArray:
    x = as_traced(context, a)
    decimals = operator.index(decimals)
    if x.dtype.kind in "biu":
        if decimals < 0:
            raise untraceable("rounding integers to tens cannot be traced", "divide, round and multiply")
        return TracedArray(
            context, x.lifted(np.result_type(x.dtype, np.float16) if x.dtype == BOOL else x.dtype), scalar=x.scalar
        )
    if not decimals:
        return TracedArray(context, fnp.round(x.lifted()), scalar=x.scalar)
    value, factor = x.lifted(), literal(10.0 ** abs(decimals), x.dtype)
    first, last = (E.mul_p, E.div_p) if decimals > 0 else (E.div_p, E.mul_p)
    return TracedArray(context, bind(last, fnp.round(bind(first, value, factor)), factor), scalar=x.scalar)


implements(np.round, np.around)(_round)


@implements(np.isclose)
def isclose(
    context: Context, a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False
) -> TracedArray:
    """`np.isclose`."""
    dtype = floats(a, b)
    x, y = operand(context, a, dtype), operand(context, b, dtype)
    return wrapped(context, fnp.isclose(x, y, rtol, atol, equal_nan))


@implements(np.allclose)
def _allclose(
    context: Context, a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False
) -> TracedArray:
    return TracedArray(context, fnp.all(isclose(context, a, b, rtol, atol, equal_nan).lifted()), scalar=True, weak=bool)


@implements(np.array_equal)
def _array_equal(context: Context, a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    x, y = as_traced(context, a1), as_traced(context, a2)
    if x.shape != y.shape:
        return False
    dtype = common_dtype(x, y)
    return TracedArray(context, fnp.array_equal(x.lifted(dtype), y.lifted(dtype), equal_nan), scalar=True, weak=bool)


@implements(np.nan_to_num)
def _nan_to_num(
    context: Context, x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> TracedArray:
    a = as_traced(context, x)
    made = TracedArray(context, fnp.nan_to_num(a.lifted(), nan=nan, posinf=posinf, neginf=neginf), scalar=a.scalar)
    return made if copy else store(made, a)


def _on_floats(name: str) -> Handler:
    def handler(context: Context, x: Any, *args: Any, **kwargs: Any) -> TracedArray:
        a = as_traced(context, x)
        return TracedArray(context, getattr(fnp, name)(a.lifted(floats(a)), *args, **kwargs), scalar=not a.shape)

    return handler


for _name in ("sinc", "angle", "i0"):
    if hasattr(fnp, _name):
        implements(getattr(np, _name))(_on_floats(_name))


def _as_is(name: str) -> Handler:
    """A function of one array whose result has the dtype that fuser.numpy gives it under 64-bit types."""

    def handler(context: Context, x: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("out", None)
        return wrapped(context, getattr(fnp, name)(as_traced(context, x).lifted(), *args, **kwargs))

    return handler


for _name in ("isposinf", "isneginf", "iscomplex", "isreal"):
    implements(getattr(np, _name))(_as_is(_name))
implements(np.fix)(lambda context, x, out=None: call_ufunc(context, np.trunc, (x,)))
implements(np.real, view=True)(lambda context, val: as_traced(context, val).real)
implements(np.imag, view=True)(lambda context, val: as_traced(context, val).imag)
implements(np.iscomplexobj)(lambda context, x: x.dtype.kind == "c")
implements(np.isrealobj)(lambda context, x: x.dtype.kind != "c")
implements(np.shape)(lambda context, a: as_traced(context, a).shape)
implements(np.ndim)(lambda context, a: as_traced(context, a).ndim)
implements(np.result_type)(lambda context, *arrays: common_dtype(*arrays))


@implements(np.size)
def _size(context: Context, a: Any, axis: Any = None) -> int:
    x = as_traced(context, a)
    return x.size if axis is None else x.shape[axis]


@implements(np.can_cast)
def _can_cast(context: Context, from_: Any, to: Any, casting: Any = "safe") -> bool:
    return np.can_cast(from_.dtype if isinstance(from_, TracedArray) else from_, to, casting)


def _by_numpy(context: Context, function: Any, *args: Any, **kwargs: Any) -> Any:
    from fuser.interop.numpy.library import call_numpy  # which needs the table of functions complete

    return call_numpy(context, function, args, kwargs)


# Differences, padding, series.


@implements(np.diff)
def _diff(context: Context, a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> TracedArray:
    x = as_traced(context, a)
    parts = [p for p in (prepend, append) if p is not None]
    dtype = stored_dtype(x, *parts)
    ends = {k: operand(context, v, dtype) for k, v in (("prepend", prepend), ("append", append)) if v is not None}
    return TracedArray(context, fnp.diff(x.lifted(dtype), n=n, axis=axis, **ends))


@implements(np.ediff1d)
def _ediff1d(context: Context, ary: Any, to_end: Any = None, to_begin: Any = None) -> TracedArray:
    x = as_traced(context, ary)
    ends = {k: operand(context, v, x.dtype) for k, v in (("to_end", to_end), ("to_begin", to_begin)) if v is not None}
    return TracedArray(context, fnp.ediff1d(x.lifted(), **ends))


@implements(np.gradient)
def _gradient(context: Context, f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    if edge_order != 1:
        return _by_numpy(context, np.gradient, f, *varargs, axis=axis, edge_order=edge_order)
    x = as_traced(context, f)
    dtype = floats(x)
    spacing = [operand(context, v, dtype) if isinstance(v, TracedArray) else v for v in varargs]
    result = fnp.gradient(x.lifted(dtype), *spacing, axis=axis)
    return tuple(wrapped(context, r) for r in result) if isinstance(result, (list, tuple)) else wrapped(context, result)


@implements(numpy_function("trapezoid"), numpy_function("trapz"))
def _trapezoid(context: Context, y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> TracedArray:
    given = [v for v in (x, dx) if v is not None]
    dtype = floats(y, *given)
    positions = None if x is None else operand(context, x, dtype)
    step = operand(context, dx, dtype)
    return wrapped(context, fnp.trapezoid(operand(context, y, dtype), positions, step, axis))


@implements(np.interp)
def _interp(
    context: Context, x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> TracedArray:
    positions, known_places, heights = (
        operand(context, as_traced(context, v), np.dtype(np.float64)) for v in (x, xp, fp)
    )
    return wrapped(context, fnp.interp(positions, known_places, heights, left, right, period))


@implements(np.pad)
def _pad(context: Context, array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> TracedArray:
    x = as_traced(context, array)
    if not isinstance(mode, str):
        raise untraceable("np.pad with a function as mode cannot be traced", 'use a named mode such as "edge"')
    if "constant_values" in kwargs and not isinstance(kwargs["constant_values"], TracedArray):
        kwargs["constant_values"] = np.asarray(kwargs["constant_values"]).astype(x.dtype)
    elif "constant_values" in kwargs:
        kwargs["constant_values"] = kwargs["constant_values"].lifted(x.dtype)
    return TracedArray(context, to_dtype(fnp.pad(x.lifted(), pad_width, mode, **kwargs), x.dtype))


def _sliding(name: str) -> Handler:
    def handler(context: Context, a: Any, v: Any, mode: str | None = None) -> TracedArray:
        dtype = common_dtype(as_traced(context, a), as_traced(context, v))
        mode = mode or ("full" if name == "convolve" else "valid")
        x, y = operand(context, as_traced(context, a), dtype), operand(context, as_traced(context, v), dtype)
        return TracedArray(context, to_dtype(convolved(name, x, y, mode, name == "convolve"), dtype))

    return handler


implements(np.convolve)(_sliding("convolve"))
implements(np.correlate)(_sliding("correlate"))


@implements(np.polyval)
def _polyval(context: Context, p: Any, x: Any) -> Any:
    coefficients = as_traced(context, p)
    result: Any = call_ufunc(context, np.multiply, (as_traced(context, x), 0))
    for k in range(coefficients.shape[0]):
        scaled = call_ufunc(context, np.multiply, (result, x))
        result = call_ufunc(context, np.add, (scaled, coefficients[k]))  # type: ignore[index]
    return result


@implements(np.vander)
def _vander(context: Context, x: Any, N: int | None = None, increasing: bool = False) -> TracedArray:
    return TracedArray(context, fnp.vander(as_traced(context, x).lifted(), N, increasing))


@implements(np.cov)
def _cov(
    context: Context, m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None, fweights: Any = None, aweights: Any = None,
    *, dtype: Any = None,
) -> TracedArray:  # fmt: skip
    if fweights is not None or aweights is not None:
        return _by_numpy(context, np.cov, m, y, rowvar, bias, ddof, fweights, aweights, dtype=dtype)
    wanted = (
        np.result_type(common_dtype(m, *(() if y is None else (y,))), np.float64) if dtype is None else np.dtype(dtype)
    )
    second = None if y is None else operand(context, y, wanted)
    return wrapped(context, fnp.cov(operand(context, m, wanted), second, rowvar, bias, ddof), scalar=False)


@implements(np.corrcoef)
def _corrcoef(context: Context, x: Any, y: Any = None, rowvar: bool = True, **unused: Any) -> TracedArray:
    wanted = np.result_type(common_dtype(x, *(() if y is None else (y,))), np.float64)
    return wrapped(
        context, fnp.corrcoef(operand(context, x, wanted), None if y is None else operand(context, y, wanted), rowvar)
    )


@implements(np.lib.stride_tricks.sliding_window_view)
def _sliding_window_view(
    context: Context, x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
) -> TracedArray:
    """The windows, which must not be written to; they are no copies inside a kernel."""
    array = as_traced(context, x)
    if writeable:
        raise untraceable("windows that are written to cannot be traced", "assign to slices of the array")
    spans = np.atleast_1d(window_shape)
    axes = range(array.ndim) if axis is None else np.atleast_1d(axis) % array.ndim
    np.lib.stride_tricks.sliding_window_view(np.broadcast_to(np.int8(0), array.shape), window_shape, axis)  # its errors
    value = array.lifted()
    for dimension, span in zip(map(int, axes), map(int, spans)):
        value = sliding_windows_p.bind(value, dimensions=(dimension,), window=(span,), strides=(1,), dilation=(1,))
    return TracedArray(context, value, guard="writing to windows cannot be traced|use .copy()")


# Sorting and searching.


@implements(np.sort)
def sort(
    context: Context, a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None
) -> TracedArray:
    """`np.sort`."""
    x = as_traced(context, a)
    if x.dtype.kind == "c" and is_long(context, x, axis):
        return _by_numpy(context, np.sort, x, axis)  # type: ignore[no-any-return]
    return TracedArray(context, fnp.sort(x.lifted(), axis))


@implements(np.argsort)
def argsort(
    context: Context, a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None
) -> TracedArray:
    """`np.argsort`; equal elements keep their order."""
    x = as_traced(context, a)
    if x.dtype.kind == "c" and is_long(context, x, axis):
        return _by_numpy(context, np.argsort, x, axis, kind, stable=stable)  # type: ignore[no-any-return]
    return TracedArray(context, to_dtype(fnp.argsort(x.lifted(), axis), np.dtype(np.intp)))


@implements(np.searchsorted)
def _searchsorted(context: Context, a: Any, v: Any, side: str = "left", sorter: Any = None) -> TracedArray:
    if sorter is not None:
        raise untraceable("np.searchsorted with sorter= cannot be traced", "sort first")
    dtype = common_dtype(a, v)
    value = fnp.searchsorted(operand(context, a, dtype), operand(context, v, dtype), side)
    return wrapped(context, value, dtype=np.dtype(np.intp))


@implements(np.digitize)
def _digitize(context: Context, x: Any, bins: Any, right: bool = False) -> TracedArray:
    if isinstance(bins, TracedArray) and not bins.known:
        return _digitize_increasing(context, x, bins, right)
    edges = np.asarray(bins)
    dtype = common_dtype(x, edges)
    value = fnp.digitize(operand(context, x, dtype), edges.astype(dtype), right)
    return wrapped(context, value, dtype=np.dtype(np.intp))


def _digitize_increasing(context: Context, x: Any, bins: TracedArray, right: bool) -> TracedArray:
    """Positions among traced bins; those that do not increase are an event: NumPy's are counted from the end, or its error."""
    if bins.ndim != 1 or not watching():
        raise untraceable("np.digitize with traced bins of unknown order cannot be traced", "use np.searchsorted")
    dtype = common_dtype(x, bins)
    edges = bins.lifted(dtype)
    if edges.shape[0] > 1:
        notice(
            bind(
                E.not_p, bind(E.le_p, indexing.getitem(edges, slice(None, -1)), indexing.getitem(edges, slice(1, None)))
            )
        )
    value = fnp.searchsorted(edges, operand(context, x, dtype), "left" if right else "right")
    return wrapped(context, value, dtype=np.dtype(np.intp))


@implements(np.unravel_index)
def _unravel_index(context: Context, indices: Any, shape: Any, order: str = "C") -> tuple[TracedArray, ...]:
    x = as_traced(context, indices)
    extents = [operator.index(e) for e in (shape if isinstance(shape, (tuple, list)) else (shape,))]
    if x.dtype.kind not in "iu" or order not in ("C", "F") or 0 in extents:
        raise untraceable("np.unravel_index of such positions cannot be traced", "compute with // and %")
    position = x.lifted(np.dtype(np.intp))
    notice_out_of_range(position, math.prod(extents))
    found = []
    for extent in extents[:0:-1] if order == "C" else extents[:-1]:
        divisor = literal(extent, position.dtype)
        found.append(bind(E.rem_p, position, divisor))
        position = bind(E.div_p, position, divisor)
    found.append(position)
    parts = [wrapped(context, value, dtype=np.dtype(np.intp)) for value in (found[::-1] if order == "C" else found)]
    if not x.ndim:
        return tuple(parts)
    rows: Any = np.stack(parts, axis=-1)  # type: ignore[call-overload]
    return tuple(rows[..., n] for n in range(len(parts)))  # views of one array, as NumPy's are


@implements(np.bincount)
def _bincount(context: Context, x: Any, /, weights: Any = None, minlength: int = 0) -> TracedArray:
    """`minlength` counts; a call with larger values, which need more, is left to NumPy."""
    if not minlength:
        raise untraceable(
            "np.bincount gives as many counts as the values need, so it cannot be traced",
            "give minlength=, or use np.add.at(np.zeros(n), x, 1)",
        )
    values = as_traced(context, x).lifted()
    notice_out_of_range(values, minlength)
    added = None if weights is None else as_traced(context, weights).lifted(np.dtype(np.float64))
    return TracedArray(context, _counted(values, added, int(minlength)))


def _counted(places: Any, weights: Any, count: int) -> Any:
    """The number of elements, or the sum of the weights, at each of `count` places."""
    dtype = np.dtype(np.intp if weights is None else np.float64)
    totals = IndexUpdateRef(broadcast_to(literal(0, dtype), (count,)), places)
    return totals.add(literal(1, dtype) if weights is None else weights)


@implements(np.histogram)
def _histogram(
    context: Context, a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> Any:
    by_numpy = isinstance(bins, (str, TracedArray)) or density or weights is not None or find_context(range) is not None
    if by_numpy or (np.ndim(bins) == 0 and range is None):
        if isinstance(bins, str):
            raise untraceable(
                f"np.histogram with bins={bins!r} has as many bins as the values need", "give their number"
            )
        return _by_numpy(context, np.histogram, a, bins, range, density=density, weights=weights)
    x = as_traced(context, a)
    edges = np.histogram_bin_edges(np.zeros(1, x.dtype), np.asarray(bins) if np.ndim(bins) else bins, range)
    dtype = floats(x, edges)
    flat = fnp.ravel(x.lifted(dtype))
    limits = edges.astype(dtype)
    places = fnp.searchsorted(limits, flat, side="right") if np.ndim(bins) else _uniform_places(flat, limits)
    places = fnp.where(fnp.equal(flat, float(edges[-1])), len(edges) - 1, places)  # 0 and len(edges): outside
    return TracedArray(context, _counted(places, None, len(edges) + 1)[1:-1]), known(context, edges)


def _uniform_places(x: Any, edges: np.ndarray) -> Any:
    """As `searchsorted(edges, x, side="right")` for edges at equal distances, which rounding moves by one place at most."""
    count = len(edges) - 1
    first, last = float(edges[0]), float(edges[-1])
    scaled = (x - first) * (count / (last - first))
    guess = convert(fnp.clip(fnp.nan_to_num(scaled, nan=-1.0), -1.0, float(count)), np.dtype(np.int32))
    low, high = (fnp.take(edges, fnp.clip(guess + step, 0, count)) for step in (0, 1))
    guess = guess - convert(fnp.less(x, low), guess.dtype) + convert(fnp.greater_equal(x, high), guess.dtype)
    outside = fnp.logical_not(fnp.greater_equal(x, first))
    return fnp.where(outside, 0, fnp.where(fnp.greater(x, last), count + 1, fnp.clip(guess, 0, count - 1) + 1))


_BY_VALUES = "gives as many elements as the values have, so it cannot be traced"


def _refused(name: str, way_out: str) -> Handler:
    def handler(context: Context, *args: Any, **kwargs: Any) -> Any:
        raise untraceable(f"np.{name} {_BY_VALUES}", way_out)

    return handler


for _name, _way in (
    ("trim_zeros", "use np.where(mask, x, y) or where=mask"),
    *(
        (n, "call it before or after the traced function")
        for n in ("unique", "union1d", "intersect1d", "setdiff1d", "setxor1d")
    ),
):
    if hasattr(np, _name):
        implements(getattr(np, _name))(_refused(_name, _way))


@implements(np.isin)
def _isin(
    context: Context,
    element: Any,
    test_elements: Any,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    kind: Any = None,
) -> TracedArray:
    dtype = common_dtype(as_traced(context, element), as_traced(context, test_elements))
    x, y = as_traced(context, element).lifted(dtype), as_traced(context, test_elements).lifted(dtype)
    return wrapped(context, fnp.isin(x, y, invert=invert))


@implements(np.insert)
def _insert(context: Context, arr: Any, obj: Any, values: Any, axis: Any = None) -> TracedArray:
    x = as_traced(context, arr)
    new = as_traced(context, values).lifted(x.dtype)
    return TracedArray(context, fnp.insert(x.lifted(), obj, new, axis))
