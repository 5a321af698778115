"""NumPy's products, norms, inverses and systems on traced arrays: dot, tensordot, einsum, outer, trace, norm, inv, solve, det,
cholesky."""

from __future__ import annotations

from typing import Any

import numpy as np

import fuser.numpy as fnp
from fuser.interop.numpy.checks import exempted, notice
from fuser.interop.numpy.context import Context, to_dtype, untraceable
from fuser.interop.numpy.creation import common_dtype
from fuser.interop.numpy.dispatch import Handler, implements
from fuser.interop.numpy.movement import as_traced, either
from fuser.interop.numpy.numeric import floats, wrapped
from fuser.interop.numpy.traced import TracedArray, View
from fuser.interop.numpy.ufuncs import operand
from fuser.lax.linalg import cholesky

_DOUBLE = np.dtype(np.float64)


def _product(name: str) -> Handler:
    def handler(context: Context, a: Any, b: Any, *args: Any, **kwargs: Any) -> TracedArray:
        kwargs.pop("out", None)
        x, y = as_traced(context, a), as_traced(context, b)
        dtype = common_dtype(x, y)
        return wrapped(context, getattr(fnp, name)(x.lifted(dtype), y.lifted(dtype), *args, **kwargs), dtype=dtype)

    return handler


for _name in ("dot", "vdot", "inner", "outer", "tensordot", "kron", "cross"):
    implements(getattr(np, _name))(_product(_name))


@implements(np.einsum)
def _einsum(
    context: Context,
    subscripts: Any,
    *operands: Any,
    out: Any = None,
    optimize: Any = False,
    dtype: Any = None,
    **unused: Any,
) -> TracedArray:
    if not isinstance(subscripts, str):
        raise untraceable("np.einsum with lists of subscripts cannot be traced", "give the subscripts as a string")
    wanted = common_dtype(*operands) if dtype is None else np.dtype(dtype)
    if len(operands) == 1 and wanted == operands[0].dtype and _sums_nothing(subscripts):
        read = either(lambda v: np.einsum(subscripts, v), lambda v: fnp.einsum(subscripts, v))
        guard = "writing to a view made by np.einsum cannot be traced|use .copy()"
        return as_traced(context, operands[0]).view_of(View(read, lambda value, new: value), False, guard=guard)
    return wrapped(context, fnp.einsum(subscripts, *(operand(context, o, wanted) for o in operands)), dtype=wanted)


def _sums_nothing(subscripts: str) -> bool:
    """Whether an einsum of one operand only moves elements, so that NumPy gives a view."""
    before, arrow, after = subscripts.replace(" ", "").partition("->")
    letters = before.replace("...", "")
    return set(letters) == set(after.replace("...", "")) if arrow else len(set(letters)) == len(letters)


@implements(np.trace)
def _trace(
    context: Context, a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None
) -> TracedArray:
    from fuser.interop.numpy.reductions import result_dtype

    x = as_traced(context, a)
    wanted = result_dtype("sum", x.dtype, None if dtype is None else np.dtype(dtype))
    return wrapped(context, fnp.trace(x.lifted(wanted), offset, axis1, axis2), dtype=wanted)


