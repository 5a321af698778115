"""Reductions: sum, prod, max, min, and, or, xor over axes, and the positions of extremes.

`lower` names the fold and the axes. float16 and bfloat16 accumulate in float32, as in every backend.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.scalar import convert
from fuser.ir.types import BOOL, COMPLEX, FLOATS, INTEGERS, ArrayType, bfloat16
from fuser.ops.family import allow, sample

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


def reduction(name: str, fold: str, function: Any, dtypes: tuple[np.dtype, ...], linear: bool = False) -> Primitive:
    """A primitive that folds over `axes` with one of the kernel's folds."""

    def infer(x: ArrayType, axes: Any) -> ArrayType:
        allow(name, x, dtypes)
        return ArrayType(reduced_shape(name, x, axes), x.dtype, x.weak_type)

    def evaluate(x: np.ndarray, axes: Any) -> np.ndarray:
        wide = x.astype(np.float32) if x.dtype in (FLOATS[0], bfloat16) else x
        if fold in ("max", "min"):
            lowest = _extreme(wide.dtype, fold)
            return convert(function.reduce(wide, axis=tuple(axes), initial=lowest), x.dtype)
        return convert(function.reduce(wide, axis=tuple(axes), dtype=wide.dtype), x.dtype)

    def samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        rng = np.random.default_rng(0)
        for dtype in dtypes:
            for shape, axes in AXES:
                yield (sample(rng, shape, dtype),), {"axes": axes}

    return register(
        Primitive(
            name,
            Fusion.REDUCE,
            linear=linear,
            type=infer,
            eval=evaluate,
            lower=lambda axes: (fold, tuple(axes)),
            samples=samples,
        )
    )


def _extreme(dtype: np.dtype, fold: str) -> Any:
    """The value that a max or min over nothing has."""
    if dtype == BOOL:
        return fold == "min"
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return dtype.type(info.min if fold == "max" else info.max)
    return dtype.type(-np.inf if fold == "max" else np.inf)


NUMBERS = (*INTEGERS, *FLOATS, *COMPLEX)
REALS = (BOOL, *INTEGERS, *FLOATS)

reduce_sum_p = reduction("reduce_sum", "sum", np.add, NUMBERS, linear=True)
reduce_prod_p = reduction("reduce_prod", "prod", np.multiply, NUMBERS)
reduce_max_p = reduction("reduce_max", "max", np.maximum, REALS)
reduce_min_p = reduction("reduce_min", "min", np.minimum, REALS)
reduce_and_p = reduction("reduce_and", "and", np.bitwise_and, (BOOL, *INTEGERS))
reduce_or_p = reduction("reduce_or", "or", np.bitwise_or, (BOOL, *INTEGERS))
reduce_xor_p = reduction("reduce_xor", "xor", np.bitwise_xor, (BOOL, *INTEGERS))


def _position(name: str, fold: str) -> Primitive:
    """argmax and argmin: the first position of the extreme along one axis; a nan counts as the extreme."""

    def infer(x: ArrayType, axes: Any, index_dtype: Any) -> ArrayType:
        allow(name, x, REALS)
        if len(axes) != 1:
            raise TypeRuleError(f"{name} of {x} takes one axis, got {tuple(axes)}")
        shape = reduced_shape(name, x, axes)
        if x.shape[axes[0]] == 0:
            raise TypeRuleError(f"{name} of {x} along an empty axis {axes[0]} has no answer")
        return ArrayType(shape, np.dtype(index_dtype))

    def evaluate(x: np.ndarray, axes: Any, index_dtype: Any) -> np.ndarray:
        wide = x.astype(np.float32) if x.dtype in (FLOATS[0], bfloat16) else x
        function = np.argmax if fold == "argmax" else np.argmin
        return function(wide, axis=axes[0]).astype(index_dtype)

    def samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        rng = np.random.default_rng(0)
        for dtype in REALS:
            for shape, axes in AXES:
                if len(axes) == 1:
                    yield (sample(rng, shape, dtype),), {"axes": axes, "index_dtype": np.dtype("int32")}

    return register(
        Primitive(
            name,
            Fusion.REDUCE,
            type=infer,
            eval=evaluate,
            lower=lambda axes, index_dtype: (fold, tuple(axes)),
            samples=samples,
        )
    )


argmax_p = _position("argmax", "argmax")
argmin_p = _position("argmin", "argmin")
