"""Functions of neighbours: differences, integrals, interpolation, padding, polynomials, convolution, correlation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.errors import InconclusiveDimensionOperation
from fuser.ir.dim import Dim, as_extent, maximum
from fuser.ir.types import BOOL, is_inexact
from fuser.lax.values import as_value, axes_given, axis_of, convert, literal, promote, promote_inexact
from fuser.numpy import linear as L
from fuser.numpy import maths as M
from fuser.numpy import movement as V
from fuser.numpy import reductions as R
from fuser.numpy import ufuncs as U
from fuser.numpy.creation import arange, array, asarray, full, iota, zeros, zeros_like
from fuser.numpy.sliding import sliding_products
from fuser.numpy.sorting import searchsorted, sort
from fuser.ops.movement import pad_p, slice_p
from fuser.trace import tree
from fuser.trace.core import Tracer, bind


def part(x: Any, axis: int, start: int, stop: int, step: int = 1) -> Any:
    """The elements start:stop:step of one dimension."""
    starts = tuple(start if d == axis else 0 for d in range(x.ndim))
    limits = tuple(stop if d == axis else e for d, e in enumerate(x.shape))
    strides = None if step == 1 else tuple(step if d == axis else 1 for d in range(x.ndim))
    return bind(slice_p, x, start_indices=starts, limit_indices=limits, strides=strides)


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """The n-th differences of neighbours along `axis`."""
    x = as_value(a, "diff")
    if n < 0:
        raise ValueError(f"diff takes an order >= 0, got {n}")
    if not x.ndim:
        raise ValueError("diff takes arrays of at least 1 dimension")
    axis = axis_of(axis, x.ndim, "diff")
    if not n:
        return x
    ends = [asarray(e) if e is not None else None for e in (prepend, append)]
    edge = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    before, after = ([] if e is None else [V.broadcast_to(e, edge) if not e.ndim else e] for e in ends)
    if before or after:
        x = V.concatenate([*before, x, *after], axis)
    for _ in range(n):
        extent = x.shape[axis]
        if not extent:
            break
        upper, lower = part(x, axis, 1, extent), part(x, axis, 0, extent - 1)
        x = U.not_equal(upper, lower) if x.dtype == BOOL else U.subtract(upper, lower)
    return x


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """The differences of neighbours of the flattened array, with values put in front and behind."""
    x = V.ravel(as_value(ary, "ediff1d"))
    middle = U.subtract(x[1:], x[:-1])
    front = [] if to_begin is None else [convert(V.ravel(asarray(to_begin)), x.dtype)]
    back = [] if to_end is None else [convert(V.ravel(asarray(to_end)), x.dtype)]
    return V.concatenate([*front, middle, *back]) if front or back else middle


def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int | None = None) -> Any:
    """Central differences along each dimension, one-sided at the ends; spacings are numbers or coordinates."""
    if edge_order not in (None, 1):
        raise NotImplementedError("gradient offers edge_order 1")
    x = U.inexact_operand("gradient", f)
    axes = tuple(range(x.ndim)) if axis is None else tuple(axis_of(d, x.ndim) for d in axes_given(axis))
    spacings = [1.0] * len(axes) if not varargs else list(varargs) * len(axes) if len(varargs) == 1 else list(varargs)
    if len(spacings) != len(axes):
        raise TypeError(
            f"gradient takes no spacing, one, or one for each of {len(axes)} dimensions, got {len(varargs)}"
        )
    results = [_gradient(x, h, d) for h, d in zip(spacings, axes)]
    return results[0] if len(results) == 1 else results


def _gradient(x: Any, spacing: Any, axis: int) -> Any:
    extent = x.shape[axis]
    if extent < 2:
        raise ValueError(f"gradient needs at least 2 elements along each dimension, got {extent}")
    lower, upper = part(x, axis, 0, extent - 1), part(x, axis, 1, extent)
    steps = U.subtract(upper, lower)
    if np.ndim(spacing) == 0:
        middle = U.multiply(U.subtract(part(x, axis, 2, extent), part(x, axis, 0, extent - 2)), U.divide(0.5, spacing))
        ends = [
            U.divide(part(steps, axis, 0, 1), spacing),
            U.divide(part(steps, axis, extent - 2, extent - 1), spacing),
        ]
        return V.concatenate([ends[0], middle, ends[1]], axis)
    coordinates = convert(asarray(spacing), x.dtype)
    widths = V.reshape(diff(coordinates), tuple(-1 if d == axis else 1 for d in range(x.ndim)))
    slopes = U.divide(steps, widths)
    first, second = part(widths, axis, 0, extent - 2), part(widths, axis, 1, extent - 1)
    weighted = U.add(
        U.multiply(part(slopes, axis, 0, extent - 2), second), U.multiply(part(slopes, axis, 1, extent - 1), first)
    )
    middle = U.divide(weighted, U.add(first, second))
    return V.concatenate([part(slopes, axis, 0, 1), middle, part(slopes, axis, extent - 2, extent - 1)], axis)


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """The integral by the trapezoidal rule along `axis`."""
    y, points = (U.inexact_operand("trapezoid", y), None) if x is None else promote_inexact("trapezoid", y, x)
    values = V.moveaxis(y, axis, -1)
    extent = values.shape[-1]
    if points is None:
        width: Any = dx
        if np.ndim(dx):
            width = _steps(asarray(dx), axis % values.ndim, values.ndim)
    else:
        width = diff(points if points.ndim == 1 else V.moveaxis(points, axis, -1))
    pairs = U.add(
        part(values, values.ndim - 1, min(1, extent), extent), part(values, values.ndim - 1, 0, max(extent - 1, 0))
    )
    return U.multiply(0.5, R.sum(U.multiply(width, pairs), -1))


def _steps(dx: Any, axis: int, ndim: int) -> Any:
    """Widths that broadcast against the samples, with the axis of the integral last."""
    return V.moveaxis(V.reshape(dx, (1,) * (ndim - dx.ndim) + dx.shape), axis, -1)


def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """Linear interpolation of the points (xp, fp), xp ascending.

    Beyond them it gives the end values, or `left` and `right`: values, or "extrapolate" for the line through the outer points.
    """
    if np.shape(xp) != np.shape(fp) or np.ndim(xp) != 1:
        raise ValueError("xp and fp must be one-dimensional arrays of equal size")
    for name, end in (("left", left), ("right", right)):
        if isinstance(end, str) and end != "extrapolate":
            raise ValueError(f"the only valid string value of `{name}` is 'extrapolate', but got: {end!r}")
    x, xp = promote_inexact("interp", x, xp)
    if M.iscomplexobj(x):
        raise ValueError("jnp.interp: complex x values not supported.")
    fp = U.inexact_operand("interp", fp)
    if period is not None:
        x, xp, fp = _periodic(x, xp, fp, period)
    position = M.clip(searchsorted(xp, x, "right"), 1, xp.shape[0] - 1)
    low, high = fp[position - 1], fp[position]
    width = xp[position] - xp[position - 1]
    near = U.less_equal(
        U.abs(width),
        float(np.spacing(np.finfo(np.float32).eps if xp.dtype.itemsize <= 4 else np.finfo(np.float64).eps)),
    )
    step = U.divide(U.subtract(x, xp[position - 1]), M.where(near, 1, width))
    result = M.where(near, low, U.add(low, U.multiply(step, U.subtract(high, low))))
    if period is None:
        if not isinstance(left, str):
            result = M.where(U.less(x, xp[0]), fp[0] if left is None else left, result)
        if not isinstance(right, str):
            result = M.where(U.greater(x, xp[-1]), fp[-1] if right is None else right, result)
    return result


def _periodic(x: Any, xp: Any, fp: Any, period: Any) -> tuple[Any, Any, Any]:
    from fuser.numpy.sorting import argsort

    if np.ndim(period):
        raise ValueError(f"period must be a scalar; got {period}")
    period = U.abs(period)
    x, xp = M.remainder(x, period), M.remainder(xp, period)
    order = argsort(xp)
    xp, fp = xp[order], fp[order]
    return x, V.concatenate([xp[-1:] - period, xp, xp[:1] + period]), V.concatenate([fp[-1:], fp, fp[:1]])


# Padding.


def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    """The array with more elements at both ends of each dimension: constant, edge, reflect, symmetric, wrap, linear_ramp, empty, or statistics."""
    x = asarray(array)
    widths = _pairs(pad_width, x.ndim)
    if any(w < 0 for pair in widths for w in pair):
        raise ValueError(f"pad takes widths >= 0, got {pad_width}")
    if callable(mode):
        raise NotImplementedError("pad takes a mode by name; pad with zeros and set the border through .at")
    allowed = {
        "constant": {"constant_values"},
        "reflect": {"reflect_type"},
        "symmetric": {"reflect_type"},
        "linear_ramp": {"end_values"},
    }
    allowed |= {m: {"stat_length"} for m in ("maximum", "minimum", "mean", "median")}
    allowed |= {m: set() for m in ("edge", "wrap", "empty")}
    if mode not in allowed:
        raise NotImplementedError(
            f"Unimplemented padding mode '{mode}' for np.pad. pad knows the modes {', '.join(sorted(allowed))}, got {mode!r}"
        )
    if unknown := set(kwargs) - allowed[mode]:
        raise ValueError(
            f"unsupported keyword arguments for mode '{mode}': pad takes no {', '.join(sorted(unknown))} there"
        )
    if mode in ("constant", "empty"):
        return _pad_constant(x, widths, kwargs.get("constant_values", 0))
    for d, pair in enumerate(widths):
        x = _pad_dimension(x, d, pair, mode, kwargs)
    return x


def _pairs(value: Any, ndim: int) -> list[tuple[int, int]]:
    value = value if not isinstance(value, dict) else [value.get(d, value.get(d - ndim, (0, 0))) for d in range(ndim)]
    symbolic = any(type(width) is Dim for width in tree.leaves(value))
    given = np.asarray(value, object if symbolic else None)
    if given.dtype.kind not in "iu" and not symbolic:
        raise TypeError(f"pad takes integer widths, got {value}")
    if given.shape == (1,):
        given = given[0]
    return [(as_extent(a), as_extent(b)) for a, b in np.broadcast_to(given, (ndim, 2))]


def _pad_constant(x: Any, widths: list[tuple[int, int]], values: Any) -> Any:
    if np.ndim(values) == 0:
        value = convert(asarray(values), x.dtype, x.weak_type)
        return bind(pad_p, x, value, padding_config=tuple((a, b, 0) for a, b in widths))
    table = np.broadcast_to(np.asarray(values), (x.ndim, 2))
    for d, pair in enumerate(widths):
        for side in (0, 1):
            config = tuple(((pair[0], 0, 0), (0, pair[1], 0))[side] if k == d else (0, 0, 0) for k in range(x.ndim))
            x = bind(pad_p, x, convert(asarray(table[d, side]), x.dtype), padding_config=config)
    return x


def _pad_dimension(x: Any, d: int, pair: tuple[int, int], mode: str, options: dict[str, Any]) -> Any:
    extent = x.shape[d]
    if pair == (0, 0):
        return x
    if not extent:
        raise ValueError(f"pad with mode {mode!r} cannot extend axis {d} of extent 0")
    if mode == "edge":
        front, back = part(x, d, 0, 1), part(x, d, extent - 1, extent)
        return V.concatenate([V.repeat(front, pair[0], d), x, V.repeat(back, pair[1], d)], d)
    if mode == "wrap":
        return _wrapped(x, d, pair)
    if mode == "linear_ramp":
        return _ramped(x, d, pair, np.broadcast_to(np.asarray(options.get("end_values", 0)), (x.ndim, 2))[d])
    if mode in ("maximum", "minimum", "mean", "median"):
        return _statistic(x, d, pair, mode, options.get("stat_length"))
    odd = options.get("reflect_type", "even") == "odd"
    return _mirrored(x, d, pair, 1 if mode == "reflect" else 0, odd)


def _wrapped(x: Any, d: int, pair: tuple[int, int]) -> Any:
    extent = x.shape[d]
    before = [part(x, d, extent - pair[0] % extent, extent)] if pair[0] % extent else []
    after = [x] * (pair[1] // extent) + ([part(x, d, 0, pair[1] % extent)] if pair[1] % extent else [])
    return V.concatenate([*before, *[x] * (pair[0] // extent), x, *after], d)


def _mirrored(x: Any, d: int, pair: tuple[int, int], offset: int, odd: bool) -> Any:
    original = x.shape[d]
    if offset and original == 1:
        return V.concatenate([V.repeat(x, pair[0], d), x, V.repeat(x, pair[1], d)], d)
    for side in (0, 1):
        left = pair[side]
        while left > 0:
            extent = x.shape[d]
            count = min(left, original - offset)
            edge = part(x, d, 0, 1) if side == 0 else part(x, d, extent - 1, extent)
            piece = (
                part(x, d, offset, offset + count)
                if side == 0
                else part(x, d, extent - offset - count, extent - offset)
            )
            piece = V.flip(piece, d)
            if odd:
                piece = U.subtract(U.multiply(2, edge), piece)
            x = V.concatenate([piece, x] if side == 0 else [x, piece], d)
            left -= count
    return x


def _ramped(x: Any, d: int, pair: tuple[int, int], ends: Any) -> Any:
    from fuser.numpy.creation import linspace

    extent = x.shape[d]
    pieces = [x]
    for side in (0, 1):
        if not pair[side]:
            continue
        edge = V.squeeze(part(x, d, 0, 1) if side == 0 else part(x, d, extent - 1, extent), d)
        ramp = linspace(asarray(ends[side]), edge, pair[side], endpoint=False, axis=d)
        ramp = convert(U.floor(ramp) if not is_inexact(x.dtype) else ramp, x.dtype)
        pieces = [ramp, *pieces] if side == 0 else [*pieces, V.flip(ramp, d)]
    return V.concatenate(pieces, d)


def _statistic(x: Any, d: int, pair: tuple[int, int], mode: str, length: Any) -> Any:
    from fuser.numpy.sorting import median

    functions: dict[str, Any] = {"maximum": R.max, "minimum": R.min, "mean": R.mean, "median": median}
    extent = x.shape[d]
    lengths = (extent, extent) if length is None else _pairs(length, x.ndim)[d]
    counts = [min(n, extent) for n in lengths]
    sides = (part(x, d, 0, counts[0]), part(x, d, extent - counts[1], extent))
    ends = []
    for side, width in zip(sides, pair):
        value = functions[mode](side, d, keepdims=True)
        value = U.round(value) if not is_inexact(x.dtype) and mode in ("mean", "median") else value
        ends.append(V.repeat(convert(value, x.dtype), width, d))
    return V.concatenate([ends[0], x, ends[1]], d)


# Polynomials, convolution, covariance.


def polyval(p: Any, x: Any, *, unroll: int = 16) -> Any:
    """The polynomial with coefficients `p`, the highest power first, at `x`, by Horner's rule."""
    coefficients, x = (convert(v, v.dtype) for v in promote("polyval", asarray(p), asarray(x)))
    if not coefficients.shape[0]:
        return zeros_like(x)
    result = U.add(zeros_like(x), coefficients[0])
    for k in range(1, coefficients.shape[0]):
        result = U.add(U.multiply(result, x), coefficients[k])
    return result


