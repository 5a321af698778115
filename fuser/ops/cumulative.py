"""Prefix scans along one axis: cumsum, cumprod, cummax, cummin, cumlogsumexp; forwards or from the end.

Derivatives: cumsum is linear; cumprod and cumlogsumexp have a linear recurrence `h[k] = a[k]·h[k-1] + b[k]`, which an
associative scan solves without a division; cummax and cummin are differentiated through that scan, as in JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.scalar import convert
from fuser.ir.types import COMPLEX, FLOATS, INTEGERS, ArrayType, is_inexact, sum_dtype
from fuser.ops.elementwise import add_p, eq_p, exp_p, max_p, min_p, mul_p, select_n_p, sub_p
from fuser.ops.family import allow, sample
from fuser.ops.movement import concatenate_p, pad_p, reshaped, rev_p, slice_p
from fuser.ops.sums import running_sum
from fuser.trace.core import type_of
from fuser.trace.jvp import jvp as differentiate_function
from fuser.trace.tangent import full


def cumulative(
    name: str,
    reduction: str,
    function: Any,
    dtypes: tuple[np.dtype, ...],
    linear: bool = False,
    jvp: Any = None,
    transpose: Any = None,
) -> Primitive:
    """A primitive that gives every partial result of a reduction along `axis`."""

    def infer(x: ArrayType, axis: int, reverse: bool = False) -> ArrayType:
        allow(name, x, dtypes)
        if not 0 <= axis < x.ndim:
            raise TypeRuleError(f"{name} of {x} has no axis {axis}")
        return x

    def evaluate(x: np.ndarray, axis: int, reverse: bool = False) -> np.ndarray:
        wide = x.astype(sum_dtype(x.dtype), copy=False)
        wide = np.flip(wide, axis) if reverse else wide
        if reduction == "sum" and is_inexact(x.dtype):
            out = running_sum(wide, axis)
        else:
            out = function.accumulate(wide, axis=axis, dtype=wide.dtype)
        return convert(np.flip(out, axis) if reverse else out, x.dtype)

    def samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        rng = np.random.default_rng(0)
        for dtype in dtypes:
            for shape, axis in (((9,), 0), ((4, 5), 1), ((4, 5), 0), ((2, 3, 4), 1)):
                yield (sample(rng, shape, dtype),), {"axis": axis, "reverse": axis == 1}

    primitive = Primitive(
        name,
        Fusion.SCAN,
        linear=linear,
        type=infer,
        eval=evaluate,
        lower=lambda axis, reverse=False: (reduction, axis, reverse),
        jvp=jvp,
        transpose=transpose,
        samples=samples,
    )

    def batch(operands: Any, dims: Any, axis: int, reverse: bool = False) -> tuple[Any, int]:
        return primitive.bind(*operands, axis=axis + (dims[0] <= axis), reverse=reverse), dims[0]

    primitive.batch = batch
    return register(primitive)


# Associative scans, made of primitives so that they differentiate to any order.


def _cut(x: Any, axis: int, start: int, end: int, step: int = 1) -> Any:
    """x[start:end:step] along one axis."""
    starts, limits, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
    starts[axis], limits[axis], steps[axis] = start, end, step
    return slice_p.bind(x, start_indices=tuple(starts), limit_indices=tuple(limits), strides=tuple(steps))


def _interleaved(even: Any, odd: Any, axis: int) -> Any:
    """even[0], odd[0], even[1], odd[1], … along one axis."""
    paired = odd.shape[axis]
    wide = [reshaped(x, (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :])) for x in (_cut(even, axis, 0, paired), odd)]
    shape = (*odd.shape[:axis], 2 * paired, *odd.shape[axis + 1 :])
    out = reshaped(concatenate_p.bind(*wide, dimension=axis + 1), shape)
    if even.shape[axis] == paired:
        return out
    return concatenate_p.bind(out, _cut(even, axis, paired, paired + 1), dimension=axis)


def associative(combine: Callable[..., list[Any]], values: Sequence[Any], axis: int) -> list[Any]:
    """All partial results of an associative function of tuples; pairs are combined first, in a tree of depth log2(n).

    Blelloch, "Prefix sums and their applications" (1990).
    """
    count = values[0].shape[axis]
    if count < 2:
        return list(values)
    pairs = combine(
        [_cut(x, axis, 0, count - 1, 2) for x in values],
        [_cut(x, axis, 1, count, 2) for x in values],
    )
    odd = associative(combine, pairs, axis)
    first = [_cut(x, axis, 0, 1) for x in values]
    if count < 3:
        even = first
    else:
        rest = combine(
            [_cut(x, axis, 0, (count - 1) // 2) for x in odd],
            [_cut(x, axis, 2, count, 2) for x in values],
        )
        even = [concatenate_p.bind(f, r, dimension=axis) for f, r in zip(first, rest)]
    return [_interleaved(e, o, axis) for e, o in zip(even, odd)]


def directed(function: Callable[..., list[Any]], values: Sequence[Any], axis: int, reverse: bool) -> list[Any]:
    """A function that runs forwards along `axis`, run from the end if `reverse`."""
    if not reverse:
        return function(values)
    flipped = [rev_p.bind(x, dimensions=(axis,)) for x in values]
    return [rev_p.bind(x, dimensions=(axis,)) for x in function(flipped)]


def recurrence(a: Any, b: Any, axis: int, reverse: bool) -> Any:
    """h with h[k] = a[k]·h[k-1] + b[k] along `axis`, from h[-1] = 0; from the end if `reverse`. Linear in `b`."""

    def combine(first: list[Any], second: list[Any]) -> list[Any]:
        (a1, b1), (a2, b2) = first, second
        return [mul_p.bind(a1, a2), add_p.bind(mul_p.bind(a2, b1), b2)]

    return directed(lambda values: associative(combine, values, axis), (a, b), axis, reverse)[1]


def _before(out: Any, axis: int, reverse: bool, start: float) -> Any:
    """The partial result without the element itself; `start` where there is none."""
    config = [(0, 0, 0)] * out.ndim
    config[axis] = (-1, 1, 0) if reverse else (1, -1, 0)
    return pad_p.bind(out, full(type_of(out).update(shape=(), weak_type=False), start), padding_config=tuple(config))


def _product_jvp(t: Any, x: Any, out: Any, axis: int, reverse: bool = False) -> Any:
    return recurrence(x, mul_p.bind(_before(out, axis, reverse, 1), t), axis, reverse)


def _log_sum_jvp(t: Any, x: Any, out: Any, axis: int, reverse: bool = False) -> Any:
    """Weights exp(x - out) of elements and exp(before - out) of what came before."""
    aval = type_of(out).update(shape=(), weak_type=False)
    zero, infinity, nothing = full(aval, 0), full(aval, np.inf), eq_p.bind(out, full(aval, -np.inf))

    def weight(part: Any) -> Any:
        """+inf counts as 0, as in JAX; where all is -inf all have the same weight."""
        finite = (select_n_p.bind(eq_p.bind(v, infinity), v, zero) for v in (part, out))
        return exp_p.bind(select_n_p.bind(nothing, sub_p.bind(*finite), zero))

    keep = weight(_before(out, axis, reverse, -np.inf))
    return recurrence(keep, mul_p.bind(weight(x), t), axis, reverse)


def _extreme_jvp(primitive: Primitive) -> Any:
    """The derivative through an associative scan of max or min; at ties it goes half to each side of each pair."""

    def rule(primals: Any, tangents: Any, axis: int, reverse: bool = False) -> tuple[Any, Any]:
        def scan(x: Any) -> list[Any]:
            combine = lambda first, second: [primitive.bind(*first, *second)]
            return directed(lambda values: associative(combine, values, axis), (x,), axis, reverse)

        (out,), (tangent,) = differentiate_function(scan, primals, tangents)
        return out, tangent

    return rule


NUMBERS = (*INTEGERS, *FLOATS, *COMPLEX)
cumsum_p: Primitive = cumulative(
    "cumsum",
    "sum",
    np.add,
    NUMBERS,
    linear=True,
    transpose=lambda ct, x, axis, reverse=False: (cumsum_p.bind(ct, axis=axis, reverse=not reverse),),
)
cumprod_p = cumulative("cumprod", "prod", np.multiply, NUMBERS, jvp=(_product_jvp,))
cummax_p = cumulative("cummax", "max", np.maximum, (*INTEGERS, *FLOATS), jvp=_extreme_jvp(max_p))
cummin_p = cumulative("cummin", "min", np.minimum, (*INTEGERS, *FLOATS), jvp=_extreme_jvp(min_p))
cumlogsumexp_p = cumulative("cumlogsumexp", "logaddexp", np.logaddexp, FLOATS, jvp=(_log_sum_jvp,))
