"""Sorting along one dimension: sort (several operands, the first `num_keys` are keys) and top_k; library calls.

The order is JAX's: numbers ascend, -0.0 equals 0.0, nan comes last, complex numbers compare by real part first; top_k
tells zeros and nans apart by their bits, as IEEE 754's totalOrder does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.types import BOOL, COMPLEX, FLOATS, INTEGERS, ArrayType, bfloat16, is_inexact
from fuser.ops.expansions import sorting as expansion
from fuser.ops.family import allow, sample
from fuser.ops.indexing import take_along
from fuser.ops.movement import iota_p
from fuser.ops.selection import total
from fuser.trace.batch import moved, size_of
from fuser.trace.tangent import Zero, zero_like

_ORDERED = (BOOL, *INTEGERS, *FLOATS, *COMPLEX)


def _sort_type(
    *operands: ArrayType, dimension: int, is_stable: bool = True, num_keys: int = 1
) -> tuple[ArrayType, ...]:
    if any(o.shape != operands[0].shape for o in operands):
        raise TypeRuleError(f"sort needs equal shapes, got {' and '.join(map(str, operands))}")
    if not 1 <= num_keys <= len(operands):
        raise TypeRuleError(f"sort of {len(operands)} operands needs 1 to {len(operands)} keys, got {num_keys}")
    if not 0 <= dimension < operands[0].ndim:
        raise TypeRuleError(f"sort of {operands[0]} has no dimension {dimension}")
    for key in operands[:num_keys]:
        allow("sort", key, _ORDERED)
    return operands


def comparable(x: np.ndarray) -> np.ndarray:
    """Values that NumPy orders as JAX does: halves widened, and the sign of zeros and nans dropped."""
    if x.dtype in (FLOATS[0], bfloat16):
        x = x.astype(np.float32)
    return np.where(np.isnan(x), np.asarray(np.nan, x.dtype), x + 0) if is_inexact(x.dtype) else x


def order(keys: tuple[np.ndarray, ...], dimension: int) -> np.ndarray:
    """The positions that sort by the first key, then the second, …; equal ones keep their order."""
    if len(keys) == 1:
        return np.argsort(comparable(keys[0]), axis=dimension, kind="stable")
    return np.lexsort([comparable(k) for k in reversed(keys)], axis=dimension)


def _sort_eval(*operands: np.ndarray, dimension: int, is_stable: bool = True, num_keys: int = 1) -> list[np.ndarray]:
    if operands[0].size == 0:
        return list(operands)
    positions = order(operands[:num_keys], dimension)
    return [np.take_along_axis(o, positions, dimension) for o in operands]


def _sort_samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    rng = np.random.default_rng(0)
    for dtype in _ORDERED:
        yield (sample(rng, (4, 9), dtype),), {"dimension": 1, "is_stable": True, "num_keys": 1}
    pair = (sample(rng, (9,), np.dtype("int32"), (0, 3)), sample(rng, (9,), FLOATS[2]))
    yield pair, {"dimension": 0, "is_stable": True, "num_keys": 1}
    yield pair, {"dimension": 0, "is_stable": True, "num_keys": 2}


def _sort_jvp(primals: Any, tangents: Any, dimension: int, **params: Any) -> tuple[list[Any], list[Any]]:
    """Tangents go where their elements go: the positions are sorted along."""
    shape = primals[0].shape
    integer = np.dtype("int32" if shape[dimension] < 2**31 else "int64")
    line = iota_p.bind(dtype=integer, shape=shape, dimension=dimension)
    *out, positions = sort_p.bind(*primals, line, dimension=dimension, **params)
    return out, [t if type(t) is Zero else take_along(t, positions, dimension) for t in tangents]


def _sort_batch(operands: Any, dims: Any, dimension: int, **params: Any) -> tuple[list[Any], list[int]]:
    to, size = next(d for d in dims if d is not None), size_of(operands, dims)
    values = [moved(x, d, to, size) for x, d in zip(operands, dims)]
    return sort_p.bind(*values, dimension=dimension + (to <= dimension), **params), [to] * len(values)


sort_p: Primitive = register(
    Primitive(
        "sort",
        Fusion.LIBRARY,
        multiple_results=True,
        type=_sort_type,
        eval=_sort_eval,
        jvp=_sort_jvp,
        batch=_sort_batch,
        samples=_sort_samples,
        expand=expansion.sort,
    )
)


def _top_k_type(x: ArrayType, k: int, axis: int | None = None, **params: Any) -> tuple[ArrayType, ArrayType]:
    allow("top_k", x, (*INTEGERS, *FLOATS))
    position = x.ndim - 1 if axis is None else axis
    if not 0 <= position < x.ndim or not 0 <= k <= x.shape[position]:
        raise TypeRuleError(f"top_k of {x} along axis {position} cannot give {k} elements")
    shape = (*x.shape[:position], k, *x.shape[position + 1 :])
    return ArrayType(shape, x.dtype, x.weak_type), ArrayType(shape, np.dtype("int32"))


def _top_k_eval(x: np.ndarray, k: int, axis: int | None = None, **params: Any) -> tuple[np.ndarray, np.ndarray]:
    position = x.ndim - 1 if axis is None else axis
    backwards = np.flip(total(x), position)
    ascending = np.argsort(backwards, axis=position, kind="stable")  # reversed twice, the first of equals comes first
    places = x.shape[position] - 1 - np.flip(ascending, position)
    places = np.take(places, np.arange(k), axis=position)
    return np.take_along_axis(x, places, position), places.astype(np.int32)


def _top_k_samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    rng = np.random.default_rng(0)
    for dtype in (*INTEGERS, *FLOATS):
        yield (sample(rng, (3, 7), dtype),), {"k": 4, "axis": 1}


def _top_k_jvp(primals: Any, tangents: Any, k: int, axis: int | None = None, **params: Any) -> tuple[Any, Any]:
    values, positions = top_k_p.bind(*primals, k=k, axis=axis, **params)
    place = values.ndim - 1 if axis is None else axis
    return (values, positions), (take_along(tangents[0], positions, place), zero_like(positions))


def _top_k_batch(operands: Any, dims: Any, k: int, axis: int | None = None, **params: Any) -> tuple[Any, list[int]]:
    place = operands[0].ndim - 2 if axis is None else axis
    return top_k_p.bind(*operands, k=k, axis=place + (dims[0] <= place), **params), [dims[0]] * 2


top_k_p: Primitive = register(
    Primitive(
        "top_k",
        Fusion.LIBRARY,
        multiple_results=True,
        type=_top_k_type,
        eval=_top_k_eval,
        jvp=_top_k_jvp,
        batch=_top_k_batch,
        samples=_top_k_samples,
        expand=expansion.top_k,
    )
)
