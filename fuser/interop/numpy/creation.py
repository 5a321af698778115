"""Arrays made in a traced function: `np.array` of traced parts, the `*_like` functions, copies.

Constants stay known (ndarrays) until a traced value is written into them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.interop.numpy.context import Context, supported, untraceable
from fuser.interop.numpy.dispatch import implements
from fuser.interop.numpy.layout import Order, order_of
from fuser.interop.numpy.rows import packed
from fuser.interop.numpy.selected import Selected, unknown_shape
from fuser.interop.numpy.time_ufuncs import of_numbers
from fuser.interop.numpy.traced import TracedArray
from fuser.interop.numpy.ufuncs import kind_of, operand
from fuser.lax.values import broadcast_to, literal
from fuser.numpy import creation, movement
from fuser.ops import elementwise as E
from fuser.ops import movement as V
from fuser.trace.core import bind


def common_dtype(*values: Any) -> np.dtype:
    """The dtype of NumPy's promotion of arrays, scalars and Python numbers."""
    return np.result_type(*(k(0) if isinstance(k, type) else k for k in map(kind_of, values)))


def stored_dtype(*values: Any) -> np.dtype:
    """The dtype of an array that holds the values: Python's floats count as float64, its ints as int64."""
    return np.result_type(*(v.dtype if hasattr(v, "dtype") else np.asarray(v).dtype for v in values))


def array(
    context: Context,
    value: Any,
    dtype: Any = None,
    copy: bool | None = True,
    order: Any = "K",
    subok: bool = False,
    ndmin: int = 0,
) -> Any:
    """`np.array(value)`, whose nested lists may hold traced arrays."""
    if (whole := packed(value)) is not None:
        value, copy = TracedArray(context, whole.value), False
    if isinstance(value, TracedArray):
        made = astype(value, value.dtype if dtype is None else dtype, order, copy=bool(copy))
        if made.scalar:
            made = TracedArray(context, made.value)
    elif holds_traced(value):
        made = _joined(context, value)
        made = made if dtype is None else astype(made, dtype)
    else:
        made = TracedArray(context, np.array(value, dtype))
    return made if made.ndim >= ndmin else made[(None,) * (ndmin - made.ndim)]


def holds_traced(value: Any) -> bool:
    """Whether nested lists and tuples hold a traced array."""
    return isinstance(value, TracedArray) or (isinstance(value, (list, tuple)) and any(holds_traced(v) for v in value))


def _joined(context: Context, value: Any) -> TracedArray:
    parts = [array(context, v) if isinstance(v, (list, tuple)) else v for v in value]
    if any(isinstance(p, Selected) for p in parts):
        raise unknown_shape()
    dtype = stored_dtype(*parts)
    return TracedArray(context, movement.stack([operand(context, p, dtype) for p in parts]))


def astype(
    x: TracedArray, dtype: Any, order: Any = "K", casting: Any = "unsafe", subok: bool = True, copy: bool = True
) -> Any:
    """`x.astype(dtype)`."""
    if np.dtype(dtype).kind in "mM":
        return of_numbers(x, np.dtype(dtype))
    wanted = supported(np.dtype(dtype))
    if not np.can_cast(x.dtype, wanted, casting):
        raise TypeError(f"Cannot cast array data from {x.dtype!r} to {wanted!r} according to the rule {casting!r}")
    if wanted == x.dtype and not copy:
        return x
    if isinstance(x, Selected):
        return x.alike(astype(x.full(), dtype))
    value = x.value.astype(wanted) if x.known else x.lifted(wanted)
    return TracedArray(x._context, value, scalar=x.scalar, order=ordered(x, order))


def ordered(x: Any, order: str | None) -> Order:
    """The order in memory of a copy of `x` that is asked for in these words."""
    if order in ("C", None) or not isinstance(x, np.ndarray) or x.ndim < 2:
        return None
    reverse = tuple(range(x.ndim))[::-1]
    if order == "F" or (order == "A" and order_of(x) == reverse):
        return reverse
    return order_of(x) if order == "K" else None


