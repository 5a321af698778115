"""Matrix factorisations: cholesky, qr, eigh and svd of the last two dimensions, by LAPACK through NumPy; library calls.

Cholesky's has a derivative, for which the inverse of a lower triangle is a primitive too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.types import COMPLEX, FLOATS, ArrayType
from fuser.ops.dot import dot_general_p
from fuser.ops.elementwise import conj_p
from fuser.ops.family import allow, real_part, sample
from fuser.ops.movement import broadcast_in_dim_p, transpose_p
from fuser.runtime.array import Array
from fuser.trace.batch import moved

DTYPES = (FLOATS[2], FLOATS[3], *COMPLEX)


def _matrices(name: str, a: ArrayType, square: bool = False) -> None:
    allow(name, a, DTYPES)
    if a.ndim < 2 or (square and a.shape[-1] != a.shape[-2]):
        raise TypeRuleError(f"{name} takes {'square ' if square else ''}matrices, got {a}")


def _factorisation(
    name: str, type: Callable[..., Any], eval: Callable[..., Any], shapes: Sequence[tuple[int, ...]], **params: Any
) -> Primitive:
    """A primitive on stacks of matrices; samples are symmetric and positive definite where they are square."""

    def samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        rng = np.random.default_rng(0)
        for dtype in DTYPES:
            for shape in shapes:
                a = sample(rng, shape, dtype)
                definite = a @ np.conj(np.swapaxes(a, -1, -2)) + 5 * np.eye(shape[-2], dtype=dtype)
                yield (definite.astype(dtype) if shape[-1] == shape[-2] else a,), params

    def batch(operands: Sequence[Any], dims: Sequence[int | None], **given: Any) -> tuple[Any, Any]:
        out = primitive.bind(moved(operands[0], dims[0], 0), **given)
        return out, [0] * len(out) if primitive.multiple_results else 0

    several = name not in ("cholesky", "triangular_inverse")
    primitive = Primitive(
        name, Fusion.LIBRARY, multiple_results=several, type=type, eval=eval, batch=batch, samples=samples
    )
    return register(primitive)


def _cholesky_type(a: ArrayType) -> ArrayType:
    _matrices("cholesky", a, square=True)
    return ArrayType(a.shape, a.dtype)


def _cholesky_eval(a: np.ndarray) -> np.ndarray:
    """Lower triangular factors of (A + Aᴴ) / 2; nan where it is not positive definite."""
    try:
        return np.linalg.cholesky((a + np.conj(np.swapaxes(a, -1, -2))) / 2).astype(a.dtype)
    except np.linalg.LinAlgError:
        if a.ndim == 2:
            return np.where(np.tri(len(a), dtype=bool), np.nan, 0).astype(a.dtype)
        return np.stack([_cholesky_eval(matrix) for matrix in a])


def _product(x: Any, y: Any, transposed: bool = False) -> Any:
    """Matrix products of stacks of one shape, `y` taken conjugated and transposed on request."""
    batch = tuple(range(x.ndim - 2))
    if transposed and y.dtype in COMPLEX:
        y = conj_p.bind(y)
    numbers = (((x.ndim - 1,), (x.ndim - (1 if transposed else 2),)), (batch, batch))
    return dot_general_p.bind(x, y, dimension_numbers=numbers, precision=None, preferred_element_type=None)


def _cholesky_jvp(t: Any, a: Any, out: Any) -> Any:
    """L·Φ(L⁻¹·dA·L⁻ᴴ), Φ being the lower triangle with half the diagonal.

    Murray, "Differentiation of the Cholesky decomposition" (2016), section 3.1.
    """
    inverse = triangular_inverse_p.bind(out)
    swapped = transpose_p.bind(t, permutation=(*range(t.ndim - 2), t.ndim - 1, t.ndim - 2))
    t = (t + (conj_p.bind(swapped) if t.dtype in COMPLEX else swapped)) * 0.5
    middle = _product(_product(inverse, t), inverse, transposed=True)
    n = out.shape[-1]
    half = Array((np.tri(n) - np.eye(n) / 2).astype(out.dtype))
    spread = broadcast_in_dim_p.bind(half, shape=out.shape, broadcast_dimensions=(out.ndim - 2, out.ndim - 1))
    return _product(out, middle * spread)


cholesky_p = _factorisation("cholesky", _cholesky_type, _cholesky_eval, [(4, 4), (3, 2, 2)])
cholesky_p.jvp = (_cholesky_jvp,)


def _inverse_eval(a: np.ndarray) -> np.ndarray:
    """Of the lower triangle; nan where an element of the diagonal is zero."""
    lower = np.tril(a)
    zero = (np.diagonal(lower, axis1=-2, axis2=-1) == 0).any(-1)[..., None, None]
    inverse = np.linalg.inv(np.where(zero, np.eye(a.shape[-1], dtype=a.dtype), lower))
    return np.where(zero, np.nan, np.tril(inverse)).astype(a.dtype)


def _lower_type(a: ArrayType) -> ArrayType:
    _matrices("triangular_inverse", a, square=True)
    return ArrayType(a.shape, a.dtype)


# The inverse of the lower triangle of a matrix.
triangular_inverse_p = _factorisation("triangular_inverse", _lower_type, _inverse_eval, [(4, 4), (3, 2, 2)])


def _inverse_jvp(t: Any, a: Any, out: Any) -> Any:
    lower = Array(np.tri(a.shape[-1], dtype=a.dtype))
    spread = broadcast_in_dim_p.bind(lower, shape=a.shape, broadcast_dimensions=(a.ndim - 2, a.ndim - 1))
    return -_product(_product(out, t * spread), out)


triangular_inverse_p.jvp = (_inverse_jvp,)


def _qr_type(a: ArrayType, full_matrices: bool = False) -> tuple[ArrayType, ArrayType]:
    _matrices("qr", a)
    rows, columns = a.shape[-2:]
    inner = rows if full_matrices else min(rows, columns)
    return ArrayType((*a.shape[:-1], inner), a.dtype), ArrayType((*a.shape[:-2], inner, columns), a.dtype)


qr_p = _factorisation(
    "qr",
    _qr_type,
    lambda a, full_matrices=False: tuple(np.linalg.qr(a, "complete" if full_matrices else "reduced")),
    [(4, 3), (2, 3, 4)],
    full_matrices=False,
)


def _eigh_type(a: ArrayType) -> tuple[ArrayType, ArrayType]:
    _matrices("eigh", a, square=True)
    return ArrayType(a.shape[:-1], real_part(a.dtype)), ArrayType(a.shape, a.dtype)


# Eigenvalues in ascending order, and their vectors in columns.
eigh_p = _factorisation("eigh", _eigh_type, lambda a: tuple(np.linalg.eigh(a)), [(4, 4), (3, 2, 2)])


def _svd_type(a: ArrayType, full_matrices: bool = True) -> tuple[ArrayType, ArrayType, ArrayType]:
    _matrices("svd", a)
    (rows, columns), least = a.shape[-2:], min(a.shape[-2:])
    left, right = (rows, columns) if full_matrices else (least, least)
    lead = a.shape[:-2]
    return (
        ArrayType((*lead, rows, left), a.dtype),
        ArrayType((*lead, least), real_part(a.dtype)),
        ArrayType((*lead, right, columns), a.dtype),
    )


svd_p = _factorisation(
    "svd",
    _svd_type,
    lambda a, full_matrices=True: tuple(np.linalg.svd(a, full_matrices)),
    [(4, 3), (2, 3, 3)],
    full_matrices=True,
)
