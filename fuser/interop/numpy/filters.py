"""SciPy's filters along one dimension on traced arrays: correlate1d, convolve1d, gaussian_filter, uniform_filter1d, savgol_filter, lfilter.

As in SciPy, sums are of float64 and each filter's result is of the input's type. What is not float32 or float64, weights that are
traced, an even number of weights, an origin, and `output=` are left to SciPy: the functions then give NotImplemented.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import fuser.numpy as fnp
from fuser.interop.numpy.checks import exempted
from fuser.interop.numpy.context import Context, to_dtype
from fuser.interop.numpy.movement import as_traced
from fuser.interop.numpy.traced import TracedArray
from fuser.lax import scan
from fuser.lax.slicing import slice_in_dim

_DOUBLE = np.dtype(np.float64)
_PADDING = {"reflect": "symmetric", "mirror": "reflect", "nearest": "edge", "wrap": "wrap", "constant": "constant"}
MOST_WEIGHTS = 129  # that are written out one by one
MOST_STATES = 8  # of a recursive filter
_NEGLIGIBLE = 1e-15  # a width below which SciPy leaves a dimension as it is


def correlate1d(
    context: Context,
    input: Any,
    weights: Any,
    axis: int = -1,
    output: Any = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int = 0,
) -> Any:
    """`scipy.ndimage.correlate1d`."""
    taps = None if isinstance(weights, TracedArray) else np.asarray(weights)
    if taps is None or taps.ndim != 1 or taps.dtype.kind not in "iuf" or output is not None or origin:
        return NotImplemented
    return _filtered(context, input, taps.astype(float), axis, mode, cval)


def convolve1d(context: Context, input: Any, weights: Any, *args: Any, **kwargs: Any) -> Any:
    """`scipy.ndimage.convolve1d`."""
    if isinstance(weights, TracedArray) or np.ndim(weights) != 1:
        return NotImplemented
    return correlate1d(context, input, np.asarray(weights)[::-1], *args, **kwargs)


def gaussian_filter1d(
    context: Context,
    input: Any,
    sigma: Any,
    axis: int = -1,
    order: int = 0,
    output: Any = None,
    mode: str = "reflect",
    cval: float = 0.0,
    truncate: float = 4.0,
    *,
    radius: int | None = None,
) -> Any:
    """`scipy.ndimage.gaussian_filter1d`, of order 0."""
    if order != 0 or output is not None or isinstance(sigma, TracedArray) or not sigma > 0:
        return NotImplemented
    reach = int(truncate * float(sigma) + 0.5) if radius is None else int(radius)
    bell = np.exp(-0.5 / (sigma * sigma) * np.arange(-reach, reach + 1) ** 2)
    return _filtered(context, input, bell / bell.sum(), axis, mode, cval)


def gaussian_filter(
    context: Context,
    input: Any,
    sigma: Any,
    order: Any = 0,
    output: Any = None,
    mode: Any = "reflect",
    cval: float = 0.0,
    truncate: float = 4.0,
    *,
    radius: Any = None,
    axes: Any = None,
) -> Any:
    """`scipy.ndimage.gaussian_filter`, of order 0."""
    x = as_traced(context, input)
    given = _by_axis(x, axes, sigma, order, mode, radius)
    if given is None or output is not None or any(isinstance(width, TracedArray) for _, width, *_ in given):
        return NotImplemented
    found: Any = x
    for axis, width, each_order, each_mode, reach in given:
        if width > _NEGLIGIBLE:
            found = gaussian_filter1d(
                context, found, width, axis, each_order, None, each_mode, cval, truncate, radius=reach
            )
        if found is NotImplemented:
            return NotImplemented
    return NotImplemented if found is x else found


def uniform_filter1d(
    context: Context,
    input: Any,
    size: int,
    axis: int = -1,
    output: Any = None,
    mode: str = "reflect",
    cval: float = 0.0,
) -> Any:
    """`scipy.ndimage.uniform_filter1d`."""
    if isinstance(size, TracedArray) or size < 1 or output is not None:
        return NotImplemented
    return _filtered(context, input, np.full(int(size), 1 / size), axis, mode, cval)


def savgol_filter(
    context: Context,
    x: Any,
    window_length: int,
    polyorder: int,
    deriv: int = 0,
    delta: float = 1.0,
    axis: int = -1,
    mode: str = "interp",
    cval: float = 0.0,
) -> Any:
    """`scipy.signal.savgol_filter`: a filter inside; at either end the polynomial that fits its first or last window."""
    from scipy.signal import savgol_coeffs

    array = as_traced(context, x)
    if not isinstance(deriv, int) or window_length % 2 == 0 or not -array.ndim <= axis < array.ndim:
        return NotImplemented
    weights = savgol_coeffs(window_length, polyorder, deriv=deriv, delta=delta)
    if mode != "interp":
        return _filtered(context, array, weights[::-1], axis, mode, cval)
    if not _takes(array, weights, axis) or window_length > array.shape[axis]:
        return NotImplemented
    half, dimension = window_length // 2, axis % array.ndim
    fit = np.polyfit(np.arange(window_length), np.eye(window_length), polyorder)
    for _ in range(deriv):
        fit = fit[:-1] * np.arange(len(fit) - 1, 0, -1)[:, None] if len(fit) > 1 else np.zeros_like(fit)
    value = fnp.moveaxis(array.lifted(array.dtype), dimension, -1)
    with exempted(masked=True):
        first = _fitted(value[..., :window_length], np.arange(half), fit, delta**deriv)
        last = _fitted(value[..., -window_length:], np.arange(window_length - half, window_length), fit, delta**deriv)
        middle = _within(value, weights[::-1], array.ndim - 1)
        whole = fnp.concatenate([to_dtype(first, array.dtype), middle, to_dtype(last, array.dtype)], axis=-1)
    return TracedArray(context, fnp.moveaxis(whole, -1, dimension))


def lfilter(context: Context, b: Any, a: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    """`scipy.signal.lfilter` of up to `MOST_STATES` states, which begin at 0: its transposed direct form II, a step an element."""
    array, top, bottom = as_traced(context, x), _coefficients(b), _coefficients(a)
    if zi is not None or top is None or bottom is None or len(bottom) < 2 or isinstance(bottom[0], TracedArray):
        return NotImplemented
    states = max(len(top), len(bottom)) - 1
    fits = bottom[0] != 0 and states <= MOST_STATES and array.dtype.kind in "iuf" and array.size
    if not fits or np.result_type(_DOUBLE, array.dtype) != _DOUBLE or not -array.ndim <= axis < array.ndim:
        return NotImplemented
    above, below = (_scaled(each, bottom[0], states + 1) for each in (top, bottom))

    def step(state: tuple[Any, ...], value: Any) -> tuple[tuple[Any, ...], Any]:
        found = state[0] + above[0] * value
        later = (*state[1:], 0.0)
        return tuple(later[k] + above[k + 1] * value - below[k + 1] * found for k in range(states)), found

    with exempted(masked=True):
        rows = fnp.moveaxis(array.lifted(_DOUBLE), axis, 0)
        _, found = scan(step, (fnp.zeros(rows.shape[1:], _DOUBLE),) * states, rows)
        return TracedArray(context, fnp.moveaxis(found, 0, axis))


def _coefficients(given: Any) -> list[Any] | None:
    """Coefficients of float64, of which some may be traced; None where they are of another kind."""
    if isinstance(given, (list, tuple)):
        traced = [c for c in given if isinstance(c, TracedArray)]
        if all(c.ndim == 0 and c.dtype == _DOUBLE for c in traced):
            known = _coefficients(np.array([0.0 if isinstance(c, TracedArray) else c for c in given]))
            return known and [c if isinstance(c, TracedArray) else k for c, k in zip(given, known)]
    elif not isinstance(given, TracedArray):
        array = np.atleast_1d(given)
        if array.ndim == 1 and array.size and array.dtype.kind in "iuf" and array.dtype.itemsize == 8:
            return array.astype(float).tolist()
    return None


def _scaled(coefficients: list[Any], first: float, count: int) -> list[Any]:
    values = [c.lifted(_DOUBLE) if isinstance(c, TracedArray) else c for c in coefficients]
    return [value / first if first != 1 else value for value in values] + [0.0] * (count - len(values))


def _fitted(window: Any, places: np.ndarray, fit: np.ndarray, scale: float) -> Any:
    """The values at `places` of the polynomials that fit windows; `fit` holds coefficients for each element of one."""
    values = np.vander(places, len(fit)) @ fit / scale
    return fnp.sum(to_dtype(window, _DOUBLE)[..., None, :] * fnp.asarray(values), axis=-1)


def _by_axis(x: TracedArray, axes: Any, *options: Any) -> list[tuple[Any, ...]] | None:
    """For each dimension that is filtered, it and its options; None where their numbers differ."""
    chosen = range(x.ndim) if axes is None else np.atleast_1d(axes).tolist()
    count = len(chosen)
    spread = [list(o) if isinstance(o, (list, tuple, np.ndarray)) else [o] * count for o in options]
    if any(len(each) != count for each in spread):
        return None
    return [(int(axis), *each) for axis, *each in zip(chosen, *spread)]


def _takes(x: TracedArray, weights: np.ndarray, axis: int) -> bool:
    real = x.dtype in (np.float32, np.float64) and x.ndim > 0 and -x.ndim <= axis < x.ndim
    return real and len(weights) % 2 == 1 and len(weights) <= MOST_WEIGHTS and len(weights) // 2 < x.shape[axis]


def _filtered(context: Context, input: Any, weights: np.ndarray, axis: int, mode: str, cval: float) -> Any:
    """Each element's neighbours along a dimension times the weights, the middle one its own."""
    x = as_traced(context, input)
    if not _takes(x, weights, axis) or mode not in _PADDING or isinstance(cval, TracedArray):
        return NotImplemented
    dimension, length, reach = axis % x.ndim, x.shape[axis], len(weights) // 2
    constant = {"constant_values": float(cval)} if mode == "constant" else {}
    value = x.lifted(x.dtype)
    with exempted(masked=True):
        if length < 4 * reach or not reach:
            widths = [(reach, reach) if d == dimension else (0, 0) for d in range(x.ndim)]
            return TracedArray(
                context, _within(fnp.pad(value, widths, mode=_PADDING[mode], **constant), weights, dimension)
            )
        # What lies beyond either end is read by the first and last elements alone: the others read the array itself.
        before, after = _beyond(value, dimension, reach, _PADDING[mode], constant)
        head = slice_in_dim(value, 0, 2 * reach, axis=dimension)
        tail = slice_in_dim(value, length - 2 * reach, length, axis=dimension)
        first, last = (fnp.concatenate(pair, axis=dimension) for pair in ([before, head], [tail, after]))
        parts = [_within(part, weights, dimension) for part in (first, value, last)]
        return TracedArray(context, fnp.concatenate(parts, axis=dimension))


