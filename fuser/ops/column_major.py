"""LAPACK's routines on matrices in columns, as GPUs' libraries have them: what factorisations are made of there.

An operand (…, n, m) is a stack of m × n matrices whose columns are its rows, as LAPACK reads the memory. Results are LAPACK's own:
factors packed into one array, reflections, row exchanges that count from 1, and `info`, 0 where a factorisation succeeded.
What a routine leaves in a triangle that it does not use is anyone's choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.types import ArrayType, is_complex
from fuser.ops.family import real_part, sample
from fuser.ops.matrices import DTYPES, check_matrices
from fuser.trace.batch import moved

INT32 = np.dtype("int32")
Types = tuple[ArrayType, ...]


def _routine(
    name: str,
    type: Callable[..., Types],
    one: Callable[..., Sequence[Any]],
    operands: Callable[[Any], Sequence[tuple[Any, dict[str, Any]]]],
) -> Primitive:
    """A routine on stacks; `one` is it on one matrix, by SciPy's LAPACK; `operands` gives samples of a dtype."""

    def evaluate(*arrays: np.ndarray, **params: Any) -> tuple[np.ndarray, ...]:
        types = type(*(ArrayType(a.shape, a.dtype) for a in arrays), **params)
        lead = arrays[0].shape[:-2]
        found = [np.zeros(t.shape, t.dtype) for t in types]
        for place in np.ndindex(*lead):
            for result, value in zip(found, one(*(a[place] for a in arrays), **params), strict=True):
                result[place] = value
        return tuple(found)

    def batch(values: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, Any]:
        size = next(v.shape[d] for v, d in zip(values, dims) if d is not None)
        out = primitive.bind(*(moved(v, d, 0, size) for v, d in zip(values, dims)), **params)
        return out, [0] * len(out)

    def samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        for dtype in DTYPES:
            for arrays, params in operands(dtype):
                yield tuple(arrays), params

    primitive = Primitive(
        name,
        Fusion.LIBRARY,
        multiple_results=True,
        type=type,
        eval=evaluate,
        batch=batch,
        samples=samples,
    )
    return register(primitive)


def _lapack(name: str, dtype: np.dtype) -> Any:
    from scipy.linalg import lapack

    return lapack.get_lapack_funcs(name, (np.zeros((1, 1), dtype),))


def _info(a: ArrayType) -> ArrayType:
    return ArrayType(a.shape[:-2], INT32)


