"""Grouped products: rows in groups, one after another along the first dimension, each group with a matrix of its own.

What masked products of ragged arrays are where a backend has kernels for them (`fuser/legalise/grouped_products.py`). Sizes are not
negative; rows behind all groups have no matrix, and give 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.scalar import convert
from fuser.ir.types import FLOATS, ArrayType, bfloat16, sum_dtype
from fuser.ops.family import sample
from fuser.ops.ffi import sequential
from fuser.trace.batch import size_of

DTYPES = (FLOATS[0], bfloat16, FLOATS[2])
SIZES = np.dtype("int32")


def _check(name: str, x: ArrayType, y: ArrayType, sizes: ArrayType, fits: bool) -> None:
    if x.dtype not in DTYPES or y.dtype != x.dtype or sizes.dtype != SIZES or sizes.ndim != 1 or not fits:
        raise TypeRuleError(f"{name} does not multiply {x} and {y} in groups of {sizes}")


def _bounds(sizes: np.ndarray, rows: int) -> Iterator[slice]:
    end = 0
    for size in sizes.tolist():
        yield slice(min(end, rows), min(end + size, rows))
        end += size


def _grouped(name: str, type: Callable[..., Any], eval: Callable[..., Any], samples: Callable[..., Any]) -> Primitive:
    def batch(operands: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, int]:
        (found,) = sequential(primitive, operands, dims, size_of(operands, dims), params)
        return found, 0

    primitive = Primitive(name, Fusion.LIBRARY, type=type, eval=eval, batch=batch, samples=samples)
    return register(primitive)


def _matmul_type(x: ArrayType, y: ArrayType, sizes: ArrayType, transposed: bool, dtype: np.dtype) -> ArrayType:
    inner, out = (2, 1) if transposed else (1, 2)
    fits = x.ndim == 2 and y.ndim == 3 and y.shape[0] == sizes.shape[0] and x.shape[1] == y.shape[inner]
    _check("grouped_matmul", x, y, sizes, fits)
    return ArrayType((x.shape[0], y.shape[out]), dtype)


def _matmul(x: np.ndarray, y: np.ndarray, sizes: np.ndarray, transposed: bool, dtype: np.dtype) -> np.ndarray:
    wide = sum_dtype(np.dtype(dtype))
    matrices = (y.swapaxes(1, 2) if transposed else y).astype(wide)
    out = np.zeros((x.shape[0], matrices.shape[2]), wide)
    for group, matrix in zip(_bounds(sizes, len(x)), matrices):
        out[group] = x[group].astype(wide) @ matrix
    return convert(out, np.dtype(dtype))


def _matmul_samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    rng = np.random.default_rng(0)
    for dtype in DTYPES:
        for (rows, inner, columns), sizes, transposed in (
            ((7, 5, 3), (2, 0, 4), False),
            ((70, 33, 20), (17, 1, 40, 12), True),
        ):
            matrices = (len(sizes), columns, inner) if transposed else (len(sizes), inner, columns)
            operands = sample(rng, (rows, inner), dtype), sample(rng, matrices, dtype), np.array(sizes, SIZES)
            yield operands, {"transposed": transposed, "dtype": dtype}


# (m, k), (g, k, n) or transposed (g, n, k), and the sizes (g,) → (m, n): each row times the matrix of its group.
grouped_matmul_p = _grouped("grouped_matmul", _matmul_type, _matmul, _matmul_samples)


def _sums_type(x: ArrayType, y: ArrayType, sizes: ArrayType, dtype: np.dtype) -> ArrayType:
    _check("grouped_sums", x, y, sizes, x.ndim == y.ndim == 2 and x.shape[0] == y.shape[0])
    return ArrayType((sizes.shape[0], x.shape[1], y.shape[1]), dtype)


def _sums(x: np.ndarray, y: np.ndarray, sizes: np.ndarray, dtype: np.dtype) -> np.ndarray:
    wide = sum_dtype(np.dtype(dtype))
    parts = [x[group].astype(wide).T @ y[group].astype(wide) for group in _bounds(sizes, len(x))]
    return convert(np.stack(parts), np.dtype(dtype))


def _sums_samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    rng = np.random.default_rng(0)
    for dtype in DTYPES:
        for (rows, left, right), sizes in (((7, 5, 3), (2, 0, 4)), ((70, 33, 20), (17, 1, 40, 12))):
            operands = sample(rng, (rows, left), dtype), sample(rng, (rows, right), dtype), np.array(sizes, SIZES)
            yield operands, {"dtype": dtype}


# (m, k), (m, n) and the sizes (g,) → (g, k, n): of each group the sum of its rows' outer products.
grouped_sums_p = _grouped("grouped_sums", _sums_type, _sums, _sums_samples)