def _within(value: Any, weights: np.ndarray, dimension: int) -> Any:
    """The filtered elements all of whose neighbours there are."""
    count = value.shape[dimension] - len(weights) + 1
    part = lambda at: to_dtype(slice_in_dim(value, at, at + count, axis=dimension), _DOUBLE)
    return to_dtype(_summed(part, weights), value.dtype)


def _beyond(value: Any, dimension: int, reach: int, mode: str, constant: dict[str, Any]) -> tuple[Any, Any]:
    """What padding puts before and after an array along a dimension."""
    length = value.shape[dimension]
    if constant:
        shape = tuple(reach if d == dimension else extent for d, extent in enumerate(value.shape))
        outside = fnp.full(shape, constant["constant_values"], value.dtype)
        return outside, outside
    places = np.pad(np.arange(length), reach, mode=mode)  # type: ignore[call-overload]
    ends = []
    for part in (places[:reach], places[-reach:]):
        step = int(part[1] - part[0]) if reach > 1 else 1
        low, high = int(part.min()), int(part.max())
        run = slice_in_dim(value, low, high + 1, axis=dimension)
        if step == 0:
            run = fnp.repeat(run, reach, axis=dimension)
        ends.append(fnp.flip(run, dimension) if step < 0 else run)
    return ends[0], ends[1]


def _summed(part: Any, weights: np.ndarray) -> Any:
    """Weights that are equal, or opposite, on both sides multiply their neighbours' sum, or difference."""
    reach = len(weights) // 2
    below, above = np.asarray(weights[:reach]), np.asarray(weights[:reach:-1])
    even, odd = np.array_equal(below, above), np.array_equal(below, -above)
    total = part(reach) * float(weights[reach])
    for k in range(reach):
        first, last = part(k), part(len(weights) - 1 - k)
        if even or odd:
            total = total + float(below[k]) * (first + last if even else first - last)
        else:
            total = total + (float(below[k]) * first + float(above[k]) * last)
    return total


FILTERS = {
    **{("scipy.ndimage", f.__name__): f for f in (correlate1d, convolve1d, gaussian_filter1d, gaussian_filter)},
    ("scipy.ndimage", "uniform_filter1d"): uniform_filter1d,
    ("scipy.signal", "savgol_filter"): savgol_filter,
    ("scipy.signal", "lfilter"): lfilter,
}
