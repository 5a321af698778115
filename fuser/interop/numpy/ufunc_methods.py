"""The methods of NumPy's ufuncs on traced arrays: reduce, accumulate, outer and at."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.interop.numpy.context import Context, untraceable
from fuser.interop.numpy.dispatch import call as call_function
from fuser.interop.numpy.indexing import cast_value, check_bounds, for_fuser, getitem, normal
from fuser.interop.numpy.library import call_numpy
from fuser.interop.numpy.reductions import running
from fuser.interop.numpy.traced import TracedArray
from fuser.interop.numpy.ufuncs import Function
from fuser.interop.numpy.ufuncs import call as call_ufunc
from fuser.lax.values import convert
from fuser.numpy.at import IndexUpdateRef

_REDUCTIONS = {
    **{
        np.add: "sum",
        np.multiply: "prod",
        np.maximum: "max",
        np.minimum: "min",
        np.logical_and: "all",
        np.logical_or: "any",
    },
}
_RUNNING = {np.add: "cumsum", np.multiply: "cumprod", np.maximum: "cummax", np.minimum: "cummin"}


def _reduce(
    context: Context, ufunc: np.ufunc, x: Any, axis: Any = 0, dtype: Any = None, keepdims: bool = False, **more: Any
) -> Any:
    if ufunc not in _REDUCTIONS:
        options = {"axis": axis, "keepdims": keepdims, **({} if dtype is None else {"dtype": dtype}), **more}
        return call_numpy(context, ufunc.reduce, (x,), options)
    more = {k: v for k, v in more.items() if v is not np._NoValue}
    if dtype is not None:
        more["dtype"] = dtype
    return call_function(context, getattr(np, _REDUCTIONS[ufunc]), (x,), {"axis": axis, "keepdims": keepdims, **more})


def _accumulate(context: Context, ufunc: np.ufunc, x: Any, axis: int = 0, dtype: Any = None) -> Any:
    if ufunc not in _RUNNING:
        return call_numpy(context, ufunc.accumulate, (x, axis, dtype), {})
    return running(context, _RUNNING[ufunc], x, axis, dtype)


def _outer(context: Context, ufunc: np.ufunc, x: Any, y: Any, **more: Any) -> Any:
    rank = np.ndim(y)
    return call_ufunc(context, ufunc, (getitem_any(x, (..., *(None,) * rank)), y), **more)


def getitem_any(x: Any, index: Any) -> Any:
    """`x[index]` for anything like an array."""
    return getitem(x, index) if isinstance(x, TracedArray) else np.asarray(x)[index]


_AT = {np.add: "add", np.subtract: "subtract", np.multiply: "multiply", np.maximum: "max", np.minimum: "min"}


def _at(context: Context, ufunc: np.ufunc, x: Any, index: Any, value: Any = None) -> None:
    """`np.add.at(x, index, value)`: unbuffered, so that repeated indices count every time."""
    if ufunc not in _AT or value is None:
        raise untraceable(
            f"np.{ufunc.__name__}.at cannot be traced", "use np.add.at, np.multiply.at, np.maximum.at or np.minimum.at"
        )
    if not isinstance(x, TracedArray):
        raise untraceable(
            f"np.{ufunc.__name__}.at changes an array that was not made in the traced function",
            "make it with np.zeros_like",
        )
    check_bounds(normal(index), x.shape)
    parts = for_fuser(normal(index))
    reference = IndexUpdateRef(x.lifted(), parts[0] if len(parts) == 1 else parts)
    x.write(convert(getattr(reference, _AT[ufunc])(cast_value(x, value)), x.dtype))


def _reduceat(context: Context, ufunc: np.ufunc, *args: Any, **kwargs: Any) -> Any:
    return call_numpy(context, ufunc.reduceat, args, kwargs)


METHODS: dict[str, Function] = {
    "reduce": _reduce,
    "accumulate": _accumulate,
    "outer": _outer,
    "at": _at,
    "reduceat": _reduceat,
}