def convolve(a: Any, v: Any, mode: str = "full", *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """The discrete convolution of two vectors: "full", "same" length as the longer, or "valid" overlaps only."""
    return _convolved("convolve", a, v, mode, True, preferred_element_type)


def correlate(a: Any, v: Any, mode: str = "valid", *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """The cross-correlation of two vectors, the second conjugated."""
    return _convolved("correlate", a, v, mode, False, preferred_element_type)


def _convolved(name: str, a: Any, v: Any, mode: str, flips: bool, preferred: Any) -> Any:
    x, y = promote_inexact(name, asarray(a), asarray(v))
    result = convolved(name, x, y, mode, flips)
    return result if preferred is None else convert(result, dtypes.requested(preferred, name))


def convolved(name: str, x: Any, y: Any, mode: str, flips: bool) -> Any:
    """The convolution of vectors of one dtype (`flips`), or their correlation."""
    if x.ndim != 1 or y.ndim != 1:
        raise ValueError(f"{name} takes vectors, got shapes {x.shape} and {y.shape}")
    if not x.shape[0] or not y.shape[0]:
        raise ValueError(f"{name} takes vectors of at least 1 element, got shapes {x.shape} and {y.shape}")
    if mode not in ("full", "same", "valid"):
        raise ValueError(f'{name} takes mode "full", "same" or "valid", got {mode!r}')
    y = y if flips else M.conj(V.flip(y))
    backwards = False
    if x.shape[0] < y.shape[0]:
        x, y, backwards = y, x, not flips and mode == "same"
    rim = y.shape[0] - 1
    if mode == "full":
        x = _pad_constant(x, [(rim, rim)], 0)
    elif mode == "same":
        start = (rim + 1) // 2 if backwards else rim // 2
        x = _pad_constant(x, [(rim - start, start)], 0)
    return sliding_products(x, V.flip(y))


def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    dtype: Any = None,
) -> Any:
    """The covariance matrix of variables (rows, or columns without `rowvar`) over their observations, in `dtype` where given.

    `fweights` count observations, `aweights` weigh them. ValueError for more than 2 dimensions or a dtype that is neither
    float nor complex, RuntimeError for weights that are no vector of one number an observation.
    """
    x, y = (U.inexact_operand("cov", m), None) if y is None else promote_inexact("cov", m, y)
    for name, value in (("m", x), ("y", y)):
        if value is not None and value.ndim > 2:
            raise ValueError(f"{name} has more than 2 dimensions: cov takes at most 2, got shape {value.shape}")
    wanted = x.dtype if dtype is None else dtypes.requested(dtype, "cov")
    if not is_inexact(wanted):
        raise ValueError(f"cov: dtype must be a subclass of float or complex; got {dtype=}")
    rows = x.ndim < 2 or rowvar
    x = V.atleast_2d(x) if rows else x.T
    if not x.shape[0]:
        return zeros((0, 0), x.dtype)
    if y is not None:
        other = V.atleast_2d(y)
        x = V.concatenate([x, other if rowvar or other.shape[0] == 1 else other.T], 0)
    if not x.shape[1]:
        return full(() if x.shape[0] == 1 else (x.shape[0], x.shape[0]), np.nan, x.dtype)
    weights = _weights(fweights, aweights, x.shape[1])
    x = convert(x, wanted)
    ddof = (0 if bias else 1) if ddof is None else ddof
    if weights is None:
        left = maximum(x.shape[1] - ddof, 0)
        centred = U.subtract(x, R.mean(x, 1, keepdims=True))
        total = literal(left if type(left) is Dim else float(left), x.dtype)
        return V.squeeze(U.divide(L.matmul(centred, M.conj(centred.T)), total))
    weights = weights if dtype is None else convert(weights, wanted)
    weight_sum = R.sum(weights)
    mean = U.divide(R.sum(U.multiply(x, weights), 1, keepdims=True), weight_sum)
    centred = U.subtract(x, mean)
    taken: Any = ddof
    if aweights is not None:
        taken = U.multiply(ddof, U.divide(R.sum(U.multiply(weights, U.abs(as_value(aweights, "cov")))), weight_sum))
    total = U.subtract(weight_sum, taken)
    return V.squeeze(U.divide(L.matmul(U.multiply(centred, weights), M.conj(centred.T)), total))


def _weights(fweights: Any, aweights: Any, observations: int) -> Any:
    given = []
    for name, value in (("fweights", fweights), ("aweights", aweights)):
        if value is None:
            continue
        w = as_value(value, "cov")
        if w.ndim > 1:
            raise RuntimeError(f"cannot handle multidimensional {name}, got shape {w.shape}")
        if w.shape != (observations,):
            raise RuntimeError(f"incompatible numbers of samples and {name}: {observations} and {w.shape}")
        if name == "fweights" and w.dtype.kind not in "iu":
            raise TypeError(f"{name} must be integer, got {w.dtype}")
        given.append(U.abs(w))
    return None if not given else given[0] if len(given) == 1 else U.multiply(*given)


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, dtype: Any = None) -> Any:
    """The matrix of Pearson's correlation coefficients, of `dtype` where given; ValueError if that is no float or complex."""
    matrix = cov(x, y, rowvar)
    if dtype is not None:
        wanted = dtypes.requested(dtype, "corrcoef")
        if not is_inexact(wanted):
            raise ValueError(f"corrcoef: dtype must be a subclass of float or complex; got {dtype=}")
        matrix = convert(matrix, wanted)
    if not matrix.ndim:
        return U.divide(matrix, matrix)
    deviation = U.sqrt(M.real(L.diag(matrix)))
    result = U.divide(U.divide(matrix, deviation[:, None]), deviation[None, :])
    return M.clip(result, -1, 1) if not M.iscomplexobj(result) else result


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """The array with `values` put in before the positions `obj`: a slice, an integer or a vector; they are cut to its dtype."""
    from fuser.numpy.selection import take

    x = asarray(arr)
    if axis is None:
        x, axis = V.ravel(x), 0
    axis = axis_of(axis, x.ndim, "insert")
    extent = x.shape[axis]
    if type(extent) is Dim:
        obj = arange(extent)[obj] if isinstance(obj, slice) else asarray(obj)
    if isinstance(obj, Tracer) or type(extent) is Dim:
        return _inserted(x, obj, array(values, x.dtype, copy=False, ndmin=x.ndim), axis)
    given: np.ndarray = np.arange(*obj.indices(extent)) if isinstance(obj, slice) else np.asarray(obj)
    if given.ndim > 1:
        raise ValueError(f"insert takes a slice, an integer or a vector of them, got positions of shape {given.shape}")
    new = array(values, x.dtype, copy=False, ndmin=x.ndim)
    if given.size == 1 and extent:  # one place for all values
        new = V.moveaxis(new, 0, axis) if given.ndim == 0 else new
        place = int(np.insert(np.arange(extent), given, -1).argmin())
        shape = tuple(new.shape[axis] if d == axis else e for d, e in enumerate(x.shape))
        before, after = V.split(x, [place], axis)
        return V.concatenate([before, convert(V.broadcast_to(new, shape), x.dtype, x.weak_type), after], axis)
    if given.size == 1:
        new = V.moveaxis(new, 0, axis) if given.ndim == 0 else new
        given = np.repeat(given.reshape(1), new.shape[axis])
    positions = np.insert(np.arange(extent), given, -1)
    source = np.cumsum(positions >= 0) - 1
    spread = take(x, np.maximum(source, 0).astype(np.int32), axis=axis, mode="clip") if extent else None
    index = (*(slice(None),) * axis, np.nonzero(positions < 0)[0].astype(np.int32))
    shape = tuple(given.size if d == axis else e for d, e in enumerate(x.shape))
    order = np.argsort(np.where(given < 0, given + extent, given), kind="stable")
    new = take(V.broadcast_to(new, shape), order.astype(np.int32), axis=axis, mode="clip") if given.size else new
    return new if spread is None else spread.at[index].set(new)


