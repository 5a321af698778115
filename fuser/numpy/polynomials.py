"""Polynomials as vectors of coefficients, the highest power first, with NumPy's names."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.ir.types import is_complex
from fuser.lax.values import as_value, convert, promote, promote_inexact
from fuser.numpy import maths as M
from fuser.numpy import movement as V
from fuser.numpy import reductions as R
from fuser.numpy import series
from fuser.numpy import ufuncs as U
from fuser.numpy.creation import asarray, eye, ones, zeros
from fuser.numpy.creation import full as filled
from fuser.numpy.linear import outer, vander
from fuser.trace.core import Tracer

__all__ = ["poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul", "polysub", "roots", "unwrap"]


def _vectors(function: str, *args: Any) -> list[Any]:
    values = promote(function, *(V.atleast_1d(as_value(a, function)) for a in args))
    for v in values:
        if v.ndim > 1:
            raise ValueError(f"{function}: polynomials are vectors of coefficients, got shape {v.shape}")
    return values


def polyadd(a1: Any, a2: Any) -> Any:
    """The sum of two polynomials: as many coefficients as the longer has."""
    first, second = _vectors("polyadd", a1, a2)
    return _to_length(first, second.shape[0]) + _to_length(second, first.shape[0])


def polysub(a1: Any, a2: Any) -> Any:
    """The difference of two polynomials: as many coefficients as the longer has."""
    first, second = _vectors("polysub", a1, a2)
    return _to_length(first, second.shape[0]) - _to_length(second, first.shape[0])


def _to_length(x: Any, length: int) -> Any:
    return series.pad(x, (max(length - x.shape[0], 0), 0))


def _trimmed(x: Any, function: str) -> Any:
    """Without leading zeros, as NumPy has it; needs known values."""
    from fuser.numpy.sets import trim_zeros

    return trim_zeros(x, "f")


def polymul(a1: Any, a2: Any, *, trim_leading_zeros: bool = False) -> Any:
    """The product of two polynomials. With `trim_leading_zeros` (which needs known values) without leading zeros."""
    first, second = promote_inexact("polymul", *_vectors("polymul", a1, a2))
    if trim_leading_zeros and (first.shape[0] > 1 or second.shape[0] > 1):
        first, second = _trimmed(first, "polymul"), _trimmed(second, "polymul")
    first = first if first.shape[0] else zeros(1, second.dtype)
    second = second if second.shape[0] else zeros(1, first.dtype)
    return series.convolve(first, second, mode="full")


def polydiv(u: Any, v: Any, *, trim_leading_zeros: bool = False) -> tuple[Any, Any]:
    """(quotient, remainder) of polynomials by long division. With `trim_leading_zeros` the remainder has no leading zeros."""
    above, below = promote_inexact("polydiv", *_vectors("polydiv", u, v))
    m, n = above.shape[0] - 1, below.shape[0] - 1
    scale = 1 / below[0]
    quotient = zeros(max(m - n + 1, 1), above.dtype)
    for k in range(m - n + 1):
        digit = scale * above[k]
        quotient = quotient.at[k].set(digit)
        above = above.at[k : k + n + 1].add(-digit * below)
    return quotient, _trimmed(above, "polydiv") if trim_leading_zeros else above


def _order(function: str, m: Any) -> int:
    try:
        return operator.index(m)
    except TypeError:
        raise TypeError(f"{function} takes an order m that is a known integer, got {m!r}") from None


def polyder(p: Any, m: int = 1) -> Any:
    """The m-th derivative of a polynomial. ValueError for negative m."""
    (x,) = promote_inexact("polyder", V.atleast_1d(as_value(p, "polyder")))
    m = _order("polyder", m)
    if m < 0:
        raise ValueError("Order of derivative must be positive")
    if not m:
        return x
    if x.ndim != 1:
        raise ValueError(f"polyder takes a vector of coefficients, got shape {x.shape}")
    powers = np.arange(x.shape[0])[::-1]
    factors = np.prod([powers - k for k in range(m)], axis=0)[: x.shape[0] - m].astype(np.float64)
    return x[: max(x.shape[0] - m, 0)] * asarray(factors.astype(_real(x.dtype)))


def _real(dtype: np.dtype) -> np.dtype:
    return np.zeros((), dtype).real.dtype


def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    """The m-th integral of a polynomial, with constants `k` (0 unless told; a number, or one for each step). ValueError for m < 0."""
    m = _order("polyint", m)
    given = [] if k is None else [k]
    values = promote_inexact("polyint", p, *given)
    x = values[0]
    constants = V.atleast_1d(values[1]) if given else zeros(1, x.dtype)
    if m < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    if constants.shape == (1,):
        constants = filled((m,), constants[0])
    elif constants.shape != (m,):
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or m.")
    if not m:
        return x
    powers = np.arange(x.shape[0] + m - 1, -1, -1)
    falls = np.prod([np.where(powers - j > 0, powers - j, 1) for j in range(m)], axis=0).astype(np.float64)
    return V.concatenate([x, constants]) / asarray(falls.astype(_real(x.dtype)))


def roots(p: Any, *, strip_zeros: bool = True) -> Any:
    """The complex roots, as eigenvalues of the companion matrix; leading and trailing zeros are cut off, one root 0 for each.

    What is cut depends on values: with traced ones pass `strip_zeros=False`, which gives nan where the leading is 0.
    """
    from fuser.numpy.linalg import eigvals

    (x,) = promote_inexact("roots", V.atleast_1d(as_value(p, "roots")))
    if x.ndim != 1:
        raise ValueError("Input must be a rank-1 array.")
    if x.shape[0] < 2:  # whatever the value is
        return zeros(0, _complex(x.dtype))
    trailing = 0
    if strip_zeros:
        if isinstance(x, Tracer):
            bool(x)  # raises, with the user's line
        known = np.flatnonzero(np.asarray(x))
        if not len(known):
            return zeros(0, _complex(x.dtype))
        trailing = x.shape[0] - int(known[-1]) - 1
        x = x[int(known[0]) : int(known[-1]) + 1]
    if x.shape[0] < 2:
        return zeros(trailing, _complex(x.dtype))
    n = x.shape[0] - 1
    companion = V.concatenate([(-x[1:] / x[0])[None, :], eye(n, dtype=x.dtype)[:-1]], 0)
    return V.concatenate([eigvals(companion), zeros(trailing, _complex(x.dtype))])


def _complex(dtype: np.dtype) -> np.dtype:
    return dtype if is_complex(dtype) else np.dtype(f"complex{max(dtype.itemsize, 4) * 16}")


def poly(seq_of_zeros: Any) -> Any:
    """The polynomial with these roots and leading coefficient 1; of a square matrix its characteristic polynomial."""
    from fuser.numpy.linalg import eigvals

    (x,) = promote_inexact("poly", V.atleast_1d(as_value(seq_of_zeros, "poly")))
    if x.ndim == 2 and x.shape[0] == x.shape[1] and x.shape[0]:
        x = eigvals(x if x.dtype.itemsize >= 4 else convert(x, np.dtype(np.float32)))
    if x.ndim != 1:
        raise ValueError("input must be 1d or non-empty square 2d array.")
    if not x.shape[0]:
        return ones((), x.dtype)
    found = ones(1, x.dtype)
    for n in range(x.shape[0]):
        found = series.convolve(found, V.stack([ones((), x.dtype), -x[n]]), mode="full")
    return found


def polyfit(
    x: Any, y: Any, deg: int, rcond: float | None = None, full: bool = False, w: Any = None, cov: Any = False
) -> Any:
    """The polynomial of degree `deg` with least squared (weighted) distance from y (n,) or (n, k) at x (n,): (deg + 1, …).

    With `full` also residuals, rank, singular values and rcond; with `cov` also the covariance of the coefficients, scaled by
    the residuals unless cov="unscaled". ValueError for a negative degree, TypeError for shapes that do not fit.
    """
    from fuser.numpy.linalg import inv, lstsq

    if w is None:
        points, values = promote_inexact("polyfit", x, y)
        weights = None
    else:
        points, values, weights = promote_inexact("polyfit", x, y, w)
    deg = operator.index(deg)
    order = deg + 1
    _check_fit(deg, points, values, weights)
    if rcond is None:
        rcond = len(points) * float(dtypes.finfo(points.dtype).eps)
    left, right = vander(points, order), values
    if weights is not None:
        left = left * weights[:, None]
        right = right * (weights[:, None] if right.ndim == 2 else weights)
    scale = U.sqrt(R.sum(left * left, 0))
    left = left / scale
    found, residuals, rank, s = lstsq(left, right, rcond)
    found = (found.T / scale).T
    if full:
        return found, residuals, rank, s, asarray(rcond)
    if not cov:
        return found
    base = inv(left.T @ left) / outer(scale, scale)
    factor: Any = 1
    if cov != "unscaled":
        if len(points) <= order:
            raise ValueError("the number of data points must exceed order to scale the covariance matrix")
        factor = residuals / (len(points) - order)
        factor = factor[0] if values.ndim == 1 else factor
    return found, base * factor if values.ndim == 1 else base[..., None] * factor


def _check_fit(deg: int, points: Any, values: Any, weights: Any) -> None:
    if deg < 0:
        raise ValueError("expected deg >= 0")
    if points.ndim != 1:
        raise TypeError("expected 1D vector for x")
    if not points.size:
        raise TypeError("expected non-empty vector for x")
    if values.ndim not in (1, 2):
        raise TypeError("expected 1D or 2D array for y")
    if points.shape[0] != values.shape[0]:
        raise TypeError("expected x and y to have same length")
    if weights is not None and weights.ndim != 1:
        raise TypeError("expected a 1-d array for weights")
    if weights is not None and weights.shape[0] != values.shape[0]:
        raise TypeError("expected w and y to have the same length")


def unwrap(p: Any, discont: Any = None, axis: int = -1, period: Any = 2 * np.pi) -> Any:
    """`p` with whole periods added so that no step along `axis` exceeds `discont` (half a period unless told)."""
    x = as_value(p, "unwrap")
    if is_complex(x.dtype):
        raise ValueError("jnp.unwrap does not support complex inputs.")
    if dtypes.issubdtype(x.dtype, np.integer) and isinstance(period, int):
        whole = x
    else:
        (whole,) = promote_inexact("unwrap", x)
    if not x.size:
        return whole
    high = period // 2 if whole is x and dtypes.issubdtype(x.dtype, np.integer) else period / 2
    step = series.diff(whole, axis=axis)
    bound = high if discont is None else U.maximum(high, discont)
    wrapped = M.mod(step + high, period) - high
    wrapped = M.where((wrapped == -high) & (step > 0), high, wrapped)
    correction = M.where(U.abs(step) < bound, 0, wrapped - step)
    start = series.part(whole, axis % x.ndim, 0, 1)
    rest = series.part(whole, axis % x.ndim, 1, x.shape[axis]) + R.cumsum(correction, axis)
    return V.concatenate([start, rest.astype(whole.dtype)], axis)