@implements(np.diagonal, view=True)
def diagonal(context: Context, a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> TracedArray:
    """`np.diagonal`: a view that must not be written to."""
    where = (offset, axis1, axis2)
    read = either(lambda v: np.diagonal(v, *where), lambda v: fnp.diagonal(v, *where))
    guard = "writing to a diagonal cannot be traced, and NumPy forbids it|use .copy()"
    return as_traced(context, a).view_of(View(read, lambda value, new: value), False, guard=guard)


@implements(np.diag)
def _diag(context: Context, v: Any, k: int = 0) -> TracedArray:
    x = as_traced(context, v)
    return diagonal(context, x, k) if x.ndim == 2 else TracedArray(context, fnp.diag(x.lifted(), k))


@implements(np.linalg.norm)
def norm(context: Context, x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> TracedArray:
    """`np.linalg.norm`: vector norms, and the Frobenius, 1 and ∞ norms of matrices."""
    a = as_traced(context, x)
    dtype = floats(a)
    value = a.lifted(dtype)
    if axis is None and (ord is None or (ord == 2 and a.ndim == 1) or (ord == "fro" and a.ndim == 2)):
        total = _length(value, None, keepdims)
        return wrapped(context, total)
    axes = tuple(range(a.ndim)) if axis is None else axis
    if isinstance(axes, (tuple, list)) and len(axes) == 1:
        (axes,) = axes
    if isinstance(axes, (tuple, list)) and ord not in (None, "fro", "f", 1, -1, np.inf, -np.inf):
        from fuser.interop.numpy.library import call_numpy  # which needs the table of functions complete

        return call_numpy(context, np.linalg.norm, (x, ord, axis, keepdims), {})  # type: ignore[no-any-return]
    if isinstance(axes, (tuple, list)):
        return wrapped(context, _matrix_norm(value, ord, tuple(d % a.ndim for d in axes), keepdims))
    return wrapped(context, _vector_norm(value, ord, axes, keepdims))


def _length(x: Any, axis: Any, keepdims: bool) -> Any:
    squares = fnp.square(fnp.abs(x)) if x.dtype.kind == "c" else fnp.square(x)
    return fnp.sqrt(fnp.sum(squares, axis=axis, keepdims=keepdims))


def _vector_norm(x: Any, ord: Any, axis: Any, keepdims: bool) -> Any:
    size = fnp.abs(x)
    if ord is None or ord == 2:
        return _length(x, axis, keepdims)
    if ord == np.inf:
        return fnp.max(size, axis=axis, keepdims=keepdims)
    if ord == -np.inf:
        return fnp.min(size, axis=axis, keepdims=keepdims)
    if ord == 0:
        return to_dtype(fnp.sum(fnp.not_equal(size, 0), axis=axis, keepdims=keepdims), size.dtype)
    if ord == 1:
        return fnp.sum(size, axis=axis, keepdims=keepdims)
    return fnp.power(fnp.sum(fnp.power(size, ord), axis=axis, keepdims=keepdims), 1.0 / ord)


def _matrix_norm(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    row, column = axes
    if ord in (None, "fro", "f"):
        return _length(x, axes, keepdims)
    first, second = (row, column) if abs(ord) == 1 else (column, row)
    sums = fnp.sum(fnp.abs(x), axis=first, keepdims=True)
    extreme = fnp.max if ord > 0 else fnp.min
    result = extreme(sums, axis=second, keepdims=True)
    return result if keepdims else fnp.squeeze(result, axes)


# Inverses and systems, by factorisations of our own. One that meets a pivot of 0 leaves an infinity or nan in its result.


def _by_numpy(context: Context, function: Any, *args: Any, **kwargs: Any) -> Any:
    from fuser.interop.numpy.library import call_numpy  # which needs the table of functions complete

    return call_numpy(context, function, args, kwargs)


def _is_square(x: TracedArray) -> bool:
    real = x.dtype.kind in "iub" or x.dtype in (np.float32, np.float64)
    return real and x.ndim >= 2 and x.shape[-1] == x.shape[-2] and x.size > 0


def _solved(context: Context, function: Any, *operands: TracedArray) -> TracedArray:
    dtype = _DOUBLE if any(o.dtype.kind in "iub" for o in operands) else common_dtype(*operands)
    with exempted(masked=True):
        found = function(*(o.lifted(dtype) for o in operands))
    notice(fnp.any(fnp.logical_not(fnp.isfinite(found))))
    return wrapped(context, found, dtype=dtype)


@implements(np.linalg.inv)
def _inv(context: Context, a: Any) -> Any:
    x = as_traced(context, a)
    return _solved(context, fnp.linalg.inv, x) if _is_square(x) else _by_numpy(context, np.linalg.inv, a)


@implements(np.linalg.solve)
def _solve(context: Context, a: Any, b: Any) -> Any:
    x, y = as_traced(context, a), as_traced(context, b)
    fits = _is_square(x) and (y.dtype.kind in "iub" or y.dtype in (np.float32, np.float64)) and y.size > 0
    if not fits or x.shape[-1] != (y.shape[0] if y.ndim == 1 else y.shape[-2] if y.ndim else 0):
        return _by_numpy(context, np.linalg.solve, a, b)
    if y.ndim == 1 and x.ndim == 2:
        return _solved(context, fnp.linalg.solve, x, y)
    if y.ndim == 1:
        return _solved(context, lambda x, y: fnp.linalg.solve(x, y[:, None])[..., 0], x, y)
    return _solved(context, fnp.linalg.solve, x, y)


MOST_SMALL = 20  # rows of matrices whose determinants and factors are faster than LAPACK's


@implements(np.linalg.det)
def _det(context: Context, a: Any) -> Any:
    x = as_traced(context, a)
    small = _is_square(x) and x.shape[-1] <= MOST_SMALL
    return _solved(context, fnp.linalg.det, x) if small else _by_numpy(context, np.linalg.det, a)


@implements(np.linalg.cholesky)
def _cholesky(context: Context, a: Any, /, *, upper: bool = False) -> Any:
    x = as_traced(context, a)
    if not _is_square(x) or x.shape[-1] > MOST_SMALL or upper:
        return _by_numpy(context, np.linalg.cholesky, a, **({"upper": True} if upper else {}))
    return _solved(context, lambda x: cholesky(x, symmetrize_input=False), x)


@implements(np.polyfit)
def _polyfit(
    context: Context, x: Any, y: Any, deg: Any, rcond: Any = None, full: bool = False, w: Any = None, cov: Any = False
) -> Any:
    """Least squares by powers of x, scaled as NumPy scales them. A fit that NumPy warns of is an event."""
    a, b = as_traced(context, x), as_traced(context, y)
    plain = isinstance(deg, int) and deg >= 0 and not full and w is None and cov is False
    plain = plain and floats(a) == floats(b) == _DOUBLE and a.ndim == 1 and b.ndim in (1, 2)
    if not plain or a.shape[0] != b.shape[0] or not a.size:
        return _by_numpy(context, np.polyfit, x, y, deg, rcond=rcond, full=full, w=w, cov=cov)
    powers = [fnp.ones_like(a.lifted(_DOUBLE))]
    for _ in range(deg):
        powers.append(powers[-1] * a.lifted(_DOUBLE))
    return fitted(context, wrapped(context, fnp.stack(powers[::-1], axis=-1)), b, rcond)


def fitted(context: Context, columns: Any, b: Any, rcond: float | None) -> TracedArray:
    """The coefficients of the columns of a float64 matrix whose sum is closest to `b`; fewer independent columns are an event."""
    matrix = columns.lifted(_DOUBLE)
    scale = fnp.sqrt(fnp.sum(matrix * matrix, axis=0))
    rcond = matrix.shape[0] * float(np.finfo(np.float64).eps) if rcond is None else rcond
    sides = wrapped(context, matrix / scale), wrapped(context, b.lifted(_DOUBLE))
    solution, _, rank, _ = _by_numpy(context, np.linalg.lstsq, *sides, rcond)
    notice(fnp.not_equal(rank.lifted(), matrix.shape[1]))
    found = solution.lifted()
    return wrapped(context, found / (scale if b.ndim == 1 else scale[:, None]))
