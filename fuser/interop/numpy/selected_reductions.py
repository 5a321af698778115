"""NumPy's reductions of `x[mask]` and `x[k:]`: over what counts alone. What is left of dimensions that vary varies still."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.interop.numpy.checks import exempted, notice, notice_new, notice_out_of_range
from fuser.interop.numpy.context import Context, to_dtype, untraceable
from fuser.interop.numpy.dispatch import FUNCTIONS, ON_SELECTED, Handler
from fuser.interop.numpy.selected import Selected, alike, box, unknown_shape
from fuser.interop.numpy.traced import TracedArray
from fuser.lax.values import literal
from fuser.numpy import reductions as R
from fuser.ops import elementwise as E
from fuser.ops import reduce as reductions
from fuser.trace.core import bind


def _of_selected(name: str) -> Handler:
    function = getattr(np, name)

    def handler(context: Context, a: Selected, axis: Any = None, dtype: Any = None, **more: Any) -> Any:
        given = {k: v for k, v in more.items() if v is not None}
        if given.keys() - ({"keepdims"} if a.along is not None else set()) and not _only_degrees(a, axis, given):
            raise untraceable(f"np.{name} of x[mask] takes no such options where the mask is traced")
        given |= {} if dtype is None else {"dtype": dtype}
        if a.along is None:
            if axis not in (None, 0, -1):
                raise untraceable(f"np.{name} of x[mask] takes no axis where the mask is traced")
            masks, left, reduced = [a.mask], {}, a.mask
        else:
            axes = _axes(a, axis)
            masks = [mask for d, mask in a.along.items() if d in axes]
            left = _left(a, axes, bool(given.get("keepdims")))
            reduced = box({d: mask for d, mask in a.along.items() if d in axes}, a.value.shape) if masks else None
            given |= {} if axis is None else {"axis": axis}
        if reduced is not None:
            given["where"] = TracedArray(context, reduced)
        if masks and name in ("max", "min"):
            for mask in masks:
                notice(bind(E.not_p, R.any(mask)))  # NumPy's ValueError
            given["initial"] = reductions.extreme(a.value.dtype, name)
        if not left:
            return FUNCTIONS[function](context, a.full(), **given)
        with exempted(masked=True):
            result = FUNCTIONS[function](context, a.full(), **given)
        found = Selected(result, along=left)
        notice_new(result.lifted(), found.mask)
        return found

    return handler


def _only_degrees(a: Selected, axis: Any, given: dict[str, Any]) -> bool:
    """Whether the options say no more than how many degrees of freedom a deviation has, and of each row that is selected."""
    return not given.keys() - {"ddof", "keepdims"} and a.along is not None and _axes(a, axis).isdisjoint(a.along)


def _axes(a: Selected, axis: Any) -> set[int]:
    rank = a.value.ndim
    return set(range(rank)) if axis is None else {int(d) % rank for d in (axis if isinstance(axis, tuple) else (axis,))}


def _left(a: Selected, axes: set[int], keepdims: bool) -> dict[int, Any]:
    """What still varies where these axes are reduced, by the dimension of the result."""
    assert a.along is not None
    moved = lambda d: d if keepdims else d - sum(x < d for x in axes)
    return {moved(d): mask for d, mask in a.along.items() if d not in axes}


for _name in ("sum", "prod", "max", "min", "mean", "var", "std", "all", "any"):
    ON_SELECTED[getattr(np, _name)] = _of_selected(_name)


def _count_selected(context: Context, a: Selected, axis: Any = None, **more: Any) -> TracedArray:
    if more or (axis is not None and (a.value.ndim > 1 or axis not in (0, -1))):
        raise untraceable("np.count_nonzero of x[mask] takes no axis and no options where the mask is traced")
    counted = R.sum(a.mask & (a.value != literal(0, a.value.dtype)), promote_integers=True)
    return TracedArray(context, to_dtype(counted, np.dtype(np.intp)), scalar=True)


ON_SELECTED[np.count_nonzero] = _count_selected


def _position(name: str) -> Handler:
    def handler(context: Context, a: Selected, axis: Any = None, **more: Any) -> TracedArray:
        if any(v is not None for v in more.values()) or axis not in (None, 0, -1) or a.value.ndim > 1:
            raise untraceable(f"np.{name} of such a selection cannot be traced")
        best = ON_SELECTED[getattr(np, name[3:])](context, a)
        full: Any = a.full()
        there = (full == best) | (full != full) if full.dtype.kind == "f" else full == best
        place, mask = np.arange(a.value.shape[0]), TracedArray(context, a.mask)
        before = place < np.min(np.where(there & mask, place, len(place)))  # type: ignore[call-overload]
        return np.count_nonzero(before & mask)  # type: ignore[return-value]

    return handler


for _name in ("argmax", "argmin"):
    ON_SELECTED[getattr(np, _name)] = _position(_name)


def _norm_of_selected(context: Context, x: Selected, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    if x.along is not None and axis is not None and _axes(x, axis).isdisjoint(x.along):
        with exempted(masked=True):
            result = FUNCTIONS[np.linalg.norm](context, x.full(), ord=ord, axis=axis, keepdims=keepdims)
        found = Selected(result, along=_left(x, _axes(x, axis), keepdims))
        notice_new(result.lifted(), found.mask)
        return found
    if x.along is None or ord is not None or axis is not None or keepdims:
        raise untraceable("np.linalg.norm along what a traced mask selects cannot be traced")
    return FUNCTIONS[np.linalg.norm](context, x.zeroed())


ON_SELECTED[np.linalg.norm] = _norm_of_selected


def _median_of_selected(context: Context, a: Selected, axis: Any = None) -> Any:
    """The median by a sort in which what does not count comes last; of integers in float64, as NumPy's."""
    full, mask = a.full(), TracedArray(context, a.mask)
    if axis not in (None, 0, -1) or full.ndim != 1 or full.dtype.kind not in "biuf":
        raise untraceable("np.median of such a selection cannot be traced")
    values: Any = full if full.dtype.kind == "f" else full.astype(np.float64)  # type: ignore[attr-defined]
    count: Any = np.count_nonzero(mask)
    notice((count == 0).lifted())
    ordered: Any = np.sort(np.where(mask, values, np.array(np.inf, values.dtype)))
    middle = (ordered[np.maximum(count - 1, 0) // 2] + ordered[count // 2 % max(full.size, 1)]) / 2
    return np.where(np.any(np.isnan(values) & mask), values.dtype.type(np.nan), middle)[()]


ON_SELECTED[np.median] = _median_of_selected


def _bincount_of_selected(context: Context, x: Any, /, weights: Any = None, minlength: int = 0) -> Any:
    """What a mask does not select is counted behind the other places."""
    like: Any = alike([x] if weights is None else [x, weights])
    if not isinstance(x, Selected) or not minlength or like.value.ndim != 1 or x.dtype.kind not in "iu":
        raise unknown_shape()
    mask: Any = TracedArray(context, like.mask)
    notice_out_of_range(np.where(mask, x.full(), 0).lifted(), minlength)  # type: ignore[attr-defined, call-overload]
    places: Any = np.where(mask, x.full(), minlength)  # type: ignore[call-overload]
    if weights is None:
        return np.bincount(places, minlength=minlength + 1)[:minlength].copy()
    if not isinstance(weights, Selected):
        raise unknown_shape()
    return np.bincount(places, np.where(mask, weights.full(), 0.0), minlength + 1)[:minlength].copy()  # type: ignore[call-overload]


ON_SELECTED[np.bincount] = _bincount_of_selected


# Products.


def product(context: Context, a: Any, b: Any) -> Any:
    """`a @ b`, of vectors and matrices of which parts are selected: zeros stand for what does not count."""
    ranks = [x.value.ndim if isinstance(x, Selected) else np.ndim(x) for x in (a, b)]
    if not set(ranks) <= {1, 2} or any(isinstance(x, Selected) and x.along is None for x in (a, b)):
        raise untraceable("a product of such a selection cannot be traced", "use np.where(mask, x, 0)")
    inner = ranks[0] - 1, 0
    along: list[Any] = [x.along if isinstance(x, Selected) else {} for x in (a, b)]
    shared = [masks.get(d) for masks, d in zip(along, inner)]
    if any(m is not None for m in shared) and (any(m is None for m in shared) or not context.same(*shared)):
        raise untraceable(
            "a product along x[mask] and y[other_mask] cannot be traced where the masks are not the same",
            "use one mask variable",
        )
    first, second = (x.zeroed() if isinstance(x, Selected) else x for x in (a, b))
    result: Any = np.matmul(first, second)
    left = {0: along[0][0]} if ranks[0] == 2 and 0 in along[0] else {}
    if ranks[1] == 2 and 1 in along[1]:
        left[result.ndim - 1] = along[1][1]
    return Selected(result, along=left) if left else result


def _dot(context: Context, a: Any, b: Any) -> Any:
    return np.multiply(a, b) if not np.ndim(_full(a)) or not np.ndim(_full(b)) else product(context, a, b)


def _inner(context: Context, a: Any, b: Any) -> Any:
    if np.ndim(_full(a)) != 1 or np.ndim(_full(b)) != 1:
        raise untraceable("np.inner of such selections cannot be traced", "use @")
    return product(context, a, b)


def _outer(context: Context, a: Any, b: Any) -> Any:
    if np.ndim(_full(a)) != 1 or np.ndim(_full(b)) != 1:
        raise untraceable("np.outer of such selections cannot be traced", "use a[:, None] * b")
    return np.multiply(a[:, None], b[None])


def _full(x: Any) -> Any:
    return x.full() if isinstance(x, Selected) else x


ON_SELECTED.update({np.dot: _dot, np.inner: _inner, np.outer: _outer})