def _random(dtype: np.dtype, *shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [sample(rng, shape, dtype) for shape in shapes]


def _definite(dtype: np.dtype) -> list[Any]:
    """Hermitian matrices, positive definite."""
    made = []
    for a in _random(dtype, (4, 4), (2, 3, 3)):
        made.append((a @ np.conj(np.swapaxes(a, -1, -2)) + 5 * np.eye(a.shape[-1], dtype=dtype)).astype(dtype))
    return made


# potrf: of a Hermitian matrix, whose lower triangle is read as rows lie, the factor L of L·Lᴴ in that triangle.


def _potrf_type(a: ArrayType) -> Types:
    check_matrices("column_potrf", a, square=True)
    return ArrayType(a.shape, a.dtype), _info(a)


def _potrf(a: np.ndarray) -> Sequence[Any]:
    factor, info = _lapack("potrf", a.dtype)(a, lower=1, clean=0)
    return factor, info


column_potrf_p = _routine("column_potrf", _potrf_type, _potrf, lambda dtype: [((a,), {}) for a in _definite(dtype)])


# getrf: P·M = L·U with L and U in one matrix, and the row exchanged with each, from 1.


def _getrf_type(a: ArrayType) -> Types:
    check_matrices("column_getrf", a)
    return ArrayType(a.shape, a.dtype), ArrayType((*a.shape[:-2], min(a.shape[-2:])), INT32), _info(a)


def _getrf(a: np.ndarray) -> Sequence[Any]:
    factors, pivots, info = _lapack("getrf", a.dtype)(a.T)
    return factors.T, pivots + 1, info


column_getrf_p = _routine(
    "column_getrf", _getrf_type, _getrf, lambda dtype: [((a,), {}) for a in _random(dtype, (4, 4), (2, 3, 3), (2, 5))]
)


# geqrf: R in the upper triangle of the matrix; below it, and in the second result, Householder's reflections that make Q.


def _geqrf_type(a: ArrayType) -> Types:
    check_matrices("column_geqrf", a)
    return ArrayType(a.shape, a.dtype), ArrayType((*a.shape[:-2], min(a.shape[-2:])), a.dtype)


def _geqrf(a: np.ndarray) -> Sequence[Any]:
    packed, taus = _lapack("geqrf", a.dtype)(a.T)[:2]
    return packed.T, taus


column_geqrf_p = _routine(
    "column_geqrf", _geqrf_type, _geqrf, lambda dtype: [((a,), {}) for a in _random(dtype, (4, 4), (2, 3, 5), (5, 2))]
)


# orgqr: the columns of Q, as many as the operand has, at most as many as rows, that reflections make.


def _orgqr_type(a: ArrayType, taus: ArrayType) -> Types:
    check_matrices("column_orgqr", a)
    return (ArrayType(a.shape, a.dtype),)


def _orgqr(a: np.ndarray, taus: np.ndarray) -> Sequence[Any]:
    found = _lapack("ungqr" if is_complex(a.dtype) else "orgqr", a.dtype)(a.T, taus)
    return (found[0].T,)


def _reflections(dtype: np.dtype) -> list[Any]:
    packed = [_geqrf(a) for a in _random(dtype, (3, 3), (2, 5))]
    return [((np.ascontiguousarray(a), taus), {}) for a, taus in packed]


column_orgqr_p = _routine("column_orgqr", _orgqr_type, _orgqr, _reflections)


# syevd: of a Hermitian matrix, of which one triangle is read as rows lie: the eigenvectors' conjugates in rows, and the eigenvalues.


def _syevd_type(a: ArrayType, lower: bool) -> Types:
    check_matrices("column_syevd", a, square=True)
    return ArrayType(a.shape, a.dtype), ArrayType(a.shape[:-1], real_part(a.dtype)), _info(a)


def _syevd(a: np.ndarray, lower: bool) -> Sequence[Any]:
    from scipy.linalg import eigh

    values, vectors = eigh(a, lower=lower, driver="evd", check_finite=False)
    return vectors.T.conj(), values, 0


column_syevd_p = _routine(
    "column_syevd",
    _syevd_type,
    _syevd,
    lambda dtype: [((a,), {"lower": lower}) for a, lower in zip(_definite(dtype), (True, False))],
)


# gesvd: of a matrix with as many rows as columns at least: singular values, and, where wanted, the left vectors in rows (all m of
# them where they are `full`), and Vᴴ in columns.


def _gesvd_type(a: ArrayType, full: bool, vectors: bool) -> Types:
    check_matrices("column_gesvd", a)
    *lead, n, m = a.shape
    values = ArrayType((*lead, n), real_part(a.dtype))
    if not vectors:
        return values, _info(a)
    return values, ArrayType((*lead, m if full else n, m), a.dtype), ArrayType((*lead, n, n), a.dtype), _info(a)


def _gesvd(a: np.ndarray, full: bool, vectors: bool) -> Sequence[Any]:
    from scipy.linalg import svd

    found = svd(a.T, full, vectors, check_finite=False)
    return (found[1], found[0].T, found[2].T, 0) if vectors else (found, 0)


def _tall(dtype: np.dtype) -> list[Any]:
    square, several, tall = _random(dtype, (3, 3), (2, 2, 4), (3, 4))
    return [
        ((square,), {"full": True, "vectors": True}),
        ((several,), {"full": False, "vectors": True}),
        ((tall,), {"full": False, "vectors": False}),
    ]


column_gesvd_p = _routine("column_gesvd", _gesvd_type, _gesvd, _tall)
COLUMN_MAJOR = (column_potrf_p, column_getrf_p, column_geqrf_p, column_orgqr_p, column_syevd_p, column_gesvd_p)