def _inserted(x: Any, positions: Any, new: Any, axis: int) -> Any:
    """`insert` before positions that are known at run time alone: where each value comes to lie, and what lies between."""
    from fuser.numpy.selection import take
    from fuser.numpy.sorting import argsort

    if positions.ndim > 1 or positions.dtype.kind not in "iu":
        raise ValueError(f"insert takes a slice, an integer or a vector of them, got {positions.aval}")
    extent, count = x.shape[axis], positions.size
    if count == 1:  # one place for all values
        new = V.moveaxis(new, 0, axis) if not positions.ndim else new
        count = new.shape[axis]
    new = V.broadcast_to(new, tuple(count if d == axis else e for d, e in enumerate(x.shape)))
    positions = V.broadcast_to(V.ravel(positions), (count,))
    positions = M.clip(M.where(positions < 0, positions + extent, positions), 0, extent)
    own = positions.at[argsort(positions)].add(iota((count,), 0, positions.dtype))
    number = iota((count,), 0)
    slots = V.broadcast_to(literal(-1, np.dtype("int32")), (extent + count,)).at[own].set(number)
    source = R.cumsum(convert(slots < 0, np.dtype("int32"))) - 1
    kept, put = take(x, source, axis, mode="clip") if extent else None, take(new, slots, axis, mode="clip")
    if kept is None:
        return put
    return M.where(V.reshape(slots < 0, tuple(-1 if d == axis else 1 for d in range(x.ndim))), kept, put)


