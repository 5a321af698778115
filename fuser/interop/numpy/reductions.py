"""NumPy's reductions on traced arrays: sums, extremes, logic, means, positions, prefix scans, order statistics.

The dtype of a result is NumPy's, found by asking NumPy about one element; fuser.numpy's reduction computes in it.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import numpy as np

from fuser.interop.numpy.checks import notice, watching
from fuser.interop.numpy.context import Context, to_dtype, untraceable
from fuser.interop.numpy.dispatch import Handler, implements, numpy_function
from fuser.interop.numpy.traced import TracedArray, find_context
from fuser.interop.numpy.ufuncs import operand
from fuser.ir.types import BOOL
from fuser.lax.values import broadcast_to, literal
from fuser.numpy import reductions as R
from fuser.numpy import sorting
from fuser.ops import cumulative as C
from fuser.ops import elementwise as E
from fuser.trace.core import bind


@functools.lru_cache(1024)
def result_dtype(name: str, dtype: np.dtype, requested: Any = None) -> np.dtype:
    """The dtype of `np.name(x)` for an x of this dtype."""
    function = getattr(np, name)
    sample = np.ones(2, dtype)
    with np.errstate(all="ignore"):
        return np.asarray(function(sample, dtype=requested) if requested is not None else function(sample)).dtype


def _input(context: Context, a: Any) -> Any:
    """The operand of a reduction: a traced value as it is, lists and known arrays as constants."""
    if isinstance(a, (list, tuple)):
        from fuser.interop.numpy.creation import array

        a = array(context, a)
    return operand(context, a, a.dtype if hasattr(a, "dtype") else np.asarray(a).dtype)


def _mask(context: Context, where: Any) -> Any:
    return None if where is None or where is True else operand(context, where, BOOL)


def _result(context: Context, value: Any, dtype: np.dtype | None = None) -> TracedArray:
    value = value if dtype is None else to_dtype(value, dtype)
    return TracedArray(context, value, scalar=not value.shape)


def _masked(mask: Any, x: Any) -> Any:
    return mask if mask is None or mask.shape == x.shape else broadcast_to(mask, tuple(x.shape))


def _accumulated(name: str) -> Handler:
    def handler(
        context: Context,
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
    ) -> TracedArray:
        x = _input(context, a)
        wanted = result_dtype(name, x.dtype, None if dtype is None else np.dtype(dtype))
        first = None if initial is None else operand(context, initial, wanted)
        if wanted == BOOL:
            reduction = R.any if name == "sum" else R.all
            return _result(
                context, reduction(to_dtype(x, BOOL), axis, keepdims=keepdims, where=_masked(_mask(context, where), x))
            )
        function = getattr(R, name)
        value = function(
            to_dtype(x, wanted),
            axis,
            keepdims=keepdims,
            initial=first,
            where=_mask(context, where),
            promote_integers=False,
        )
        return _result(context, value, wanted)

    return handler


for _name in ("sum", "prod"):
    implements(getattr(np, _name))(_accumulated(_name))


def _extreme(name: str) -> Handler:
    def handler(
        context: Context,
        a: Any,
        axis: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
    ) -> TracedArray:
        x = _input(context, a)
        first = None if initial is None else operand(context, initial, x.dtype)
        return _result(
            context, getattr(R, name)(x, axis, keepdims=keepdims, initial=first, where=_mask(context, where))
        )

    return handler


for _name in ("max", "min"):
    implements(getattr(np, _name), getattr(np, "a" + _name))(_extreme(_name))


def _logic(name: str) -> Handler:
    def handler(
        context: Context, a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = None
    ) -> TracedArray:
        x = _input(context, a)
        return _result(context, getattr(R, name)(x, axis, keepdims=keepdims, where=_mask(context, where)))

    return handler


for _name in ("all", "any"):
    implements(getattr(np, _name))(_logic(_name))


def _position(name: str) -> Handler:
    def handler(context: Context, a: Any, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> TracedArray:
        x = _input(context, a)
        if name.startswith("nan"):
            _notice_all_nan(x, axis)
        return _result(context, getattr(R, name)(x, axis, keepdims=keepdims), np.dtype(np.intp))

    return handler


for _name in ("argmax", "argmin", "nanargmax", "nanargmin"):
    implements(getattr(np, _name))(_position(_name))


def _notice_all_nan(x: Any, axis: Any, fewest: int = 1) -> None:
    """Have NumPy answer where a slice holds too few numbers that are not nan: with a warning, or an error."""
    if not watching():
        return
    if x.dtype.kind not in "fc" or not x.size:
        return _notice_few(x, axis, fewest)
    if fewest <= 1:
        return notice(R.all(bind(E.ne_p, x, x), axis))
    notice(R.sum(bind(E.eq_p, x, x), axis, dtype=np.dtype(np.int64)) < fewest)


def _notice_few(x: Any, axis: Any, fewest: int = 1) -> None:
    """Have NumPy, which warns, answer where slices hold fewer elements."""
    axes = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if math.prod(x.shape[operator.index(d)] for d in axes) < fewest:
        notice(np.True_)


@implements(np.mean)
def mean(
    context: Context,
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    *,
    where: Any = None,
) -> TracedArray:
    """`np.mean`: integers in float64, halves summed in float32."""
    x = _input(context, a)
    _notice_few(x, axis)
    wanted = result_dtype("mean", x.dtype, None if dtype is None else np.dtype(dtype))
    return _result(context, R.mean(to_dtype(x, wanted), axis, keepdims=keepdims, where=_mask(context, where)), wanted)


def _spread(name: str) -> Handler:
    def handler(
        context: Context, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: bool = False, *,
        where: Any = None, mean: Any = None, correction: Any = None,
    ) -> TracedArray:  # fmt: skip
        x = _input(context, a)
        wanted = result_dtype(name, x.dtype, None if dtype is None else np.dtype(dtype))
        degrees = ddof if correction is None else correction
        if isinstance(degrees, (int, float)):
            _notice_few(x, axis, math.floor(degrees) + 1)
        x = x if x.dtype.kind == "c" else to_dtype(x, wanted)
        centre = None if mean is None else operand(context, mean, x.dtype)
        function = getattr(R, name)
        value = function(
            x, axis, ddof=ddof, keepdims=keepdims, where=_mask(context, where), mean=centre, correction=correction
        )
        return _result(context, value, wanted)

    return handler


for _name in ("var", "std"):
    implements(getattr(np, _name))(_spread(_name))


@implements(np.ptp)
def _ptp(context: Context, a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> TracedArray:
    return _result(context, R.ptp(_input(context, a), axis, keepdims=keepdims))


@implements(np.count_nonzero)
def _count_nonzero(context: Context, a: Any, axis: Any = None, *, keepdims: bool = False) -> TracedArray:
    return _result(context, R.count_nonzero(_input(context, a), axis, keepdims=keepdims), np.dtype(np.intp))


@implements(np.average)
def _average(
    context: Context, a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False
) -> Any:
    from fuser.interop.numpy.creation import common_dtype

    if weights is None:
        values = (mean(context, a, axis, keepdims=keepdims), None)
        if returned:
            raise untraceable("np.average with returned= and no weights cannot be traced", "use np.mean")
        return values[0]
    dtype = np.result_type(common_dtype(a, weights), np.float64 if common_dtype(a).kind in "biu" else np.float16)
    x, w = operand(context, a, dtype), operand(context, weights, dtype)
    total, scale = R.average(x, axis, w, returned=True, keepdims=keepdims)
    notice(bind(E.eq_p, scale, literal(0, scale.dtype)))  # NumPy's ZeroDivisionError
    return (_result(context, total), _result(context, scale)) if returned else _result(context, total)


def _nan(name: str, extra: tuple[str, ...] = ()) -> Handler:
    def handler(
        context: Context, a: Any, axis: Any = None, *args: Any, keepdims: bool = False, where: Any = None, **more: Any
    ) -> TracedArray:
        x = _input(context, a)
        if args or any(k not in extra and v is not None for k, v in more.items()):
            raise untraceable(f"np.{name} with these arguments cannot be traced", "give axis= and keepdims= only")
        more = {k: v for k, v in more.items() if v is not None}
        wanted = result_dtype(name, x.dtype)
        x = x if x.dtype.kind == "c" else to_dtype(x, wanted)
        if name not in ("nansum", "nanprod"):
            _notice_all_nan(x, axis, math.floor(more.get("ddof", 0)) + 1)
        return _result(
            context, getattr(R, name)(x, axis, keepdims=keepdims, where=_mask(context, where), **more), wanted
        )

    return handler


for _name in ("nansum", "nanprod", "nanmax", "nanmin", "nanmean"):
    implements(getattr(np, _name))(_nan(_name))
for _name in ("nanvar", "nanstd"):
    implements(getattr(np, _name))(_nan(_name, ("ddof",)))


# Prefix scans.

_EXTREMES = {"cummax": C.cummax_p, "cummin": C.cummin_p}


def running(context: Context, name: str, a: Any, axis: int | None = None, dtype: Any = None) -> TracedArray:
    """`np.cumsum` and its relatives (`axis` None: of the flattened array)."""
    x = _input(context, a)
    if name in _EXTREMES:
        from fuser.lax.values import axis_of

        return TracedArray(context, bind(_EXTREMES[name], x, axis=axis_of(axis, x.ndim, name), reverse=False))
    wanted = result_dtype(name, x.dtype, None if dtype is None else np.dtype(dtype))
    return TracedArray(context, getattr(R, name)(to_dtype(x, wanted), axis))


def _running(name: str) -> Handler:
    def handler(context: Context, a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> TracedArray:
        return running(context, name, a, axis, dtype)

    return handler


for _name in ("cumsum", "cumprod", "nancumsum", "nancumprod"):
    implements(getattr(np, _name))(_running(_name))


def _cumulative(name: str) -> Handler:
    def handler(
        context: Context,
        x: Any,
        /,
        *,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        include_initial: bool = False,
    ) -> TracedArray:
        if include_initial:
            raise untraceable(f"np.{name} with include_initial=True cannot be traced", "use np.concatenate")
        return running(
            context,
            {"cumulative_sum": "cumsum", "cumulative_prod": "cumprod"}[name],
            x,
            0 if axis is None else axis,
            dtype,
        )

    return handler


for _name in ("cumulative_sum", "cumulative_prod"):
    implements(numpy_function(_name))(_cumulative(_name))


# Order statistics.


MOST_SORTED = 512  # elements of a row that a kernel sorts on the host: NumPy is faster at longer ones


def is_long(context: Context, x: Any, axis: Any) -> bool:
    """Whether NumPy is to sort these rows, or select from them."""
    axes = range(len(x.shape)) if axis is None else np.atleast_1d(axis)
    return context.on_host and math.prod(x.shape[int(d)] for d in axes) > MOST_SORTED


def _by_numpy(context: Context, function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    from fuser.interop.numpy.library import call_numpy  # which needs the table of functions complete

    return call_numpy(context, function, (TracedArray(context, x), *args), kwargs)


@implements(np.median)
def _median(
    context: Context, a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: bool = False
) -> TracedArray:
    x = _input(context, a)
    _notice_few(x, axis)
    if is_long(context, x, axis):
        return _by_numpy(context, np.median, x, axis=axis, keepdims=keepdims)
    wanted = result_dtype("median", x.dtype)
    return _result(context, sorting.median(to_dtype(x, wanted), axis, keepdims=keepdims), wanted)


def _quantile(name: str) -> Handler:
    def handler(
        context: Context,
        a: Any,
        q: Any,
        axis: Any = None,
        out: Any = None,
        overwrite_input: bool = False,
        method: str = "linear",
        keepdims: bool = False,
    ) -> TracedArray:
        x = _input(context, a)
        if find_context(q) is not None or is_long(context, x, axis):
            options = {"axis": axis, "method": method, "keepdims": keepdims}
            return _by_numpy(context, getattr(np, name), x, q, **options)
        wanted = getattr(np, name)(np.ones(2, x.dtype), q).dtype
        levels = np.asarray(q, wanted)
        return _result(
            context, getattr(sorting, name)(to_dtype(x, wanted), levels, axis, method=method, keepdims=keepdims), wanted
        )

    return handler


for _name in ("quantile", "percentile"):
    implements(getattr(np, _name))(_quantile(_name))
