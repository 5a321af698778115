"""NumPy's functions of arrays of datetime64 and timedelta64: those that move elements, order them, or add them up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.interop.numpy.checks import exempted
from fuser.interop.numpy.context import untraceable
from fuser.interop.numpy.time_ufuncs import call as call_ufunc
from fuser.interop.numpy.time_ufuncs import made, time_of
from fuser.interop.numpy.time_units import NAT, convert, is_nat, with_nat
from fuser.interop.read_only import is_sequence

# Functions whose result holds elements of their arguments, wherever the arguments stand.
_MOVEMENTS = (
    *(
        np.reshape,
        np.ravel,
        np.transpose,
        np.squeeze,
        np.expand_dims,
        np.swapaxes,
        np.moveaxis,
        np.broadcast_to,
        np.copy,
    ),
    *(
        np.concatenate,
        np.stack,
        np.vstack,
        np.hstack,
        np.column_stack,
        np.append,
        np.flip,
        np.flipud,
        np.fliplr,
        np.roll,
    ),
    *(np.take, np.repeat, np.tile, np.atleast_1d, np.atleast_2d, np.diagonal, np.take_along_axis, np.delete, np.split),
)
_NAMES = (
    *("min", "max", "sum", "mean", "cumsum", "argmin", "argmax", "argsort", "searchsorted", "ptp", "clip"),
    *("ravel", "transpose", "squeeze", "swapaxes", "take", "repeat", "diagonal"),
)
METHODS = [name for name in _NAMES if hasattr(np.ndarray, name)]


def call(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """`function(*args, **kwargs)`, of times among others. UnsupportedError where it is no such function."""
    kwargs = {name: value for name, value in kwargs.items() if value is not np._NoValue}
    if function in _MOVEMENTS:
        return _moved(function, args, kwargs)
    handler = _HANDLERS.get(function)
    if handler is None or "out" in kwargs or "where" in kwargs:
        raise untraceable(f"np.{function.__name__} of times cannot be traced", "use x.view(np.int64)")
    return handler(*args, **kwargs)


def _moved(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """A function that moves elements, of the ticks in a common unit."""
    dtypes: list[np.dtype] = []
    _each((args, kwargs), lambda dtype, ticks: dtypes.append(dtype))
    wanted = np.result_type(*dtypes)
    given, named = _each((args, kwargs), lambda dtype, ticks: convert(ticks, dtype, wanted))
    found = function(*given, **named)
    return [made(wanted, ticks) for ticks in found] if isinstance(found, list) else made(wanted, found)


def _each(value: Any, take: Callable[[np.dtype, Any], Any]) -> Any:
    """Nested sequences with `take(dtype, ticks)` for each array of times."""
    if is_sequence(value):
        return tuple(_each(v, take) for v in value) if type(value) is tuple else [_each(v, take) for v in value]
    if type(value) is dict:
        return {name: _each(v, take) for name, v in value.items()}
    time = time_of(value)
    return value if time is None else take(*time)


def _parts(x: Any) -> tuple[np.dtype, Any]:
    time = time_of(x)
    if time is None:
        raise untraceable("a function of times and of other values cannot be traced", "use np.datetime64(x)")
    return time


def _nat_last(ticks: Any) -> Any:
    """Integers in the order of the ticks, but NaT, the smallest, as the largest."""
    with exempted(masked=True), np.errstate(over="ignore"):
        return ticks - np.int64(1)


def _ticks_of(ordered: Any) -> Any:
    """The ticks of what `_nat_last` gave."""
    with exempted(masked=True), np.errstate(over="ignore"):
        return ordered + np.int64(1)


def sort(a: Any, axis: int = -1, kind: Any = None) -> Any:
    """`np.sort`: NaT last."""
    dtype, ticks = _parts(a)
    return made(dtype, _ticks_of(np.sort(_nat_last(ticks), axis, kind)))


def _argsort(a: Any, axis: int = -1, kind: Any = None) -> Any:
    return np.argsort(_nat_last(_parts(a)[1]), axis, kind)


def _searchsorted(a: Any, v: Any, side: Any = "left") -> Any:
    (dtype, ticks), (other, values) = _parts(a), _parts(v)
    wanted = np.result_type(dtype, other)
    ordered = [_nat_last(convert(t, d, wanted)) for t, d in ((ticks, dtype), (values, other))]
    return np.searchsorted(ordered[0], ordered[1], side)


def _max(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    dtype, ticks = _parts(a)
    return made(dtype, _ticks_of(np.max(_nat_last(ticks), axis, keepdims=keepdims)))


def _min(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    dtype, ticks = _parts(a)
    return made(dtype, np.min(ticks, axis, keepdims=keepdims))


def _ptp(a: Any, axis: Any = None) -> Any:
    return call_ufunc(np.subtract, (_max(a, axis), _min(a, axis)))


def _argmax(a: Any, axis: Any = None) -> Any:
    return np.argmax(_nat_last(_parts(a)[1]), axis)


def _argmin(a: Any, axis: Any = None) -> Any:
    return np.argmin(_parts(a)[1], axis)


def _lengths(a: Any, name: str) -> tuple[np.dtype, Any]:
    dtype, ticks = _parts(a)
    if dtype.kind == "M":
        raise TypeError(f"ufunc '{name}' cannot use operands with types {dtype!r} and {dtype!r}")
    return dtype, ticks


def _sum(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    dtype, ticks = _lengths(a, "add")
    options = {} if axis is None and not keepdims else {"axis": axis, "keepdims": keepdims}
    with exempted(masked=True):
        return made(dtype, with_nat(np.any(is_nat(ticks), **options), np.sum(ticks, **options)))


def _mean(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    total = _sum(a, axis, keepdims)
    count = a.size // max(total.size, 1)
    if not count:
        raise untraceable("the mean of no times cannot be traced")
    return call_ufunc(np.true_divide, (total, count))


def _cumsum(a: Any, axis: Any = None) -> Any:
    dtype, ticks = _lengths(a, "add")
    with exempted(masked=True):
        nat = (
            np.maximum.accumulate(is_nat(ticks).astype(np.int8), axis or 0)
            if ticks.ndim == 1 or axis is not None
            else None
        )
        if nat is None:
            return _cumsum(made(dtype, np.ravel(ticks)))
        return made(dtype, with_nat(nat > 0, np.cumsum(ticks, axis)))


def _diff(a: Any, n: int = 1, axis: int = -1) -> Any:
    for _ in range(n):
        before, after = [slice(None)] * a.ndim, [slice(None)] * a.ndim
        before[axis], after[axis] = slice(None, -1), slice(1, None)
        a = call_ufunc(np.subtract, (a[tuple(after)], a[tuple(before)]))
    return a


def _where(condition: Any, x: Any, y: Any) -> Any:
    (dtype, ticks), (other, values) = _parts(x), _parts(y)
    wanted = np.result_type(dtype, other)
    return made(wanted, np.where(condition, convert(ticks, dtype, wanted), convert(values, other, wanted)))


def _clip(a: Any, a_min: Any = None, a_max: Any = None) -> Any:
    found = a if a_min is None else call_ufunc(np.maximum, (a, a_min))
    return found if a_max is None else call_ufunc(np.minimum, (found, a_max))


def _count_nonzero(a: Any, axis: Any = None) -> Any:
    return np.count_nonzero(_parts(a)[1], axis)


def _filled(value: int) -> Callable[..., Any]:
    def like(a: Any) -> Any:
        dtype, ticks = _parts(a)
        return made(dtype, np.full_like(ticks, value))

    return like


def _full_like(a: Any, fill_value: Any) -> Any:
    found = _filled(int(NAT))(a)
    found[...] = fill_value
    return found


REDUCTIONS: dict[Any, str] = {np.add: "sum", np.maximum: "max", np.minimum: "min"}
_HANDLERS: dict[Any, Callable[..., Any]] = {
    **{np.sort: sort, np.argsort: _argsort, np.searchsorted: _searchsorted, np.where: _where, np.clip: _clip},
    **{np.max: _max, np.amax: _max, np.min: _min, np.amin: _min, np.argmax: _argmax, np.argmin: _argmin, np.ptp: _ptp},
    **{np.sum: _sum, np.mean: _mean, np.cumsum: _cumsum, np.diff: _diff, np.count_nonzero: _count_nonzero},
    **{np.zeros_like: _filled(0), np.empty_like: _filled(0), np.full_like: _full_like},
}