def delete(arr: Any, obj: Any, axis: int | None = None, *, assume_unique_indices: bool = False) -> Any:
    """The array without the slices at the positions `obj`, which must be known unless they are an integer, or integers that
    `assume_unique_indices` says are distinct."""
    from fuser.numpy.selection import take

    x = asarray(arr)
    if axis is None:
        x, axis = V.ravel(x), 0
    axis = axis_of(axis, x.ndim, "delete")
    if isinstance(obj, Tracer) and (assume_unique_indices or not obj.ndim):
        return take(x, _left(x.shape[axis], obj), axis=axis, mode="clip")
    if type(x.shape[axis]) is Dim:
        return take(x, _left(x.shape[axis], _distinct(obj, x.shape[axis])), axis=axis, mode="clip")
    chosen = obj if isinstance(obj, slice) else np.asarray(obj)
    return take(x, np.delete(np.arange(x.shape[axis], dtype=np.int32), chosen), axis=axis, mode="clip")


def _distinct(positions: Any, extent: Dim) -> Any:
    """Known positions of an axis of symbolic extent, each once."""
    if isinstance(positions, slice):
        return arange(extent)[positions]
    found = np.unique(np.asarray(positions))
    if found.dtype.kind not in "iu" or (found.size and found[0] < 0 <= found[-1]):
        raise InconclusiveDimensionOperation(
            f"delete from an axis of symbolic extent '{extent}' takes integers that all count from one end, got {positions}"
        )
    return asarray(found.astype(np.int32))


def _left(extent: int, positions: Any) -> Any:
    """The places 0 … extent - 1 without those at distinct integer `positions`, which may be traced."""
    gone = V.ravel(M.where(U.less(positions, 0), U.add(positions, extent), positions))
    gone = sort(convert(gone, np.dtype("int32")))
    ranks = iota((gone.shape[0],), 0)
    places = iota((extent - gone.shape[0],), 0)
    # Each position that is gone moves on the places from its own rank below it.
    passed = U.greater_equal(places[:, None], U.subtract(gone, ranks)[None, :])
    return U.add(places, R.sum(convert(passed, np.dtype("int32")), 1))


def apply_over_axes(func: Any, a: Any, axes: Sequence[int]) -> Any:
    """`func(a, axis)` for one axis after the other, dimensions kept."""
    x = asarray(a)
    for axis in axes:
        result = func(x, axis)
        x = result if result.ndim == x.ndim else V.expand_dims(result, axis)
    return x
