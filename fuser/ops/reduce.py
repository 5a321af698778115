"""Reductions: sum, prod, max, min, and, or, xor over axes, and the positions of extremes.

`lower` names the reduction and the axes. float16 and bfloat16 accumulate in float32, as in every backend. The derivative of a
max is shared equally by all elements that attain it; that of a product is right where elements are zero.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.scalar import convert
from fuser.ir.types import BOOL, COMPLEX, FLOATS, INTEGERS, ArrayType, is_inexact, sum_dtype
from fuser.ops.cumulative import cumprod_p
from fuser.ops.elementwise import convert_element_type_p, eq_p
from fuser.ops.family import allow, sample
from fuser.ops.movement import broadcast_in_dim_p, pad_p, reshaped, shifted, transpose_p
from fuser.ops.sums import in_one_step, pairwise_sum
from fuser.trace.core import type_of
from fuser.trace.tangent import full

AXES = (
    ((5, 7), (1,)),
    ((5, 7), (0,)),
    ((5, 7), (0, 1)),
    ((2, 3, 4), (0, 2)),
    ((2, 3, 4), (1,)),
    ((4,), ()),
    ((4, 4), (0,)),
)


def reduced_shape(name: str, x: ArrayType, axes: Any) -> tuple[int, ...]:
    """The shape that is left; TypeRuleError for axes that repeat or do not exist."""
    if len(set(axes)) != len(axes) or any(not 0 <= a < x.ndim for a in axes):
        raise TypeRuleError(f"{name} of {x} needs distinct axes below {x.ndim}, got {tuple(axes)}")
    return tuple(e for d, e in enumerate(x.shape) if d not in axes)


def batch_reduction(primitive: Primitive) -> Any:
    """The batch rule of a primitive that reduces over `axes`."""

    def rule(operands: Any, dims: Any, axes: Any, **params: Any) -> tuple[Any, int]:
        dim = dims[0]
        inner = shifted(axes, dim)
        return primitive.bind(*operands, axes=inner, **params), dim - sum(a < dim for a in inner)

    return rule


def spread(x: Any, shape: tuple[int, ...], axes: Any) -> Any:
    """What a reduction over `axes` gave, repeated along them."""
    kept = tuple(d for d in range(len(shape)) if d not in axes)
    return broadcast_in_dim_p.bind(x, shape=shape, broadcast_dimensions=kept)


def reduction(
    name: str,
    reduction: str,
    function: Any,
    dtypes: tuple[np.dtype, ...],
    linear: bool = False,
    jvp: Any = None,
    transpose: Any = None,
) -> Primitive:
    """A primitive that reduces over `axes` by one of the kernel's reductions."""

    def infer(x: ArrayType, axes: Any) -> ArrayType:
        allow(name, x, dtypes)
        return ArrayType(reduced_shape(name, x, axes), x.dtype, x.weak_type)

    def evaluate(x: np.ndarray, axes: Any) -> np.ndarray:
        wide = x.astype(sum_dtype(x.dtype), copy=False)
        if reduction in ("max", "min"):
            lowest = extreme(wide.dtype, reduction)
            return convert(function.reduce(wide, axis=tuple(axes), initial=lowest), x.dtype)
        if reduction == "sum" and is_inexact(x.dtype):
            return convert(pairwise_sum(wide, tuple(axes)), x.dtype)
        return convert(function.reduce(wide, axis=tuple(axes), dtype=wide.dtype), x.dtype)

    def planned(x: ArrayType, axes: Any) -> Any:
        if sum_dtype(x.dtype) != x.dtype:
            return None
        axes = tuple(axes)
        if reduction in ("max", "min"):
            return functools.partial(function.reduce, axis=axes, initial=extreme(x.dtype, reduction))
        if reduction == "sum" and is_inexact(x.dtype) and not in_one_step(x, axes):
            return None
        return functools.partial(function.reduce, axis=axes, dtype=x.dtype)

    def samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        rng = np.random.default_rng(0)
        for dtype in dtypes:
            for shape, axes in AXES:
                yield (sample(rng, shape, dtype),), {"axes": axes}

    primitive = Primitive(
        name,
        Fusion.REDUCE,
        linear=linear,
        type=infer,
        eval=evaluate,
        planned=planned,
        lower=lambda axes: (reduction, tuple(axes)),
        jvp=jvp,
        transpose=transpose,
        samples=samples,
    )
    primitive.batch = batch_reduction(primitive)
    return register(primitive)