@implements(getattr(np, "astype", None))
def _astype(context: Context, x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    return astype(x, dtype, copy=copy)


@implements(np.common_type)
def _common_type(context: Context, *arrays: Any) -> Any:
    return np.common_type(*[np.empty(0, x.dtype) for x in arrays])


@implements(np.copy)
def copy(context: Context, a: Any, order: str = "K", subok: bool = False) -> TracedArray:
    """`np.copy(a)`: an array that owns its memory."""
    return TracedArray(context, a.value, order=ordered(a, order))


def filled(context: Context, shape: Any, value: Any, dtype: Any = None, order: Order = None) -> TracedArray:
    """An array with one value everywhere; a known value takes no memory until something else is written."""
    shape = (shape,) if np.ndim(shape) == 0 else tuple(shape)
    shape = tuple(int(e) for e in shape)
    if isinstance(value, TracedArray) and not value.known:
        dtype = value.dtype if dtype is None else np.dtype(dtype)
        lifted = value.lifted(dtype)
        return TracedArray(context, broadcast_to(lifted, shape), order=order)
    if not isinstance(value, TracedArray) and holds_traced(value):
        return filled(context, shape, array(context, value), dtype, order)
    plain = np.asarray(value.value if isinstance(value, TracedArray) else value)
    return TracedArray(context, np.broadcast_to(plain if dtype is None else plain.astype(dtype), shape), order=order)


def _like(value: Any) -> Any:
    def handler(context: Context, a: Any, *args: Any, **kwargs: Any) -> TracedArray:
        return _full_like(context, a, value, *args, **kwargs)

    return handler


implements(np.zeros_like)(_like(0))
implements(np.empty_like)(_like(0))
implements(np.ones_like)(_like(1))


@implements(np.full_like)
def _full_like(
    context: Context,
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
) -> TracedArray:
    kept = None if shape is not None else ordered(a, order)
    return filled(
        context, np.shape(a) if shape is None else shape, fill_value, (kind_of(a) if dtype is None else dtype), kept
    )


def _triangular(name: str) -> Any:
    def handler(context: Context, m: Any, k: int = 0) -> TracedArray:
        return TracedArray(context, getattr(creation, name)(m.lifted(), k))

    return handler


implements(np.tril)(_triangular("tril"))
implements(np.triu)(_triangular("triu"))


@implements(np.meshgrid)
def _meshgrid(
    context: Context, *xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> tuple[Any, ...]:
    values = [operand(context, x, x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype) for x in xi]
    return tuple(TracedArray(context, v) for v in creation.meshgrid(*values, sparse=sparse, indexing=indexing))


@implements(np.linspace)
def _linspace(
    context: Context,
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
    """Between traced ends: start + i * step, the last element exactly stop."""
    if axis not in (0,) or np.ndim(start) or np.ndim(stop):
        raise untraceable("np.linspace between traced arrays cannot be traced", "give scalars")
    float_dtype = np.result_type(
        common_dtype(start, stop), np.float64 if all(kind_of(v) in (int, float) for v in (start, stop)) else 0.0
    )
    first, last = (operand(context, v, float_dtype) for v in (start, stop))
    parts = num - 1 if endpoint else num
    step = bind(E.div_p, bind(E.sub_p, last, first), literal(float(max(parts, 1)), float_dtype))
    positions = bind(V.iota_p, dtype=float_dtype, shape=(num,), dimension=0)
    values = bind(E.add_p, bind(E.mul_p, positions, step), first)
    if endpoint and num > 1:
        at_end = bind(E.eq_p, positions, literal(float(num - 1), float_dtype))
        values = bind(E.select_n_p, at_end, values, broadcast_to(last, (num,)))
    made = TracedArray(context, values) if dtype is None else astype(TracedArray(context, values), dtype)
    return (made, TracedArray(context, step, scalar=True)) if retstep else made
