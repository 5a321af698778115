"""Reductions over axes: sums, products, extremes, logic, means and variances, positions, prefix scans.

`axis`, `keepdims`, `where`, `initial` and `dtype` work as in NumPy; dtypes as in JAX: small integers sum in the default
integer, and a mean divides by a literal count, so that it stays one kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.ir.dim import Dim
from fuser.ir.primitive import Primitive
from fuser.ir.source import current_source
from fuser.ir.types import BOOL, SMALL_FLOATS, bfloat16, is_complex, is_inexact, kind_of
from fuser.lax.small_dtypes import bind_wide, widened
from fuser.lax.values import as_value, axes_of, axis_of, broadcast_to, convert, literal, promote_inexact
from fuser.numpy import maths as M
from fuser.numpy import ufuncs as U
from fuser.ops import cumulative as C
from fuser.ops import elementwise as E
from fuser.ops import reduce as R
from fuser.ops.movement import broadcast_in_dim_p, reshape_p
from fuser.trace.core import bind, type_of

_HALVES = (np.dtype("float16"), bfloat16, *SMALL_FLOATS)


def _operand(a: Any, function: str) -> Any:
    """The operand with a strong type, which all results have."""
    x = as_value(a, function)
    return convert(x, x.dtype) if x.weak_type else x


def _initial(initial: Any, result: Any) -> Any:
    value = as_value(initial)
    if value.shape:
        raise ValueError(f"initial value must be a scalar. Got array of shape {value.shape}")
    return convert(value, result.dtype, result.weak_type)


def _kept(result: Any, shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> Any:
    if not keepdims or not axes:
        return result
    kept = tuple(1 if d in axes else e for d, e in enumerate(shape))
    return bind(
        broadcast_in_dim_p,
        result,
        shape=kept,
        broadcast_dimensions=tuple(d for d in range(len(shape)) if d not in axes),
    )


def _reduce(primitive: Primitive, x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    return _kept(bind_wide(primitive, x, axes=axes) if axes else x, x.shape, axes, keepdims)


def _mask(where: Any, function: str) -> Any:
    mask = as_value(where, function)
    if mask.dtype != BOOL:
        raise ValueError(
            f"jnp.{function}: where must be None or a boolean array, got {type_of(mask)}; compare it, as in x != 0"
        )
    return mask


def _masked(function: str, x: Any, where: Any, neutral: Any) -> Any:
    if where is None:
        return x
    mask = _mask(where, function)
    if mask.shape != x.shape:
        mask = broadcast_to(mask, x.shape)
    return M.select(mask, x, literal(neutral, x.dtype, x.weak_type))


def _summed_dtype(x: Any, dtype: Any) -> Any:
    """Sums and products of bools and small integers are made in the default integer of their sign."""
    if dtype is not None:
        return _requested(x, dtype, "a reduction")
    if is_inexact(x.dtype):
        return x
    default = dtypes.canonical(np.uint64 if kind_of(x.dtype) == "u" else np.int64)
    return x if x.dtype.itemsize >= default.itemsize else convert(x, default)


def _requested(x: Any, dtype: Any, function: str) -> Any:
    """`x` in the dtype that a reduction is asked to compute in; nonzero numbers are True."""
    wanted = dtypes.requested(dtype, function)
    return U.truth(x, function) if wanted == BOOL else convert(x, wanted)


def _accumulate(
    name: str, primitive: Primitive, for_bool: Primitive, neutral: Any, combine: Callable[..., Any], text: str
) -> Callable[..., Any]:
    def reduction(
        a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
        where: Any = None, promote_integers: bool = True,
    ) -> Any:  # fmt: skip
        x = _operand(a, name)
        axes = axes_of(axis, x.ndim, name)
        if dtype is None and x.dtype == BOOL:
            x = convert(x, dtypes.canonical(int))
        x = _summed_dtype(x, dtype) if promote_integers or dtype is not None else x
        given, weak = x.dtype, x.weak_type
        if dtype is None and given in _HALVES:  # in float32, with the initial value, and rounded once
            x = convert(x, np.dtype(np.float32), weak)
        chosen = for_bool if x.dtype == BOOL else primitive  # dtype=bool asks for the logical sum or product
        result = _reduce(chosen, _masked(name, x, where, neutral), axes, keepdims)
        if initial is not None:
            result = combine(_initial(initial, result), result)
        return result if result.dtype == given or dtype is not None else convert(result, given, weak)

    reduction.__name__ = reduction.__qualname__ = name
    reduction.__doc__ = text
    return reduction


sum = _accumulate(
    "sum", R.reduce_sum_p, R.reduce_or_p, 0, U.add, "The sum over `axis` (None: all), in `dtype` if given."
)
prod = _accumulate(
    "prod", R.reduce_prod_p, R.reduce_and_p, 1, U.multiply, "The product over `axis` (None: all), in `dtype` if given."
)


def _lowest(dtype: np.dtype) -> Any:
    return R.extreme(dtype, "max")


def _highest(dtype: np.dtype) -> Any:
    return R.extreme(dtype, "min")


def _extreme(
    name: str, primitive: Primitive, neutral: Callable[[np.dtype], Any], combine: Any, text: str
) -> Callable[..., Any]:
    def reduction(
        a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
    ) -> Any:
        given = _operand(a, name)
        x = widened(given)
        axes = axes_of(axis, x.ndim, name)
        if initial is None:
            if math.prod(x.shape[d] for d in axes) == 0:
                raise ValueError(
                    f"zero-size array to reduction operation {name} which has no identity: give it a value with initial="
                )
            if where is not None:
                raise ValueError(f"{name} with where= needs initial=, the value where nothing is chosen")
        if where is not None:
            x = _masked(name, x, where, np.asarray(neutral(x.dtype)).item())
        result = _reduce_extreme(primitive, x, axes, keepdims)
        if initial is not None:
            result = combine(_initial(initial, result), result)
        return convert(result, given.dtype) if x is not given else result

    reduction.__name__ = reduction.__qualname__ = name
    reduction.__doc__ = text
    return reduction


def _reduce_extreme(primitive: Primitive, x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if not is_complex(x.dtype):
        return _reduce(primitive, x, axes, keepdims)
    real, imag = M.real(x), M.imag(x)  # by real part, then imaginary part
    first = _reduce(primitive, real, axes, True)
    worst = _lowest(imag.dtype) if primitive is R.reduce_max_p else _highest(imag.dtype)
    second = _reduce(
        primitive, M.select(bind(E.eq_p, real, broadcast_to(first, x.shape)), imag, worst.item()), axes, keepdims
    )
    return bind(E.complex_p, _reduce(primitive, real, axes, keepdims), second)


max = amax = _extreme(
    "max",
    R.reduce_max_p,
    _lowest,
    U.maximum,
    "The greatest over `axis` (None: all); nan if any is nan. Equal ones share the derivative.",
)
min = amin = _extreme(
    "min",
    R.reduce_min_p,
    _highest,
    U.minimum,
    "The least over `axis` (None: all); nan if any is nan. Equal ones share the derivative.",
)


def all(a: Any, axis: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None) -> Any:
    """Whether every element over `axis` is nonzero."""
    x = convert(U.truth(a, "all"), BOOL)
    return _reduce(R.reduce_and_p, _masked("all", x, where, True), axes_of(axis, x.ndim, "all"), keepdims)


def any(a: Any, axis: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None) -> Any:
    """Whether some element over `axis` is nonzero."""
    x = convert(U.truth(a, "any"), BOOL)
    return _reduce(R.reduce_or_p, _masked("any", x, where, False), axes_of(axis, x.ndim, "any"), keepdims)


def count_nonzero(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """How many elements over `axis` are nonzero."""
    return sum(U.truth(a, "count_nonzero"), axis=axis, dtype=int, keepdims=keepdims)


def minmax(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> tuple[Any, Any]:
    """(the least, the greatest) over `axis`; `initial` may be a pair, of the least's and the greatest's."""
    low, high = initial if isinstance(initial, tuple) else (initial, initial)
    return min(a, axis, out, keepdims, low, where), max(a, axis, out, keepdims, high, where)


def ptp(a: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Any:
    """The greatest minus the least."""
    return U.subtract(max(a, axis, keepdims=keepdims), min(a, axis, keepdims=keepdims))


def _position(name: str, primitive: Primitive, text: str) -> Callable[..., Any]:
    def reduction(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Any:
        x = _operand(a, name)
        shape = x.shape
        if axis is None:
            axes = tuple(range(x.ndim))
            x, position = bind(reshape_p, x, new_sizes=(x.size,), dimensions=None) if x.ndim != 1 else x, 0
        else:
            position = axis_of(axis, x.ndim, name)
            axes = (position,)
        if x.shape[position] == 0:
            raise ValueError(
                f"attempt to get {name} of an empty sequence: {name} over an axis of extent 0 has no answer"
            )
        index_dtype = dtypes.canonical(int)
        return _kept(
            bind(primitive, widened(x), axes=(position,), index_dtype=index_dtype), shape, axes, bool(keepdims)
        )

    reduction.__name__ = reduction.__qualname__ = name
    reduction.__doc__ = text
    return reduction


argmax = _position("argmax", R.argmax_p, "The first position of the greatest element; of a nan where there is one.")
argmin = _position("argmin", R.argmin_p, "The first position of the least element; of a nan where there is one.")


# Means and variances.


def _float_dtype(x: Any, dtype: Any) -> np.dtype:
    return dtypes.requested(dtype, "mean") if dtype is not None else dtypes.inexact_of(x.dtype)


def _count(x: Any, axes: tuple[int, ...], where: Any, keepdims: bool) -> Any:
    """How many elements a mean divides by: a Python number, or counts where a mask chooses."""
    if where is None:
        count = math.prod(x.shape[d] for d in axes)
        return count if type(count) is Dim else float(count)
    mask = broadcast_to(_mask(where, "mean"), x.shape)
    return sum(mask, axis=axes, dtype=int, keepdims=keepdims)


def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None
) -> Any:
    """The arithmetic mean over `axis`, in `dtype` if given; else halves are summed and divided in float32 and rounded once."""
    x = _operand(a, "mean")
    axes = axes_of(axis, x.ndim, "mean")
    result_dtype = _float_dtype(x, dtype)
    wide = np.dtype("float32") if dtype is None and result_dtype in _HALVES else result_dtype
    summed = None if dtype is None else wide  # who asks for a dtype has the sum in it
    total = sum(convert(x, wide), axis=axes, dtype=summed, keepdims=keepdims, where=where)
    count = _count(x, axes, where, keepdims)
    divisor = literal(count, wide) if isinstance(count, (float, Dim)) else convert(count, wide)
    return convert(bind(E.div_p, total, divisor), result_dtype)


def var(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: int = 0, keepdims: bool = False, *,
    where: Any = None, mean: Any = None, correction: Any = None,
) -> Any:  # fmt: skip
    """The mean of |a - mean|² with `ddof` (or `correction`) taken off the count."""
    if correction is not None:
        ddof = correction
    x = _operand(a, "var")
    axes = axes_of(axis, x.ndim, "var")
    wide, result_dtype = _var_dtypes("var", x, dtype)
    x = convert(x, wide)
    centre = (
        globals()["mean"](x, axes, wide, keepdims=True, where=where) if mean is None else convert(as_value(mean), wide)
    )
    squares = _squares(U.subtract(x, centre))
    total = sum(squares, axis=axes, dtype=squares.dtype, keepdims=keepdims, where=where)
    count = _count(x, axes, where, keepdims)
    if not is_inexact(total.dtype):  # a dtype of integers divides as they do
        divisor = U.subtract(int(count) if isinstance(count, (float, Dim)) else count, ddof)
        return M.where(U.greater(divisor, 0), bind(E.div_p, total, convert(as_value(divisor), total.dtype)), np.nan)
    divisor = (
        literal(count - ddof if count > ddof else np.nan, total.dtype) if isinstance(count, (float, Dim)) else None
    )
    if divisor is None:
        divisor = convert(U.subtract(count, ddof), total.dtype)
        divisor = M.select(U.greater(divisor, 0), divisor, np.nan)
    return convert(bind(E.div_p, total, divisor), result_dtype)


def _var_dtypes(function: str, x: Any, dtype: Any) -> tuple[np.dtype, np.dtype]:
    """The dtypes that a variance is computed in, and given in."""
    computed = _float_dtype(x, dtype)
    if is_complex(x.dtype) and not is_complex(computed):
        raise ValueError(
            f"{function} of complex numbers takes no real dtype, got {computed.name}; take the real part of the result"
        )
    given = np.dtype(f"float{computed.itemsize * 4}") if is_complex(computed) and dtype is None else computed
    return np.dtype("float32") if computed in _HALVES else computed, given


def _squares(x: Any) -> Any:
    """|x|² for each element, real."""
    return M.real(U.multiply(x, M.conj(x))) if is_complex(x.dtype) else U.square(x)


def std(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: int = 0, keepdims: bool = False, *,
    where: Any = None, mean: Any = None, correction: Any = None,
) -> Any:  # fmt: skip
    """The square root of `var`; its derivative where all elements are equal is nan."""
    return U.sqrt(var(a, axis, dtype, out, ddof, keepdims, where=where, mean=mean, correction=correction))


def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, keepdims: bool = False) -> Any:
    """The mean weighted by `weights`, of the shape of `a` or 1-D along `axis`; with the sum of weights if `returned`."""
    from fuser.numpy.creation import full_like
    from fuser.numpy.movement import expand_dims

    if weights is None:
        x = U.inexact_operand("average", a)
        result = mean(x, axis, keepdims=keepdims)
        count = _count(x, axes_of(axis, x.ndim, "average"), None, keepdims)
        return (result, full_like(result, literal(count, result.dtype))) if returned else result
    x, w = promote_inexact("average", a, weights)
    if w.shape != x.shape:
        if axis is None or w.ndim != 1 or w.shape[0] != x.shape[axis_of(axis, x.ndim, "average")]:
            raise ValueError(
                f"average: weights of shape {w.shape} fit neither the array's shape {x.shape} nor one axis of it"
            )
        position = axis_of(axis, x.ndim, "average")
        w = broadcast_to(expand_dims(w, tuple(d for d in range(x.ndim) if d != position)), x.shape)
    total = sum(w, axis, keepdims=keepdims)
    result = U.divide(sum(U.multiply(x, w), axis, keepdims=keepdims), total)
    return (result, broadcast_to(total, result.shape)) if returned else result


# Prefix scans.


def _running(name: str, primitive: Primitive, promotes: bool, text: str) -> Callable[..., Any]:
    def cumulative(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
        x = _operand(a, name)
        if axis is None:
            x = bind(reshape_p, x, new_sizes=(x.size,), dimensions=None) if x.ndim != 1 else x
            axis = 0
        wanted = None if dtype is None else dtypes.requested(dtype, name)
        if wanted == BOOL:  # counted in integers: whether something nonzero has come
            x = convert(U.truth(x, name), dtypes.canonical(int))
        elif wanted is not None:
            x = convert(x, wanted)
        elif x.dtype == BOOL or (promotes and not is_inexact(x.dtype)):
            x = _summed_dtype(x, None)
        result = bind_wide(primitive, x, axis=axis_of(axis, x.ndim, name), reverse=False)
        return U.truth(result, name) if wanted == BOOL else result

    cumulative.__name__ = cumulative.__qualname__ = name
    cumulative.__doc__ = text
    return cumulative


cumsum = _running("cumsum", C.cumsum_p, False, "The running sum along `axis` (None: of the flattened array).")
cumprod = _running("cumprod", C.cumprod_p, False, "The running product along `axis` (None: of the flattened array).")


def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """The running sum along `axis`, with a zero in front if `include_initial`."""
    return _with_initial(cumsum, x, axis, dtype, include_initial, 0)


def cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """The running product along `axis`, with a one in front if `include_initial`."""
    return _with_initial(cumprod, x, axis, dtype, include_initial, 1)


def _with_initial(function: Any, x: Any, axis: int | None, dtype: Any, include: bool, first: int) -> Any:
    from fuser.numpy.creation import full
    from fuser.numpy.movement import concatenate

    x = as_value(x, "cumulative_sum" if function is cumsum else "cumulative_prod")
    if not x.ndim:
        what = "sum" if function is cumsum else "product"
        raise ValueError(
            f"The input must be non-scalar to take a cumulative {what}, however a scalar value or scalar array was given; "
            f"make it an array of rank 1 ({current_source().short})"
        )
    if axis is None and x.ndim != 1:
        raise ValueError(
            f"The input array has rank {x.ndim}, however axis was not set to an explicit value. The axis argument is only "
            "optional for one-dimensional arrays."
        )
    axis = axis_of(axis or 0, x.ndim)
    out = function(_summed_dtype(x, None) if function is cumsum and dtype is None else x, axis, dtype)
    if not include:
        return out
    shape = (*out.shape[:axis], 1, *out.shape[axis + 1 :])
    return concatenate([full(shape, first, dtype=out.dtype), out], axis)


# Ignoring nan.


def _without_nan(name: str, a: Any, neutral: Any) -> tuple[Any, Any]:
    x = _operand(a, name)
    if not is_inexact(x.dtype):
        return x, None
    missing = M.isnan(x)
    value = neutral(x.dtype).item() if callable(neutral) else neutral
    return M.select(missing, literal(value, x.dtype, x.weak_type), x), missing


def nansum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    """The sum with nan counted as 0."""
    mask = None if where is None else _mask(where, "nansum")
    return sum(_without_nan("nansum", a, 0)[0], axis, dtype, None, keepdims, initial, mask)


def nanprod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    """The product with nan counted as 1."""
    mask = None if where is None else _mask(where, "nanprod")
    return prod(_without_nan("nanprod", a, 1)[0], axis, dtype, None, keepdims, initial, mask)


def nanmax(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Any:
    """The greatest that is not nan (nor less than `initial`, where given); nan where all are, without `initial`."""
    x, missing = _without_nan("nanmax", a, _lowest)
    mask = None if where is None else _mask(where, "nanmax")
    result = max(x, axis, None, keepdims, initial, mask)
    return (
        result
        if missing is None or initial is not None
        else M.select(all(missing, axis, keepdims=keepdims), np.nan, result)
    )


def nanmin(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Any:
    """The least that is not nan (nor greater than `initial`, where given); nan where all are, without `initial`."""
    x, missing = _without_nan("nanmin", a, _highest)
    mask = None if where is None else _mask(where, "nanmin")
    result = min(x, axis, None, keepdims, initial, mask)
    return (
        result
        if missing is None or initial is not None
        else M.select(all(missing, axis, keepdims=keepdims), np.nan, result)
    )


def nanargmax(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Any:
    """The position of the greatest that is not nan; -1 where all are."""
    x, missing = _without_nan("nanargmax", a, lambda d: _lowest(d))
    result = argmax(x, axis, None, keepdims)
    return result if missing is None else M.where(all(missing, axis, keepdims=bool(keepdims)), -1, result)


def nanargmin(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Any:
    """The position of the least that is not nan; -1 where all are."""
    x, missing = _without_nan("nanargmin", a, lambda d: _highest(d))
    result = argmin(x, axis, None, keepdims)
    return result if missing is None else M.where(all(missing, axis, keepdims=bool(keepdims)), -1, result)


def nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, where: Any = None
) -> Any:
    """The mean of what is not nan; nan where all are."""
    x = as_value(a, "nanmean")
    if not is_inexact(x.dtype):
        return mean(x, axis, dtype, None, keepdims, where=where)
    present = U.logical_not(M.isnan(x))
    if where is not None:
        present = U.logical_and(present, _mask(where, "nanmean"))
    computed = _float_dtype(x, dtype)
    total = nansum(x, axis, computed, None, keepdims, None, where)
    return bind(E.div_p, total, sum(present, axis, computed, keepdims=keepdims))


def nanvar(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    where: Any = None,
    mean: Any = None,
) -> Any:
    """The variance of what is not nan."""
    x = _operand(a, "nanvar")
    wide, result_dtype = _var_dtypes("nanvar", x, dtype)
    x = convert(x, wide)
    present = U.logical_not(M.isnan(x))
    if where is not None:
        present = U.logical_and(present, _mask(where, "nanvar"))
    centre = nanmean(x, axis, wide, keepdims=True, where=where) if mean is None else convert(as_value(mean), wide)
    squares = _squares(M.where(present, U.subtract(x, centre), 0))
    count = U.subtract(sum(present, axis, keepdims=keepdims), ddof)
    none = U.less_equal(count, 0)
    total = M.where(none, np.nan, sum(squares, axis, keepdims=keepdims))
    return convert(bind(E.div_p, total, convert(M.where(none, 1, count), total.dtype)), result_dtype)


def nanstd(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    where: Any = None,
    mean: Any = None,
) -> Any:
    """The standard deviation of what is not nan."""
    mask = None if where is None else _mask(where, "nanstd")
    return U.sqrt(nanvar(a, axis, dtype, None, ddof, keepdims, mask, mean))


def nancumsum(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
    """The running sum with nan counted as 0."""
    return cumsum(_without_nan("nancumsum", a, 0)[0], axis, dtype)


def nancumprod(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
    """The running product with nan counted as 1."""
    return cumprod(_without_nan("nancumprod", a, 1)[0], axis, dtype)