def _chosen(t: Any, x: Any, out: Any, axes: Any) -> Any:
    """The mean of the tangents of all elements that are the extreme."""
    here = eq_p.bind(x, spread(out, x.shape, axes))
    share = convert_element_type_p.bind(here, new_dtype=t.dtype, weak_type=False)
    return reduce_sum_p.bind(t * share, axes=axes) / reduce_sum_p.bind(share, axes=axes)


def _product_jvp(t: Any, x: Any, out: Any, axes: Any) -> Any:
    """Each tangent times the product of the other elements: those before it times those after it."""
    kept = tuple(d for d in range(x.ndim) if d not in axes)
    order = (*kept, *axes)
    shape = (*(x.shape[d] for d in kept), int(np.prod([x.shape[d] for d in axes], dtype=np.int64)))
    x, t = (reshaped(transpose_p.bind(v, permutation=order), shape) for v in (x, t))
    last = len(kept)
    one = full(type_of(x).update(shape=(), weak_type=False), 1)
    outside = tuple((0, 0, 0) for _ in kept)
    before = pad_p.bind(cumprod_p.bind(x, axis=last, reverse=False), one, padding_config=(*outside, (1, -1, 0)))
    after = pad_p.bind(cumprod_p.bind(x, axis=last, reverse=True), one, padding_config=(*outside, (-1, 1, 0)))
    return reduce_sum_p.bind(t * (before * after), axes=(last,))


def extreme(dtype: np.dtype, reduction: str) -> Any:
    """The value that a max or min over nothing has."""
    if dtype == BOOL:
        return reduction == "min"
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return dtype.type(info.min if reduction == "max" else info.max)
    return dtype.type(-np.inf if reduction == "max" else np.inf)


NUMBERS = (*INTEGERS, *FLOATS, *COMPLEX)
REALS = (BOOL, *INTEGERS, *FLOATS)

reduce_sum_p: Primitive = reduction(
    "reduce_sum",
    "sum",
    np.add,
    NUMBERS,
    linear=True,
    transpose=lambda ct, x, axes: (spread(ct, x.aval.shape, axes),),
)
reduce_prod_p = reduction("reduce_prod", "prod", np.multiply, NUMBERS, jvp=(_product_jvp,))
reduce_max_p = reduction("reduce_max", "max", np.maximum, REALS, jvp=(_chosen,))
reduce_min_p = reduction("reduce_min", "min", np.minimum, REALS, jvp=(_chosen,))
reduce_and_p = reduction("reduce_and", "and", np.bitwise_and, (BOOL, *INTEGERS))
reduce_or_p = reduction("reduce_or", "or", np.bitwise_or, (BOOL, *INTEGERS))
reduce_xor_p = reduction("reduce_xor", "xor", np.bitwise_xor, (BOOL, *INTEGERS))


def _position(name: str, reduction: str) -> Primitive:
    """argmax and argmin: the first position of the extreme along one axis; a nan counts as the extreme."""

    def infer(x: ArrayType, axes: Any, index_dtype: Any) -> ArrayType:
        allow(name, x, REALS)
        if len(axes) != 1:
            raise TypeRuleError(f"{name} of {x} takes one axis, got {tuple(axes)}")
        if not 0 <= axes[0] < x.ndim:
            raise TypeRuleError(
                f"Invalid axis {axes[0]} for operand shape {x.shape}: {name} needs one from 0 to {x.ndim - 1}"
            )
        if np.dtype(index_dtype).kind not in "iu":
            raise TypeRuleError(f"index_dtype must be an integer type, but got {np.dtype(index_dtype).name} in {name}")
        shape = reduced_shape(name, x, axes)
        if x.shape[axes[0]] == 0:
            raise TypeRuleError(
                f"{name} require non-empty reduced dimension: {x} along the empty axis {axes[0]} has no answer"
            )
        return ArrayType(shape, np.dtype(index_dtype))

    def evaluate(x: np.ndarray, axes: Any, index_dtype: Any) -> np.ndarray:
        wide = x.astype(sum_dtype(x.dtype), copy=False)
        function = np.argmax if reduction == "argmax" else np.argmin
        return function(wide, axis=axes[0]).astype(index_dtype)

    def samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        rng = np.random.default_rng(0)
        for dtype in REALS:
            for shape, axes in AXES:
                if len(axes) == 1:
                    yield (sample(rng, shape, dtype),), {"axes": axes, "index_dtype": np.dtype("int32")}

    primitive = Primitive(
        name,
        Fusion.REDUCE,
        type=infer,
        eval=evaluate,
        lower=lambda axes, index_dtype: (reduction, tuple(axes)),
        samples=samples,
    )
    primitive.batch = batch_reduction(primitive)
    return register(primitive)


argmax_p = _position("argmax", "argmax")
argmin_p = _position("argmin", "argmin")
