"""NumPy's ufuncs on datetime64 and timedelta64: NumPy decides dtypes and units, the ticks are computed with, and NaT stays NaT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.interop.numpy.checks import exempted, notice
from fuser.interop.numpy.context import untraceable
from fuser.interop.numpy.time_units import convert, is_nat, with_nat
from fuser.interop.numpy.traced import TracedArray
from fuser.interop.read_only import is_sequence

_INT64, _FLOAT64 = np.dtype(np.int64), np.dtype(np.float64)
_COMPARISONS = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)


def time_of(value: Any) -> tuple[np.dtype, Any] | None:
    """The dtype and the ticks of a value of datetime64 or timedelta64, traced or NumPy's; None for any other."""
    dtype = getattr(value, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.kind not in "mM":
        return None
    if type(value) is TracedArray:  # an array that is known
        return dtype, TracedArray(value._context, value.value.view(np.int64))
    ticks = getattr(value, "ticks", None)
    return dtype, value.view(np.int64) if ticks is None else ticks


def holds_time(values: Any) -> bool:
    """Whether any of the values, or of those in lists among them, is traced and of datetime64 or timedelta64."""
    from fuser.interop.numpy.times import TimeArray

    return any(type(v) is TimeArray or (is_sequence(v) and holds_time(v)) for v in values)


def needs_time(values: Any) -> bool:
    """Whether what a ufunc takes is of datetime64 or timedelta64, and some of it is traced."""
    if holds_time(values):
        return True
    traced = any(isinstance(v, TracedArray) and not v.known for v in values)
    return traced and any(time_of(v) is not None for v in values)


def of_numbers(x: Any, dtype: np.dtype) -> Any:
    """`x.astype(dtype)` for a dtype of times."""
    time = time_of(x)
    if time is not None:
        return made(dtype, convert(time[1], time[0], dtype))
    if x.dtype.kind not in "biuf":
        raise untraceable(f"astype from {x.dtype} to {dtype} cannot be traced")
    return made(dtype, _whole(x, False) if x.dtype.kind == "f" else x.astype(_INT64))


def made(dtype: np.dtype, ticks: Any) -> Any:
    """The array, or scalar, of these ticks."""
    from fuser.interop.numpy.times import TimeArray

    return TimeArray(dtype, ticks)


def dispatch(ufunc: np.ufunc, method: str, inputs: Any, kwargs: dict[str, Any]) -> Any:
    """What `__array_ufunc__` does."""
    from fuser.interop.numpy import time_functions

    if method == "reduce" and ufunc in time_functions.REDUCTIONS:
        return time_functions.call(getattr(np, time_functions.REDUCTIONS[ufunc]), inputs, {"axis": 0, **kwargs})
    out = kwargs.pop("out", None) or ()
    if method != "__call__" or kwargs:
        raise untraceable(f"np.{ufunc.__name__} of times in this form cannot be traced", "use x.view(np.int64)")
    found = call(ufunc, inputs)
    if not out:
        return found
    out[0][...] = found
    return out[0]


def call(ufunc: np.ufunc, inputs: Any) -> Any:
    """`ufunc(*inputs)`. TypeError where NumPy has no such operation."""
    times = [time_of(value) for value in inputs]
    if any(time is None and not _is_number(value) for time, value in zip(times, inputs)):
        raise untraceable(f"np.{ufunc.__name__} of times and other objects cannot be traced", "use np.datetime64(x)")
    kinds = [np.dtype(type(v)) if type(v) in (bool, int, float) else v.dtype for v in inputs]
    dtypes = ufunc.resolve_dtypes((*kinds, *(None,) * ufunc.nout))
    operands = [_operand(value, time, dtype) for value, time, dtype in zip(inputs, times, dtypes)]
    rule = _RULES.get((ufunc.__name__, "".join(_letter(dtype) for dtype in dtypes[: ufunc.nin])))
    if rule is None:
        raise untraceable(f"np.{ufunc.__name__} of times cannot be traced", "use x.view(np.int64)")
    found, dtype = rule(*operands), dtypes[-1]
    return made(dtype, found) if dtype.kind in "mM" else found


def _is_number(value: Any) -> bool:
    return type(value) in (bool, int, float) or (
        isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biuf"
    )


def _letter(dtype: np.dtype) -> str:
    return "t" if dtype.kind in "mM" else "d" if dtype.kind == "f" else "q"


def _operand(value: Any, time: tuple[np.dtype, Any] | None, dtype: np.dtype) -> Any:
    """A number, or ticks, in the dtype of the loop."""
    if time is not None:
        return convert(time[1], time[0], dtype)
    if dtype.kind == "m":  # of a number of ticks
        dtype = _INT64
    if type(value) in (bool, int, float):
        return dtype.type(value)
    return value if value.dtype == dtype else value.astype(dtype)


def _either(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """NaT where one operand is."""

    def rule(a: Any, b: Any) -> Any:
        with exempted(masked=True):
            return with_nat(is_nat(a) | is_nat(b), operation(a, b))

    return rule


def _compared(ufunc: np.ufunc) -> Callable[[Any, Any], Any]:
    """False where one operand is NaT, the smallest of ticks, but for !=."""
    if ufunc is np.not_equal:
        return lambda a, b: ufunc(a, b) | is_nat(a)
    if ufunc in (np.greater, np.greater_equal):
        return lambda a, b: ufunc(a, b) & ~is_nat(b)
    return lambda a, b: ufunc(a, b) & ~is_nat(a)


def _multiplied(a: Any, b: Any) -> Any:
    with exempted(masked=True):
        return with_nat(is_nat(a), a * b)


def _whole(number: Any, nat: Any) -> Any:
    """A float as ticks, towards zero; NaT where `nat` holds, and where it is no number."""
    none = nat | ~np.isfinite(number)
    held = np.where(none, 0.0, number)
    return with_nat(none, (held if isinstance(number, np.ndarray) else held[()]).astype(np.int64))


def _multiplied_by_float(a: Any, b: Any) -> Any:
    return _whole(a * b, is_nat(a))


def _over_float(a: Any, b: Any) -> Any:
    return _whole(a / b, is_nat(a))


def _noticed(condition: Any) -> None:
    """NumPy answers a call in which a condition holds anywhere."""
    if isinstance(condition, TracedArray) and not condition.known:
        notice(condition.lifted())
    elif np.any(np.asarray(condition)):
        raise untraceable("division of times by zero cannot be traced")


def _over_integer(a: Any, b: Any) -> Any:
    """Towards zero."""
    _noticed(b == 0)
    with exempted(masked=True):
        size = abs(a) // np.maximum(abs(b), 1)
        return with_nat(is_nat(a), size * np.sign(a) * np.sign(b))


def _ratio(a: Any, b: Any) -> Any:
    quotient = a.astype(_FLOAT64) / b.astype(_FLOAT64)
    chosen = np.where(is_nat(a) | is_nat(b), np.nan, quotient)
    return chosen if isinstance(quotient, np.ndarray) else chosen[()]


def _floor_ratio(a: Any, b: Any) -> Any:
    _noticed((b == 0) | is_nat(a) | is_nat(b))
    return a // b


def _remainder(a: Any, b: Any) -> Any:
    _noticed(b == 0)
    with exempted(masked=True):
        return with_nat(is_nat(a) | is_nat(b), a % b)


def _larger(a: Any, b: Any) -> Any:
    return np.maximum(a - 1, b - 1) + 1  # NaT, the smallest, becomes the largest


def _larger_number(a: Any, b: Any) -> Any:
    return np.maximum(a, b)


def _smaller_number(a: Any, b: Any) -> Any:
    return np.minimum(a - 1, b - 1) + 1


def _wrapping(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Integers that wrap around tell nothing."""

    def wrapped(*operands: Any) -> Any:
        with exempted(masked=True), np.errstate(over="ignore"):
            return rule(*operands)

    return wrapped


_RULES: dict[tuple[str, str], Callable[..., Any]] = {
    ("add", "tt"): _either(lambda a, b: a + b),
    ("subtract", "tt"): _either(lambda a, b: a - b),
    ("multiply", "tq"): _multiplied,
    ("multiply", "qt"): lambda a, b: _multiplied(b, a),
    ("multiply", "td"): _multiplied_by_float,
    ("multiply", "dt"): lambda a, b: _multiplied_by_float(b, a),
    ("divide", "tt"): _ratio,
    ("divide", "tq"): _over_integer,
    ("divide", "td"): _over_float,
    ("floor_divide", "tt"): _floor_ratio,
    ("floor_divide", "tq"): _over_integer,
    ("floor_divide", "td"): _over_float,
    ("remainder", "tt"): _remainder,
    ("negative", "t"): _wrapping(lambda a: -a),
    ("positive", "t"): lambda a: +a,
    ("absolute", "t"): _wrapping(abs),
    ("sign", "t"): np.sign,
    ("maximum", "tt"): _wrapping(_larger),
    ("minimum", "tt"): np.minimum,
    ("fmax", "tt"): _larger_number,
    ("fmin", "tt"): _wrapping(_smaller_number),
    ("isnat", "t"): is_nat,
    ("isnan", "t"): is_nat,
    ("isfinite", "t"): lambda a: ~is_nat(a),
    ("isinf", "t"): lambda a: is_nat(a) & ~is_nat(a),
    **{(ufunc.__name__, "tt"): _compared(ufunc) for ufunc in _COMPARISONS},
}
